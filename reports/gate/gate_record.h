// The numbers of one case beside those of the base: a line for each metric that broke its rule, changed or got better,
// and one for each question without any.
#pragma once

#include <set>
#include <string>

#include "reports/gate/gate_options.h"
#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"
#include "reports/record/report.h"

namespace halfmark::reports {

// What judging one case needs to know of the whole gate.
struct GateContext {
  const GateRules& rules;
  const GateOptions& options;
  Acknowledgements acknowledgements;
  std::set<std::string> unruled{};  // metrics that should be judged and that no rule speaks of
};

// Under other keys (another library, another machine) a number that is other, but within its rule, is none to look at.
void judge_record(const Record& base, const Record& found, bool same_keys, GateContext& context, Judgement& judgement);

}  // namespace halfmark::reports
