#include "kernels/cuda/cudnn_attention_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/number/error.h"
#include "kernels/ops/packed_attention.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels::cuda {
namespace {

std::vector<double> normal_values(const Shape& shape, uint64_t seed) {
  constexpr size_t kPeriod = 1'000'003;  // a prime, so that no two heads are alike; drawing takes long
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = i < kPeriod ? key.normal(i) : values[i - kPeriod];
  return values;
}

Tensor reordered(const Tensor& x, const AxisOrder& order) {
  Tensor out(x.device(), permuted(x.shape(), order), x.dtype());
  run(Permute{.x = x, .out = out, .order = order});
  return out;
}

// q, k and v, or their gradients, in one memory.
std::vector<Tensor> parts_of(const Tensor& all, const Shape& shape) {
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < 3; ++i) parts.push_back(all.slice(i, 1).reshaped(shape));
  return parts;
}

// The first row behind those of cuDNN that takes the operation.
template <class Op>
void run_other_row(Device& device, const Op& op) {
  bool behind = false;
  for (const Kernel<Op>& row : device.kernels().of<Op>()) {
    if (behind && !row.refuses(device, op)) return run_with(row, op);
    behind = behind || row.name == "cudnn";
  }
  throw Error("no other row to compare with");
}

// Row by row, because rows of late queries and keys are small if causal. A result sums products of rounded values, each
// with an error of half a last place of its own: the bounds are chosen well above that, and far below a lost row or term,
// not derived. What cancels to nearly 0 has the errors of fp32, and subnormal numbers have their own.
bool close(const Tensor& result, const Tensor& reference, int64_t width, double roundoff) {
  constexpr double kRoundoffs = 8, kOfLargest = 1e-5;
  const double least = kRoundoffs * std::ldexp(1.0, format_of(result.dtype()).min_subnormal_exponent());
  const std::vector<double> found = result.values(), expected = reference.values();
  double largest = 0;
  for (const double one : expected) {
    if (!std::isfinite(one)) return false;
    largest = std::max(largest, std::fabs(one));
  }
  for (size_t row = 0; row < found.size(); row += static_cast<size_t>(width)) {
    double of_row = 0, worst = 0;
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i) {
      if (!std::isfinite(found[i])) return false;
      of_row = std::max(of_row, std::fabs(expected[i])), worst = std::max(worst, std::fabs(found[i] - expected[i]));
    }
    if (worst > kRoundoffs * roundoff * of_row + kOfLargest * largest + least) return false;
  }
  return true;
}

}  // namespace

AttentionSample::AttentionSample(Device& device, const AttentionProblem& problem)
    : p_(problem),
      queries_{p_.n, p_.heads, p_.t, p_.d},
      other_out_(device, queries_, p_.dtype),
      other_log_sum_(device, {p_.n, p_.heads, p_.t}, DType::f32) {
  const Shape keys{p_.n, p_.heads, p_.s, p_.d}, together{3, p_.n, p_.heads, p_.t, p_.d};
  const auto drawn = [&](const Shape& shape, uint64_t seed) {
    return Tensor::from(device, shape, p_.dtype, normal_values(shape, seed));
  };
  if (p_.packed) {
    parts_ = drawn(together, 1);
    const std::vector<Tensor> parts = parts_of(parts_, queries_);
    q_ = parts[0], k_ = parts[1], v_ = parts[2];
  } else {
    q_ = drawn(queries_, 1), k_ = drawn(keys, 2), v_ = drawn(keys, 3);
  }
  run_other_row(device, forward(other_out_, other_log_sum_));
  if (p_.backward) {
    dout_ = drawn(queries_, 4);
    for (const Tensor* one : {&q_, &k_, &v_}) other_results_.emplace_back(device, one->shape(), p_.dtype);
    run_other_row(device, backward(other_results_));
  }
  if (p_.packed) packed_out_ = reordered(other_out_, inverse(kHeadsFirst)), pack();
  const auto result = [&](const Shape& shape, DType dtype) { results_.emplace_back(device, shape, dtype); };
  if (!p_.backward) {
    result(p_.packed ? packed_out_.shape() : queries_, p_.dtype), result(other_log_sum_.shape(), DType::f32);
  } else if (p_.packed) {
    result(packed_qkv_.shape(), p_.dtype);
  } else {
    for (const Tensor* one : {&q_, &k_, &v_}) result(one->shape(), p_.dtype);
  }
}

