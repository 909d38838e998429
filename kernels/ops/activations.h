// The table of activations: element-wise functions y = f(x) with their derivative. A row is a struct in the list below;
// operations, kernels of every device, tests and micro benchmarks are generated from it. Includes no CUDA header.
//
// A row has
//   name, backward_name   of its two operations, as in reports
//   about                 the function in words
//   kept                  whether backward reads f's input or its output
//   forward(x)            f in the arithmetic T (float or double), from formulas.h
//   backward(kept, dy)    f' times dy, likewise
//   forward_steps, backward_steps   the largest error of an fp32 evaluation, in steps of two roundings of the result
//                         (forward) or of the larger of dx and dy (backward); 0: the result is exact
//   gpu_forward_steps     optional: that of a GPU's, where it may be larger
//   points                x and f(x) from a source other than the formula, for the tests
//   forward_code, backward_code     optional: the same on the codes of fp16 and bf16
//   passes_operand        optional: true if f may return an operand unchanged; kernels then keep the sign of a NaN
//   operation             optional: its name in the lists of autocast; without it, `name`
#pragma once

#include <cmath>
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
  static constexpr std::string_view about = "max(x, 0)";
  static constexpr bool passes_operand = true;
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

struct LeakyRelu {
  static constexpr std::string_view name = "leaky_relu", backward_name = "leaky_relu_backward";
  static constexpr std::string_view about = "x, or 0.01 x if it is negative";
  static constexpr bool passes_operand = true;
  static constexpr Kept kept = Kept::output;
  static constexpr double forward_steps = 1, backward_steps = 1;
  static constexpr Point points[] = {{-8, -0.08}, {-0.5, -0.005}, {0, 0}, {0.625, 0.625}, {3, 3}};  // the definition
  template <class T>
  HM_HOST_DEVICE static constexpr T forward(T x) {
    return formulas::leaky_relu(x);
  }
  template <class T>
  HM_HOST_DEVICE static constexpr T backward(T y, T dy) {
    return formulas::leaky_relu_backward(y, dy);
  }
};

// Points of the functions below: mpmath 1.3 with 50 digits, rounded to double. Steps: about half of the largest error in
// roundings (a step allows two) over every 997th float, with glibc 2.36, times two for other mathematical libraries:
// 2.9 and 1.6 for sigmoid, 2.7 and 1.5 for tanh, 3.3 and 16 for SiLU, 4.3 and 2.1 for GELU, 202 and 33 with tanh. Those of GPUs
// are what NVIDIA states (ops/formulas_fp32.h): 5 roundings for expf, 3 for rcp, 5 for ex2, and one for each other operation.
struct Sigmoid {
  static constexpr std::string_view name = "sigmoid", backward_name = "sigmoid_backward";
  static constexpr std::string_view about = "1 / (1 + exp(-x))";
  static constexpr Kept kept = Kept::output;
  static constexpr double forward_steps = 3, backward_steps = 2;
  static constexpr double gpu_forward_steps = 5;  // expf, a sum, rcp, a product
  static constexpr Point points[] = {
      {-8, 0.0003353501304664781}, {-2.5, 0.07585818002124355}, {-0.75, 0.320821300824607}, {0, 0.5},
      {0.625, 0.6513548646660542}, {3, 0.9525741268224333},     {9, 0.9998766054240138}};
  template <class T>
  HM_HOST_DEVICE static T forward(T x) {
    return formulas::sigmoid(x);
  }
  template <class T>
  HM_HOST_DEVICE static constexpr T backward(T y, T dy) {
    return formulas::sigmoid_backward(y, dy);
  }
};

struct Tanh {
  static constexpr std::string_view name = "tanh", backward_name = "tanh_backward";
  static constexpr std::string_view about = "the hyperbolic tangent";
  static constexpr Kept kept = Kept::output;
  static constexpr double forward_steps = 3, backward_steps = 2;
  static constexpr Point points[] = {
      {-8, -0.9999997749296758},   {-2.5, -0.9866142981514303}, {-0.75, -0.6351489523872873}, {0, 0.0},
      {0.625, 0.5545997223493823}, {3, 0.9950547536867305},     {9, 0.999999969540041}};
  template <class T>
  HM_HOST_DEVICE static T forward(T x) {
    return std::tanh(x);
  }
  template <class T>
  HM_HOST_DEVICE static constexpr T backward(T y, T dy) {
    return formulas::tanh_backward(y, dy);
  }
};

struct Silu {
  static constexpr std::string_view name = "silu", backward_name = "silu_backward";
  static constexpr std::string_view about = "x sigmoid(x)";
  static constexpr Kept kept = Kept::input;
  static constexpr double forward_steps = 4, backward_steps = 16;
  static constexpr double gpu_forward_steps = 6;  // sigmoid and a product
  static constexpr Point points[] = {
      {-8, -0.002682801043731825}, {-2.5, -0.18964545005310887}, {-0.75, -0.24061597561845527}, {0, 0.0},
      {0.625, 0.4070967904162839}, {3, 2.8577223804672998},      {9, 8.998889448816124}};
  template <class T>
  HM_HOST_DEVICE static T forward(T x) {
    return formulas::silu(x);
  }
  template <class T>
  HM_HOST_DEVICE static T backward(T x, T dy) {
    return formulas::silu_backward(x, dy);
  }
};

