// Rows of CTC; their kernels are in ctc.cu. The device cannot stop at wrong targets as the CPU does: the results are NaN.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kMostStates = 3000;  // two fp64 variables of each in shared memory

Refusal refuses_sequences(std::initializer_list<const Tensor*> all, const Tensor& targets, const Tensor& alpha) {
  if (Refusal r = not_readable_dtype(all)) return r;
  if (Refusal r = not_indexable(all)) return r;
  if (Refusal r = not_plain(all)) return r;
  if (alpha.shape()[2] > kMostStates)
    return "takes up to " + std::to_string(kMostStates) + " states, not " + std::to_string(alpha.shape()[2]);
  return not_plain({&targets});
}

template <class Op>
CtcForm ctc_form(const Op& op, const Shape& scores) {
  return {static_cast<uint32_t>(scores[0]),
          static_cast<uint32_t>(scores[1]),
          static_cast<uint32_t>(scores[2]),
          static_cast<uint32_t>(op.alpha.shape()[2]),
          op.blank,
          op.zero_infinity};
}

Refusal ctc_refuses(const Device&, const CtcLoss& op) {
  return refuses_sequences({&op.logits, &op.loss, &op.log_probabilities, &op.alpha}, op.targets, op.alpha);
}
void ctc(Device& device, const CtcLoss& op) {
  CudaDevice& cuda = on(device);
  for (Tensor* one : {&op.loss, &op.log_probabilities, &op.alpha}) one->materialize(Layout::plain);
  const CtcForm form = ctc_form(op, op.logits.shape());
  const bool wide = any_f64({&op.logits, &op.loss, &op.log_probabilities, &op.alpha});
  Tensor memory = workspace(cuda, ctc_scratch_elements(form) * (wide ? 8 : 4));
  launch_ctc_loss(cuda.stream(), form, memory.data(), op.targets.as<int32_t>(), array(op.logits), array(op.loss),
                  array(op.log_probabilities), array(op.alpha));
}

Refusal ctc_backward_refuses(const Device&, const CtcLossBackward& op) {
  return refuses_sequences({&op.log_probabilities, &op.alpha, &op.dlogits}, op.targets, op.alpha);
}
void ctc_backward(Device& device, const CtcLossBackward& op) {
  CudaDevice& cuda = on(device);
  op.dlogits.materialize(Layout::plain);
  launch_ctc_loss_backward(cuda.stream(), ctc_form(op, op.log_probabilities.shape()), op.targets.as<int32_t>(),
                           array(op.log_probabilities), array(op.alpha), array(op.dlogits), op.dloss);
}

}  // namespace

void add_ctc_rows(KernelTable& table) {
  table.of<CtcLoss>().push_back({"cuda", Speed::real, ctc_refuses, ctc});
  table.of<CtcLossBackward>().push_back({"cuda", Speed::real, ctc_backward_refuses, ctc_backward});
}

}  // namespace halfmark::kernels::cuda
