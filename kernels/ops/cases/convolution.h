// The products of a convolution, in fp64 loops written from the formulas in operations/contraction.h, and the combinations
// of the axes of convolutions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/ops/cases/operands.h"

namespace halfmark::kernels::ops_cases {

inline Shape result_shape(const ConvSize& size) {
  const auto& [note, x, w, s, groups] = size;
  return {x[0], w[0], window_extent(x[2], w[2], s.stride_h, s.pad_h, s.dilation_h),
          window_extent(x[3], w[3], s.stride_w, s.pad_w, s.dilation_w)};
}

// f(element of x, element of w, element of y) for every product of a convolution, all in logical order.
inline void each_product(const ConvSize& size, auto&& f) {
  const auto& [note, x, w, s, groups] = size;
  const Shape y = result_shape(size);
  const int64_t per_group = w[0] / groups;
  for (int64_t n = 0; n < x[0]; ++n)
    for (int64_t o = 0; o < w[0]; ++o)
      for (int64_t oy = 0; oy < y[2]; ++oy)
        for (int64_t ox = 0; ox < y[3]; ++ox)
          for (int64_t c = 0; c < w[1]; ++c)
            for (int64_t i = 0; i < w[2]; ++i)
              for (int64_t j = 0; j < w[3]; ++j) {
                const int64_t iy = oy * s.stride_h - s.pad_h + i * s.dilation_h,
                              ix = ox * s.stride_w - s.pad_w + j * s.dilation_w;
                if (iy < 0 || iy >= x[2] || ix < 0 || ix >= x[3]) continue;
                const int64_t channel = o / per_group * w[1] + c;
                f(static_cast<size_t>(((n * x[1] + channel) * x[2] + iy) * x[3] + ix),
                  static_cast<size_t>(((o * w[1] + c) * w[2] + i) * w[3] + j),
                  static_cast<size_t>(((n * y[1] + o) * y[2] + oy) * y[3] + ox));
              }
}

// f(name, size, types, layouts, filling) over the axes.
inline void each_convolution(const Axes& axes, auto&& f) {
  for (const ConvSize& size : axes.convolutions)
    for (size_t t = 0; t < axes.contractions.size(); ++t)
      for (const ConvLayouts& layouts : axes.conv_layouts) {
        if (layouts.few_types && t > 4 && t % 3 != 0) continue;
        const ContractionTypes& types = axes.contractions[t];
        const Fill fill = layouts.out == Layout::nhwc ? Fill::integers : Fill::normal;
        const std::string name = std::string(size.note) + " " + text_of({types.a, types.b, types.out}) + " " +
                                 types.note + " " + std::string(name_of(layouts.image)) + "-" +
                                 std::string(name_of(layouts.filter)) + "-" + std::string(name_of(layouts.out));
        f(name, size, types, layouts, fill);
      }
}

}  // namespace halfmark::kernels::ops_cases
