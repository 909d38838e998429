// The rules of the gate for numbers, bits and times, read from JSON (reports/gate/rules/*.json,
// schema/gate-rules-1.schema.json). For each number, the first rule whose patterns match applies. A number without a
// rule is not judged, and the gate adds a remark.
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
#include "reports/statistics/noise_facts.h"

namespace halfmark::reports {

// information: never judged. bound: by the measurement's own bound only. slack: worse
// than the base by at most a given amount. ratio: a root mean square error of at most
// a given multiple of the base's. The last two also apply the measurement's own bound.
enum class Judging : uint8_t { information, bound, slack, ratio };

// The facts of the environment that must be equal: globs over their names ("cpu.model") and "run.seed". "!" excludes;
// the last matching glob decides. Facts of devices that a case does not use are ignored for it.
using Keys = std::vector<std::string>;
bool is_key(const Keys& keys, std::string_view fact);

struct NumberRule {
  std::string metric = "*", cases = "*", at = "*";  // globs
  std::optional<Kind> kind;                         // kind of the measurement; nullopt: any
  Judging judge = Judging::information;
  std::string why;                                                    // explanation for readers
  double untrusted_above = std::numeric_limits<double>::infinity();   // a value that passes or improves and is above
  double untrusted_below = -std::numeric_limits<double>::infinity();  // or below it proves nothing

  // Where one of these facts differs, a number beyond its limit is inconclusive: the facts alone may explain it.
  Keys undecided_across{};

  // slack: the allowed amount is the greatest of the three.
  double absolute = 0, share = 0;
  double standard_errors = 0;  // so many standard errors of the difference of the two values; neither may lack its own
  double absolute_share =
      std::numeric_limits<double>::infinity();  // `absolute` counts as at most this share of the base
  bool magnitude = false;                       // judge |value|: nearer to zero is better
  bool changed = false;                         // a different value within the slack needs an acknowledgement
  bool together = false;                        // judge the sum over all places
  std::optional<double> absent;  // value of a place without the number; if not set, a missing number is lost

  // ratio: the greater of least_ratio and sqrt(F^-1(1 - chance; n, n)), n = number of independent values of the error.
  bool squared = false;     // the number is a mean square
  double elements = 1;      // n, or
  std::string elements_in;  // the histogram at the same place whose counts sum to n; n = 1 if there is none
  double most_elements = std::numeric_limits<double>::infinity();  // errors of a deep network are not independent
  double least_ratio = 1.05;
  double least_ratio_unproved = 1.25;  // if the case is not proved to be deterministic in both reports
  double chance = 1e-6;
  double tiny = 0;                                             // root mean square error added to the limit
  double bits_warn = std::numeric_limits<double>::infinity();  // log2 of the ratio from which on there is a remark
  double bits_fail = std::numeric_limits<double>::infinity();  // and from which on there is a breach
};

// The metric whose samples are medians of one process each. Samples of one process are not replicates, because they
// share clock speeds and memory placement. Therefore no rule can select a different metric.
inline constexpr std::string_view kProcessTime = "time.process";

struct TimeRule {
  std::string at = "hot";
  int processes = 24;  // minimum on each side
  double margin = 0.05, minimum_effect = 0.10, alpha = 0.01;
  double day_spread = kDaySpread;  // standard deviation of ln(time) of a case between days; 0: no shift between reports
};

struct GateRules {
  static constexpr int kVersion = 1;  // "gate_rules"
  Keys bits_keys, time_keys;
  Keys processor_keys{};               // for undecided_across
  std::vector<std::string> bits_skip;  // globs for cases whose fingerprints are not compared
  std::vector<NumberRule> numbers;
  TimeRule time;
  nlohmann::ordered_json source;  // as read

  const NumberRule* rule_for(const Record& record, const Measurement& measurement) const;
};

// Throws ReportError with one line: file, field, problem.
GateRules gate_rules_from(const nlohmann::ordered_json& json, std::string_view where);

// "default" and "strict" are built in; any other name is a file. Throws ReportError.
GateRules load_gate_rules(const std::string& name);

// The text of a built-in rules file; nullopt for any other name.
std::optional<std::string_view> shipped_gate_rules(std::string_view name);

}  // namespace halfmark::reports
