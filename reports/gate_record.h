// The numbers of one case beside those of the base: a line for each metric that broke its rule, changed or got better,
// and one for each question without any.
#pragma once

#include <set>
#include <string>

#include "reports/gate.h"

namespace halfmark {

// `unruled` collects metrics that should be judged and no rule speaks of.
void judge_record(const Record& base, const Record& found, const GateRules& rules, const GateOptions& options,
                  Acknowledgements& acknowledgements, std::set<std::string>& unruled, Judgement& judgement);

}  // namespace halfmark
