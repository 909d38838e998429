#include "kernels/ops/batched.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

Tensor matrix(const Tensor& batch, int64_t i) {
  return batch.slice(i, 1).reshaped({batch.shape()[1], batch.shape()[2]});
}

Matmul product(const BatchedMatmul& op, const Tensor& a, const Tensor& b, Tensor& out) {
  return {.a = a, .b = b, .out = out, .transpose_a = op.transpose_a, .transpose_b = op.transpose_b, .math = op.math};
}

// `emulated`: the row for devices whose Matmul is.
template <bool emulated>
Refusal refuses(const Device&, const BatchedMatmul& op) {
  for (const Tensor* one : {&op.a, &op.b, static_cast<const Tensor*>(&op.out)}) {
    if (one->layout() != Layout::plain && one->layout() != Layout::any) return "its matrices are not contiguous";
    if (is_packed(one->dtype())) return "a matrix of a packed dtype may begin within a byte";
  }
  if (op.out.elements() == 0) return {};
  const Tensor a = matrix(op.a, 0), b = matrix(op.b, 0);
  Tensor out(op.out.device(), {op.out.shape()[1], op.out.shape()[2]}, op.out.dtype(), Layout::any);
  const Matmul one = product(op, a, b, out);
  if ((chosen(one).speed == Speed::emulated) != emulated)
    return std::string("the matmul of this device is ") + (emulated ? "real" : "emulated");
  return {};
}

void run_each(Device&, const BatchedMatmul& op) {
  op.out.materialize(Layout::plain);
  for (int64_t i = 0; i < op.out.shape()[0]; ++i) {
    const Tensor a = matrix(op.a, i), b = matrix(op.b, i);
    Tensor out = matrix(op.out, i);
    run(product(op, a, b, out));
  }
}

}  // namespace

void add_batched_rows(KernelTable& table) {
  // Simulated devices have no real one.
  if (std::ranges::any_of(table.of<Matmul>(), [](const Kernel<Matmul>& row) { return row.speed == Speed::real; }))
    table.of<BatchedMatmul>().push_back({"per-matrix", Speed::real, refuses<false>, run_each});
  table.of<BatchedMatmul>().push_back({"per-matrix-emulated", Speed::emulated, refuses<true>, run_each});
}

}  // namespace halfmark::kernels
