// A program with a harness that ends the process in the ways that code of an extension may, for tests. It is not
// installed.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "bench/halfmark.h"

namespace {

using namespace halfmark::bench;

const std::vector<MetricRow>& ending_table() {
  static const std::vector<MetricRow> rows = {{"ending.done", "1", Better::neither, Kind::information, "one"}};
  return rows;
}

Findings end(const TrialSpec& spec) {
  const std::string how(spec.axes.contains("how") ? spec.axes.at("how") : "return");
  if (how == "exit0") std::exit(0);
  if (how == "exit1") std::exit(1);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "leave") ::_exit(0);
  if (how == "abort") std::abort();
  FindingsWriter out(ending_table());
  out.number("ending.done", "", 1);
  return out.take();
}

}  // namespace

int main(int argc, char** argv) {
  return run_command_line(
      argc, argv,
      {.name = "planted",
       .version = "1",
       .subjects = {},
       .harnesses = {{.name = "ending",
                      .about = "ends the process",
                      .axes = {{"how", {"return", "exit0", "exit1", "quick_exit", "leave", "abort"}}},
                      .metrics = ending_table(),
                      .refuses = {},
                      .measure = end}}});
}
