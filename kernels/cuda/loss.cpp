// Rows of cross-entropy and of the element-wise losses; their kernels are in cross_entropy.cu and loss.cu.
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

Refusal refuses_scores(std::initializer_list<const Tensor*> scores, std::initializer_list<const Tensor*> inputs,
                       std::initializer_list<const Tensor*> vectors) {
  if (Refusal r = not_readable_dtype(scores)) return r;
  if (Refusal r = not_readable_dtype(vectors)) return r;
  if (Refusal r = not_indexable(scores)) return r;
  if (Refusal r = not_readable(inputs)) return r;
  if (Refusal r = not_plain(vectors)) return r;
  return not_alike(scores);
}

template <class Op>
LabelForm label_form(const Op& op, const Tensor& scores) {
  Channels places = channels(scores);
  if (places.pixels == 1) places.last = true;  // in either layout
  return {places, op.smoothing, op.ignored};
}

Refusal cross_entropy_refuses(const Device&, const CrossEntropy& op) {
  if (Refusal r = not_plain({&op.labels})) return r;
  return refuses_scores({&op.logits, &op.log_probabilities}, {&op.logits}, {&op.weights, &op.loss, &op.total_weight});
}
void cross_entropy(Device& device, const CrossEntropy& op) {
  CudaDevice& cuda = on(device);
  op.log_probabilities.materialize(op.logits.layout());
  op.loss.materialize(Layout::plain), op.total_weight.materialize(Layout::plain);
  const bool wide = any_f64({&op.logits, &op.log_probabilities, &op.weights, &op.loss, &op.total_weight});
  const LabelForm form = label_form(op, op.logits);
  Tensor memory = workspace(cuda, size_t{2} * form.places.count() * (wide ? 8 : 4));
  launch_cross_entropy(cuda.stream(), form, memory.data(),
                       {array(op.logits), array(op.weights), array(op.loss), array(op.log_probabilities),
                        array(op.total_weight), op.labels.as<int32_t>()});
}

Refusal cross_entropy_backward_refuses(const Device&, const CrossEntropyBackward& op) {
  if (Refusal r = not_plain({&op.labels})) return r;
  return refuses_scores({&op.log_probabilities, &op.dlogits}, {&op.log_probabilities}, {&op.weights, &op.total_weight});
}
void cross_entropy_backward(Device& device, const CrossEntropyBackward& op) {
  CudaDevice& cuda = on(device);
  op.dlogits.materialize(op.log_probabilities.layout());
  Tensor memory = workspace(cuda, 8);
  launch_cross_entropy_backward(cuda.stream(), label_form(op, op.log_probabilities), memory.data(),
                                {array(op.log_probabilities), array(op.weights), array(op.total_weight),
                                 array(op.dlogits), op.labels.as<int32_t>()},
                                op.dloss);
}

// The number of a row in the list of losses.h.
template <class Row>
size_t number_of_loss() {
  size_t number = 0, found = 0;
  losses::All::each([&]<class Other>() {
    if (Other::name == Row::name) found = number;
    ++number;
  });
  return found;
}
const Tensor& weights_or_none(const Tensor* weights) {
  static const Tensor none;
  return weights ? *weights : none;
}

template <class Row>
Refusal element_loss_refuses(const Device&, const ElementLoss<Row>& op) {
  const Tensor& weights = weights_or_none(op.weights);
  return refuses_scores({&op.output, &op.target, &weights}, {&op.output, &op.target, &weights}, {&op.loss});
}
template <class Row>
void element_loss(Device& device, const ElementLoss<Row>& op) {
  CudaDevice& cuda = on(device);
  op.loss.materialize(Layout::plain);
  const Tensor& weights = weights_or_none(op.weights);
  const auto n = static_cast<uint32_t>(op.output.elements());
  const bool wide = any_f64({&op.output, &op.target, &weights, &op.loss});
  Tensor memory = workspace(cuda, element_loss_scratch(n) * (wide ? 8 : 4));
  launch_element_loss(cuda.stream(), number_of_loss<Row>(), n, wide, memory.data(),
                      {array(op.output), array(op.target), array(weights), array(op.loss)}, op.a, op.b);
}

template <class Row>
Refusal element_loss_backward_refuses(const Device&, const ElementLossBackward<Row>& op) {
  const Tensor& weights = weights_or_none(op.weights);
  return refuses_scores({&op.output, &op.target, &weights, &op.doutput}, {&op.output, &op.target, &weights}, {});
}
template <class Row>
void element_loss_backward(Device& device, const ElementLossBackward<Row>& op) {
  CudaDevice& cuda = on(device);
  op.doutput.materialize(op.output.layout());
  const auto n = static_cast<uint32_t>(op.output.elements());
  const Tensor& weights = weights_or_none(op.weights);
  launch_element_loss_backward(cuda.stream(), number_of_loss<Row>(), n,
                               any_f64({&op.output, &op.target, &weights, &op.doutput}),
                               {array(op.output), array(op.target), array(weights), array(op.doutput)}, op.a, op.b,
                               op.weights ? op.dloss : op.dloss / static_cast<double>(n));
}

}  // namespace

void add_loss_rows(KernelTable& table) {
  table.of<CrossEntropy>().push_back({"cuda", Speed::real, cross_entropy_refuses, cross_entropy});
  table.of<CrossEntropyBackward>().push_back(
      {"cuda", Speed::real, cross_entropy_backward_refuses, cross_entropy_backward});
  losses::All::each([&]<class Row>() {
    table.of<ElementLoss<Row>>().push_back({"cuda", Speed::real, element_loss_refuses<Row>, element_loss<Row>});
    table.of<ElementLossBackward<Row>>().push_back(
        {"cuda", Speed::real, element_loss_backward_refuses<Row>, element_loss_backward<Row>});
  });
}

}  // namespace halfmark::kernels::cuda