double AttentionSample::scale() const { return 1 / std::sqrt(static_cast<double>(p_.d)); }

Attention AttentionSample::forward(Tensor& out, Tensor& log_sum) const {
  return {
      .q = q_, .k = k_, .v = v_, .mask = none_, .out = out, .log_sum = log_sum, .causal = p_.causal, .scale = scale()};
}
AttentionBackward AttentionSample::backward(std::vector<Tensor>& gradients) const {
  return {.q = q_,
          .k = k_,
          .v = v_,
          .mask = none_,
          .out = other_out_,
          .log_sum = other_log_sum_,
          .dout = dout_,
          .dq = gradients[0],
          .dk = gradients[1],
          .dv = gradients[2],
          .causal = p_.causal,
          .scale = scale()};
}
PackedAttention AttentionSample::packed_forward() {
  return {.qkv = packed_qkv_,
          .mask = none_,
          .out = results_[0],
          .log_sum = results_[1],
          .causal = p_.causal,
          .scale = scale()};
}
PackedAttentionBackward AttentionSample::packed_backward() {
  return {.qkv = packed_qkv_,
          .mask = none_,
          .out = packed_out_,
          .log_sum = other_log_sum_,
          .dout = packed_dout_,
          .dqkv = results_[0],
          .causal = p_.causal,
          .scale = scale()};
}

void AttentionSample::pack() {
  packed_qkv_ = reordered(parts_, inverse(kPartsFirst));
  if (p_.backward) packed_dout_ = reordered(dout_, inverse(kHeadsFirst));
}
std::vector<Tensor> AttentionSample::found() const {
  if (!p_.packed) return results_;
  if (p_.backward) return parts_of(reordered(results_[0], kPartsFirst), queries_);
  return {reordered(results_[0], kHeadsFirst), results_[1]};
}

std::string AttentionSample::difference() const {
  const double roundoff = format_of(p_.dtype).unit_roundoff();
  const std::vector<Tensor> results = found();
  if (!p_.backward) {
    if (!close(results[0], other_out_, p_.d, roundoff)) return "out";
    // All rows of log_sum are alike.
    return close(results[1], other_log_sum_, results[1].elements(), format_of(DType::f32).unit_roundoff() * p_.d)
               ? ""
               : "log_sum";
  }
  constexpr const char* kNames[] = {"dq", "dk", "dv"};
  for (size_t i = 0; i < 3; ++i)
    if (!close(results[i], other_results_[i], p_.d, roundoff)) return kNames[i];
  return "";
}

Tensor AttentionSample::spoil() {
  const Tensor whole = spoilt().clone();
  std::vector<double> values = whole.values();
  std::fill_n(values.end() - p_.d, p_.d, std::numeric_limits<double>::quiet_NaN());
  spoilt().set_values(values);
  if (p_.packed) pack();
  return whole;
}
void AttentionSample::restore(const Tensor& whole) {
  spoilt().set_codes(whole.codes());
  if (p_.packed) pack();
}

bool AttentionSample::keeps_nan() const {
  const auto ends_in_nan = [](const Tensor& result, int64_t count) {
    const std::vector<double> values = result.values();
    return std::all_of(values.end() - count, values.end(), [](double one) { return std::isnan(one); });
  };
  const std::vector<Tensor> results = found();
  if (!ends_in_nan(results[0], p_.d)) return false;
  if (!p_.backward) return ends_in_nan(results[1], 1);
  const bool sees_all = !p_.causal || p_.t >= p_.s;
  return !sees_all || (ends_in_nan(results[1], p_.s * p_.d) && ends_in_nan(results[2], p_.s * p_.d));
}

}  // namespace halfmark::kernels::cuda
