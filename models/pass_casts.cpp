#include "models/pass_casts.h"

#include <exception>
#include <utility>

namespace halfmark::models {

bool is_cast_with_others(const Tensor& x) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  return x.elements() <= kMostElements;
}

GradientCasts::GradientCasts() : exceptions_(std::uncaught_exceptions()) {}

GradientCasts::~GradientCasts() noexcept(false) {
  if (std::uncaught_exceptions() == exceptions_) run_all();
}

void GradientCasts::add(const Tensor& computed, const Tensor& gradient) {
  waiting_.push_back({computed, gradient});
  bytes_ += computed.bytes();
  if (bytes_ >= kMostBytes) run_all();
}

void GradientCasts::run_all() {
  std::vector<kernels::CastPair> pairs = std::exchange(waiting_, {});
  bytes_ = 0;
  if (pairs.size() == 1)
    run(Cast{.x = pairs[0].x, .out = pairs[0].out});
  else if (!pairs.empty())
    run(CastTensors{.pairs = pairs});
}

}  // namespace halfmark::models
