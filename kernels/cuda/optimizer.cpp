// Rows of the steps of optimizers (kernels in optimizer.cu), and of unscaling, the norm of gradients and clipping by it
// (gradients.cu). All tensors of one arithmetic are in one launch, kMostTensors at most.
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

uint32_t elements_of(const Tensor& tensor) { return static_cast<uint32_t>(tensor.elements()); }

Refusal updated_refuses(std::span<UpdatedTensors> tensors, const Tensor& found_inf, Storage storage) {
  if (Refusal r = not_readable({&found_inf})) return r;
  for (const UpdatedTensors& t : tensors) {
    const std::initializer_list<const Tensor*> all = {&t.parameter, &t.gradient,     &t.first,
                                                      &t.second,    &t.compensation, &t.low};
    if (Refusal r = not_readable_dtype(all)) return r;
    if (Refusal r = not_indexable(all)) return r;
    if (Refusal r = not_readable({&t.parameter, &t.gradient, &t.first, &t.second, &t.compensation})) return r;
    if (Refusal r = not_alike(all)) return r;
    if (storage == Storage::stochastic && t.parameter.layout() != Layout::plain)
      return "rounds at random only in layout plain, not " + std::string(name_of(t.parameter.layout()));
  }
  return {};
}

UpdatedArrays arrays_of(const UpdatedTensors& t) {
  UpdatedArrays a{};
  const auto set = [](const Tensor& tensor, void*& data, DType& dtype) {
    const Array one = array(tensor);
    data = one.data, dtype = one.dtype;
  };
  set(t.parameter, a.parameter, a.parameter_dtype), set(t.gradient, a.gradient, a.gradient_dtype);
  set(t.first, a.first, a.first_dtype), set(t.second, a.second, a.second_dtype);
  set(t.compensation, a.compensation, a.compensation_dtype), set(t.low, a.low, a.low_dtype);
  a.elements = elements_of(t.parameter);
  return a;
}

template <class Op>
StepForm form_of(const Op& op) {
  return {op.storage, op.rounding, op.noise, op.found_inf.empty() ? nullptr : op.found_inf.template as<float>()};
}

// launch(batch, is_wide) for each batch of parameters of one arithmetic.
template <class Launch>
void each_batch(std::span<UpdatedTensors> tensors, Launch launch) {
  UpdateBatch batches[2];  // in fp32, in fp64
  uint32_t blocks[2] = {0, 0};
  const auto flush = [&](size_t which) {
    if (batches[which].count != 0) launch(batches[which], which == 1);
    batches[which].count = 0, blocks[which] = 0;
  };
  uint64_t noise = 0;
  for (UpdatedTensors& t : tensors) {
    if (!t.low.empty()) t.low.materialize(t.parameter.layout());
    const size_t which = any_f64({&t.parameter, &t.gradient}) ? 1 : 0;
    const uint32_t more = blocks_of_updates(elements_of(t.parameter));
    if (batches[which].count == kMostTensors || blocks[which] > UINT32_MAX / 4 - more) flush(which);
    UpdatedArrays& one = batches[which].tensors[batches[which].count++];
    one = arrays_of(t);
    one.first_block = blocks[which], one.first_noise = noise;
    blocks[which] += more;
    noise += one.elements;
  }
  flush(0), flush(1);
}

Refusal sgd_refuses(const Device&, const SgdStep& op) { return updated_refuses(op.tensors, op.found_inf, op.storage); }
void sgd(Device& device, const SgdStep& op) {
  CudaDevice& cuda = on(device);
  // As in the formula, nesterov without momentum is none.
  const auto constants = [&]<class T>() {
    return formulas::sgd_constants<T>(op.rate, op.momentum, op.dampening, op.weight_decay, op.nesterov, op.first);
  };
  const auto narrow = constants.template operator()<float>();
  const auto wide = constants.template operator()<double>();
  each_batch(op.tensors, [&](const UpdateBatch& batch, bool is_wide) {
    launch_sgd_step(cuda.stream(), batch, form_of(op), &narrow, is_wide ? &wide : nullptr);
  });
}

Refusal adam_refuses(const Device&, const AdamStep& op) {
  return updated_refuses(op.tensors, op.found_inf, op.storage);
}
void adam(Device& device, const AdamStep& op) {
  CudaDevice& cuda = on(device);
  const auto constants = [&]<class T>() {
    return formulas::adam_constants<T>(op.kind, op.rate, op.beta1, op.beta2, op.epsilon, op.weight_decay, op.step);
  };
  const auto narrow = constants.template operator()<float>();
  const auto wide = constants.template operator()<double>();
  each_batch(op.tensors, [&](const UpdateBatch& batch, bool is_wide) {
    launch_adam_step(cuda.stream(), batch, form_of(op), op.kind, &narrow, is_wide ? &wide : nullptr);
  });
}

