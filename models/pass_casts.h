// Casts of many parameters or gradients as one operation, for passes that fuse: on a GPU each cast by itself is a launch of some
// microseconds, which for most of these tensors is longer than the cast takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops/ops.h"
#include "models/namespaces.h"

namespace halfmark::models {

struct Param;

// That a pass reads a parameter in another dtype than it is stored in. It names the parameter and holds no values, so that every
// pass casts the values of its own time.
struct ParameterCast {
  const Param* param;
  DType dtype;
};
using ParameterCasts = std::vector<ParameterCast>;

// A larger tensor is cast by itself, when it is read or computed: its cast takes longer than a launch, and what reads it next
// finds it in the GPU's level-2 cache.
bool is_cast_with_others(const Tensor& x);

// Casts of gradients that wait for each other. They run when the pass ends, or before that when those that wait have kMostBytes:
// so much more memory than with single casts is in use at most, and so much is still in the level-2 cache of a data centre's GPU.
// It keeps the addresses of new gradients: their parameters must outlive it.
class GradientCasts {
 public:
  static constexpr size_t kMostBytes = size_t{32} << 20;

  GradientCasts();
  // Runs them. If an exception passes, or an operation throws one, gradients are left as they were, and new ones become empty.
  ~GradientCasts() noexcept(false);
  GradientCasts(const GradientCasts&) = delete;
  GradientCasts& operator=(const GradientCasts&) = delete;
  // gradient <- computed, later. `is_new`: the gradient has no values yet.
  void add(const Tensor& computed, Tensor& gradient, bool is_new);
  void run_all();

 private:
  void drop_all();
  std::vector<kernels::CastPair> waiting_;
  std::vector<Tensor*> new_;
  size_t bytes_ = 0;
  int exceptions_;
};

}  // namespace halfmark::models
