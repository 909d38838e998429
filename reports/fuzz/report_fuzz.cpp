// Fuzzes reports: expects a ReportError, or a report that is written, read again as the same, shown and judged.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "reports/gate/gate.h"
#include "reports/outputs/csv.h"
#include "reports/outputs/gbench.h"
#include "reports/outputs/junit.h"
#include "reports/outputs/markdown.h"
#include "reports/outputs/text.h"
#include "reports/record/merge.h"
#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

std::string text_of(const Report& report) {
  return to_json(report).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void use(const Report& report) {
  const std::string written = text_of(report);
  if (text_of(Report::parse(written, "again")) != written) std::abort();
  const NamedReport named{"fuzz", report};
  show(named, {.all = true});
  compare({named, named});
  static const GateRules rules = load_gate_rules("default");
  const Judgement judgement = judge(named, named, rules, {.time = true});
  text_of(judgement, TextOptions{.all = true}), markdown_of(judgement), junit_of(judgement), csv_of(judgement);
  gbench_of(report);
  merge({named}, true);
}

}  // namespace
}  // namespace halfmark::reports

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    halfmark::reports::use(halfmark::reports::Report::parse({reinterpret_cast<const char*>(data), size}, "fuzz"));
  } catch (const halfmark::reports::ReportError&) {
  }
  return 0;
}
