// One number beside the base's under its rule: is it worse than the rule allows, better, or neither?
#pragma once

#include <optional>
#include <string>

#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"

namespace halfmark::reports {

// breach, untrusted, changed, improved, information or pass; and why, in words.
struct NumberFinding {
  Outcome outcome = Outcome::pass;
  double base = NAN, found = NAN, limit = NAN;
  std::string words{};
  std::string parts{};     // what grew in a number that sums up others
  std::string remark{};    // not a finding, but worth a line
  double times_limit = 0;  // how far beyond the limit, to tell the worst of many: larger is worse
  bool own_bound = false;  // the measurement's own bound is broken: nobody can acknowledge that
};

// What a number stands in.
struct NumberPlace {
  const Record& base;
  const Record& found;
  bool proved = false;  // both records are proved to be deterministic
};

NumberFinding judge_number(const NumberRule& rule, const Measurement& base, const Measurement& found,
                           const NumberPlace& place);

// A number that the base lacks: only its own bound can be judged. Nothing: it holds, or there is none.
std::optional<NumberFinding> judge_own_bound(const Measurement& found);

// Of a case whose bits differ from process to process: do its values lie further apart than they did? Nothing: no, or
// there are fewer than five processes on a side.
std::optional<NumberFinding> judge_spread(const Measurement& base, const Measurement& found);

// n of the rule at this place.
double elements_of(const NumberRule& rule, const Measurement& measurement, const Record& record);

}  // namespace halfmark::reports
