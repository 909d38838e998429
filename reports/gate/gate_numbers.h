// Judges one number against the base under its rule: worse than the rule allows, better, or neither.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "reports/gate/gate_rules.h"
#include "reports/gate/judgement.h"

namespace halfmark::reports {

// The verdict on one number: breach, lost, untrusted, changed, acknowledged, improved, information or pass.
struct NumberVerdict {
  Outcome outcome = Outcome::pass;
  double base = NAN, found = NAN, limit = NAN;
  std::string words{};
  std::string parts{};     // the parts that grew, for a number that is a sum
  std::string remark{};    // a remark that does not change the verdict
  double times_limit = 0;  // distance beyond the limit, for finding the worst of several: larger is worse
  bool own_bound = false;  // the measurement's own bound is broken: this cannot be acknowledged
  double wide_ratio = 0;   // the error may grow by this factor, because it consists of few values; 0: by less than 10
};

// The two records that contain the number.
struct RecordPair {
  const Record& base;
  const Record& found;
  bool proved = false;  // both records are proved to be deterministic
};

NumberVerdict judge_number(const NumberRule& rule, const Measurement& base, const Measurement& found,
                           const RecordPair& records);

// For a number that the base does not have, only its own bound can be judged. nullopt: it holds, or there is none.
std::optional<NumberVerdict> judge_own_bound(const Measurement& found);

// For a case whose bits differ between processes: has the spread of its
// values grown? nullopt: no, or a side has fewer than five processes.
std::optional<NumberVerdict> judge_spread(const Measurement& base, const Measurement& found);

// "error.nmse at output"
std::string place_of(const Measurement& one);

// The number n of independent values of the rule for this measurement.
double elements_of(const NumberRule& rule, const Measurement& measurement, const Record& record);

// Whether the record has the histogram that the rule counts these values in. false: the rule names none.
bool has_histogram(const NumberRule& rule, const Measurement& measurement, const Record& record);

}  // namespace halfmark::reports
