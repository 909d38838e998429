#include "models/pass_casts.h"

#include <exception>
#include <utility>

namespace halfmark::models {

bool is_cast_with_others(const Tensor& x) {
  constexpr int64_t kMostElements = int64_t{1} << 22;
  return x.elements() <= kMostElements;
}

GradientCasts::GradientCasts() : exceptions_(std::uncaught_exceptions()) {}

GradientCasts::~GradientCasts() noexcept(false) { std::uncaught_exceptions() == exceptions_ ? run_all() : drop_all(); }

void GradientCasts::add(const Tensor& computed, Tensor& gradient, bool is_new) {
  waiting_.push_back({computed, gradient});
  if (is_new) new_.push_back(&gradient);
  bytes_ += computed.bytes();
  if (bytes_ >= kMostBytes) run_all();
}

void GradientCasts::run_all() {
  try {
    if (waiting_.size() == 1)
      run(Cast{.x = waiting_[0].x, .out = waiting_[0].out});
    else if (!waiting_.empty())
      run(CastTensors{.pairs = waiting_});
  } catch (...) {
    drop_all();
    throw;
  }
  waiting_.clear(), new_.clear(), bytes_ = 0;
}

void GradientCasts::drop_all() {
  for (Tensor* gradient : new_) *gradient = {};
  waiting_.clear(), new_.clear(), bytes_ = 0;
}

}  // namespace halfmark::models
