// Batch norm with ReLU: the device's own batch norm, then one loop over its result; backward ReLU first.
#include <array>
#include <cstdint>
#include <string>

#include "kernels/cpu/host/host.h"
#include "kernels/cpu/rows.h"

namespace halfmark::kernels {
namespace host {
namespace {

// Whether the norm can be stored in `out`: nothing is added to it, or it has not been rounded to fewer digits.
bool stores_norm_in_out(const FusedBatchNorm& op) {
  return op.addend.empty() || op.out.dtype() == DType::f32 || op.out.dtype() == DType::f64;
}

// Why an operation that is part of another cannot be used in a row of this speed. The slowest part decides.
template <class Part>
Refusal refuses_part(const Part& part, bool emulated) {
  try {
    const auto& row = chosen(part);
    if (row.speed == Speed::emulated && !emulated)
      return std::string(Part::name) + " is emulated (" + std::string(row.name) + ")";
  } catch (const Unsupported& reason) {
    return std::string("no row has ") + std::string(Part::name) + ": " + reason.what();
  }
  return {};
}

template <class Op, bool emulated>
Refusal refuses_loops(const Op& op) {
  Refusal widened;
  op.visit(WidenedVisitor{widened});
  return emulated ? Refusal() : widened;
}

template <bool emulated>
Refusal refuses_forward(const Device&, const FusedBatchNorm& op) {
  if (Refusal refusal = refuses_dtypes({&op.addend, &op.out})) return refusal;
  if (Refusal refusal = refuses_loops<FusedBatchNorm, emulated>(op)) return refusal;
  if (stores_norm_in_out(op)) return refuses_part(op.norm(op.out), emulated);
  Tensor wide(op.out.device(), op.out.shape(), DType::f32, Layout::any);
  return refuses_part(op.norm(wide), emulated);
}

template <class T>
void add_and_clamp(Tensor& out, const Tensor& norm, const Tensor& addend) {
  map<T, 2>(out, {&norm, &addend}, [](T y, T a) { return activations::Relu::forward(y + a); });
}

void run_forward(Device&, const FusedBatchNorm& op) {
  if (op.addend.empty()) {
    run(op.norm(op.out));
    return run(Activation<activations::Relu>{.x = op.out, .out = op.out});
  }
  const PurposeScope scope(Purpose::workspace);
  Tensor norm = op.out;
  if (!stores_norm_in_out(op))
    norm = Tensor(op.out.device(), op.out.shape(), DType::f32, Layout::any);
  else if (op.out.layout() != Layout::any && op.out.id() == op.addend.id())
    norm = Tensor(op.out.device(), op.out.shape(), op.out.dtype(), Layout::any);
  run(op.norm(norm));
  // A library's layout is that of one dtype.
  const bool alike = norm.dtype() == op.addend.dtype() && norm.dtype() == op.out.dtype();
  const Tensor y = alike ? norm : readable(norm), addend = in_layout_of(y, alike ? op.addend : readable(op.addend));
  Result out(op.out, y);
  if (computes_in_double({&op.x, &op.addend, &op.out}))
    add_and_clamp<double>(out.tensor(), y, addend);
  else
    add_and_clamp<float>(out.tensor(), y, addend);
  out.finish();
}

// The gradient before ReLU: in daddend if that has the dtype of dy, else in workspace.
Tensor gradient_of(const FusedBatchNormBackward& op) {
  if (!op.daddend.empty() && op.daddend.dtype() == op.dy.dtype()) return op.daddend;
  const PurposeScope scope(Purpose::workspace);
  return Tensor(op.dy.device(), op.dy.shape(), op.dy.dtype(), Layout::any);
}
ActivationBackward<activations::Relu> before_relu(const FusedBatchNormBackward& op, Tensor& gradient) {
  return {.kept = op.kept, .dy = op.dy, .dx = gradient};
}

template <bool emulated>
Refusal refuses_backward(const Device&, const FusedBatchNormBackward& op) {
  if (Refusal refusal = refuses_dtypes({&op.dy, &op.daddend})) return refusal;
  if (Refusal refusal = refuses_loops<FusedBatchNormBackward, emulated>(op)) return refusal;
  Tensor gradient(op.dy.device(), op.dy.shape(), op.dy.dtype(), Layout::any);
  if (Refusal refusal = refuses_part(before_relu(op, gradient), emulated)) return refusal;
  return refuses_part(op.norm(op.dy), emulated);
}

void run_backward(Device&, const FusedBatchNormBackward& op) {
  Tensor gradient = gradient_of(op);
  run(before_relu(op, gradient));
  run(op.norm(gradient));
  if (op.daddend.empty() || op.daddend.dtype() == op.dy.dtype()) return;
  run(Cast{.x = gradient, .out = op.daddend});
}

}  // namespace
}  // namespace host

void add_fused_norm_rows(KernelTable& table) {
  using namespace host;
  table.of<FusedBatchNorm>().push_back({"after-norm", Speed::real, refuses_forward<false>, run_forward});
  table.of<FusedBatchNorm>().push_back({"after-norm-emulated", Speed::emulated, refuses_forward<true>, run_forward});
  table.of<FusedBatchNormBackward>().push_back({"before-norm", Speed::real, refuses_backward<false>, run_backward});
  table.of<FusedBatchNormBackward>().push_back(
      {"before-norm-emulated", Speed::emulated, refuses_backward<true>, run_backward});
}

}  // namespace halfmark::kernels
