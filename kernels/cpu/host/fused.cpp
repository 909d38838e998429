// Products with bias and activation: the device's own product with a result in fp32 (fp64 for f64), then one loop over it.
// On the CPU that saves the passes of separate operations; on simulated tensor cores the sums are those of their
// instructions.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/host/after_product.h"
#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/rows.h"

namespace halfmark::kernels {
namespace host {
namespace {

template <class Op, bool emulated>
Refusal refuses_fused(const Device&, const Op& op) {
  for (const Tensor* one : {&op.a, &op.b, static_cast<const Tensor*>(&op.out)})
    if (one->layout() == Layout::opaque) return "a matrix in an opaque layout";
  return refuses_after_product<emulated>(op);
}

// f(row, first, count, z) for pieces of the rows of a matrix of T.
template <class T, class F>
void each_piece(Tensor& matrix, F f) {
  const int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  T* memory = matrix.as<T>();
  parallel_for(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(columns, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < columns; c += kBlock) f(r, c, std::min(kBlock, columns - c), memory + r * columns + c);
  });
}

template <class T>
void store_mask(unsigned char* mask, int64_t count, const T* z) {
  for (int64_t j = 0; j < count; j += 8) {
    unsigned byte = 0;
    for (int64_t bit = 0; bit < std::min<int64_t>(8, count - j); ++bit) byte |= (z[j + bit] > 0 ? 1u : 0u) << bit;
    mask[j / 8] = static_cast<unsigned char>(byte);
  }
}

template <class T>
void activate(FusedActivation activation, T* z, int64_t count) {
  switch (activation) {
    case FusedActivation::none:
      return;
    case FusedActivation::relu:
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) z[j] = activations::Relu::forward(z[j]);
      return;
    case FusedActivation::gelu_tanh:
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) {
        if constexpr (sizeof(T) == sizeof(float))
          z[j] = vector_forward<activations::GeluTanh>(z[j]);
        else
          z[j] = activations::GeluTanh::forward(z[j]);
      }
      return;
  }
}

template <class T>
void finish_forward(const FusedMatmul& op, Tensor& sums) {
  const std::vector<T> bias = op.bias.empty() ? std::vector<T>() : widened<T>(op.bias);
  const bool keeps = !op.kept.empty(), masks = op.activation == FusedActivation::relu;
  const int64_t columns = op.out.shape()[1], mask_bytes = relu_mask_bytes(columns);
  if (keeps) op.kept.materialize(Layout::plain);
  if (keeps && masks) op.out.device().clear(op.kept.data(), op.kept.bytes());  // the unused bits
  each_piece<T>(sums, [&](int64_t r, int64_t c, int64_t count, T* z) {
    if (!bias.empty()) {
      const T* add = bias.data() + c;
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) z[j] += add[j];
    }
    if (keeps && masks) store_mask(op.kept.as<unsigned char>() + r * mask_bytes + c / 8, count, z);
    if (keeps && !masks) store_piece(op.kept, r * columns + c, count, z);
    activate(op.activation, z, count);
    store_piece(op.out, r * columns + c, count, z);
  });
}

void run_forward(Device&, const FusedMatmul& op) {
  Tensor sums = product_of(op);
  op.out.materialize(Layout::plain);
  if (sums.dtype() == DType::f64)
    finish_forward<double>(op, sums);
  else
    finish_forward<float>(op, sums);
}

template <class T>
void differentiate(const FusedMatmulBackward& op, int64_t r, int64_t c, int64_t count, T* dz) {
  const int64_t columns = op.out.shape()[1];
  if (op.activation == FusedActivation::relu) {
    const unsigned char* mask = op.kept.as<unsigned char>() + r * relu_mask_bytes(columns) + c / 8;
    for (int64_t j = 0; j < count; ++j)
      if ((mask[j / 8] >> (j % 8) & 1) == 0) dz[j] = 0;
  } else if (op.activation == FusedActivation::gelu_tanh) {
    alignas(64) T buffer[kBlock];
    const T* z = read(op.kept, r * columns + c, count, buffer);
    HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < count; ++j) {
      if constexpr (sizeof(T) == sizeof(float))
        dz[j] = vector_backward<activations::GeluTanh>(z[j], dz[j]);
      else
        dz[j] = activations::GeluTanh::backward(z[j], dz[j]);
    }
  }
}

// Sums of each row in parts, in fp32 (fp64 for f64).
template <class T>
void row_sums(const Tensor& matrix, Tensor& sums) {
  const int64_t columns = matrix.shape()[1];
  std::vector<T> results(static_cast<size_t>(matrix.shape()[0]));
  const auto whole = widened<T>(matrix);
  parallel_for(
      matrix.shape()[0], std::max<int64_t>(1, kGrain / std::max<int64_t>(columns, 1)), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T* row = whole.data() + r * columns;
          results[static_cast<size_t>(r)] = lanes_sum<T, kLanes<T>>(columns, [&](int64_t j) { return row[j]; });
        }
      });
  sums.materialize(Layout::plain);
  store_piece(sums, 0, matrix.shape()[0], results.data());
}

// k is the second axis of a and the first of b, unless they are transposed.
void sum_operand(const FusedMatmulBackward& op) {
  const bool of_a = op.sums == BiasSums::a, over_rows = of_a ? op.transpose_a : !op.transpose_b;
  const Tensor& matrix = of_a ? op.a : op.b;
  if (over_rows) return run(BiasGradient{.dy = matrix, .dbias = op.dbias});
  if (matrix.dtype() == DType::f64)
    row_sums<double>(matrix, op.dbias);
  else
    row_sums<float>(matrix, op.dbias);
}

template <class T>
void finish_backward(const FusedMatmulBackward& op, Tensor& sums) {
  const int64_t columns = op.out.shape()[1];
  each_piece<T>(sums, [&](int64_t r, int64_t c, int64_t count, T* dz) {
    differentiate(op, r, c, count, dz);
    store_piece(op.out, r * columns + c, count, dz);
  });
}

void run_backward(Device&, const FusedMatmulBackward& op) {
  Tensor sums = product_of(op);
  op.out.materialize(Layout::plain);
  if (sums.dtype() == DType::f64)
    finish_backward<double>(op, sums);
  else
    finish_backward<float>(op, sums);
  if (op.sums == BiasSums::out) run(BiasGradient{.dy = sums, .dbias = op.dbias});
  if (op.sums == BiasSums::a || op.sums == BiasSums::b) sum_operand(op);
}

}  // namespace
}  // namespace host

void add_fused_rows(KernelTable& table) {
  host::add_rows_after<Matmul, FusedMatmul>(table, "after-product", "after-product-emulated",
                                            host::refuses_fused<FusedMatmul, false>,
                                            host::refuses_fused<FusedMatmul, true>, host::run_forward);
  host::add_rows_after<Matmul, FusedMatmulBackward>(table, "after-product", "after-product-emulated",
                                                    host::refuses_fused<FusedMatmulBackward, false>,
                                                    host::refuses_fused<FusedMatmulBackward, true>, host::run_backward);
}

}  // namespace halfmark::kernels
