// Starts the program for one case, waits for it, and kills it at the timeout.
#include "bench/run/isolation.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/run/child_process.h"
#include "bench/run/model_file.h"
#include "bench/run/program_name.h"
#include "models/files/data_set.h"
#include "reports/record/memory_file.h"
#include "reports/text/table.h"

namespace halfmark::bench {

IsolatedRun run_isolated(const std::string& program, const std::string& id, uint64_t seed, double timeout,
                         const std::vector<std::string>& more, const std::vector<std::string>& variables) {
  const auto begin = std::chrono::steady_clock::now();
  const MemoryFile report("report"), complaints("complaints");
  std::vector<std::string> command = {program,  // --no-probes: the parent has already probed the environment
                                      "run",
                                      "--case",
                                      id,
                                      "--seed",
                                      std::to_string(seed),
                                      "--no-probes",
                                      "--output-descriptor",
                                      std::to_string(report.descriptor())};
  command.insert(command.end(), model_file_options().begin(), model_file_options().end());
  command.insert(command.end(), more.begin(), more.end());
  const pid_t child = start_child(command, {.error = complaints.descriptor(), .kept = report.descriptor()}, variables);
  const ChildEnd ending = wait_for_child(child, timeout);
  const int status = ending.status;
  const std::string memory =
      ending.peak > 0 ? ", peak memory " + human(1024.0 * static_cast<double>(ending.peak), "B") : "";
  IsolatedRun run;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (ending.timed_out) {
    run.reason = fmt::format("killed after {} s (--timeout){}", timeout, memory);
  } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    // halfmark did not send it; the kernel kills the largest process when memory runs out.
    run.reason = fmt::format("killed with signal 9, often because memory ran out{}", memory);
  } else if (WIFSIGNALED(status)) {
    run.reason = fmt::format("crashed with signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)), memory);
  } else if (WEXITSTATUS(status) == kBrokenData) {
    std::string said = complaints.text();
    said = said.substr(0, said.find('\n'));
    const std::string name = program_name() + ": ";
    throw models::DataError(said.starts_with(name) ? said.substr(name.size()) : said);
  } else if (WEXITSTATUS(status) > 1) {
    const std::string said = complaints.text();
    run.reason = fmt::format("exit code {}{}", WEXITSTATUS(status),
                             said.empty() ? ", without a message" : ": " + said.substr(0, said.find('\n')));
  } else if (const std::string text = report.text(); text.empty()) {
    run.reason = fmt::format("ended with exit code {} before it wrote a report", WEXITSTATUS(status));
  } else {
    try {
      Report written = Report::parse(text, "the report of " + id);
      if (written.records.size() == 1) return run.record = std::move(written.records.front()), run;
      run.reason = fmt::format("wrote {} records instead of one", written.records.size());
    } catch (const ReportError& error) {
      run.reason = error.what();
    }
  }
  return run;
}

}  // namespace halfmark::bench
