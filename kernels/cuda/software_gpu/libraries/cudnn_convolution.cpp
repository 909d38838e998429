// The functions of cuDNN's legacy convolutions: output extents, workspace sizes, and the convolutions themselves.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_problem.h"
#include "kernels/cuda/software_gpu/libraries/reference.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

// The places of all elements in n, c, h, w order (k, c, h, w), in elements.
std::vector<int64_t> places(const std::array<int, 4>& extents, const std::array<int, 4>& strides) {
  std::vector<int64_t> result;
  for (int64_t n = 0; n < extents[0]; ++n)
    for (int64_t c = 0; c < extents[1]; ++c)
      for (int64_t h = 0; h < extents[2]; ++h)
        for (int64_t w = 0; w < extents[3]; ++w)
          result.push_back(n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3]);
  return result;
}
std::vector<int64_t> places(const Image& image) { return places(image.extents, image.strides); }
std::vector<int64_t> places(const Filter& filter) {
  return places(filter.extents, packed_strides(filter.extents, filter.format));
}

// In the order of memory, neighbours are checked and copied together.
std::vector<size_t> by_place(const std::vector<int64_t>& of) {
  std::vector<size_t> order(of.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!std::is_sorted(of.begin(), of.end()))
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return of[a] < of[b]; });
  return order;
}
std::vector<double> read_places(const void* address, DType dtype, const std::vector<int64_t>& of) {
  const std::vector<size_t> order = by_place(of);
  std::vector<int64_t> sorted;
  for (const size_t i : order) sorted.push_back(of[i]);
  const std::vector<double> memory = read_runs(address, dtype, sorted, 1);
  std::vector<double> values(of.size());
  for (size_t i = 0; i < order.size(); ++i) values[order[i]] = memory[i];
  return values;
}
void write_places(void* address, DType dtype, const std::vector<int64_t>& of, const std::vector<double>& values) {
  std::vector<int64_t> sorted;
  std::vector<double> memory;
  for (const size_t i : by_place(of)) sorted.push_back(of[i]), memory.push_back(values[i]);
  write_runs(address, dtype, sorted, 1, memory);
}

Shape shape_of(const std::array<int, 4>& e) { return Shape{e[0], e[1], e[2], e[3]}; }

// CUDNN_CONVOLUTION turns the filter by 180 degrees.
void turn(std::vector<double>& filter, const std::array<int, 4>& e) {
  const size_t area = static_cast<size_t>(e[2]) * static_cast<size_t>(e[3]);
  for (size_t begin = 0; begin < filter.size(); begin += area)
    for (size_t i = 0; i < area / 2; ++i) std::swap(filter[begin + i], filter[begin + area - 1 - i]);
}

std::vector<double> sums(const Problem& p, const std::vector<double>& left, const std::vector<double>& right) {
  const Window window{p.convolution.stride[0], p.convolution.stride[1],   p.convolution.pad[0],
                      p.convolution.pad[1],    p.convolution.dilation[0], p.convolution.dilation[1]};
  const DType wide = p.dtype == DType::f64 ? DType::f64 : DType::f32;
  const int groups = p.convolution.groups;
  std::vector<double> result;
  with_reference_rows([&](Device& device) {
    const auto operand = [&](const std::array<int, 4>& extents, const std::vector<double>& values) {
      return Tensor::from(device, shape_of(extents), p.dtype, values);
    };
    switch (p.direction) {
      case Direction::forward: {
        const Tensor x = operand(p.x.extents, left), w = operand(p.w.extents, right);
        Tensor out(device, shape_of(p.y.extents), wide);
        run(Conv2d{x, w, out, window, groups, p.math()});
        result = out.values();
        break;
      }
      case Direction::data: {
        const Tensor dy = operand(p.y.extents, left), w = operand(p.w.extents, right);
        Tensor dx(device, shape_of(p.x.extents), wide);
        run(Conv2dBackwardData{dy, w, dx, window, groups, p.math()});
        result = dx.values();
        break;
      }
      case Direction::filter: {
        const Tensor x = operand(p.x.extents, left), dy = operand(p.y.extents, right);
        Tensor dw(device, shape_of(p.w.extents), wide);
        run(Conv2dBackwardWeights{x, dy, dw, window, groups, p.math()});
        result = dw.values();
        break;
      }
    }
  });
  return result;
}

}  // namespace

