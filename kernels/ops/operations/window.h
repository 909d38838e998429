// The window of a convolution or pooling, and checks that several operations share.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

struct Window {  // of a convolution or pooling
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  friend bool operator==(const Window&, const Window&) = default;
};
// Throws Error naming the operation.
void check_same_shape(std::string_view operation, const Tensor& a, const Tensor& b);
void check_window(std::string_view operation, const Window& window);
int64_t window_extent(int64_t input, int64_t kernel, int stride, int pad, int dilation);  // output rows or columns

}  // namespace halfmark::kernels
