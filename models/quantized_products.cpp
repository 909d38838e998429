// The recipes of NVIDIA TransformerEngine d0067d0 (common/recipe/__init__.py, common/recipe/*.cu, pytorch/quantization.py,
// pytorch/module/base.py and linear.py), all read. The rules of the quantisers are in kernels/number/quantizer.cpp.
#include "models/quantized_products.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <utility>

#include "kernels/number/named.h"

namespace halfmark::models {
namespace {

QuantizedOperand by(std::string_view rule) { return {.rule = &quantizer_named(rule)}; }

// base.py: _2X_ACC_FPROP = False, _2X_ACC_DGRAD = _2X_ACC_WGRAD = True: forward alone accumulates fast.
constexpr bool kFast = true;

std::vector<QuantizedProducts> table() {
  // Format.HYBRID: E4M3 forward, E5M2 for gradients.
  const QuantizedOperand e4m3 = by("te-current-e4m3"), e5m2 = by("te-current-e5m2");
  const QuantizedOperand row = by("te-block-1x128"), square = by("te-block-128x128");
  const QuantizedOperand mx = by("te-mxfp8-e4m3");
  // NVFP4BlockScaling: 16 x 16 for weights (fp4_2d_quantization), stochastic rounding of gradients, the random Hadamard
  // transform for both operands of the gradient of the weights. Two levels of scales; the FAST_ACCUM flag is never set for FP4.
  const QuantizedOperand fp4 = by("te-nvfp4"), fp4_weight = by("te-nvfp4-16x16");
  const QuantizedOperand fp4_gradient{.rule = fp4.rule, .is_stochastic = true},
      fp4_input_turned{.rule = fp4.rule, .is_transformed = true},
      fp4_gradient_turned{.rule = fp4.rule, .is_transformed = true, .is_stochastic = true};
  return {
      // DelayedScaling: margin 0, amax_history_len 1024, amax_compute_algo "max".
      {.name = "fp8-delayed",
       .forward = {e4m3, e4m3, kFast},
       .data = {e5m2, e4m3},
       .weights = {e5m2, e4m3},
       .delayed = DelayedScaling{.history = 1024, .algorithm = AmaxChoice::max, .margin = 0}},
      // Float8CurrentScaling: Format.HYBRID, epsilon 0, scales that are not powers of two.
      {.name = "fp8-current", .forward = {e4m3, e4m3, kFast}, .data = {e5m2, e4m3}, .weights = {e5m2, e4m3}},
      // Float8BlockScaling: Format.E4M3, powers of two; fp8_gemm_fprop, dgrad and wgrad all with the split accumulator.
      {.name = "fp8-block", .forward = {row, square}, .data = {row, square}, .weights = {row, row}},
      // MXFP8BlockScaling: Format.E4M3, blocks of 32, one-dimensional for weights too.
      {.name = "mxfp8", .forward = {mx, mx, kFast}, .data = {mx, mx}, .weights = {mx, mx}},
      {.name = "nvfp4",
       .forward = {fp4, fp4_weight},
       .data = {fp4_gradient, fp4_weight},
       .weights = {fp4_gradient_turned, fp4_input_turned}},
  };
}

thread_local QuantizationLog* innermost_log = nullptr;

}  // namespace

std::span<const QuantizedProducts> quantized_products() {
  static const std::vector<QuantizedProducts> rows = table();
  return rows;
}

const QuantizedProducts& quantized_products_named(std::string_view name) {
  return named("recipe", quantized_products(), name);
}

bool shares_codes(const QuantizedOperand& one, const QuantizedOperand& other) {
  return one.rule == other.rule && one.rule->tile_rows == one.rule->tile_depth && !one.is_transformed &&
         !other.is_transformed && !one.is_stochastic && !other.is_stochastic;
}

ScaleUpdates::ScaleUpdates() : exceptions_(std::uncaught_exceptions()) {}

ScaleUpdates::~ScaleUpdates() noexcept(false) {
  if (observed_.empty() || std::uncaught_exceptions() != exceptions_) return;
  std::vector<kernels::DelayedScale> last;
  for (const Observed& one : observed_) {
    for (size_t i = 0; i + 1 < one.amaxes.size(); ++i) {
      std::vector<kernels::DelayedScale> earlier{one.operand->step(one.amaxes[i], false)};
      run(kernels::DelayedScalingStep{.scales = earlier, .ends_step = false});
    }
    last.push_back(one.operand->step(one.amaxes.back(), true));
  }
  run(kernels::DelayedScalingStep{.scales = last});
  for (const Observed& one : observed_) one.operand->has_stepped();
}

void ScaleUpdates::add(const std::shared_ptr<DelayedOperand>& operand, const Tensor& amax) {
  const auto found = std::ranges::find(observed_, operand, &Observed::operand);
  if (found == observed_.end())
    observed_.push_back({operand, {amax}});
  else
    found->amaxes.push_back(amax);
}

DelayedOperand::DelayedOperand(Device& device, DType element, const DelayedScaling& form) {
  const PurposeScope kept(Purpose::state);
  const double first = 1;
  state_.history = Tensor::zeros(device, {static_cast<int64_t>(form.history)}, DType::f32);
  state_.scale = Tensor::from(device, {1}, DType::f32, std::span(&first, 1));
  state_.used = Tensor::from(device, {1}, DType::f32, std::span(&first, 1));
  state_.most = static_cast<float>(format_of(element).max_finite() * std::ldexp(1.0, -form.margin));
  state_.choice = form.algorithm;
}

const Tensor& DelayedOperand::scale(bool again) {
  if (!again) has_stepped_ = false;
  return again && has_stepped_ ? state_.used : state_.scale;
}

kernels::DelayedScale DelayedOperand::step(const Tensor& amax, bool ends_step) const {
  kernels::DelayedScale step = state_;
  step.amax = amax;
  if (!ends_step) step.used = {};
  return step;
}

QuantizationLog::QuantizationLog() : outer_(std::exchange(innermost_log, this)) {}
QuantizationLog::~QuantizationLog() { innermost_log = outer_; }
bool QuantizationLog::exists() { return innermost_log != nullptr; }
void QuantizationLog::record(const QuantizedOnce& entry) {
  for (QuantizationLog* log = innermost_log; log; log = log->outer_) log->entries_.push_back(entry);
}

}  // namespace halfmark::models