// launch(batch) for each batch of the gradients that `takes` accepts.
template <class Tensors, class Takes, class Launch>
void each_gradients(const Tensors& gradients, Takes takes, Launch launch) {
  GradientBatch batch;
  uint32_t blocks = 0;
  const auto flush = [&] {
    if (batch.count != 0) launch(batch, blocks);
    batch.count = 0, blocks = 0;
  };
  for (const Tensor& gradient : gradients) {
    if (!takes(gradient)) continue;
    if (batch.count == kMostTensors) flush();
    batch.tensors[batch.count++] = {const_cast<void*>(gradient.data()), elements_of(gradient), blocks,
                                    gradient.dtype()};
    blocks += blocks_of_elements(elements_of(gradient));
  }
  flush();
}

template <class Tensors>
Refusal gradients_refuse(const Tensors& gradients, const Tensor& norm) {
  if (Refusal r = not_readable_dtype({&norm})) return r;
  if (Refusal r = not_plain({&norm})) return r;
  for (const Tensor& gradient : gradients) {
    if (Refusal r = not_readable_dtype({&gradient})) return r;
    if (Refusal r = not_indexable({&gradient})) return r;
    if (Refusal r = not_readable({&gradient})) return r;
  }
  return {};
}

// launch(batch, wide) for the gradients in fp64 and for all others.
template <class Launch>
void each_gradients_by_width(std::span<Tensor> gradients, Launch launch) {
  for (const bool wide : {false, true})
    each_gradients(
        gradients, [wide](const Tensor& gradient) { return (gradient.dtype() == DType::f64) == wide; },
        [&](const GradientBatch& batch, uint32_t) { launch(batch, wide); });
}

Refusal unscale_refuses(const Device&, const Unscale& op) { return gradients_refuse(op.gradients, op.found_inf); }
void unscale(Device& device, const Unscale& op) {
  CudaDevice& cuda = on(device);
  each_gradients_by_width(op.gradients, [&](const GradientBatch& batch, bool wide) {
    launch_unscale(cuda.stream(), batch, wide, op.found_inf.as<float>(), op.inverse_scale);
  });
}

Refusal norm_refuses(const Device&, const GradientNorm& op) { return gradients_refuse(op.gradients, op.norm); }
void norm(Device& device, const GradientNorm& op) {
  CudaDevice& cuda = on(device);
  op.norm.materialize(Layout::plain);
  uint32_t parts = 0;
  for (const Tensor& gradient : op.gradients) parts += blocks_of_elements(elements_of(gradient));
  Tensor memory = workspace(cuda, (size_t{parts} + 1) * sizeof(double));
  auto* sums = static_cast<double*>(memory.data());
  uint32_t done = 0;
  each_gradients(
      op.gradients, [](const Tensor&) { return true; },
      [&](const GradientBatch& batch, uint32_t) { done += launch_sum_squares(cuda.stream(), batch, sums + done); });
  launch_root_of_sum(cuda.stream(), done, sums, array(op.norm));
}

Refusal clip_refuses(const Device&, const ClipGradients& op) {
  if (Refusal r = not_readable({&op.norm})) return r;
  return gradients_refuse(op.gradients, op.norm);
}
void clip(Device& device, const ClipGradients& op) {
  CudaDevice& cuda = on(device);
  each_gradients_by_width(op.gradients, [&](const GradientBatch& batch, bool wide) {
    launch_clip(cuda.stream(), batch, wide, array(op.norm), op.limit);
  });
}

}  // namespace

void add_optimizer_rows(KernelTable& table) {
  table.of<SgdStep>().push_back({"cuda", Speed::real, sgd_refuses, sgd});
  table.of<AdamStep>().push_back({"cuda", Speed::real, adam_refuses, adam});
  table.of<Unscale>().push_back({"cuda", Speed::real, unscale_refuses, unscale});
  table.of<GradientNorm>().push_back({"cuda", Speed::real, norm_refuses, norm});
  table.of<ClipGradients>().push_back({"cuda", Speed::real, clip_refuses, clip});
}

}  // namespace halfmark::kernels::cuda
