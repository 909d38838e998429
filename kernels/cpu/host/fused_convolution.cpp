// Convolutions with bias and ReLU: the device's own convolution with a result in fp32 (fp64 for f64), then one loop over it.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/host/after_product.h"
#include "kernels/cpu/rows.h"

namespace halfmark::kernels {
namespace host {
namespace {

template <bool emulated>
Refusal refuses_fused_convolution(const Device&, const FusedConv2d& op) {
  return refuses_after_product<emulated>(op);
}

// `sums`: plain, or with the channels last; overwritten.
template <class T>
void add_bias_and_clip(const FusedConv2d& op, Tensor& sums, Tensor& out) {
  const Shape& s = sums.shape();
  const bool last = sums.layout() == Layout::nhwc;
  const int64_t channels = s[1], lines = last ? s[0] * s[2] * s[3] : s[0] * channels,
                length = last ? channels : s[2] * s[3];
  const std::vector<T> bias = op.bias.empty() ? std::vector<T>(static_cast<size_t>(channels)) : widened<T>(op.bias);
  T* memory = sums.as<T>();
  parallel_for(lines, std::max<int64_t>(1, kGrain / std::max<int64_t>(length, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line)
      for (int64_t first = 0; first < length; first += kBlock) {
        const int64_t count = std::min(kBlock, length - first), at_element = line * length + first;
        T* z = memory + at_element;
        const T *add = bias.data() + (last ? first : line % channels), one = *add;
        if (last) {
          HM_EACH_FOR_ITSELF
          for (int64_t j = 0; j < count; ++j) z[j] += add[j];
        } else {
          HM_EACH_FOR_ITSELF
          for (int64_t j = 0; j < count; ++j) z[j] += one;
        }
        if (op.relu) {
          HM_EACH_FOR_ITSELF
          for (int64_t j = 0; j < count; ++j) z[j] = activations::Relu::forward(z[j]);
        }
        store_piece(out, at_element, count, z);
      }
  });
}

void run_fused_convolution(Device&, const FusedConv2d& op) {
  Tensor sums = readable(product_of(op, Layout::any));
  Result out(op.out, sums);
  if (sums.dtype() == DType::f64)
    add_bias_and_clip<double>(op, sums, out.tensor());
  else
    add_bias_and_clip<float>(op, sums, out.tensor());
  out.finish();
}

}  // namespace
}  // namespace host

void add_fused_convolution_rows(KernelTable& table) {
  host::add_rows_after<Conv2d, FusedConv2d>(table, "after-convolution", "after-convolution-emulated",
                                            host::refuses_fused_convolution<false>,
                                            host::refuses_fused_convolution<true>, host::run_fused_convolution);
}

}  // namespace halfmark::kernels
