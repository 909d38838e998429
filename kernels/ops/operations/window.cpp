#include "kernels/ops/operations/window.h"

#include <string>

#include "kernels/ops/operations/checks.h"

namespace halfmark::kernels {

using namespace operation_checks;

void check_same_shape(std::string_view operation, const Tensor& a, const Tensor& b) {
  need(a.shape() == b.shape(), operation, "shapes differ: " + a.shape().text() + " and " + b.shape().text());
}

void check_window(std::string_view operation, const Window& w) {
  need(w.stride_h > 0 && w.stride_w > 0 && w.dilation_h > 0 && w.dilation_w > 0 && w.pad_h >= 0 && w.pad_w >= 0,
       operation, "strides and dilations must be positive and padding not negative");
  constexpr int kLimit = 32768;  // the signature of an operation packs them into 16 bits each (dispatch.h)
  for (const int value : {w.stride_h, w.stride_w, w.pad_h, w.pad_w, w.dilation_h, w.dilation_w})
    need(value < kLimit, operation,
         "strides, dilations and padding must be below " + std::to_string(kLimit) + ", not " + std::to_string(value));
}

int64_t window_extent(int64_t input, int64_t kernel, int stride, int pad, int dilation) {
  const int64_t span = dilation * (kernel - 1) + 1;
  HM_CHECK(input + 2 * pad >= span, "a window of " + std::to_string(span) + " does not fit " + std::to_string(input) +
                                        " rows or columns with padding " + std::to_string(pad));
  return (input + 2 * pad - span) / stride + 1;
}

}  // namespace halfmark::kernels
