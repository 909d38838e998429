// Rows of images of another size; their kernels are in resample.cu.
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

Refusal refuses_images(const Tensor& from, const Tensor& to) {
  if (Refusal r = not_readable_dtype({&from, &to})) return r;
  if (Refusal r = not_indexable({&from, &to})) return r;
  return not_readable({&from});
}

Refusal resample_refuses(const Device&, const Resample2d& op) { return refuses_images(op.x, op.out); }
void resample(Device& device, const Resample2d& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  const Image x = image(op.x), out = image(op.out);
  Tensor memory = workspace(cuda, resample_scratch(x, out));
  launch_resample(cuda.stream(), op.resampling, memory.data(), x, out, array(op.x), array(op.out));
}

Refusal resample_backward_refuses(const Device&, const Resample2dBackward& op) { return refuses_images(op.dy, op.dx); }
void resample_backward(Device& device, const Resample2dBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.dy.layout());
  const Image dy = image(op.dy), dx = image(op.dx);
  Tensor memory = workspace(cuda, resample_scratch(dx, dy));
  launch_resample_backward(cuda.stream(), op.resampling, memory.data(), dy, dx, array(op.dy), array(op.dx));
}

}  // namespace

void add_resample_rows(KernelTable& table) {
  table.of<Resample2d>().push_back({"cuda", Speed::real, resample_refuses, resample});
  table.of<Resample2dBackward>().push_back({"cuda", Speed::real, resample_backward_refuses, resample_backward});
}

}  // namespace halfmark::kernels::cuda
