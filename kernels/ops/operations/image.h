// Images joined along their channels, and images of another size.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/tensor/tensor.h"

namespace halfmark::kernels {

// out[:, to + i] = x[:, from + i] for i < count, bit for bit; the other channels of out keep their values. The layout of
// out is chosen before.
struct CopyChannels {
  static constexpr std::string_view name = "copy_channels";
  const Tensor& x;  // [n, c, ...]
  Tensor& out;      // [n, d, ...] of the dtype of x
  int64_t from = 0, to = 0, count = 0;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.output("out", out), v.attribute(from), v.attribute(to), v.attribute(count);
  }
};

// How images get another size, as in PyTorch: each row and each column of the result is a weighted mean of consecutive
// ones of x.
enum class Resampling : uint8_t {
  bilinear,          // align_corners false: the source of i is (i + 1/2) in / out - 1/2, at least 0
  bilinear_corners,  // align_corners true: i (in - 1) / (out - 1)
  adaptive_average,  // the mean of floor(i in / out) ... ceil((i + 1) in / out) - 1
  nearest,           // floor(i in / out), as PyTorch's "nearest"
};
std::string_view name_of(Resampling resampling);

struct Resample2d {
  static constexpr std::string_view name = "resample2d";
  const Tensor& x;  // [n, c, h, w]
  Tensor& out;      // [n, c, oh, ow]
  Resampling resampling = Resampling::bilinear;
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out), v.attribute(resampling); }
};

// dx: each dy distributed to its sources with the weights of forward.
struct Resample2dBackward {
  static constexpr std::string_view name = "resample2d_backward";
  const Tensor& dy;
  Tensor& dx;
  Resampling resampling = Resampling::bilinear;
  void check() const;
  void visit(auto&& v) const { v.input("dy", dy), v.output("dx", dx), v.attribute(resampling); }
};

// The sources of one row (or column) of the result.
struct Sources {
  int64_t first;
  std::vector<double> weights;  // of first, first + 1, ...; each weight counts, and their sum is 1
};
std::vector<Sources> sources_of(Resampling resampling, int64_t in, int64_t out);

}  // namespace halfmark::kernels
