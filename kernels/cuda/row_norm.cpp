// Rows of layer norm, RMS norm, group norm and weight norm; their kernels are in row_norm.cu and row_norm_sum.cu.
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/rows.h"
#include "kernels/ops/norm_add.h"

namespace halfmark::kernels::cuda {
namespace {

Refusal refuses_norm(std::initializer_list<const Tensor*> images, std::initializer_list<const Tensor*> vectors) {
  if (Refusal r = not_readable_dtype(images)) return r;
  if (Refusal r = not_readable_dtype(vectors)) return r;
  if (Refusal r = not_indexable(images)) return r;
  if (Refusal r = not_plain(vectors)) return r;
  return not_alike(images);
}

// `vectors`: those of one value per entry, of which at least one may be present.
template <class Op>
RowNormForm form_of(const Op& op, std::initializer_list<const Tensor*> vectors) {
  const bool last = op.x.layout() == Layout::nhwc;
  RowNormForm form{static_cast<uint32_t>(op.width),
                   static_cast<uint32_t>(op.repeat),
                   static_cast<uint32_t>(op.width / op.repeat),
                   op.centred,
                   op.summed,
                   last ? channels(op.x) : Channels{}};
  for (const Tensor* one : vectors)
    if (!one->empty()) form.entries = static_cast<uint32_t>(one->elements());
  return form;
}
template <class Op>
uint32_t rows_of(const Op& op) {
  return static_cast<uint32_t>(op.x.elements() / op.width);
}

Refusal normalize_refuses(const Device&, const NormalizeRows& op) {
  if (Refusal r = not_readable({&op.x})) return r;
  return refuses_norm({&op.x, &op.out}, {&op.scale, &op.shift, &op.mean, &op.inverse});
}
void normalize(Device& device, const NormalizeRows& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout()), op.inverse.materialize(Layout::plain);
  if (op.centred) op.mean.materialize(Layout::plain);
  launch_normalize_rows(
      cuda.stream(), rows_of(op), form_of(op, {&op.shift, &op.scale}),
      {array(op.x), array(op.scale), array(op.shift), array(op.out), array(op.mean), array(op.inverse)}, op.epsilon);
}

Refusal normalize_backward_refuses(const Device&, const NormalizeRowsBackward& op) {
  if (Refusal r = not_readable({&op.x, &op.dy})) return r;
  return refuses_norm({&op.x, &op.dy, &op.dx}, {&op.scale, &op.mean, &op.inverse, &op.dscale, &op.dshift});
}
void normalize_backward(Device& device, const NormalizeRowsBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.x.layout());
  for (Tensor* one : {&op.dscale, &op.dshift})
    if (!one->empty()) one->materialize(Layout::plain);
  const bool wide = any_f64({&op.x, &op.dy, &op.dx, &op.scale, &op.mean, &op.inverse, &op.dscale, &op.dshift});
  const RowNormForm form = form_of(op, {&op.dshift, &op.dscale, &op.scale});
  Tensor memory = workspace(cuda, entry_scratch_elements(form, rows_of(op)) * (wide ? 8 : 4));
  launch_normalize_rows_backward(cuda.stream(), rows_of(op), form, wide, memory.data(),
                                 {array(op.x), array(op.dy), array(op.scale), array(op.mean), array(op.inverse),
                                  array(op.dx), array(op.dscale), array(op.dshift)});
}

Refusal sum_refuses(const Device&, const AddNormalizeRows& op) {
  const std::initializer_list<const Tensor*> images{&op.a, &op.b, &op.sum, &op.out},
      vectors{&op.scale, &op.shift, &op.mean, &op.inverse};
  if (Refusal r = not_readable({&op.a, &op.b})) return r;
  if (Refusal r = refuses_norm(images, vectors)) return r;
  return not_plain(images);
}
// What the kernel does not take is an addition and the norm's own row.
void normalize_sum(Device& device, const AddNormalizeRows& op) {
  CudaDevice& cuda = on(device);
  for (Tensor* one : {&op.sum, &op.out, &op.inverse}) one->materialize(Layout::plain);
  if (op.centred) op.mean.materialize(Layout::plain);
  const bool started = launch_add_normalize_rows(
      cuda.stream(), rows_of(op.norm(op.sum)), form_of(op.norm(op.sum), {&op.shift, &op.scale}),
      {array(op.a),
       array(op.b),
       array(op.sum),
       {{}, array(op.scale), array(op.shift), array(op.out), array(op.mean), array(op.inverse)}},
      op.epsilon);
  if (!started) run_separately(op);
}

Refusal add_refuses(const Device&, const NormalizeRowsBackwardAdd& op) {
  const std::initializer_list<const Tensor*> images{&op.x, &op.dy, &op.addend, &op.out},
      vectors{&op.scale, &op.mean, &op.inverse, &op.dscale, &op.dshift};
  if (Refusal r = not_readable({&op.x, &op.dy, &op.addend})) return r;
  if (Refusal r = refuses_norm(images, vectors)) return r;
  return not_plain(images);
}
// What the kernel does not take is the norm's own row and an addition.
void backward_add(Device& device, const NormalizeRowsBackwardAdd& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  for (Tensor* one : {&op.dscale, &op.dshift})
    if (!one->empty()) one->materialize(Layout::plain);
  const NormalizeRowsBackward norm = op.norm(op.out);
  const RowNormForm form = form_of(norm, {&op.dshift, &op.dscale, &op.scale});
  Tensor memory = workspace(cuda, entry_scratch_elements(form, rows_of(op)) * sizeof(double));
  const bool started =
      launch_normalize_rows_backward_add(cuda.stream(), rows_of(op), form, memory.data(),
                                         {array(op.x), array(op.dy), array(op.scale), array(op.mean), array(op.inverse),
                                          array(op.out), array(op.dscale), array(op.dshift), array(op.addend)});
  if (!started) run_separately(op);
}

}  // namespace

void add_row_norm_rows(KernelTable& table) {
  table.of<NormalizeRows>().push_back({"cuda", Speed::real, normalize_refuses, normalize});
  table.of<AddNormalizeRows>().push_back({"cuda", Speed::real, sum_refuses, normalize_sum});
  table.of<NormalizeRowsBackward>().push_back({"cuda", Speed::real, normalize_backward_refuses, normalize_backward});
  table.of<NormalizeRowsBackwardAdd>().push_back({"cuda", Speed::real, add_refuses, backward_add});
}

}  // namespace halfmark::kernels::cuda