std::vector<double> convolution_sums(const Problem& problem, const std::vector<double>& image,
                                     std::vector<double> filter) {
  if (problem.convolution.mode == CUDNN_CONVOLUTION) turn(filter, problem.w.extents);
  return sums(problem, image, filter);
}

void compute(const Work& work) {
  const Problem& p = work.problem;
  const bool turned = p.convolution.mode == CUDNN_CONVOLUTION, to_filter = p.direction == Direction::filter;
  spoil(work.workspace, work.workspace_bytes);
  const auto read = [&](const void* address, const std::vector<int64_t>& from) {
    return read_places(address, p.dtype, from);
  };
  const std::vector<double> left =
      p.direction == Direction::data ? read(work.y, places(p.y)) : read(work.x, places(p.x));
  std::vector<double> right = to_filter ? read(work.y, places(p.y)) : read(work.w, places(p.w));
  if (turned && !to_filter) turn(right, p.w.extents);
  std::vector<double> values = sums(p, left, right);
  if (turned && to_filter) turn(values, p.w.extents);

  void* address = to_filter ? work.w : p.direction == Direction::data ? work.x : work.y;
  const std::vector<int64_t> to = to_filter ? places(p.w) : p.direction == Direction::data ? places(p.x) : places(p.y);
  const Runs result{address, p.dtype, to, 1};
  if (p.direction != Direction::data) check_apart({work.x, p.dtype, places(p.x), 1}, result);
  if (p.direction != Direction::filter) check_apart({work.w, p.dtype, places(p.w), 1}, result);
  if (p.direction != Direction::forward) check_apart({work.y, p.dtype, places(p.y), 1}, result);
  const Format& format = p.dtype == DType::f64 ? kFp64 : kFp32;
  std::vector<double> before;
  if (work.beta != 0) before = read(address, to);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = round_to(format, work.alpha * values[i]);
    if (work.beta != 0) values[i] = fused_multiply_add(format, work.beta, before[i], values[i]);
  }
  write_places(address, p.dtype, to, values);
}

