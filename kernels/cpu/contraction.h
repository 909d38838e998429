// Matmul and the three convolutions as one form of contraction. Which terms are summed in which order is thus written
// once for the reference rows and the simulated tensor cores. In each group, out[r, c] = sum over k of left[r, k]
// right[k, c], with k increasing.
//
//   matmul            r, c: row and column of out                k: as it is
//   conv2d            r: n, y, x       c: channel of out         k: kh, kw, channel of the image
//   backward data     r: n, y, x of dx c: channel of dx          k: kh, kw, channel of dy
//   backward weights  r: channel, kh, kw of dw, c: channel of dy k: n, y, x of dy
#pragma once

#include <cstdint>

#include "kernels/ops/ops.h"

namespace halfmark::kernels {

struct Contraction {
  const Tensor* left = nullptr;
  const Tensor* right = nullptr;
  Tensor* out = nullptr;
  Math math;
  double beta = 0;
  int64_t groups = 1, rows = 0, columns = 0, depth = 0;

  // Positions of the terms of one row (or column): `depth` indices into the operand in logical order. In a row of a
  // convolution, -1 means no element: padding, or a position between the strides.
  void left_row(int64_t group, int64_t row, int64_t* index) const;
  void right_column(int64_t group, int64_t column, int64_t* index) const;
  int64_t out_index(int64_t group, int64_t row, int64_t column) const;  // in logical order

  explicit Contraction(const Matmul& op);
  explicit Contraction(const Conv2d& op);
  explicit Contraction(const Conv2dBackwardData& op);
  explicit Contraction(const Conv2dBackwardWeights& op);

 private:
  enum class Kind { matmul, forward, backward_data, backward_weights };
  Contraction(Kind kind, const Tensor& image, const Tensor& filter, const Tensor& result, const Window& window,
              int groups);

  Kind kind_ = Kind::matmul;
  bool transpose_left_ = false, transpose_right_ = false;
  Window window_;
  // For a convolution: batch, channels and extents of image, filter and result; channels per group.
  int64_t n_ = 0, c_ = 0, h_ = 0, w_ = 0, o_ = 0, kh_ = 0, kw_ = 0, oh_ = 0, ow_ = 0, group_c_ = 0, group_o_ = 0;
};

}  // namespace halfmark::kernels
