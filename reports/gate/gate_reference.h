// Judges the numbers of the fp64 reference (metrics "reference.*", written by accuracy/reference.h). Errors are relative
// to the fp64 reference, which runs the same layers: a changed layer changes both and no error grows. So the numbers of
// the reference itself must be those of the base, on every machine, up to the rounding of fp64. No rule covers them and
// no rules file can switch this off. An intended change is acknowledged (acknowledgement.h, metric "reference.all").
#pragma once

#include <string_view>

#include "reports/gate/acknowledgement.h"
#include "reports/gate/judgement.h"
#include "reports/record/report.h"

namespace halfmark::reports {

bool is_reference(const Measurement& measurement);

// How far two values of a reference number may be apart.
// Derivation: an element is a sum of at most 2^20 products (the largest sum of the suites, a weight gradient over batch
// and image, has 2^15). Its relative error in fp64, in any order of summation, is at most 2^20 times the unit roundoff
// 2^-53 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). A model chains layers and a training
// chains steps; 2^3 is for that. A changed constant or formula moves a number by far more: 1e-5 is 10 000 times more.
inline constexpr double kReferenceShare = 0x1p-53 * 0x1p20 * 0x1p3;
// In addition, of the largest norm of the same kind (all gradients, or everything): a gradient that is zero in exact
// arithmetic, as of a bias before a batch norm, is rounding noise of sums of at most 2^13 larger values.
inline constexpr double kReferenceNoise = 0x1p-53 * 0x1p13;

// Adds one line about the reference of this case, unless neither report has such numbers. `not_comparable`: why the
// numbers of the two reports cannot be equal (another seed); empty: they can.
void judge_reference(const Record& base, const Record& found, std::string_view not_comparable,
                     Acknowledgements& acknowledgements, std::string_view today, Judgement& judgement);

}  // namespace halfmark::reports