namespace {

bool aligned(const void* pointer, DType dtype) { return reinterpret_cast<uintptr_t>(pointer) % size_of(dtype) == 0; }

cudnnStatus_t convolve(cudnnHandle_t handle, Direction direction, Work& work, const void* alpha, const void* beta,
                       cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                       cudnnTensorDescriptor_t y, int algorithm, size_t workspace_bytes) {
  const auto found = find(handle);
  if (!found) return refuse(kBad, "not a live handle");
  if (!alpha || !beta || !work.x || !work.w || !work.y) return refuse(kBad, "a pointer is null");
  Problem& p = work.problem;
  if (const cudnnStatus_t status = make_problem(direction, x, w, convolution, y, architecture_of(found->device), p);
      status != kFine)
    return status;
  if (const cudnnStatus_t status = check_algorithm(p, algorithm); status != kFine) return status;
  if (!aligned(work.x, p.dtype) || !aligned(work.w, p.dtype) || !aligned(work.y, p.dtype))
    return refuse(kBad, "a pointer is not aligned to its data type");
  work.workspace_bytes = workspace_of(p, algorithm);
  if (work.workspace_bytes > workspace_bytes || (work.workspace_bytes && !work.workspace))
    return refuse(kBad, "the workspace is smaller than the algorithm needs");
  // "Scaling parameters": in host memory, double for DOUBLE, else float.
  const DType scalar = p.dtype == DType::f64 ? DType::f64 : DType::f32;
  work.alpha = load(scalar, alpha, 0), work.beta = load(scalar, beta, 0);
  enqueue(found->stream, [work] { compute(work); });
  return kFine;
}

cudnnStatus_t workspace_size(cudnnHandle_t handle, Direction direction, cudnnTensorDescriptor_t x,
                             cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                             cudnnTensorDescriptor_t y, int algorithm, size_t* bytes) {
  const auto found = find(handle);
  if (!found || !bytes) return refuse(kBad, "not a live handle, or no place for the size");
  Problem problem;
  if (const cudnnStatus_t status =
          make_problem(direction, x, w, convolution, y, architecture_of(found->device), problem);
      status != kFine)
    return status;
  if (const cudnnStatus_t status = check_algorithm(problem, algorithm); status != kFine) return status;
  *bytes = workspace_of(problem, algorithm);
  return kFine;
}

// Only reads of operands: the functions take them as const.
void* operand(const void* pointer) { return const_cast<void*>(pointer); }

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cudnn

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::cudnn;

#define HM_CALLED(name) \
  if (const auto failure = called(name)) return refuse(static_cast<cudnnStatus_t>(*failure), "injected failure")

extern "C" {

// Fewer numbers than 4 may be asked for.
cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(const cudnnConvolutionDescriptor_t convolution,
                                                    const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
                                                    int count, int extents[]) {
  HM_CALLED("cudnnGetConvolutionNdForwardOutputDim");
  const auto described = find(convolution);
  const auto image = find(x);
  const auto filter = find(w);
  if (!described || !image || !filter || !extents) return refuse(kBad, "a descriptor or the place for the result");
  if (count < 0 || count > 4) return refuse(kBad, "the descriptors have 4 dimensions");
  std::array<int, 4> result{};
  if (const cudnnStatus_t status = output_extents(*described, *image, *filter, result); status != kFine) return status;
  for (int i = 0; i < count; ++i) extents[i] = result[static_cast<size_t>(i)];
  return kFine;
}
cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t convolution,
                                                    const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
                                                    int* n, int* c, int* h, int* width) {
  HM_CALLED("cudnnGetConvolution2dForwardOutputDim");
  int extents[4] = {};
  if (!n || !c || !h || !width) return refuse(kBad, "no place for the result");
  const cudnnStatus_t status = cudnnGetConvolutionNdForwardOutputDim(convolution, x, w, 4, extents);
  if (status == kFine) *n = extents[0], *c = extents[1], *h = extents[2], *width = extents[3];
  return status;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t convolution,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  HM_CALLED("cudnnGetConvolutionForwardWorkspaceSize");
  return workspace_size(handle, Direction::forward, x, w, convolution, y, algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t convolution,
                                                           const cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  HM_CALLED("cudnnGetConvolutionBackwardDataWorkspaceSize");
  return workspace_size(handle, Direction::data, dx, w, convolution, dy, algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t convolution,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  HM_CALLED("cudnnGetConvolutionBackwardFilterWorkspaceSize");
  return workspace_size(handle, Direction::filter, x, dw, convolution, dy, algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_desc,
                                      const void* x, const cudnnFilterDescriptor_t w_desc, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t workspace_bytes,
                                      const void* beta, const cudnnTensorDescriptor_t y_desc, void* y) {
  HM_CALLED("cudnnConvolutionForward");
  Work work;
  work.x = operand(x), work.w = operand(w), work.y = y, work.workspace = workspace;
  return convolve(handle, Direction::forward, work, alpha, beta, x_desc, w_desc, convolution, y_desc, algorithm,
                  workspace_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_desc, const void* w,
                                           const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_desc, void* dx) {
  HM_CALLED("cudnnConvolutionBackwardData");
  Work work;
  work.x = dx, work.w = operand(w), work.y = operand(dy), work.workspace = workspace;
  return convolve(handle, Direction::data, work, alpha, beta, dx_desc, w_desc, convolution, dy_desc, algorithm,
                  workspace_bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void* x,
                                             const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_desc, void* dw) {
  HM_CALLED("cudnnConvolutionBackwardFilter");
  Work work;
  work.x = operand(x), work.w = dw, work.y = operand(dy), work.workspace = workspace;
  return convolve(handle, Direction::filter, work, alpha, beta, x_desc, dw_desc, convolution, dy_desc, algorithm,
                  workspace_bytes);
}

}  // extern "C"
