#include "kernels/ops/operations/fused.h"

#include <string>

#include "kernels/number/error.h"
#include "kernels/ops/operations/checks.h"

namespace halfmark::kernels {

using namespace operation_checks;

namespace {

void check_kept(std::string_view operation, FusedActivation activation, const Tensor& kept, const Shape& out) {
  need(activation != FusedActivation::none, operation, "without an activation nothing is kept");
  if (activation == FusedActivation::relu) {
    const Shape expected{out[0], relu_mask_bytes(out[1])};
    need(kept.dtype() == DType::u8 && kept.shape() == expected, operation,
         "the mask of ReLU must be u8 of shape " + expected.text() + ", not " + std::string(name_of(kept.dtype())) +
             " " + kept.shape().text());
    return;
  }
  need(is_floating(kept.dtype()) && kept.shape() == out, operation,
       "what is kept for GELU must be of shape " + out.text() + ", not " + kept.shape().text());
}

}  // namespace

std::string_view name_of(FusedActivation activation) {
  switch (activation) {
    case FusedActivation::none:
      return "none";
    case FusedActivation::relu:
      return "relu";
    case FusedActivation::gelu_tanh:
      return "gelu_tanh";
  }
  throw Error("unknown fused activation");
}

void FusedMatmul::check() const {
  product(out).check();
  if (!bias.empty()) vector_of(name, "bias", bias, out.shape()[1]);
  if (!kept.empty()) check_kept(name, activation, kept, out.shape());
}

void FusedMatmulBackward::check() const {
  product(out).check();
  const bool activates = activation != FusedActivation::none;
  need(activates == !kept.empty(), name, "what forward has kept goes with an activation");
  if (activates) check_kept(name, activation, kept, out.shape());
  need((sums == BiasSums::none) == dbias.empty(), name, "sums for a bias go with a dbias");
  need(sums == BiasSums::none || activates == (sums == BiasSums::out), name,
       "the bias of the result goes with an activation, that of an operand with none");
  if (!dbias.empty()) vector_of(name, "dbias", dbias, out.shape()[sums == BiasSums::a ? 0 : 1]);
}

void FusedConv2d::check() const {
  product(out).check();
  if (!bias.empty()) vector_of(name, "bias", bias, out.shape()[1]);
}

}  // namespace halfmark::kernels
