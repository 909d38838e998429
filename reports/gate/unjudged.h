// What differs between two reports without a rule that judges it: missing curves, numbers for information, lost proofs.
// Each kind becomes one remark with its count and the cases, so that nothing passes without a word.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reports/gate/gate_rules.h"
#include "reports/record/report.h"

namespace halfmark::reports {

enum class Unjudged : uint8_t {
  not_measured,       // failed or skipped in both reports
  lost_proof,         // proved to be deterministic in the base only
  fewer_processes,    // measured in fewer processes than the base
  unproved_bits,      // different bits without the proof that they repeat
  no_fingerprint,     // a fingerprint on one side only, where bits are not compared
  lost_curve,         // a series of the base that is missing
  edited,             // other curves beside the same fingerprint
  other_curve,        // a series with another number of points, other numbers that are not finite, or twice the size
  other_kernels,      // other kernels ran, or another number of times, or their list is missing
  lost_expectation,   // the result of a negative control is missing
  lost_numerics,      // how exact the arithmetic is: other words
  lost_information,   // a number for information that is missing
  added_number,       // a number that the base does not have
  other_definition,   // a number for information with another unit, direction or kind
  moved_information,  // a number that no rule judges changed; of kind information or sampled: by a factor of 2 or more
  fewer_samples,      // fewer samples than in the base, or no interval where the base has one
  looser_bound,       // its own bound grew
  moved_interval,     // two intervals of a ratio that do not overlap, or one that is twice as wide as before
  no_control,         // the interval of the control does not hold 1, or is infinite, in a record that is not suspect
  no_reference,       // neither record has numbers of the fp64 reference
  new_nan,            // NaN in a case that has no base
  worse_within,       // worse or of another sign, within the limit of its rule
};

class UnjudgedDifferences {
 public:
  // `weight`: items with a larger one are named first.
  void note(Unjudged kind, const std::string& item, double weight = 0);

  // The differences of two measured records of one case that no rule judges.
  void compare(const Record& base, const Record& found, const GateRules& rules);

  // One for each kind: "curves of the base that are missing: 3 (training.loss of A, ...)".
  std::vector<std::string> remarks() const;

 private:
  std::map<Unjudged, std::vector<std::pair<double, std::string>>> items_;
};

}  // namespace halfmark::reports