struct Gelu {
  static constexpr std::string_view name = "gelu", backward_name = "gelu_backward";
  static constexpr std::string_view about = "x times the share of a normal distribution below x";
  static constexpr Kept kept = Kept::input;
  static constexpr double forward_steps = 6, backward_steps = 3;
  static constexpr double gpu_forward_steps = 7;  // 7.7 roundings with exact functions, 4 more of ex2, 2 of rcp
  static constexpr Point points[] = {{-8, -4.976768459417427e-15},
                                     {-2.5, -0.015524163314440337},
                                     {-0.75, -0.16997051428265114},
                                     {0, 0.0},
                                     {0.625, 0.45875904434456216},
                                     {3, 2.99595030590511},
                                     {9, 9.0}};
  template <class T>
  HM_HOST_DEVICE static T forward(T x) {
    return formulas::gelu(x);
  }
  template <class T>
  HM_HOST_DEVICE static T backward(T x, T dy) {
    return formulas::gelu_backward(x, dy);
  }
};

// The approximation with tanh, as in GPT-2.
struct GeluTanh {
  static constexpr std::string_view name = "gelu_tanh", backward_name = "gelu_tanh_backward";
  static constexpr std::string_view about = "GELU as approximated with tanh, as in GPT-2";
  static constexpr Kept kept = Kept::input;
  // The argument of exp is rounded a few times; at x = -9.8 it is -83, which multiplies its error.
  static constexpr double forward_steps = 202, backward_steps = 33;
  static constexpr Point points[] = {{-8, -3.1077829375011112e-21},
                                     {-2.5, -0.015084266089998582},
                                     {-0.75, -0.1700394448343797},
                                     {0, 0.0},
                                     {0.625, 0.4587211499576005},
                                     {3, 2.996362607918227},
                                     {9, 9.0}};
  template <class T>
  HM_HOST_DEVICE static T forward(T x) {
    return formulas::gelu_tanh(x);
  }
  template <class T>
  HM_HOST_DEVICE static T backward(T x, T dy) {
    return formulas::gelu_tanh_backward(x, dy);
  }
};

struct Exp {
  static constexpr std::string_view name = "exp", backward_name = "exp_backward";
  static constexpr std::string_view about = "the exponential function; in fp16 infinite from 11.09 on";
  static constexpr Kept kept = Kept::output;
  // A library's exp is within one unit in the last place, which is two roundings.
  static constexpr double forward_steps = 2, backward_steps = 1;
  static constexpr double gpu_forward_steps = 3;  // expf
  static constexpr Point points[] = {
      {-8, 0.00033546262790251185}, {-2.5, 0.0820849986238988}, {-0.75, 0.4723665527410147}, {0, 1.0},
      {0.625, 1.8682459574322223},  {3, 20.085536923187668},    {9, 8103.083927575384}};
  template <class T>
  HM_HOST_DEVICE static T forward(T x) {
    return std::exp(x);
  }
  template <class T>
  HM_HOST_DEVICE static constexpr T backward(T y, T dy) {
    return formulas::exp_backward(y, dy);
  }
};

struct Square {
  static constexpr std::string_view name = "square", backward_name = "square_backward";
  static constexpr std::string_view operation = "pow";  // what torch.square calls
  static constexpr std::string_view about = "x squared; in fp16 infinite from 255.94 on";
  static constexpr Kept kept = Kept::input;
  static constexpr double forward_steps = 1, backward_steps = 1;
  static constexpr Point points[] = {{-8, 64}, {-2.5, 6.25}, {0, 0}, {0.625, 0.390625}, {3, 9}};  // the definition
  template <class T>
  HM_HOST_DEVICE static constexpr T forward(T x) {
    return formulas::square(x);
  }
  template <class T>
  HM_HOST_DEVICE static constexpr T backward(T x, T dy) {
    return formulas::square_backward(x, dy);
  }
};

template <class... Rows>
struct List {
  static constexpr size_t size = sizeof...(Rows);
  // f.operator()<Row>() for every row, in order.
  static constexpr void each(auto&& f) { (f.template operator()<Rows>(), ...); }
};

using All = List<Relu, LeakyRelu, Sigmoid, Tanh, Silu, Gelu, GeluTanh, Exp, Square>;

// The name that the lists of autocast have for it.
template <class Row>
constexpr std::string_view operation_of() {
  if constexpr (requires { Row::operation; })
    return Row::operation;
  else
    return Row::name;
}

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
