// Rows of the elementwise operations; their kernels are in elementwise.cu.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

uint32_t count(const Tensor& tensor) { return static_cast<uint32_t>(tensor.elements()); }

// Inputs first; the outputs may not have a layout yet.
Refusal refuses(std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> all) {
  if (Refusal r = not_readable_dtype(all)) return r;
  if (Refusal r = not_indexable(all)) return r;
  if (Refusal r = not_readable(inputs)) return r;
  return not_alike(all);
}

Refusal cast_refuses(const Device&, const Cast& op) { return refuses({&op.x}, {&op.x, &op.out}); }
void cast(Device& device, const Cast& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  // Every number of the other dtypes is one of f64.
  if (op.rounding == Rounding::near_even || op.out.dtype() == DType::f64)
    return launch_cast(cuda.stream(), count(op.x), array(op.x), array(op.out));
  const bool last = op.x.layout() == Layout::nhwc;
  launch_cast_rounded(cuda.stream(), last ? channels(op.x) : Channels{count(op.x), 1, 1, false}, array(op.x),
                      array(op.out), op.rounding, op.noise);
}

Refusal counted_cast_refuses(const Device&, const CountedCast& op) {
  if (Refusal r = not_plain({&op.events})) return r;
  return refuses({&op.x}, {&op.x, &op.out});
}
void counted_cast(Device& device, const CountedCast& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  if (op.out.dtype() == DType::f64) return launch_cast(cuda.stream(), count(op.x), array(op.x), array(op.out));
  launch_counted_cast(cuda.stream(), count(op.x), array(op.x), array(op.out), op.events.as<double>());
}

Refusal cast_tensors_refuses(const Device& device, const CastTensors& op) {
  for (CastPair& pair : op.pairs)
    if (Refusal r = cast_refuses(device, Cast{.x = pair.x, .out = pair.out})) return r;
  return {};
}
// A launch for up to kMostCasts pairs of one way; of other roundings than to nearest even, which no step asks for, one for
// each pair.
void cast_tensors(Device& device, const CastTensors& op) {
  CudaDevice& cuda = on(device);
  if (op.rounding != Rounding::near_even) {
    for (CastPair& pair : op.pairs)
      cast(device, Cast{.x = pair.x, .out = pair.out, .rounding = op.rounding, .noise = pair.noise});
    return;
  }
  for (const bool as_vectors : {true, false}) {
    CastBatch batch;
    uint32_t blocks = 0;
    const auto flush = [&] {
      if (batch.count != 0) launch_cast_tensors(cuda.stream(), batch, as_vectors);
      batch.count = 0, blocks = 0;
    };
    for (CastPair& pair : op.pairs) {
      if (casts_as_vectors(pair.x.dtype(), pair.out.dtype()) != as_vectors) continue;
      pair.out.materialize(pair.x.layout());
      const uint32_t elements = count(pair.x), more = blocks_of_cast(elements);
      if (batch.count == kMostCasts || blocks > UINT32_MAX / 4 - more) flush();
      batch.tensors[batch.count++] = {pair.x.data(), pair.out.data(), elements,
                                      blocks,        pair.x.dtype(),  pair.out.dtype()};
      blocks += more;
    }
    flush();
  }
}

template <class Row>
Refusal activation_refuses(const Device&, const Activation<Row>& op) {
  return refuses({&op.x}, {&op.x, &op.out});
}
template <class Row>
void activation(Device& device, const Activation<Row>& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  launch_activation(cuda.stream(), activations::number_of<Row>(), count(op.x), array(op.x), array(op.out));
}

template <class Row>
Refusal activation_backward_refuses(const Device&, const ActivationBackward<Row>& op) {
  if (Refusal r = refuses({&op.dy}, {&op.dy})) return r;
  return refuses({&op.kept}, {&op.kept, &op.dx});
}
template <class Row>
void activation_backward(Device& device, const ActivationBackward<Row>& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.kept.layout());
  const Tensor dy = in_layout(cuda, op.dy, op.kept.layout());
  launch_activation_backward(cuda.stream(), activations::number_of<Row>(), count(op.kept), array(op.kept), array(dy),
                             array(op.dx));
}

Refusal add_refuses(const Device&, const Add& op) {
  if (Refusal r = refuses({&op.b}, {&op.b})) return r;
  return refuses({&op.a}, {&op.a, &op.out});
}
void add(Device& device, const Add& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.a.layout());
  const Tensor b = in_layout(cuda, op.b, op.a.layout());
  launch_add(cuda.stream(), count(op.a), array(op.a), array(b), array(op.out));
}

Refusal scale_refuses(const Device&, const Scale& op) { return refuses({&op.x}, {&op.x, &op.out}); }
void scale(Device& device, const Scale& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  launch_scale(cuda.stream(), count(op.x), array(op.x), array(op.out), op.factor);
}

Refusal add_bias_refuses(const Device&, const AddBias& op) {
  if (Refusal r = not_readable_dtype({&op.bias})) return r;
  if (Refusal r = not_readable({&op.bias})) return r;
  return refuses({&op.x}, {&op.x, &op.out});
}
void add_bias(Device& device, const AddBias& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  launch_add_bias(cuda.stream(), channels(op.x), array(op.x), array(op.bias), array(op.out));
}

Refusal softmax_backward_refuses(const Device&, const SoftmaxCrossEntropyBackward& op) {
  if (Refusal r = not_readable({&op.labels})) return r;
  return refuses({&op.log_probabilities}, {&op.log_probabilities, &op.dlogits});
}
void softmax_backward(Device& device, const SoftmaxCrossEntropyBackward& op) {
  CudaDevice& cuda = on(device);
  op.dlogits.materialize(Layout::plain);
  const Shape& shape = op.log_probabilities.shape();
  const LabelForm form{{static_cast<uint32_t>(shape[0]), static_cast<uint32_t>(shape[1]), 1, true}, 0, INT64_MIN};
  launch_cross_entropy_backward(cuda.stream(), form, nullptr,
                                {array(op.log_probabilities), {}, {}, array(op.dlogits), op.labels.as<int32_t>()},
                                op.dloss / static_cast<double>(shape[0]));
}

}  // namespace

void add_elementwise_rows(KernelTable& table) {
  table.of<Cast>().push_back({"cuda", Speed::real, cast_refuses, cast});
  table.of<CountedCast>().push_back({"cuda", Speed::real, counted_cast_refuses, counted_cast});
  table.of<CastTensors>().push_back({"cuda", Speed::real, cast_tensors_refuses, cast_tensors});
  activations::All::each([&]<class Row>() {
    table.of<Activation<Row>>().push_back({"cuda", Speed::real, activation_refuses<Row>, activation<Row>});
    table.of<ActivationBackward<Row>>().push_back(
        {"cuda", Speed::real, activation_backward_refuses<Row>, activation_backward<Row>});
  });
  table.of<Scale>().push_back({"cuda", Speed::real, scale_refuses, scale});
  table.of<Add>().push_back({"cuda", Speed::real, add_refuses, add});
  table.of<AddBias>().push_back({"cuda", Speed::real, add_bias_refuses, add_bias});
  table.of<SoftmaxCrossEntropyBackward>().push_back({"cuda", Speed::real, softmax_backward_refuses, softmax_backward});
}

}  // namespace halfmark::kernels::cuda
