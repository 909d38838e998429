// PackedAttention beside Attention on copies of q, k and v that the test makes itself: the rows "separate" have its bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {

struct PackedCase {
  int64_t n, t, heads, d;
  DType dtype;
  bool causal;
  char
      mask;  // n: none; s: bytes, a row for each sample, of which the last attends to nothing; q: added, a row for each query
  std::string text() const {
    return Shape{n, t, 3, heads, d}.text() + " " + std::string(name_of(dtype)) + (causal ? " causal " : " ") + mask;
  }
};

inline std::vector<PackedCase> packed_cases() {
  std::vector<PackedCase> cases;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const bool causal : {false, true})
      for (const char mask : {'n', 's', 'q'}) {
        cases.push_back({2, 5, 3, 7, dtype, causal, mask});
        cases.push_back({1, 1, 1, 1, dtype, causal, mask});
        cases.push_back({3, 9, 2, 8, dtype, causal, mask});
        cases.push_back({1, 67, 2, 3, dtype, causal, mask});
      }
  return cases;
}

// Operands of a case, and the results of the operations apart.
class PackedSample {
 public:
  PackedSample(Device& device, const PackedCase& c) : device_(device), c_(c), queries_{c.n, c.heads, c.t, c.d} {
    const auto drawn = [&](const Shape& shape, uint64_t seed) {
      std::vector<double> values(static_cast<size_t>(shape.elements()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = RandomKey(seed).normal(i);
      return Tensor::from(device, shape, c.dtype, values);
    };
    qkv = drawn({c.n, c.t, 3, c.heads, c.d}, 1), dout = drawn({c.n, c.t, c.heads, c.d}, 2), mask = made_mask();
    // In the order of [3, n, heads, t, d], by the host: no operation under test moves them.
    parts_ = moved(qkv, {3, c.n, c.heads, c.t, c.d}, {2, 0, 3, 1, 4});
    for (int64_t i = 0; i < 3; ++i) heads_.push_back(parts_.slice(i, 1).reshaped(queries_));
    Tensor heads_out(device, queries_, c.dtype);
    log_sum = Tensor(device, {c.n, c.heads, c.t}, c.dtype == DType::f64 ? DType::f64 : DType::f32);
    run(Attention{.q = heads_[0],
                  .k = heads_[1],
                  .v = heads_[2],
                  .mask = mask,
                  .out = heads_out,
                  .log_sum = log_sum,
                  .causal = c.causal,
                  .scale = scale()});
    out = moved(heads_out, dout.shape(), {0, 2, 1, 3});
    const Tensor heads_dout = moved(dout, queries_, {0, 2, 1, 3});
    Tensor gradients(device, parts_.shape(), c.dtype);
    std::vector<Tensor> each;
    for (int64_t i = 0; i < 3; ++i) each.push_back(gradients.slice(i, 1).reshaped(queries_));
    run(AttentionBackward{.q = heads_[0],
                          .k = heads_[1],
                          .v = heads_[2],
                          .mask = mask,
                          .out = heads_out,
                          .log_sum = log_sum,
                          .dout = heads_dout,
                          .dq = each[0],
                          .dk = each[1],
                          .dv = each[2],
                          .causal = c.causal,
                          .scale = scale()});
    dqkv = moved(gradients, qkv.shape(), {1, 3, 0, 2, 4});
  }
  PackedAttention forward(Tensor& to, Tensor& sums) const {
    return {.qkv = qkv, .mask = mask, .out = to, .log_sum = sums, .causal = c_.causal, .scale = scale()};
  }
  PackedAttentionBackward backward(Tensor& to) const {
    return {.qkv = qkv,
            .mask = mask,
            .out = out,
            .log_sum = log_sum,
            .dout = dout,
            .dqkv = to,
            .causal = c_.causal,
            .scale = scale()};
  }

  Tensor qkv, mask, dout, out, log_sum, dqkv;

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(c_.d)); }
  Tensor made_mask() const {
    if (c_.mask == 'n') return {};
    std::vector<double> values;
    const int64_t rows = c_.mask == 's' ? c_.n : c_.t;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t j = 0; j < c_.t; ++j)
        values.push_back(c_.mask == 's' ? (row < c_.n - 1 && (row + j) % 3 != 1)
                                        : static_cast<double>((row + j) % 4) / 8);
    const Shape shape = c_.mask == 's' ? Shape{c_.n, 1, c_.t} : Shape{1, c_.t, c_.t};
    return Tensor::from(device_, shape, c_.mask == 's' ? DType::u8 : c_.dtype, values);
  }
  // Axis i of the result is axis order[i] of x.
  static Tensor moved(const Tensor& x, const Shape& shape, const std::vector<int>& order) {
    const std::vector<double> from = x.values();
    std::vector<double> to(from.size());
    for (size_t i = 0; i < to.size(); ++i) {
      std::vector<int64_t> index(order.size());
      auto rest = static_cast<int64_t>(i);
      for (size_t axis = order.size(); axis-- > 0;) {
        const int64_t extent = shape[static_cast<int>(axis)];
        index[static_cast<size_t>(order[axis])] = rest % extent, rest /= extent;
      }
      int64_t place = 0;
      for (size_t axis = 0; axis < index.size(); ++axis)
        place = place * x.shape()[static_cast<int>(axis)] + index[axis];
      to[i] = from[static_cast<size_t>(place)];
    }
    return Tensor::from(x.device(), shape, x.dtype(), to);
  }

  Device& device_;
  const PackedCase& c_;
  Shape queries_;
  Tensor parts_;
  std::vector<Tensor> heads_;
};

// How many rows "separate" took the case.
inline int expect_bits_of_attention_on_copies(Device& device, const PackedCase& c) {
  const PackedSample sample(device, c);
  int taken = 0;
  for (const Kernel<PackedAttention>& row : device.kernels().of<PackedAttention>()) {
    Tensor out(device, sample.out.shape(), c.dtype), log_sum(device, sample.log_sum.shape(), sample.log_sum.dtype());
    const PackedAttention op = sample.forward(out, log_sum);
    if (!row.name.starts_with("separate") || row.refuses(device, op)) continue;
    run_with(row, op), ++taken;
    EXPECT_EQ(out.codes(), sample.out.codes()) << c.text();
    EXPECT_EQ(log_sum.codes(), sample.log_sum.codes()) << c.text();
  }
  for (const Kernel<PackedAttentionBackward>& row : device.kernels().of<PackedAttentionBackward>()) {
    Tensor dqkv(device, sample.qkv.shape(), c.dtype);
    const PackedAttentionBackward op = sample.backward(dqkv);
    if (!row.name.starts_with("separate") || row.refuses(device, op)) continue;
    run_with(row, op), ++taken;
    EXPECT_EQ(dqkv.codes(), sample.dqkv.codes()) << c.text();
  }
  return taken;
}

}  // namespace halfmark::kernels
