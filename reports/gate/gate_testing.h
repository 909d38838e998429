// Synthetic reports for the tests of the gate, with one or many cases; a test changes the parts that it is about.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "reports/gate/gate.h"

namespace halfmark::reports::gate_test {

constexpr const char* kCase = "linear/b64_i1024_o1024/cpu/fp16/error";

inline Measurement number(const std::string& metric, const std::string& at, double value, Kind kind = Kind::bounded,
                          Better better = Better::lower) {
  Measurement one;
  one.metric = metric, one.at = at, one.value = value, one.kind = kind, one.better = better;
  if (metric.starts_with("memory.")) one.unit = "B";
  return one;
}

inline Record made_record(const std::string& id) {
  Record record;
  record.id = id;
  record.subject = "linear/b64_i1024_o1024", record.device = "cpu", record.policy = "fp16", record.harness = "error";
  record.repro = "halfmark run --case " + id;
  record.fingerprint = "5d0c";
  record.determinism = {2, 0};
  return record;
}

// An error record of 65536 outputs with a bound, and a memory record.
inline Report made_report() {
  Report report;
  report.environment = {{"machine", "bench-01"},
                        {"cpu", {{"model", "Example 9000"}}},
                        {"libraries", {{"onednn", "2.6.3"}}},
                        {"devices", {{"cpu", {{"threads", "2"}}}, {"sim:hopper", {{"stands_for", "H100"}}}}}};
  Record error = made_record(kCase);
  Measurement arithmetic = number("error.arithmetic.nmse", "output", 1e-8);
  arithmetic.bound = 1e-6;
  error.measurements = {number("error.nmse", "output", 2e-7),
                        arithmetic,
                        number("error.nan", "output", 0),
                        number("error.infinite", "output", 0),
                        number("error.cosine", "output", 0.9999, Kind::bounded, Better::higher),
                        number("error.bias", "output", -0.001, Kind::bounded, Better::neither),
                        number("error.max_relative", "output", 0.3),
                        number("reference.loss", "", 2, Kind::bounded, Better::neither)};
  for (const char* metric : {"error.ulp_histogram", "error.arithmetic.ulp_histogram"})
    error.series.push_back({.metric = metric, .at = "output", .x = {0, 1}, .y = {60000, 5536}});
  Record memory = made_record("linear/b64_i1024_o1024/cpu/fp16/memory");
  memory.measurements = {number("memory.peak", "train", 200 << 20, Kind::exact),
                         number("memory.peak.casts", "train", 8 << 20, Kind::exact),
                         number("memory.slope", "", 0, Kind::exact)};
  report.records = {error, memory};
  return report;
}

inline Measurement& at(Record& record, const std::string& metric) {
  return *std::find_if(record.measurements.begin(), record.measurements.end(),
                       [&](const Measurement& one) { return one.metric == metric; });
}

inline Judgement gate(const Report& base, const Report& found, const GateOptions& options = {},
                      const std::string& rules = "default") {
  return judge({"base.json", base}, {"new.json", found}, load_gate_rules(rules), options);
}

// The lines with this outcome.
inline std::vector<JudgedLine> lines_with(const Judgement& judgement, Outcome outcome) {
  std::vector<JudgedLine> found;
  for (const JudgedLine& line : judgement.lines)
    if (line.outcome == outcome) found.push_back(line);
  return found;
}

// All lines and remarks.
inline std::string all_words(const Judgement& judgement) {
  std::string text;
  for (const JudgedLine& line : judgement.lines) text += line.id + ": " + line.words + "\n";
  for (const std::string& remark : judgement.remarks) text += remark + "\n";
  return text;
}

// The text of the first line with this question and outcome; "" if there is none.
inline std::string words_of(const Judgement& judgement, Question question, Outcome outcome) {
  for (const JudgedLine& line : judgement.lines)
    if (line.question == question && line.outcome == outcome) return line.words;
  return "";
}

// A record with the medians of `processes` processes: `ratio` milliseconds with 1 % of noise.
inline Record timed_record(const std::string& id, double ratio, int processes, uint64_t seed, double noise = 0.01) {
  Record record = made_record(id);
  record.harness = "throughput";
  std::mt19937_64 random(seed);
  Measurement times = number(std::string(kProcessTime), "hot", 0, Kind::sampled);
  times.unit = "s";
  for (int i = 0; i < processes; ++i) {
    // A sum of twelve uniform numbers is nearly normal and equal with every standard library.
    double z = -6;
    for (int k = 0; k < 12; ++k) z += static_cast<double>(random() >> 11) * 0x1p-53;
    times.samples.push_back(1e-3 * ratio * std::exp(noise * z));
  }
  std::vector<double> sorted = times.samples;
  std::sort(sorted.begin(), sorted.end());
  times.value = sorted.empty() ? 1e-3 : sorted[sorted.size() / 2];
  record.measurements = {times};
  record.determinism = {processes, 0};
  return record;
}

}  // namespace halfmark::reports::gate_test
