// Rows `cudnn`: max and average pooling by the graph API. They come after halfmark's own rows and are used only if their
// results agree with those (cudnn_graph_plan.h). cuDNN's index of a maximum is its place in the window, row by row, the first
// one on a tie and the last of several NaN, as the operation keeps it.
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_graph_plan.h"
#include "kernels/cuda/cudnn_pool_graph.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

CudnnExtents image_extents(const Tensor& image) {
  const Shape& s = image.shape();
  return {s[0], s[1], s[2], s[3]};
}

template <class Op>
PoolProblem pool_problem(const Op& op, const Tensor& x, const Tensor& y, Layout layout) {
  PoolProblem p;
  p.dtype = x.dtype(), p.x = image_extents(x), p.y = image_extents(y);
  p.last = layout == Layout::nhwc;
  p.kernel_h = op.kernel_h, p.kernel_w = op.kernel_w, p.window = op.window;
  return p;
}
PoolProblem pool_problem(const MaxPool2d& op) {
  PoolProblem p = pool_problem(op, op.x, op.out, op.x.layout());
  p.has_indices = !op.indices.empty();
  return p;
}
PoolProblem pool_problem(const MaxPool2dBackward& op) {
  PoolProblem p = pool_problem(op, op.dx, op.dy, op.indices.layout());  // that of forward's image
  p.backward = p.has_indices = true;
  return p;
}
PoolProblem pool_problem(const AvgPool2d& op) {
  PoolProblem p = pool_problem(op, op.x, op.out, op.x.layout());
  p.average = true;
  return p;
}
PoolProblem pool_problem(const AvgPool2dBackward& op) {
  PoolProblem p = pool_problem(op, op.dx, op.dy, op.dy.layout());
  p.average = p.backward = true;
  return p;
}

CudnnOperands pool_operands(const Tensor& x, const Tensor& y, const Tensor& indices) {
  CudnnOperands o;
  o.add(pool_ids::kX, x.data()), o.add(pool_ids::kY, y.data());
  if (!indices.empty()) o.add(pool_ids::kIndices, indices.data());
  return o;
}

// Random values with equal ones and NaN in a window: whole numbers, and every 37th is NaN.
Tensor tried_image(CudaDevice& device, const Shape& shape, DType dtype, Layout layout) {
  std::vector<double> values = tried_values(device, shape, DType::f32, Layout::plain, 1).values();
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 37 == 36 ? std::nan("") : std::round(2 * values[i]);
  return Tensor::from(device, shape, dtype, values, layout);
}

class TriedPool {
 public:
  TriedPool(CudaDevice& device, const PoolProblem& p)
      : device_(device), p_(p), x_(p.x), y_(p.y), layout_(p.last ? Layout::nhwc : Layout::plain) {}

  GraphTrial trial() {
    if (p_.average) return p_.backward ? average_backward() : average();
    return p_.backward ? maximum_backward() : maximum();
  }

 private:
  Tensor result(const Shape& shape) const { return Tensor(device_, shape, p_.dtype, layout_); }
  Tensor random(const Shape& shape) const { return tried_values(device_, shape, p_.dtype, layout_, 2); }
  Tensor indices() const { return p_.has_indices ? Tensor(device_, y_, DType::u8, layout_) : Tensor(); }

  MaxPool2d max_pool(const Tensor& x, Tensor& out, Tensor& indices) const {
    return {
        .x = x, .out = out, .indices = indices, .kernel_h = p_.kernel_h, .kernel_w = p_.kernel_w, .window = p_.window};
  }
  GraphTrial maximum() {
    const Tensor x = tried_image(device_, x_, p_.dtype, layout_);
    Tensor out = result(y_), places = indices(), own_out = result(y_), own_places = indices();
    run_own_row(device_, max_pool(x, own_out, own_places));
    GraphTrial made{.operands = pool_operands(x, out, places), .memory = {x}, .results = {}};
    made.results.push_back({"out", out, own_out, 0, true});
    if (p_.has_indices) made.results.push_back({"index", places, own_places, 0, true});
    return made;
  }
  GraphTrial maximum_backward() {
    const Tensor x = random(x_), dy = random(y_);
    Tensor out = result(y_), places = indices();
    run_own_row(device_, max_pool(x, out, places));
    const auto op = [&](Tensor& dx) {
      return MaxPool2dBackward{
          .dy = dy, .indices = places, .dx = dx, .kernel_h = p_.kernel_h, .kernel_w = p_.kernel_w, .window = p_.window};
    };
    Tensor dx = result(x_), own = result(x_);
    run_own_row(device_, op(own));
    return {.operands = pool_operands(dx, dy, places), .memory = {dy, places}, .results = {{"dx", dx, own}}};
  }
  GraphTrial average() {
    const Tensor x = random(x_);
    const auto op = [&](Tensor& out) {
      return AvgPool2d{.x = x, .out = out, .kernel_h = p_.kernel_h, .kernel_w = p_.kernel_w, .window = p_.window};
    };
    Tensor out = result(y_), own = result(y_);
    run_own_row(device_, op(own));
    return {.operands = pool_operands(x, out, {}), .memory = {x}, .results = {{"out", out, own}}};
  }
  GraphTrial average_backward() {
    const Tensor dy = random(y_);
    const auto op = [&](Tensor& dx) {
      return AvgPool2dBackward{
          .dy = dy, .dx = dx, .kernel_h = p_.kernel_h, .kernel_w = p_.kernel_w, .window = p_.window};
    };
    Tensor dx = result(x_), own = result(x_);
    run_own_row(device_, op(own));
    return {.operands = pool_operands(dx, dy, {}), .memory = {dy}, .results = {{"dx", dx, own}}};
  }

