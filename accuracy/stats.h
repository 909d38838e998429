// Statistics of the error of a tensor relative to its fp64 reference.
#pragma once

#include <span>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/number/format.h"

namespace halfmark::accuracy {

// Non-finite values are not hidden: an infinite one makes nmse infinite, a NaN makes it NaN.
struct ErrorStats {
  double nmse = 0;          // sum (value - ref)^2 / sum ref^2; 0 / 0 is 0
  double max_relative = 0;  // max |value - ref| / |ref| where |ref| is at least the least subnormal of the format
  double cosine = 1;        // of the angle between value and ref; 1 when both are zero
  double bias = 0;          // mean (value - ref) / rms ref
  double zeroed = 0;        // share: value is 0 and |ref| > 2^-52 max |ref| (a smaller ref is rounding noise itself)
  double subnormal = 0;     // share: 0 < |value| < least normal number of the format
  double infinite = 0, nan = 0, nonfinite = 0;  // shares of the values
  std::vector<double> ulp_edges;  // upper edges of the bins: 0, 0.5, 1, 2, 4, ..., infinity for non-finite errors
  std::vector<double> ulp_counts;
};

// Every value and reference is multiplied by `scale` first: gradients are judged as stored, loss scale included. An ulp
// is that of `format` at the reference.
ErrorStats error_stats(std::span<const double> values, std::span<const double> reference, const Format& format,
                       double scale = 1);

double ulp_at(const Format& format,
              double x);  // distance of neighbours at x; of subnormals at 0, of the top binade beyond

}  // namespace halfmark::accuracy
