// What a rules file of the user's own leaves out or widens, beside the default rules: said in the remarks, because a
// check that is switched off passes everything.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_rules.h"
#include "reports/record/report.h"

namespace halfmark::reports {

class RulesReview {
 public:
  // Built-in rules are not reviewed. The rules must outlive the review.
  explicit RulesReview(const GateRules& rules);

  // Two measured records of one case.
  void compare(const Record& base, const Record& found, EnvironmentDifference& environment);

  // "the rules do not judge error.cosine (3 numbers), which the default rules judge"; empty for built-in rules.
  std::vector<std::string> remarks() const;

 private:
  void compare(const Record& base, const Record& found, const Measurement& before, EnvironmentDifference& environment);

  const GateRules& rules_;
  std::optional<GateRules> default_;                                        // none: built-in rules
  std::map<std::string, size_t> off_, wider_, may_be_missing_, undecided_;  // numbers by metric
  std::set<std::string> bits_off_, excused_bits_, excused_times_;
};

}  // namespace halfmark::reports
