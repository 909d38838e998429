#include "accuracy/experiments/cast_list_operations.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>

namespace halfmark::accuracy {
namespace {

constexpr size_t kFunctionWidth = 256, kRowWidth = 1024;
constexpr size_t kLongSum = 131072;  // the numbers of an image of 362 x 362
constexpr size_t kProductTerms = 64;

using Operands = std::span<const NumberRow>;

// A kernel that reads one number and writes one.
template <double (*function)(double)>
NumberRow each(const Stored& stored, Operands operands) {
  NumberRow results;
  for (const double x : operands[0]) results.push_back(stored(function(x)));
  return results;
}
// Its backward, from the operand x and the stored result y.
template <double (*function)(double), double (*slope)(double x, double y)>
NumberRow each_backward(const Stored& stored, Operands operands) {
  NumberRow results;
  for (const double x : operands[0]) results.push_back(stored(slope(x, stored(function(x)))));
  return results;
}
template <double (*function)(double), double (*slope)(double, double)>
ListedOperation function_of(std::string_view names, OperandKind kind, int backward_stores) {
  return {names, {kind}, kFunctionWidth, 1, each<function>, backward_stores, each_backward<function, slope>};
}

template <double (*function)(double, double)>
NumberRow each_pair(const Stored& stored, Operands operands) {
  NumberRow results;
  for (size_t i = 0; i < operands[0].size(); ++i) results.push_back(stored(function(operands[0][i], operands[1][i])));
  return results;
}

// Newton's method from the approximation of Winitzki (2008); erf is monotone, and a few steps reach fp64.
double inverse_erf(double x) {
  constexpr double kA = 0.147;
  const double log_term = std::log1p(-x * x), half = 2 / (std::numbers::pi * kA) + log_term / 2;
  double y = std::copysign(std::sqrt(std::sqrt(half * half - log_term / kA) - half), x);
  for (int i = 0; i < 4 && std::isfinite(y); ++i)
    y -= (std::erf(y) - x) * std::sqrt(std::numbers::pi) / 2 * std::exp(y * y);
  return y;
}
double logistic(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double of_normal(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

double acos_of(double x) { return std::acos(x); }
double asin_of(double x) { return std::asin(x); }
double cosh_of(double x) { return std::cosh(x); }
double sinh_of(double x) { return std::sinh(x); }
double exp_of(double x) { return std::exp(x); }
double expm1_of(double x) { return std::expm1(x); }
double log_of(double x) { return std::log(x); }
double log10_of(double x) { return std::log10(x); }
double log2_of(double x) { return std::log2(x); }
double log1p_of(double x) { return std::log1p(x); }
double tan_of(double x) { return std::tan(x); }
double tanh_of(double x) { return std::tanh(x); }
double sqrt_of(double x) { return std::sqrt(x); }
double inverse_of(double x) { return 1 / x; }
double inverse_root_of(double x) { return 1 / std::sqrt(x); }
double cube_of(double x) { return x * x * x; }
double square_of(double x) { return x * x; }
double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double relu_of(double x) { return std::max(x, 0.0); }
double prelu_of(double x) { return x > 0 ? x : 0.25 * x; }  // the start of torch.nn.PReLU
double gelu_of(double x) { return x * of_normal(x); }
double silu_of(double x) { return x * logistic(x); }

double acos_slope(double x, double) { return -1 / std::sqrt((1 - x) * (1 + x)); }
double asin_slope(double x, double) { return -acos_slope(x, 0); }
double erfinv_slope(double x, double) {
  const double y = inverse_erf(x);
  return std::sqrt(std::numbers::pi) / 2 * std::exp(y * y);
}
double sinh_slope(double x, double) { return std::cosh(x); }
double cosh_slope(double x, double) { return std::sinh(x); }
double result_slope(double, double y) { return y; }     // of exp, from its result
double expm1_slope(double, double y) { return y + 1; }  // likewise
double log_slope(double x, double) { return 1 / x; }
double log10_slope(double x, double) { return 1 / (x * std::numbers::ln10); }
double log2_slope(double x, double) { return 1 / (x * std::numbers::ln2); }
double log1p_slope(double x, double) { return 1 / (1 + x); }
double tan_slope(double, double y) { return 1 + y * y; }
double tanh_slope(double x, double) { return 1 / (std::cosh(x) * std::cosh(x)); }
double sqrt_slope(double, double y) { return 1 / (2 * y); }
double inverse_slope(double, double y) { return -y * y; }
double inverse_root_slope(double, double y) { return -y * y * y / 2; }
double cube_slope(double x, double) { return 3 * x * x; }
double square_slope(double x, double) { return 2 * x; }
double softplus_slope(double x, double) { return logistic(x); }
double relu_slope(double x, double) { return x > 0; }
double prelu_slope(double x, double) { return x > 0 ? 1 : 0.25; }
double logistic_slope(double x, double) { return logistic(x) * logistic(-x); }
double gelu_slope(double x, double) {
  return of_normal(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}
double silu_slope(double x, double) { return logistic(x) * (1 + x * logistic(-x)); }

double sum_of(const NumberRow& row) { return std::accumulate(row.begin(), row.end(), 0.0); }
double square_sum(const NumberRow& row) { return std::inner_product(row.begin(), row.end(), row.begin(), 0.0); }

NumberRow sum_row(const Stored& stored, Operands x) { return {stored(sum_of(x[0]))}; }
NumberRow mean_row(const Stored& stored, Operands x) {
  return {stored(sum_of(x[0]) / static_cast<double>(x[0].size()))};
}
NumberRow cumsum_row(const Stored& stored, Operands x) {
  NumberRow results;
  double sum = 0;
  for (const double value : x[0]) results.push_back(stored(sum += value));
  return results;
}
NumberRow cumprod_row(const Stored& stored, Operands x) {
  NumberRow results;
  double product = 1;
  for (const double value : x[0]) results.push_back(stored(product *= value));
  return results;
}
NumberRow prod_row(const Stored& stored, Operands x) { return {stored(cumprod_row({}, x).back())}; }
NumberRow norm_row(const Stored& stored, Operands x) { return {stored(std::sqrt(square_sum(x[0])))}; }
NumberRow variance_row(const Stored& stored, Operands x) {
  const double count = static_cast<double>(x[0].size()), mean = sum_of(x[0]) / count;
  double sum = 0;
  for (const double value : x[0]) sum += (value - mean) * (value - mean);
  return {stored(sum / (count - 1))};
}
NumberRow dot_row(const Stored& stored, Operands x) {
  return {stored(std::inner_product(x[0].begin(), x[0].end(), x[1].begin(), 0.0))};
}
// (x - mean) / sqrt(variance + 1e-5), or without the mean.
NumberRow normalised(const Stored& stored, const NumberRow& x, bool centred) {
  constexpr double kEpsilon = 1e-5;
  const auto count = static_cast<double>(x.size());
  const double mean = centred ? sum_of(x) / count : 0;
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  const double inverse = 1 / std::sqrt(squares / count + kEpsilon);
  NumberRow results;
  for (const double value : x) results.push_back(stored((value - mean) * inverse));
  return results;
}
NumberRow layer_norm_row(const Stored& stored, Operands x) { return normalised(stored, x[0], true); }
NumberRow rms_norm_row(const Stored& stored, Operands x) { return normalised(stored, x[0], false); }

double log_sum_exp(const NumberRow& x) {
  const double largest = *std::ranges::max_element(x);
  double sum = 0;
  for (const double value : x) sum += std::exp(value - largest);
  return largest + std::log(sum);
}
NumberRow softmax_row(const Stored& stored, Operands x) {
  const double total = log_sum_exp(x[0]);
  NumberRow results;
  for (const double value : x[0]) results.push_back(stored(std::exp(value - total)));
  return results;
}
NumberRow log_softmax_row(const Stored& stored, Operands x) {
  const double total = log_sum_exp(x[0]);
  NumberRow results;
  for (const double value : x[0]) results.push_back(stored(value - total));
  return results;
}
// ATen's logsumexp: the largest, differences, their exponentials, the sum, its logarithm and an addition, a kernel each.
NumberRow logsumexp_row(const Stored& stored, Operands x) {
  const double largest = *std::ranges::max_element(x[0]);
  double sum = 0;
  for (const double value : x[0]) sum += stored(std::exp(stored(value - largest)));
  return {stored(stored(std::log(stored(sum))) + largest)};
}
NumberRow addcmul_row(const Stored& stored, Operands x) {
  NumberRow results;
  for (size_t i = 0; i < x[0].size(); ++i) results.push_back(stored(x[0][i] + x[1][i] * x[2][i]));
  return results;
}
NumberRow addcdiv_row(const Stored& stored, Operands x) {
  NumberRow results;
  for (size_t i = 0; i < x[0].size(); ++i) results.push_back(stored(x[0][i] + x[1][i] / x[2][i]));
  return results;
}
double sum_of_two(double a, double b) { return a + b; }
double product_of_two(double a, double b) { return a * b; }
double quotient_of_two(double a, double b) { return a / b; }
double angle_of_two(double a, double b) { return std::atan2(a, b); }

}  // namespace

std::string_view name_of(OperandSize size) {
  switch (size) {
    case OperandSize::ordinary:
      return "ordinary";
    case OperandSize::large:
      return "large";
    case OperandSize::small:
      return "small";
  }
  return "";
}

NumberRows operand_rows(OperandKind kind, OperandSize size, size_t width, const Format& format, const RandomKey& key) {
  NumberRows rows(kOperandRows, NumberRow(width));
  for (int r = 0; r < kOperandRows; ++r) {
    const double times = size == OperandSize::ordinary ? 1 : std::ldexp(1.0, size == OperandSize::large ? r : -r);
    const auto drawn = [&](size_t i) {
      const double normal = key.normal(static_cast<size_t>(r) * width + i);
      switch (kind) {
        case OperandKind::real:
          return normal * times;
        case OperandKind::positive:
          return std::fabs(normal) * times;
        case OperandKind::unit:
          return std::tanh(normal * times);
        case OperandKind::probability:
          return logistic(2 * normal * times);
        case OperandKind::logarithm:
          return -std::fabs(normal) * times;
        case OperandKind::sign:
          return normal < 0 ? -1.0 : 1.0;
        case OperandKind::weight:
          return normal / std::sqrt(static_cast<double>(width));
      }
      return normal;
    };
    for (size_t i = 0; i < width; ++i) {
      const double most = format.max_finite(), x = round_to(format, std::clamp(drawn(i), -most, most));
      rows[static_cast<size_t>(r)][i] = x == 0 ? power_of_two(format.min_subnormal_exponent()) : x;
    }
  }
  return rows;
}

std::vector<ListedOperation> listed_operations() {
  using enum OperandKind;
  return {
      function_of<acos_of, acos_slope>("acos", unit, 1),
      function_of<asin_of, asin_slope>("asin", unit, 1),
      function_of<inverse_erf, erfinv_slope>("erfinv", unit, 1),
      function_of<cosh_of, cosh_slope>("cosh", real, 1),
      function_of<sinh_of, sinh_slope>("sinh", real, 1),
      function_of<exp_of, result_slope>("exp", real, 2),
      function_of<expm1_of, expm1_slope>("expm1", real, 2),
      function_of<log_of, log_slope>("log", positive, 1),
      function_of<log10_of, log10_slope>("log10", positive, 1),
      function_of<log2_of, log2_slope>("log2", positive, 1),
      function_of<log1p_of, log1p_slope>("log1p", positive, 1),
      function_of<tan_of, tan_slope>("tan", real, 3),
      function_of<tanh_of, tanh_slope>("tanh", real, 1),
      function_of<sqrt_of, sqrt_slope>("sqrt", positive, 2),
      function_of<inverse_of, inverse_slope>("reciprocal", real, 3),
      function_of<inverse_root_of, inverse_root_slope>("rsqrt", positive, 4),
      function_of<cube_of, cube_slope>("pow", real, 1),  // with the exponent 3
      function_of<square_of, square_slope>("square", real, 1),
      function_of<softplus_of, softplus_slope>("softplus", real, 1),
      function_of<relu_of, relu_slope>("relu", real, 1),
      function_of<prelu_of, prelu_slope>("prelu", real, 1),
      function_of<gelu_of, gelu_slope>("gelu", real, 1),
      function_of<silu_of, silu_slope>("silu", real, 1),
      function_of<logistic, logistic_slope>("sigmoid", real, 1),
      {"add sub", {real, real}, kFunctionWidth, 1, each_pair<sum_of_two>},
      {"mul", {real, real}, kFunctionWidth, 1, each_pair<product_of_two>},
      {"div", {real, real}, kFunctionWidth, 1, each_pair<quotient_of_two>},
      {"atan2", {real, real}, kFunctionWidth, 1, each_pair<angle_of_two>},
      {"addcmul", {real, real, real}, kFunctionWidth, 1, addcmul_row},
      {"addcdiv", {real, real, real}, kFunctionWidth, 1, addcdiv_row},
      {"sum", {positive}, kLongSum, 1, sum_row},
      {"mean", {positive}, kRowWidth, 1, mean_row},
      {"cumsum", {positive}, kRowWidth, 1, cumsum_row},
      {"prod", {real}, kProductTerms, 1, prod_row},
      {"cumprod", {real}, kProductTerms, 1, cumprod_row},
      {"norm linalg_vector_norm frobenius_norm linalg_matrix_norm", {real}, kRowWidth, 1, norm_row},
      {"var", {real}, kRowWidth, 1, variance_row},
      {"layer_norm native_layer_norm group_norm batch_norm", {real}, kRowWidth, 1, layer_norm_row},
      {"rms_norm", {real}, kRowWidth, 1, rms_norm_row},
      {"softmax", {real}, kRowWidth, 1, softmax_row},
      {"log_softmax", {real}, kRowWidth, 1, log_softmax_row},
      {"logsumexp", {real}, kRowWidth, 5, logsumexp_row},
      {"dot vdot linalg_vecdot", {real, real}, kRowWidth, 1, dot_row},
      {"linear addmm mm matmul bmm baddbmm addbmm mv addmv einsum tensordot chain_matmul linalg_multi_dot _convolution "
       "convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d",
       {real, weight},
       kRowWidth,
       1,
       dot_row},
  };
}

}  // namespace halfmark::accuracy
