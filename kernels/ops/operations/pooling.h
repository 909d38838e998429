// Pooling of images.
#pragma once

#include <string_view>

#include "kernels/ops/operations/window.h"

namespace halfmark::kernels {

// Padding never wins; indices hold the winner's place in its window, kernel_w * i + j, the first one on a tie.
struct MaxPool2d {
  static constexpr std::string_view name = "max_pool2d";
  const Tensor& x;
  Tensor& out;
  Tensor& indices;  // u8, shape of out; empty = not wanted (inference)
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.output("out", out), v.output("indices", indices);
    v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

struct MaxPool2dBackward {
  static constexpr std::string_view name = "max_pool2d_backward";
  const Tensor& dy;
  const Tensor& indices;
  Tensor& dx;
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("dy", dy), v.input("indices", indices), v.output("dx", dx);
    v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

struct AvgPool2d {  // padding counts as zeros, as in PyTorch's default
  static constexpr std::string_view name = "avg_pool2d";
  const Tensor& x;
  Tensor& out;
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.output("out", out), v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

struct AvgPool2dBackward {
  static constexpr std::string_view name = "avg_pool2d_backward";
  const Tensor& dy;
  Tensor& dx;
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("dy", dy), v.output("dx", dx), v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

}  // namespace halfmark::kernels
