// Settings of a trial that a harness may change in addition to the policy.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/number/dtype.h"
#include "kernels/ops/ops.h"
#include "models/namespaces.h"
#include "models/policy.h"

namespace halfmark::models {

enum class OptimizerKind : uint8_t { sgd, adam, adam_keras, adamw };

// Which optimizer, beside the rate, the momentum and the weight decay of Settings. The defaults are plain SGD.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::sgd;
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999;
  std::optional<double> epsilon = {};  // instead of the kind's default
  Storage storage = Storage::nearest;
  StepRounding rounding = StepRounding::once;
  double clip_norm = 0;  // the largest norm of all gradients together, after unscaling; 0: not clipped
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

// How labels and indices are stored. Frameworks store them in 64 bits.
enum class IndexType : uint8_t { i32, i64 };

struct Settings {
  double rate = 0.05, momentum = 0.9, weight_decay = 0;  // of the optimizer; only SGD has a momentum
  OptimizerSpec optimizer = {};
  double loss_factor = 1;  // multiplies the loss and divides the rate of SGD: moves gradients towards underflow
  double input_scale = 1, input_offset = 0;  // applied to the drawn data
  double batchnorm_momentum = 0.1;
  std::optional<DType> batchnorm_state;  // storage of running statistics, instead of the policy's dtype
  // The sums of batch statistics are rounded to the format of this dtype after each addition; empty: as the kernel adds.
  std::optional<DType> batchnorm_accumulate;
  std::optional<ScalerSpec> scaler;  // instead of the policy's
  // Of labels and indices in a batch. i64 are converted to i32 once in each pass that reads them, because the kernels take i32.
  IndexType indices = IndexType::i32;
  // Of a batch of images, plain or nhwc; empty: as the device prefers. Sums have another order.
  std::optional<Layout> images;
  bool cast_cache = true;  // Pass::caches_casts of a training step; changes no number
  bool fused = false;      // Pass::fuses: numbers differ by roundings
};

}  // namespace halfmark::models
