// What a gate allows: rules for numbers, bits and times, read from JSON (reports/gate/rules/*.json,
// schema/gate-rules-1.schema.json). For each number the first rule whose patterns match it counts; one that no rule
// speaks of is not judged, which the gate remarks on.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

// information: never judged. bound: by the measurement's own bound alone. slack: at most so much worse than the base.
// ratio: a root mean square error, at most so many times that of the base. The last two keep the measurement's own
// bound as well.
enum class Judging : uint8_t { information, bound, slack, ratio };

struct NumberRule {
  std::string metric = "*", cases = "*", at = "*";  // globs
  std::optional<Kind> kind;                         // of the measurement, any when absent
  Judging judge = Judging::information;
  std::string why;                                                   // for people
  double untrusted_above = std::numeric_limits<double>::infinity();  // a passing value above it proves nothing

  // slack: what is allowed on the worse side of the base is the greater of the two.
  double absolute = 0, share = 0;
  bool magnitude = false;        // of |value|: nearer to zero is better
  bool changed = false;          // any other value inside the slack is worth an acknowledgement
  bool together = false;         // the sum over all places is judged
  std::optional<double> absent;  // what a place without the number counts as; else a number that is gone is lost

  // ratio: the greater of least_ratio and sqrt(F^-1(1 - chance; n, n)), n the independent values behind the error.
  bool squared = false;     // the number is a mean square
  double elements = 1;      // n, or
  std::string elements_in;  // the histogram at the same place whose counts sum to n; n is 1 where there is none
  double most_elements = std::numeric_limits<double>::infinity();  // errors of a deep network are not independent
  double least_ratio = 1.05;
  double least_ratio_unproved = 1.25;  // unless the case is proved to be deterministic in both reports
  double chance = 1e-6;
  double tiny = 0;                                             // root mean square error that is added to the limit
  double bits_warn = std::numeric_limits<double>::infinity();  // log2 of the ratio: a remark from here on
  double bits_fail = std::numeric_limits<double>::infinity();  // and a breach from here on
};

// Which facts of the environment must be equal: globs over its leaves ("cpu.model") and "run.seed", "!" takes away, the
// last that matches counts. Facts of devices that a case does not use do not count for it.
using Keys = std::vector<std::string>;
bool is_key(const Keys& keys, std::string_view leaf);

// The number whose samples are medians of one process each. Samples of one process are no replicates: they share its
// clocks and its place in memory, so no rule can have another metric judged.
inline constexpr std::string_view kProcessTime = "time.process";

struct TimeRule {
  std::string at = "hot";
  int processes = 24;  // on each side at least
  double margin = 0.05, floor = 0.10, alpha = 0.01;
};

struct GateRules {
  static constexpr int kVersion = 1;  // "gate_rules"
  Keys bits_keys, time_keys;
  std::vector<std::string> bits_skip;  // globs of cases whose fingerprints are not compared
  std::vector<NumberRule> numbers;
  TimeRule time;
  nlohmann::ordered_json source;  // as read

  const NumberRule* rule_for(const Record& record, const Measurement& measurement) const;
};

// Throws ReportError in one line: file, field, what is wrong.
GateRules gate_rules_from(const nlohmann::ordered_json& json, std::string_view where);

// "default" and "strict" are built in; anything else is a file. Throws ReportError.
GateRules load_gate_rules(const std::string& name);

// The text of a rules file that is built in, nothing for another name.
std::optional<std::string_view> shipped_gate_rules(std::string_view name);

}  // namespace halfmark::reports
