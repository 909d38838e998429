#include "kernels/cpu/contraction.h"

namespace halfmark::kernels {

Contraction::Contraction(const Matmul& op) : left(&op.a), right(&op.b), out(&op.out), math(op.math), beta(op.beta) {
  transpose_left_ = op.transpose_a, transpose_right_ = op.transpose_b;
  rows = op.out.shape()[0], columns = op.out.shape()[1], depth = op.a.shape()[op.transpose_a ? 0 : 1];
}

Contraction::Contraction(Kind kind, const Tensor& image, const Tensor& filter, const Tensor& result,
                         const Window& window, int g)
    : groups(g), kind_(kind), window_(window) {
  const Shape &x = image.shape(), &w = filter.shape(), &y = result.shape();
  n_ = x[0], c_ = x[1], h_ = x[2], w_ = x[3], o_ = w[0], kh_ = w[2], kw_ = w[3], oh_ = y[2], ow_ = y[3];
  group_c_ = c_ / g, group_o_ = o_ / g;
  switch (kind) {
    case Kind::matmul:
      break;
    case Kind::forward:
      rows = n_ * oh_ * ow_, columns = group_o_, depth = kh_ * kw_ * group_c_;
      break;
    case Kind::backward_data:
      rows = n_ * h_ * w_, columns = group_c_, depth = kh_ * kw_ * group_o_;
      break;
    case Kind::backward_weights:
      rows = group_c_ * kh_ * kw_, columns = group_o_, depth = n_ * oh_ * ow_;
      break;
  }
}

Contraction::Contraction(const Conv2d& op) : Contraction(Kind::forward, op.x, op.w, op.out, op.window, op.groups) {
  left = &op.x, right = &op.w, out = &op.out, math = op.math;
}
Contraction::Contraction(const Conv2dBackwardData& op)
    : Contraction(Kind::backward_data, op.dx, op.w, op.dy, op.window, op.groups) {
  left = &op.dy, right = &op.w, out = &op.dx, math = op.math;
}
Contraction::Contraction(const Conv2dBackwardWeights& op)
    : Contraction(Kind::backward_weights, op.x, op.dw, op.dy, op.window, op.groups) {
  left = &op.x, right = &op.dy, out = &op.dw, math = op.math;
}

void Contraction::left_row(int64_t group, int64_t row, int64_t* index) const {
  switch (kind_) {
    case Kind::matmul:
      for (int64_t k = 0; k < depth; ++k) index[k] = transpose_left_ ? k * rows + row : row * depth + k;
      return;
    case Kind::forward: {
      const int64_t x0 = row % ow_ * window_.stride_w - window_.pad_w;
      const int64_t y0 = row / ow_ % oh_ * window_.stride_h - window_.pad_h, n = row / ow_ / oh_;
      for (int64_t i = 0; i < kh_; ++i)
        for (int64_t j = 0; j < kw_; ++j) {
          const int64_t y = y0 + i * window_.dilation_h, x = x0 + j * window_.dilation_w;
          const bool inside = y >= 0 && y < h_ && x >= 0 && x < w_;
          for (int64_t c = 0; c < group_c_; ++c)
            *index++ = inside ? ((n * c_ + group * group_c_ + c) * h_ + y) * w_ + x : -1;
        }
      return;
    }
    case Kind::backward_data: {
      const int64_t x0 = row % w_ + window_.pad_w, y0 = row / w_ % h_ + window_.pad_h, n = row / w_ / h_;
      for (int64_t i = 0; i < kh_; ++i)
        for (int64_t j = 0; j < kw_; ++j) {
          const int64_t ys = y0 - i * window_.dilation_h, xs = x0 - j * window_.dilation_w;
          const int64_t y = ys / window_.stride_h, x = xs / window_.stride_w;
          const bool inside =
              ys >= 0 && xs >= 0 && ys % window_.stride_h == 0 && xs % window_.stride_w == 0 && y < oh_ && x < ow_;
          for (int64_t o = 0; o < group_o_; ++o)
            *index++ = inside ? ((n * o_ + group * group_o_ + o) * oh_ + y) * ow_ + x : -1;
        }
      return;
    }
    case Kind::backward_weights: {
      const int64_t j = row % kw_, i = row / kw_ % kh_, c = group * group_c_ + row / kw_ / kh_;
      for (int64_t n = 0; n < n_; ++n)
        for (int64_t oy = 0; oy < oh_; ++oy)
          for (int64_t ox = 0; ox < ow_; ++ox) {
            const int64_t y = oy * window_.stride_h - window_.pad_h + i * window_.dilation_h;
            const int64_t x = ox * window_.stride_w - window_.pad_w + j * window_.dilation_w;
            *index++ = y >= 0 && y < h_ && x >= 0 && x < w_ ? ((n * c_ + c) * h_ + y) * w_ + x : -1;
          }
      return;
    }
  }
}

void Contraction::right_column(int64_t group, int64_t column, int64_t* index) const {
  switch (kind_) {
    case Kind::matmul:
      for (int64_t k = 0; k < depth; ++k) index[k] = transpose_right_ ? column * depth + k : k * columns + column;
      return;
    case Kind::forward:
      for (int64_t p = 0; p < kh_ * kw_; ++p)
        for (int64_t c = 0; c < group_c_; ++c) *index++ = ((group * group_o_ + column) * group_c_ + c) * kh_ * kw_ + p;
      return;
    case Kind::backward_data:
      for (int64_t p = 0; p < kh_ * kw_; ++p)
        for (int64_t o = 0; o < group_o_; ++o) *index++ = ((group * group_o_ + o) * group_c_ + column) * kh_ * kw_ + p;
      return;
    case Kind::backward_weights:
      for (int64_t n = 0; n < n_; ++n)
        for (int64_t p = 0; p < oh_ * ow_; ++p) *index++ = (n * o_ + group * group_o_ + column) * oh_ * ow_ + p;
      return;
  }
}

int64_t Contraction::out_index(int64_t group, int64_t row, int64_t column) const {
  switch (kind_) {
    case Kind::matmul:
      return row * columns + column;
    case Kind::forward:
      return (row / (oh_ * ow_) * o_ + group * group_o_ + column) * oh_ * ow_ + row % (oh_ * ow_);
    case Kind::backward_data:
      return (row / (h_ * w_) * c_ + group * group_c_ + column) * h_ * w_ + row % (h_ * w_);
    case Kind::backward_weights:
      return (group * group_o_ + column) * rows + row;
  }
  return 0;
}

}  // namespace halfmark::kernels
