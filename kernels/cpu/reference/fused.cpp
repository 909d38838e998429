// Reference rows of products and convolutions with bias and activation: the sums of the reference row, in fp32 or fp64 as
// they are, then fp64 from the operands as stored, and each output rounded once. The gradient of the bias is summed in fp32
// (fp64 for f64) in increasing order, of the numbers before they are rounded to the result.
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/contraction_paths.h"
#include "kernels/cpu/reference/operand.h"

namespace halfmark::kernels::reference {
namespace {

template <class Op>
Refusal refuses_fused(const Device& device, const Op& op) {
  if (Refusal refusal = refuses(device, op)) return refusal;
  return refuses_math(op.math);
}

// Every format of sums but fp64 fits into f32.
std::vector<double> sums_of(const auto& op) {
  const PurposeScope scope(Purpose::emulation);
  Tensor wide(op.out.device(), op.out.shape(), op.math.accumulate == kFp64 ? DType::f64 : DType::f32);
  const Contraction work(op.product(wide));
  contract(work, fastest_path(work));
  return read<double>(wide);
}

double forward_of(FusedActivation activation, double z) {
  switch (activation) {
    case FusedActivation::none:
      return z;
    case FusedActivation::relu:
      return activations::Relu::forward(z);
    case FusedActivation::gelu_tanh:
      return activations::GeluTanh::forward(z);
  }
  throw Error("unknown fused activation");
}

void forward(Device&, const FusedMatmul& op) {
  std::vector<double> z = sums_of(op);
  const auto columns = static_cast<size_t>(op.out.shape()[1]);
  if (!op.bias.empty()) {
    const std::vector<double> bias = read<double>(op.bias);
    for (size_t i = 0; i < z.size(); ++i) z[i] += bias[i % columns];
  }
  if (!op.kept.empty()) {
    settle(op.kept, op.a);
    if (op.activation == FusedActivation::relu) {
      std::vector<unsigned char> mask(static_cast<size_t>(op.kept.elements()));
      const size_t row_bytes = static_cast<size_t>(relu_mask_bytes(op.out.shape()[1]));
      for (size_t i = 0; i < z.size(); ++i)
        if (z[i] > 0)
          mask[i / columns * row_bytes + i % columns / 8] |= static_cast<unsigned char>(1 << (i % columns % 8));
      op.kept.set_codes(mask);
    } else {
      write(op.kept, z);
    }
  }
  for (double& value : z) value = forward_of(op.activation, value);
  settle(op.out, op.a);
  write(op.out, z);
}

// Over one axis of a matrix, in the order of the other.
template <class T>
std::vector<double> axis_sums(const std::vector<double>& matrix, size_t columns, bool over_rows) {
  std::vector<T> sums(over_rows ? columns : matrix.size() / columns, T{0});
  for (size_t i = 0; i < matrix.size(); ++i) sums[over_rows ? i % columns : i / columns] += static_cast<T>(matrix[i]);
  return {sums.begin(), sums.end()};
}

void store_sums(const FusedMatmulBackward& op, const std::vector<double>& result) {
  const bool of_a = op.sums == BiasSums::a;
  const Tensor& operand = of_a ? op.a : op.b;
  const bool of_result = op.sums == BiasSums::out;
  const std::vector<double> stored = of_result ? std::vector<double>() : read<double>(operand);
  const auto columns = static_cast<size_t>((of_result ? op.out : operand).shape()[1]);
  // k is the second axis of a and the first of b, unless they are transposed.
  const bool over_rows = of_result || (of_a ? op.transpose_a : !op.transpose_b);
  const std::vector<double>& matrix = of_result ? result : stored;
  const bool wide = of_result ? op.math.accumulate == kFp64 : wants_fp64(operand);
  settle(op.dbias, op.dbias);
  write(op.dbias, wide ? axis_sums<double>(matrix, columns, over_rows) : axis_sums<float>(matrix, columns, over_rows));
}

void backward(Device&, const FusedMatmulBackward& op) {
  std::vector<double> values = sums_of(op);
  const auto columns = static_cast<size_t>(op.out.shape()[1]);
  if (op.activation == FusedActivation::relu) {
    const std::vector<unsigned char> mask = op.kept.codes();
    const size_t row_bytes = static_cast<size_t>(relu_mask_bytes(op.out.shape()[1]));
    for (size_t i = 0; i < values.size(); ++i)
      if (!(mask[i / columns * row_bytes + i % columns / 8] >> (i % columns % 8) & 1)) values[i] = 0;
  } else if (op.activation == FusedActivation::gelu_tanh) {
    const std::vector<double> kept = read<double>(op.kept);
    for (size_t i = 0; i < values.size(); ++i) values[i] = activations::GeluTanh::backward(kept[i], values[i]);
  }
  if (op.sums != BiasSums::none) store_sums(op, values);
  settle(op.out, op.a);
  write(op.out, values);
}

void convolve(Device&, const FusedConv2d& op) {
  std::vector<double> z = sums_of(op);
  if (!op.bias.empty()) {
    const std::vector<double> bias = read<double>(op.bias);
    const size_t pixels = z.size() / (static_cast<size_t>(op.out.shape()[0]) * bias.size());
    for (size_t i = 0; i < z.size(); ++i) z[i] += bias[i / pixels % bias.size()];
  }
  if (op.relu)
    for (double& value : z) value = activations::Relu::forward(value);
  settle(op.out, op.x);
  write(op.out, z);
}

}  // namespace

void add_fused_rows(KernelTable& table) {
  table.of<FusedMatmul>().push_back(
      {"reference", Speed::emulated, &refuses_fused<FusedMatmul>, forward, Repeats::by_construction});
  table.of<FusedMatmulBackward>().push_back(
      {"reference", Speed::emulated, &refuses_fused<FusedMatmulBackward>, backward, Repeats::by_construction});
  table.of<FusedConv2d>().push_back(
      {"reference", Speed::emulated, &refuses_fused<FusedConv2d>, convolve, Repeats::by_construction});
}

}  // namespace halfmark::kernels::reference
