// Rows of pooling and layout conversion; their kernels are in images.cu.
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

Refusal refuses(std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> floating,
                std::initializer_list<const Tensor*> all) {
  if (Refusal r = not_readable_dtype(floating)) return r;
  if (Refusal r = not_indexable(all)) return r;
  return not_readable(inputs);
}

uint8_t* codes(const Tensor& tensor) {
  return tensor.empty() ? nullptr : static_cast<uint8_t*>(const_cast<void*>(tensor.data()));
}
bool last(const Tensor& tensor) { return !tensor.empty() && tensor.layout() == Layout::nhwc; }

Refusal max_refuses(const Device&, const MaxPool2d& op) {
  return refuses({&op.x}, {&op.x, &op.out}, {&op.x, &op.out, &op.indices});
}
void max_pool(Device& device, const MaxPool2d& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  if (!op.indices.empty()) op.indices.materialize(op.x.layout());
  launch_max_pool(cuda.stream(), image(op.x), image(op.out), window_args(op.window, op.kernel_h, op.kernel_w),
                  array(op.x), array(op.out), codes(op.indices), last(op.indices));
}

Refusal max_backward_refuses(const Device&, const MaxPool2dBackward& op) {
  return refuses({&op.dy, &op.indices}, {&op.dy, &op.dx}, {&op.dy, &op.indices, &op.dx});
}
void max_backward(Device& device, const MaxPool2dBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.indices.layout());  // that of forward's image
  launch_max_pool_backward(cuda.stream(), image(op.dy), image(op.dx), window_args(op.window, op.kernel_h, op.kernel_w),
                           array(op.dy), codes(op.indices), last(op.indices), array(op.dx));
}

Refusal avg_refuses(const Device&, const AvgPool2d& op) { return refuses({&op.x}, {&op.x, &op.out}, {&op.x, &op.out}); }
void avg_pool(Device& device, const AvgPool2d& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  launch_avg_pool(cuda.stream(), image(op.x), image(op.out), window_args(op.window, op.kernel_h, op.kernel_w),
                  array(op.x), array(op.out));
}

Refusal avg_backward_refuses(const Device&, const AvgPool2dBackward& op) {
  return refuses({&op.dy}, {&op.dy, &op.dx}, {&op.dy, &op.dx});
}
void avg_backward(Device& device, const AvgPool2dBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.dy.layout());
  launch_avg_pool_backward(cuda.stream(), image(op.dy), image(op.dx), window_args(op.window, op.kernel_h, op.kernel_w),
                           array(op.dy), array(op.dx));
}

Refusal reorder_refuses(const Device&, const Reorder& op) {
  if (Refusal r = not_indexable({&op.x})) return r;
  return not_readable({&op.x});
}
void run_reorder(Device& device, const Reorder& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  if (op.out.data() != op.x.data() || op.out.layout() != op.x.layout()) reorder(cuda, op.x, op.out);
}

}  // namespace

void add_image_rows(KernelTable& table) {
  table.of<MaxPool2d>().push_back({"cuda", Speed::real, max_refuses, max_pool});
  table.of<MaxPool2dBackward>().push_back({"cuda", Speed::real, max_backward_refuses, max_backward});
  table.of<AvgPool2d>().push_back({"cuda", Speed::real, avg_refuses, avg_pool});
  table.of<AvgPool2dBackward>().push_back({"cuda", Speed::real, avg_backward_refuses, avg_backward});
  table.of<Reorder>().push_back({"cuda", Speed::real, reorder_refuses, run_reorder});
}

}  // namespace halfmark::kernels::cuda
