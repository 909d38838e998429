// Fuzzes gate rules and acknowledgements: expects a ReportError, or a judgement of two reports that differ in bits,
// bytes and errors.
#include <cstdint>
#include <string>
#include <string_view>

#include "reports/gate/gate.h"
#include "reports/record/json_parser.h"

namespace halfmark::reports {
namespace {

// The record that seeds/gate_fuzz refers to, before and after.
NamedReport report_with(const std::string& fingerprint, double error, double bytes, double time) {
  Record record;
  record.id = "mlp/b16/cpu/fp16/error", record.subject = "mlp/b16", record.device = "cpu", record.policy = "fp16";
  record.harness = "error", record.fingerprint = fingerprint, record.determinism.processes = 2;
  record.measurements = {
      {.metric = "error.nmse", .at = "output", .value = error, .better = Better::lower, .kind = Kind::bounded},
      {.metric = "error.bias", .at = "output", .value = -error},
      {.metric = "memory.peak", .at = "train", .value = bytes, .better = Better::lower, .kind = Kind::exact},
      {.metric = "time.process", .at = "hot/step", .value = time, .better = Better::lower, .kind = Kind::sampled},
  };
  for (int i = 0; i < 24; ++i) record.measurements.back().samples.push_back(time * (1 + 0.001 * i));
  NamedReport named{fingerprint, {}};
  named.report.environment["cpu"]["name"] = fingerprint;
  named.report.records = {record};
  return named;
}

void judge_with(const GateRules& rules, const Acknowledgements& acknowledgements) {
  static const NamedReport before = report_with("5d0c", 1e-7, 12000, 1), after = report_with("77aa", 2e-7, 15000, 2);
  judge(before, after, rules, {.time = true, .acknowledgements = acknowledgements, .today = "2026-03-01"});
}

}  // namespace
}  // namespace halfmark::reports

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfmark::reports;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    judge_with(gate_rules_from(parse_json(text, "fuzz", "file of gate rules"), "fuzz"), {});
  } catch (const ReportError&) {
  }
  try {
    static const GateRules rules = load_gate_rules("default");
    judge_with(rules, Acknowledgements::from_json(parse_json(text, "fuzz", "file of acknowledgements"), "fuzz"));
  } catch (const ReportError&) {
  }
  return 0;
}
