// Judges the numbers of one case against the base: a line for each metric that broke its rule, changed or improved, and
// one line for each question without such a metric.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "reports/gate/environment_difference.h"
#include "reports/gate/gate_options.h"
#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"
#include "reports/gate/unjudged.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// The state of the gate that is shared by all cases.
struct GateContext {
  const GateRules& rules;
  const GateOptions& options;
  Acknowledgements acknowledgements;
  std::set<std::string> unruled{};  // metrics that should be judged but match no rule
  size_t wide_limits = 0;           // numbers of few values, whose error may grow by 10 times or more
  double widest = 0;                // the largest of these limits
  UnjudgedDifferences unjudged{};
};

// Judges the case. With another library or machine, a number that differs within its rule is not reported, and some
// numbers beyond it are inconclusive (NumberRule::undecided_across).
void judge_record(const Record& base, const Record& found, EnvironmentDifference& environment, GateContext& context,
                  Judgement& judgement);

}  // namespace halfmark::reports
