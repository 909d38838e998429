// A convolution by cuDNN for the tests: every descriptor can be changed before it runs.
#pragma once

#include <cudnn.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/software_gpu/libraries/device_testing.h"

namespace halfmark::kernels::software_gpu::cudnn {

struct Sizes {
  int n = 2, c = 4, h = 7, w = 6, k = 6, kh = 3, kw = 2, groups = 1;
  int pad_h = 1, pad_w = 0, stride_h = 2, stride_w = 1, dilation_h = 1, dilation_w = 2;
  int oh() const { return 1 + (h + 2 * pad_h - (kh - 1) * dilation_h - 1) / stride_h; }
  int ow() const { return 1 + (w + 2 * pad_w - (kw - 1) * dilation_w - 1) / stride_w; }
  size_t x() const { return static_cast<size_t>(n * c * h * w); }
  size_t filter() const { return static_cast<size_t>(k * c / groups * kh * kw); }
  size_t y() const { return static_cast<size_t>(n * k * oh() * ow()); }
};

inline DType dtype_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE     ? DType::f64
         : type == CUDNN_DATA_HALF     ? DType::f16
         : type == CUDNN_DATA_BFLOAT16 ? DType::bf16
                                       : DType::f32;
}

// The place of element (a, b, c, d) of an array with these extents.
inline size_t place(bool nhwc, int b_count, int c_count, int d_count, int a, int b, int c, int d) {
  return static_cast<size_t>(nhwc ? ((a * c_count + c) * d_count + d) * b_count + b
                                  : ((a * b_count + b) * c_count + c) * d_count + d);
}

struct Call {
  Sizes s;
  cudnnDataType_t type = CUDNN_DATA_FLOAT, compute = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW, filter_format = CUDNN_TENSOR_NCHW;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnMathType_t math = CUDNN_FMA_MATH;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  std::vector<double> x_values, w_values, y_values;  // as stored
  void *x_memory = nullptr, *w_memory = nullptr, *y_memory = nullptr, *workspace = nullptr;
  size_t workspace_bytes = 1 << 20;
  float alpha = 1, beta = 0;
  double wide_alpha = 1, wide_beta = 0;

  Call() = default;
  ~Call() {
    cudnnDestroyTensorDescriptor(x), cudnnDestroyTensorDescriptor(y), cudnnDestroyFilterDescriptor(w);
    cudnnDestroyConvolutionDescriptor(convolution), cudnnDestroy(handle);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void describe() {
    ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&x), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&y), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnCreateFilterDescriptor(&w), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnCreateConvolutionDescriptor(&convolution), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetTensor4dDescriptor(x, format, type, s.n, s.c, s.h, s.w), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetTensor4dDescriptor(y, format, type, s.n, s.k, s.oh(), s.ow()), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetFilter4dDescriptor(w, type, filter_format, s.k, s.c / s.groups, s.kh, s.kw),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetConvolution2dDescriptor(convolution, s.pad_h, s.pad_w, s.stride_h, s.stride_w, s.dilation_h,
                                              s.dilation_w, mode, compute),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetConvolutionGroupCount(convolution, s.groups), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetConvolutionMathType(convolution, math), CUDNN_STATUS_SUCCESS);
  }
  void fill() {
    const DType dtype = dtype_of(type);
    x_values = small_numbers(s.x(), 1), w_values = small_numbers(s.filter(), 2), y_values = small_numbers(s.y(), 3);
    x_memory = on_device(dtype, x_values), w_memory = on_device(dtype, w_values), y_memory = on_device(dtype, y_values);
    workspace = allocate_on_device(workspace_bytes);
  }
  const void* one() {
    wide_alpha = alpha;
    return type == CUDNN_DATA_DOUBLE ? static_cast<const void*>(&wide_alpha) : &alpha;
  }
  const void* other() {
    wide_beta = beta;
    return type == CUDNN_DATA_DOUBLE ? static_cast<const void*>(&wide_beta) : &beta;
  }
  cudnnStatus_t forward(int algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) {
    return cudnnConvolutionForward(handle, one(), x, x_memory, w, w_memory, convolution,
                                   static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), workspace, workspace_bytes,
                                   other(), y, y_memory);
  }
  cudnnStatus_t backward_data(int algorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) {
    return cudnnConvolutionBackwardData(handle, one(), w, w_memory, y, y_memory, convolution,
                                        static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm), workspace,
                                        workspace_bytes, other(), x, x_memory);
  }
  cudnnStatus_t backward_filter(int algorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1) {
    return cudnnConvolutionBackwardFilter(handle, one(), x, x_memory, y, y_memory, convolution,
                                          static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm), workspace,
                                          workspace_bytes, other(), w, w_memory);
  }

  // f(place in x, place in w, place in y) for every product of the definition, by plain loops.
  void each_product(const auto& f) const {
    const bool nhwc = format == CUDNN_TENSOR_NHWC, filter_nhwc = filter_format == CUDNN_TENSOR_NHWC;
    const int group_c = s.c / s.groups, group_k = s.k / s.groups;
    for (int n = 0; n < s.n; ++n)
      for (int k = 0; k < s.k; ++k)
        for (int oh = 0; oh < s.oh(); ++oh)
          for (int ow = 0; ow < s.ow(); ++ow)
            for (int c = 0; c < group_c; ++c)
              for (int i = 0; i < s.kh; ++i)
                for (int j = 0; j < s.kw; ++j) {
                  const int h = oh * s.stride_h - s.pad_h + i * s.dilation_h,
                            w_at = ow * s.stride_w - s.pad_w + j * s.dilation_w;
                  if (h < 0 || h >= s.h || w_at < 0 || w_at >= s.w) continue;
                  const bool turned = mode == CUDNN_CONVOLUTION;
                  f(place(nhwc, s.c, s.h, s.w, n, k / group_k * group_c + c, h, w_at),
                    place(filter_nhwc, group_c, s.kh, s.kw, k, c, turned ? s.kh - 1 - i : i, turned ? s.kw - 1 - j : j),
                    place(nhwc, s.k, s.oh(), s.ow(), n, k, oh, ow));
                }
  }
  std::vector<double> expected_y() const {
    std::vector<double> sums(s.y());
    each_product([&](size_t a, size_t b, size_t to) { sums[to] += x_values[a] * w_values[b]; });
    return scaled(sums, y_values);
  }
  std::vector<double> expected_x() const {
    std::vector<double> sums(s.x());
    each_product([&](size_t to, size_t b, size_t a) { sums[to] += y_values[a] * w_values[b]; });
    return scaled(sums, x_values);
  }
  std::vector<double> expected_w() const {
    std::vector<double> sums(s.filter());
    each_product([&](size_t a, size_t to, size_t b) { sums[to] += x_values[a] * y_values[b]; });
    return scaled(sums, w_values);
  }
  std::vector<double> scaled(std::vector<double> sums, const std::vector<double>& before) const {
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = round_to(format_of(dtype_of(type)),
                         static_cast<double>(alpha) * sums[i] + static_cast<double>(beta) * before[i]);
    return sums;
  }
};

}  // namespace halfmark::kernels::software_gpu::cudnn