  CudaDevice& device_;
  const PoolProblem& p_;
  Shape x_, y_;
  Layout layout_;
};

const GraphPlan& pool_plan(const CudaDevice& device, const PoolProblem& p) {
  Signature key;
  constexpr int64_t kPool = 2;
  for (const int64_t one : {kPool, int64_t{p.average}, int64_t{p.backward}, static_cast<int64_t>(p.dtype),
                            int64_t{p.last}, int64_t{p.has_indices}, int64_t{p.kernel_h}, int64_t{p.kernel_w}})
    key.add(one);
  for (const CudnnExtents* extents : {&p.x, &p.y})
    for (const int64_t extent : *extents) key.add(extent);
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(p.window);
  return graph_plan(device, key, [&](CudaDevice& tried_on) {
    const std::string what = Shape(p.x).text() + (p.last ? " nhwc" : "") + " by " + std::to_string(p.kernel_h) + "x" +
                             std::to_string(p.kernel_w);
    const bool is_half = p.dtype == DType::f16 || p.dtype == DType::bf16;
    return std::make_unique<GraphPlan>(
        tried_on, what, is_half ? TensorCores::allowed : TensorCores::excluded,
        [&](const CudnnTarget& target) { return pool_graph(target, p); },
        [&](CudaDevice& one) { return TriedPool(one, p).trial(); });
  });
}

// `images`: the image of the forward direction first.
template <class Op>
Refusal pool_refuses(const Device& device, const Op& op, std::initializer_list<const Tensor*> images,
                     const Tensor& indices) {
  if (Refusal r = not_for_library(images)) return r;
  if (Refusal r = not_indexable(images)) return r;
  for (const Tensor* one : images)
    if (one->layout() != Layout::any)
      if (Refusal r = not_readable({one})) return r;
  const Tensor& first = **images.begin();
  for (const Tensor* one : images)
    if (one->dtype() != first.dtype()) return "takes images of one dtype";
  if (op.window.dilation_h != 1 || op.window.dilation_w != 1) return "has no dilation";
  if (Refusal r = not_alike(images)) return r;
  if (!indices.empty()) {
    if (op.kernel_h * op.kernel_w > 128) return "keeps places up to 127 in a window";
    // Equal layouts of images of one pixel are called different; the order of bytes is what counts.
    for (const Tensor* one : images)
      if (Refusal r = not_alike({&indices, one})) return r;
  }
  const GraphPlan& plan = pool_plan(of(device), pool_problem(op));
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}
template <class Op>
void run_pool(CudaDevice& device, const Op& op, const Tensor& x, const Tensor& y, const Tensor& indices) {
  op.visit(AlignmentCheck{});
  const GraphPlan& plan = pool_plan(device, pool_problem(op));
  HM_CHECK(plan.refusal().empty(), "cudnn " + plan.refusal());
  plan.run(device, pool_operands(x, y, indices));
}

Refusal maximum_refuses(const Device& device, const MaxPool2d& op) {
  return pool_refuses(device, op, {&op.x, &op.out}, op.indices);
}
void maximum(Device& device, const MaxPool2d& op) {
  op.out.materialize(op.x.layout());
  if (!op.indices.empty()) op.indices.materialize(op.x.layout());
  run_pool(on(device), op, op.x, op.out, op.indices);
}

Refusal maximum_backward_refuses(const Device& device, const MaxPool2dBackward& op) {
  return pool_refuses(device, op, {&op.dy, &op.dx}, op.indices);
}
void maximum_backward(Device& device, const MaxPool2dBackward& op) {
  op.dx.materialize(op.indices.layout());
  run_pool(on(device), op, op.dx, op.dy, op.indices);
}

Refusal average_refuses(const Device& device, const AvgPool2d& op) {
  return pool_refuses(device, op, {&op.x, &op.out}, Tensor());
}
void average(Device& device, const AvgPool2d& op) {
  op.out.materialize(op.x.layout());
  run_pool(on(device), op, op.x, op.out, Tensor());
}

Refusal average_backward_refuses(const Device& device, const AvgPool2dBackward& op) {
  return pool_refuses(device, op, {&op.dy, &op.dx}, Tensor());
}
void average_backward(Device& device, const AvgPool2dBackward& op) {
  op.dx.materialize(op.dy.layout());
  run_pool(on(device), op, op.dx, op.dy, Tensor());
}

template <class Op>
std::string pool_choice(const Device& device, const Op& op) {
  return pool_plan(of(device), pool_problem(op)).choice();
}

}  // namespace

void add_cudnn_pool_rows(KernelTable& table) {
  add_compared_row<MaxPool2d>(table, maximum_refuses, maximum, pool_choice<MaxPool2d>);
  add_compared_row<MaxPool2dBackward>(table, maximum_backward_refuses, maximum_backward,
                                      pool_choice<MaxPool2dBackward>);
  add_compared_row<AvgPool2d>(table, average_refuses, average, pool_choice<AvgPool2d>);
  add_compared_row<AvgPool2dBackward>(table, average_backward_refuses, average_backward,
                                      pool_choice<AvgPool2dBackward>);
}

}  // namespace halfmark::kernels::cuda
