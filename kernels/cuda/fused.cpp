// Rows of products and convolutions with bias and activation that use no library's epilogue: the product of another row
// with a result in fp32 (fp64 for f64), then one kernel of fused.cu. The row `cuda-direct` is for products that are
// `emulated`.
#include <cstdint>
#include <string>

#include "kernels/cuda/launch_fused.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

bool is_wide(const Math& math) { return math.accumulate == kFp64; }

Tensor sums_like(const Tensor& out, const Math& math, Layout layout) {
  const PurposeScope scope(Purpose::workspace);
  return Tensor(out.device(), out.shape(), is_wide(math) ? DType::f64 : DType::f32, layout);
}

Refusal not_after_product(const Tensor& out, const Tensor& vector, const Tensor& kept, bool masks) {
  if (Refusal r = not_readable_dtype({&out, &vector})) return r;
  if (!masks)
    if (Refusal r = not_readable_dtype({&kept})) return r;
  if (Refusal r = not_plain({&out, &vector, &kept})) return r;
  return not_indexable({&out, &vector, &kept});
}
Refusal not_after_product(const FusedMatmul& op) {
  return not_after_product(op.out, op.bias, op.kept, op.activation == FusedActivation::relu);
}
Refusal not_after_product(const FusedMatmulBackward& op) {
  if (Refusal r = not_readable_dtype({&op.a, &op.b})) return r;  // their sums
  return not_after_product(op.out, op.dbias, op.kept, op.activation == FusedActivation::relu);
}

Refusal not_after_product(const FusedConv2d& op) {
  if (Refusal r = not_readable_dtype({&op.out, &op.bias})) return r;
  if (op.out.layout() != Layout::any)
    if (Refusal r = not_readable({&op.out})) return r;
  if (Refusal r = not_plain({&op.bias})) return r;
  return not_indexable({&op.out, &op.bias});
}

template <class Op, Speed speed>
Refusal refuses_after_product(const Device&, const Op& op) {
  if (Refusal r = not_after_product(op)) return r;
  Tensor sums = sums_like(op.out, op.math, Layout::any);
  try {
    const auto& row = chosen(op.product(sums));
    if (row.speed != speed)
      return std::string("the product is ") + std::string(name_of(row.speed)) + " (" + std::string(row.name) + ")";
  } catch (const Unsupported& reason) {
    return std::string("no row has the product: ") + reason.what();
  }
  return {};
}

FusedArgs fused_args(const Tensor& out, FusedActivation activation, bool masks) {
  const int64_t columns = out.shape()[1];
  return {static_cast<uint32_t>(out.shape()[0]), static_cast<uint32_t>(columns),
          static_cast<uint32_t>(masks ? relu_mask_bytes(columns) : (columns + 7) / 8), activation};
}

void forward_after_product(Device& device, const FusedMatmul& op) {
  CudaDevice& cuda = on(device);
  Tensor sums = sums_like(op.out, op.math, Layout::plain);
  run(op.product(sums));
  op.out.materialize(Layout::plain);
  const bool masks = op.activation == FusedActivation::relu && !op.kept.empty();
  if (!op.kept.empty()) op.kept.materialize(Layout::plain);
  launch_fused_forward(cuda.stream(), fused_args(op.out, op.activation, masks), is_wide(op.math), sums.data(),
                       array(op.bias), array(op.out), masks ? Array{} : array(op.kept),
                       masks ? op.kept.as<uint8_t>() : nullptr);
}

// Sums of the columns of a matrix, or of its rows.
void sum_matrix(CudaDevice& cuda, const Tensor& matrix, bool of_columns, Tensor& sums) {
  const auto rows = static_cast<uint32_t>(matrix.shape()[0]), columns = static_cast<uint32_t>(matrix.shape()[1]);
  const Channels c = of_columns ? Channels{rows, columns, 1, true} : Channels{1, rows, columns, false};
  const bool wide = any_f64({&matrix, &sums});
  Tensor memory = workspace(cuda, channel_scratch_elements(c) * (wide ? 8 : 4));
  launch_bias_gradient(cuda.stream(), c, wide, memory.data(), array(matrix), array(sums));
}

void backward_after_product(Device& device, const FusedMatmulBackward& op) {
  CudaDevice& cuda = on(device);
  Tensor sums = sums_like(op.out, op.math, Layout::plain);
  run(op.product(sums));
  op.out.materialize(Layout::plain);
  const bool masks = op.activation == FusedActivation::relu;
  launch_fused_backward(cuda.stream(), fused_args(op.out, op.activation, masks), is_wide(op.math), sums.data(),
                        masks ? Array{} : array(op.kept), masks ? op.kept.as<uint8_t>() : nullptr, array(op.out));
  if (op.sums == BiasSums::none) return;
  op.dbias.materialize(Layout::plain);
  // k is the second axis of a and the first of b, unless they are transposed.
  if (op.sums == BiasSums::out) sum_matrix(cuda, sums, true, op.dbias);
  if (op.sums == BiasSums::a) sum_matrix(cuda, op.a, op.transpose_a, op.dbias);
  if (op.sums == BiasSums::b) sum_matrix(cuda, op.b, !op.transpose_b, op.dbias);
}

void convolution_after_product(Device& device, const FusedConv2d& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  Tensor sums = sums_like(op.out, op.math, op.out.layout());
  run(op.product(sums));
  launch_fused_convolution(cuda.stream(), channels(op.out), is_wide(op.math), op.relu, sums.data(), array(op.bias),
                           array(op.out));
}

template <class Op>
void add_after_product(KernelTable& table, void (*run)(Device&, const Op&)) {
  table.of<Op>().push_back({"cuda", Speed::real, refuses_after_product<Op, Speed::real>, run});
  table.of<Op>().push_back({"cuda-direct", Speed::emulated, refuses_after_product<Op, Speed::emulated>, run});
}

}  // namespace

void add_fused_rows(KernelTable& table) {
  add_after_product<FusedMatmul>(table, forward_after_product);
  add_after_product<FusedMatmulBackward>(table, backward_after_product);
  add_after_product<FusedConv2d>(table, convolution_after_product);
}

}  // namespace halfmark::kernels::cuda
