// The table of activations: element-wise functions y = f(x) with their derivative. A row is a struct in the list below;
// operations, kernels of every device, tests and micro benchmarks are generated from it. Includes no CUDA header.
//
// A row has
//   name, backward_name   of its two operations, as in reports
//   kept                  whether backward reads f's input or its output
//   forward(x)            f in the arithmetic T (float or double), from formulas.h
//   backward(kept, dy)    f' times dy, likewise
//   forward_steps, backward_steps   the largest error of an fp32 evaluation, in roundings of the result (forward) or
//                         of the larger of dx and dy (backward); 0: the result is exact
//   points                x and f(x) from a source other than the formula, for the tests
//   forward_code, backward_code     optional: the same on the codes of fp16 and bf16
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "kernels/ops/formulas.h"

namespace halfmark::kernels::activations {

enum class Kept : uint8_t { input, output };

struct Point {
  double x, y;
};

struct Relu {
  static constexpr std::string_view name = "relu", backward_name = "relu_backward";
  static constexpr Kept kept = Kept::output;
  static constexpr double forward_steps = 0, backward_steps = 0;
  static constexpr Point points[] = {{-3, 0}, {-0.0, 0}, {0.625, 0.625}, {3, 3}};  // the definition
  template <class T>
  HM_HOST_DEVICE static constexpr T forward(T x) {
    return formulas::relu(x);
  }
  template <class T>
  HM_HOST_DEVICE static constexpr T backward(T y, T dy) {
    return formulas::relu_backward(y, dy);
  }
  static constexpr int16_t forward_code(int16_t x, int16_t infinity) { return formulas::relu_code(x, infinity); }
  static constexpr int16_t backward_code(int16_t y, int16_t dy, int16_t infinity) {
    return formulas::relu_backward_code(y, dy, infinity);
  }
};

template <class... Rows>
struct List {
  static constexpr size_t size = sizeof...(Rows);
  // f.operator()<Row>() for every row, in order.
  static constexpr void each(auto&& f) { (f.template operator()<Rows>(), ...); }
};

using All = List<Relu>;

// The index of Row in the list.
template <class Row>
constexpr size_t number_of() {
  size_t number = 0, found = All::size;
  All::each([&]<class Other>() {
    if (std::is_same_v<Row, Other>) found = number;
    ++number;
  });
  return found;
}

}  // namespace halfmark::kernels::activations
