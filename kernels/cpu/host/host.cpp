// The list of host rows, and the conversion of their operands to one layout.
#include "kernels/cpu/host/host.h"

#include <string>

#include "kernels/cpu/rows.h"

namespace halfmark::kernels {

void add_host_rows(KernelTable& table) {
  host::add_elementwise(table);
  host::add_batch_norms(table), host::add_row_norms(table);
  host::add_poolings(table);
  host::add_images(table);
  host::add_sequences(table);
  host::add_attention(table);
  host::add_training(table);
  host::add_losses(table), host::add_ctc(table);
  host::add_optimizers(table);
  host::add_reorders(table);
}

namespace host {

namespace {

// How a stored dtype is converted to the type the loops compute in.
enum class Stored : uint8_t {
  as_computed,
  widened,   // computed in fp32
  not_taken  // convert() has no fast path for it
};

Stored stored(DType dtype) {
#if defined(__x86_64__)
  static const bool has_bf16 = __builtin_cpu_supports("avx512bf16");
#else
  static const bool has_bf16 = false;
#endif
  if (dtype == DType::f64 || dtype == DType::f32) return Stored::as_computed;
  if (dtype == DType::f16) return Stored::widened;
  if (dtype == DType::bf16) return has_bf16 ? Stored::as_computed : Stored::widened;
  return Stored::not_taken;
}

}  // namespace

Refusal refuses_dtypes(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* operand : operands)
    if (!operand->empty() && stored(operand->dtype()) == Stored::not_taken)
      return "no fast loops for " + std::string(name_of(operand->dtype()));
  return {};
}

Refusal widened_type(const Tensor& tensor) {
  if (stored(tensor.dtype()) != Stored::widened) return {};
  return std::string(name_of(tensor.dtype())) + " is only a storage format here; it is computed in fp32";
}

bool computes_in_double(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* operand : operands)
    if (!operand->empty() && operand->dtype() == DType::f64) return true;
  return false;
}

bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.layout() != b.layout()) return false;
  return a.layout() != Layout::opaque || a.opaque_layout()->hash() == b.opaque_layout()->hash();
}

namespace {

// The model's layout for a tensor of this dtype. A library's
// layout is specific to its dtype and cannot be used for another.
void materialize_like(Tensor& tensor, const Tensor& model) {
  if (model.layout() != Layout::opaque) return tensor.materialize(model.layout());
  if (tensor.dtype() == model.dtype()) return tensor.materialize(model.opaque_layout());
  tensor.materialize(tensor.shape().rank() == 4 ? Layout::nhwc : Layout::plain);
}

}  // namespace

Tensor scratch_like(const Tensor& model, DType dtype) {
  const PurposeScope scope(Purpose::workspace);
  Tensor tensor(model.device(), model.shape(), dtype, Layout::any);
  materialize_like(tensor, model);
  return tensor;
}

Tensor in_layout_of(const Tensor& model, const Tensor& tensor) {
  if (same_layout(model, tensor) || (model.layout() == Layout::opaque && model.dtype() != tensor.dtype()))
    return tensor;
  Tensor copy = scratch_like(model, tensor.dtype());
  run(Reorder{tensor, copy});
  return copy;
}

Tensor readable(const Tensor& tensor) {
  if (tensor.layout() != Layout::opaque) return tensor;
  const PurposeScope scope(Purpose::workspace);
  Tensor copy(tensor.device(), tensor.shape(), tensor.dtype(),
              tensor.shape().rank() == 4 ? Layout::nhwc : Layout::plain);
  run(Reorder{tensor, copy});
  return copy;
}

Result::Result(Tensor& target, const Tensor& model) : target_(target) {
  materialize_like(target, model);
  copies_ = !same_layout(target, model);
  use_ = copies_ ? scratch_like(model, target.dtype()) : target;
}

void Result::finish() {
  if (copies_) run(Reorder{use_, target_});
}

const Tensor& leading(std::initializer_list<const Tensor*> operands) {
  for (const Tensor* operand : operands)
    if (operand->layout() != Layout::plain) return *operand;
  return **operands.begin();
}

}  // namespace host
}  // namespace halfmark::kernels
