// Pooling on the rows "onednn". oneDNN's workspace for a max pool holds the winner's place in its window as u8, which
// is also the format of `indices`. If it differs, the row refuses.
#include <atomic>
#include <cstdint>
#include <string>

#include "kernels/cpu/onednn/plan.h"
#include "kernels/cpu/onednn/rows.h"
#include "kernels/cpu/thread_pool.h"

namespace halfmark::kernels::onednn {
namespace {

constexpr auto kMax = dnnl::algorithm::pooling_max;
constexpr auto kAverage = dnnl::algorithm::pooling_avg_include_padding;

template <class Op>
Geometry geometry_of(const Op& op) {
  const Dims padding{op.window.pad_h, op.window.pad_w};
  return {{op.window.stride_h, op.window.stride_w}, {0, 0}, {op.kernel_h, op.kernel_w}, padding, padding};
}

template <class Op>
Plan make_forward_plan(const Op& op, dnnl::algorithm algorithm) {
  const Desc x = desc_of(op.x);
  const auto description = make_pooling(algorithm, x, like(x, dims_of(op.out.shape()), type_of(op.out.dtype())),
                                        geometry_of(op), attributes());
  Plan plan = plan_of<dnnl::pooling_forward>(description);
  plan.x = x, plan.y = description.dst_desc(), plan.workspace = description.workspace_desc();
  return plan;
}
Plan make_max_plan(const MaxPool2d& op) { return make_forward_plan(op, kMax); }
Plan make_average_plan(const AvgPool2d& op) { return make_forward_plan(op, kAverage); }

template <class Op>
Plan make_backward_plan(const Op& op, const Desc& layout, dnnl::algorithm algorithm) {
  const DataType type = type_of(op.dy.dtype());
  const Desc dy = like(layout, dims_of(op.dy.shape()), type), dx = like(layout, dims_of(op.dx.shape()), type);
  const auto forward = make_pooling(algorithm, dx, dy, geometry_of(op), attributes());
  const auto description = make_pooling_backward(algorithm, dx, dy, geometry_of(op), attributes(), forward);
  Plan plan = plan_of<dnnl::pooling_backward>(description);
  plan.x = dx, plan.y = dy;
  if (algorithm == kMax) plan.workspace = forward.workspace_desc();
  return plan;
}
Plan make_max_backward_plan(const MaxPool2dBackward& op) {
  return make_backward_plan(op, common_desc(op.dy, op.indices), kMax);
}
Plan make_average_backward_plan(const AvgPool2dBackward& op) {
  return make_backward_plan(op, desc_of(op.dy), kAverage);
}

Refusal refuses_images(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype()) return "images of different dtypes";
  return refuses_dtype(a.dtype());
}

// The workspace must have the format of `indices`: one byte per result.
template <class Op>
Refusal refuses_workspace(const Op& op, const Tensor& result, Plan (*make)(const Op&)) {
  if (Refusal refusal = refuses_plan(op, make)) return refusal;
  const Desc& workspace = plan_for(op, make).workspace;
  if (onednn::type_of(workspace) != DataType::u8 || onednn::dims_of(workspace) != dims_of(result.shape()))
    return "oneDNN stores more than one byte per index for a window of this size";
  return {};
}

// oneDNN starts a maximum at the lowest finite number and ignores NaN: wrong for windows with a NaN or with only
// -infinity. x in memory order, including padding.
template <class Word, class Test>
bool any_of(const Tensor& x, Test test) {
  const auto* words = static_cast<const Word*>(x.data());
  const auto count = static_cast<int64_t>(x.bytes() / sizeof(Word));
  std::atomic<bool> found{false};
  parallel_for(count, int64_t{1} << 17, [&](int64_t begin, int64_t end) {
    unsigned hits = 0;
    for (int64_t i = begin; i < end; ++i) hits |= test(words[i]);
    if (hits) found = true;
  });
  return found;
}

bool needs_care(const Tensor& x) {
  if (x.dtype() == DType::f32)
    return any_of<uint32_t>(
        x, [](uint32_t u) { return unsigned{(u & 0x7fffffffu) > 0x7f800000u} | unsigned{u == 0xff800000u}; });
  HM_CHECK(x.dtype() == DType::bf16 || x.dtype() == DType::f16,
           "onednn: no test for NaN in dtype " + std::string(name_of(x.dtype())));
  const auto infinity = static_cast<unsigned>(format_of(x.dtype()).infinity_code());
  return any_of<uint16_t>(
      x, [infinity](uint16_t u) { return unsigned{(u & 0x7fffu) > infinity} | unsigned{u == (0x8000u | infinity)}; });
}

// The fallback: the host row on plain copies.
void run_max_carefully(const MaxPool2d& op, const Plan& plan) {
  const PurposeScope scope(Purpose::workspace);
  Device& device = op.x.device();
  Tensor x(device, op.x.shape(), op.x.dtype()), out(device, op.out.shape(), op.out.dtype()), indices;
  if (!op.indices.empty()) indices = Tensor(device, op.out.shape(), DType::u8);
  reorder(desc_of(op.x), op.x.data(), desc_of(x), x.data(), x.dtype());
  const MaxPool2d plain{x, out, indices, op.kernel_h, op.kernel_w, op.window};
  for (const Kernel<MaxPool2d>& row : device.kernels().of<MaxPool2d>()) {
    if (row.name == "onednn" || row.refuses(device, plain)) continue;
    row.run(device, plain);
    materialize_as(op.out, plan.y);
    reorder(desc_of(out), out.data(), desc_of(op.out), op.out.data(), out.dtype());
    if (op.indices.empty()) return;
    materialize_as(op.indices, plan.workspace);
    return reorder(desc_of(indices), indices.data(), desc_of(op.indices), op.indices.data(), DType::u8);
  }
  throw Unsupported("max_pool2d: non-finite numbers need a second row that supports this operation");
}

// Measured with 16x64x28x28 images, windows of 3x3 and stride 2: oneDNN 2.6.3 and the pass that looks for NaN take twice
// the time of the host's loops.
Refusal refuses_nhwc(const Tensor& image) {
  if (image.layout() == Layout::nhwc) return "the host's loops are faster for maxima of images in nhwc";
  return {};
}

Refusal refuses_max(const Device&, const MaxPool2d& op) {
  if (Refusal refusal = refuses_nhwc(op.x)) return refusal;
  if (Refusal refusal = refuses_images(op.x, op.out)) return refusal;
  return refuses_workspace(op, op.out, make_max_plan);
}

void run_max(Device& device, const MaxPool2d& op) {
  const Plan& plan = plan_for(op, make_max_plan);
  if (needs_care(op.x)) return run_max_carefully(op, plan);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  Tensor unwanted;
  if (op.indices.empty()) {
    const PurposeScope scope(Purpose::workspace);
    unwanted = Tensor(device, op.out.shape(), DType::u8, Layout::any);
  }
  call.out(DNNL_ARG_WORKSPACE, op.indices.empty() ? unwanted : op.indices, plan.workspace);
  call.run();
}

// Observed in the backward of average pooling with bf16 images in
// nhwc: an element of several windows is rounded after each addition.
template <class Op>
Refusal refuses_overlap(const Op& op) {
  const bool overlap = op.window.stride_h < op.kernel_h || op.window.stride_w < op.kernel_w;
  if (overlap && op.dx.dtype() != DType::f32)
    return "oneDNN rounds each addition of overlapping windows to " + std::string(name_of(op.dx.dtype()));
  return {};
}

Refusal refuses_max_backward(const Device&, const MaxPool2dBackward& op) {
  if (Refusal refusal = refuses_nhwc(op.dy)) return refusal;
  if (Refusal refusal = refuses_images(op.dy, op.dx)) return refusal;
  if (Refusal refusal = refuses_overlap(op)) return refusal;
  return refuses_workspace(op, op.dy, make_max_backward_plan);
}

void run_max_backward(Device& device, const MaxPool2dBackward& op) {
  const Plan& plan = plan_for(op, make_max_backward_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_DIFF_DST, op.dy, plan.y), call.in(DNNL_ARG_WORKSPACE, op.indices, plan.workspace);
  call.out(DNNL_ARG_DIFF_SRC, op.dx, plan.x);
  call.run();
}

Refusal refuses_average(const Device&, const AvgPool2d& op) {
  if (Refusal refusal = refuses_images(op.x, op.out)) return refusal;
  return refuses_plan(op, make_average_plan);
}

void run_average(Device& device, const AvgPool2d& op) {
  const Plan& plan = plan_for(op, make_average_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  call.run();
}

Refusal refuses_average_backward(const Device&, const AvgPool2dBackward& op) {
  if (Refusal refusal = refuses_images(op.dy, op.dx)) return refusal;
  if (Refusal refusal = refuses_overlap(op)) return refusal;
  return refuses_plan(op, make_average_backward_plan);
}

void run_average_backward(Device& device, const AvgPool2dBackward& op) {
  const Plan& plan = plan_for(op, make_average_backward_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_DIFF_DST, op.dy, plan.y);
  call.out(DNNL_ARG_DIFF_SRC, op.dx, plan.x);
  call.run();
}

}  // namespace

void add_poolings(KernelTable& table) {
  table.of<MaxPool2d>().push_back({"onednn", Speed::real, refuses_max, run_max});
  table.of<MaxPool2dBackward>().push_back({"onednn", Speed::real, refuses_max_backward, run_max_backward});
  table.of<AvgPool2d>().push_back({"onednn", Speed::real, refuses_average, run_average});
  table.of<AvgPool2dBackward>().push_back({"onednn", Speed::real, refuses_average_backward, run_average_backward});
}

}  // namespace halfmark::kernels::onednn
