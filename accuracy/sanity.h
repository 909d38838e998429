// The scaler's part of the sanity harness, which tests run on scalers of their own.
#pragma once

#include <functional>

namespace halfmark::accuracy {

struct ScalerStep {
  bool updated = false;  // whether the parameters were changed
  double scale = 0;      // after the step
};

inline constexpr double kScalerStart = 4096;  // neither underflow nor overflow of f16 gradients at any of the scales

// How many steps of a fixed pattern of overflows are not skipped as torch's GradScaler skips them, or leave another scale. Starts
// at kScalerStart with an interval of 2.
double scaler_mismatches(const std::function<ScalerStep(bool overflow)>& step);

}  // namespace halfmark::accuracy
