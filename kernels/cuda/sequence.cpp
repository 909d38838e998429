// Rows of softmax, dropout and the LSTM cell; their kernels are in sequence.cu.
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

uint32_t last_extent(const Tensor& tensor) { return static_cast<uint32_t>(tensor.shape()[tensor.shape().rank() - 1]); }

Refusal refuses_rows(std::initializer_list<const Tensor*> all) {
  if (Refusal r = not_readable_dtype(all)) return r;
  if (Refusal r = not_indexable(all)) return r;
  return not_plain(all);
}

Refusal softmax_refuses(const Device&, const Softmax& op) { return refuses_rows({&op.x, &op.out}); }
void softmax(Device& device, const Softmax& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const Shape& shape = op.x.shape();
  const uint32_t width = last_extent(op.x), queries = op.causal ? static_cast<uint32_t>(shape[shape.rank() - 2]) : 0;
  launch_softmax(cuda.stream(), static_cast<uint32_t>(op.x.elements()) / width, {width, queries, op.log, op.masked},
                 array(op.x), array(op.out));
}

Refusal softmax_backward_refuses(const Device&, const SoftmaxBackward& op) {
  return refuses_rows({&op.y, &op.dy, &op.dx});
}
void softmax_backward(Device& device, const SoftmaxBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(Layout::plain);
  const uint32_t width = last_extent(op.y);
  launch_softmax_backward(cuda.stream(), static_cast<uint32_t>(op.y.elements()) / width, width, op.log, array(op.y),
                          array(op.dy), array(op.dx));
}

Refusal dropout_refuses_these(const Tensor& x, const Tensor& out, const Tensor& mask, bool reads_mask) {
  if (Refusal r = not_readable_dtype({&x, &out})) return r;
  if (Refusal r = not_indexable({&x})) return r;
  if (Refusal r = not_readable({&x})) return r;
  if (Refusal r = not_alike({&x, &out})) return r;
  if (reads_mask && mask.layout() != Layout::plain) return "reads masks of layout plain";
  return not_plain({&mask});
}
// Elements of x by the place of the mask that decides about them, and how many an entry of the mask decides about.
Channels places_of(const Tensor& x) {
  if (x.layout() == Layout::nhwc) return channels(x);
  return {static_cast<uint32_t>(x.elements()), 1, 1, false};
}
uint32_t share_of(const Tensor& x, const Tensor& mask) {
  return static_cast<uint32_t>(x.elements()) / static_cast<uint32_t>(mask.elements());
}

Refusal dropout_refuses(const Device&, const Dropout& op) {
  return dropout_refuses_these(op.x, op.out, op.mask, false);
}
void dropout(Device& device, const Dropout& op) {
  CudaDevice& cuda = on(device);
  op.mask.materialize(Layout::plain), op.out.materialize(op.x.layout());
  // A word is kept if it is at least p 2^32.
  const auto least = static_cast<uint64_t>(std::ceil(op.p * 0x1p32));
  launch_dropout(cuda.stream(), places_of(op.x), share_of(op.x, op.mask), op.seed, least, 1 / (1 - op.p),
                 op.mask.as<uint8_t>(), array(op.x), array(op.out));
}

Refusal dropout_backward_refuses(const Device&, const DropoutBackward& op) {
  return dropout_refuses_these(op.dy, op.dx, op.mask, true);
}
void dropout_backward(Device& device, const DropoutBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.dy.layout());
  launch_masked(cuda.stream(), places_of(op.dy), share_of(op.dy, op.mask), op.mask.as<uint8_t>(), 1 / (1 - op.p),
                array(op.dy), array(op.dx));
}

Refusal lstm_refuses(const Device&, const LstmCell& op) {
  return refuses_rows({&op.z, &op.c_before, &op.gates, &op.c, &op.h});
}
void lstm(Device& device, const LstmCell& op) {
  CudaDevice& cuda = on(device);
  for (Tensor* one : {&op.gates, &op.c, &op.h}) one->materialize(Layout::plain);
  launch_lstm_cell(cuda.stream(), static_cast<uint32_t>(op.c.elements()), last_extent(op.c),
                   {array(op.z), array(op.c_before), array(op.gates), array(op.c), array(op.h)});
}

Refusal lstm_backward_refuses(const Device&, const LstmCellBackward& op) {
  return refuses_rows({&op.gates, &op.c_before, &op.c, &op.dh, &op.dc, &op.dz, &op.dc_before});
}
void lstm_backward(Device& device, const LstmCellBackward& op) {
  CudaDevice& cuda = on(device);
  op.dz.materialize(Layout::plain), op.dc_before.materialize(Layout::plain);
  launch_lstm_cell_backward(cuda.stream(), static_cast<uint32_t>(op.c.elements()), last_extent(op.c),
                            {array(op.gates), array(op.c_before), array(op.c), array(op.dh), array(op.dc), array(op.dz),
                             array(op.dc_before)});
}

}  // namespace

void add_sequence_rows(KernelTable& table) {
  table.of<Softmax>().push_back({"cuda", Speed::real, softmax_refuses, softmax});
  table.of<SoftmaxBackward>().push_back({"cuda", Speed::real, softmax_backward_refuses, softmax_backward});
  table.of<Dropout>().push_back({"cuda", Speed::real, dropout_refuses, dropout});
  table.of<DropoutBackward>().push_back({"cuda", Speed::real, dropout_backward_refuses, dropout_backward});
  table.of<LstmCell>().push_back({"cuda", Speed::real, lstm_refuses, lstm});
  table.of<LstmCellBackward>().push_back({"cuda", Speed::real, lstm_backward_refuses, lstm_backward});
}

}  // namespace halfmark::kernels::cuda
