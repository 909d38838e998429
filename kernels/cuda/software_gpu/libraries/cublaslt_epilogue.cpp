#include "kernels/cuda/software_gpu/libraries/cublaslt_epilogue.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/libraries/reference.h"
#include "kernels/number/format.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

// 0.5 x (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr double kRoot = 0.7978845608028654, kCubic = 0.044715;

double gelu(double x) { return 0.5 * x * (1 + std::tanh(kRoot * (x + kCubic * x * x * x))); }

double gelu_slope(double x) {
  const double t = std::tanh(kRoot * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * kCubic * x * x);
}

}  // namespace

Epilogue::Epilogue(const Problem& problem) : problem_(problem) {}

double Epilogue::rounded(double value) const { return round_to(format_of(*dtype_of(problem_.types->scale)), value); }

// Of a bit mask, the elements are bits: read and written as bytes.
std::vector<int64_t> Epilogue::aux_columns(int64_t matrix) const {
  const Description& d = problem_.description;
  const int64_t unit = problem_.has_epilogue(kRelu | kReluGradient) ? 8 : 1;
  std::vector<int64_t> first;
  for (int64_t column = 0; column < problem_.n; ++column)
    first.push_back((matrix * d.aux_stride + column * d.aux_ld) / unit);
  return first;
}

// cublasLt.h: "Bias vector is broadcasted to all columns and added before applying final postprocessing."
void Epilogue::add_bias(std::vector<double>& values, int64_t matrix) const {
  const int64_t first = matrix * problem_.description.bias_stride;
  const std::vector<double> bias =
      read_runs(problem_.description.bias, *dtype_of(problem_.types->bias), {&first, 1}, problem_.m);
  for (int64_t r = 0; r < problem_.m; ++r)
    for (int64_t c = 0; c < problem_.n; ++c)
      values[at(r, c)] = rounded(values[at(r, c)] + bias[static_cast<size_t>(r)]);
}

void Epilogue::activate(std::vector<double>& values, int64_t matrix) const {
  const bool relu = problem_.has_epilogue(kRelu);
  if (problem_.has_epilogue(kAux)) {
    const int64_t length = relu ? (problem_.m + 7) / 8 : problem_.m;
    const bool passes_zero = planted("mask-passes-zero");
    std::vector<double> aux(static_cast<size_t>(length * problem_.n));
    for (int64_t c = 0; c < problem_.n; ++c)
      for (int64_t r = 0; r < problem_.m; ++r) {
        double& place = aux[static_cast<size_t>(c * length + (relu ? r / 8 : r))];
        if (relu)
          place += values[at(r, c)] > 0 || (values[at(r, c)] == 0 && passes_zero) ? 1 << (r % 8) : 0;
        else
          place = values[at(r, c)];
      }
    write_runs(problem_.description.aux, relu ? DType::u8 : *dtype_of(problem_.types->d), aux_columns(matrix), length,
               aux);
  }
  for (double& value : values) {
    if (std::isnan(value) && !(relu && planted("loses-nan"))) continue;
    value = relu ? (value > 0 ? value : 0) : rounded(gelu(value));
  }
}

void Epilogue::differentiate(std::vector<double>& values, int64_t matrix) const {
  const bool relu = problem_.has_epilogue(kReluGradient);
  const int64_t length = relu ? (problem_.m + 7) / 8 : problem_.m;
  const std::vector<double> aux =
      read_runs(problem_.description.aux, relu ? DType::u8 : *dtype_of(problem_.types->d), aux_columns(matrix), length);
  for (int64_t c = 0; c < problem_.n; ++c)
    for (int64_t r = 0; r < problem_.m; ++r) {
      const double saved = aux[static_cast<size_t>(c * length + (relu ? r / 8 : r))];
      double& value = values[at(r, c)];
      if (relu)
        value = static_cast<int>(saved) >> (r % 8) & 1 ? value : 0;
      else
        value = rounded(value * gelu_slope(saved));
    }
}

// The sums over rows or columns of a matrix, in FP64 and rounded once, to the vector of the bias gradient.
void Epilogue::store_sums(const std::vector<double>& matrix, int64_t rows, int64_t columns, bool of_rows,
                          int64_t which) const {
  std::vector<double> sums(static_cast<size_t>(of_rows ? rows : columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      sums[static_cast<size_t>(of_rows ? r : c)] += matrix[static_cast<size_t>(r * columns + c)];
  const int64_t first = which * problem_.description.bias_stride;
  write_runs(problem_.description.bias, *dtype_of(problem_.types->bias), {&first, 1}, static_cast<int64_t>(sums.size()),
             sums);
}

void Epilogue::apply(std::vector<double>& values, const std::vector<double>& a, const std::vector<double>& b,
                     int64_t matrix) {
  const Problem& p = problem_;
  if (p.has_epilogue(kBias)) add_bias(values, matrix);
  if (p.has_epilogue(kRelu | kGelu)) activate(values, matrix);
  if (p.has_epilogue(kReluGradient | kGeluGradient)) differentiate(values, matrix);
  if (p.has_epilogue(kBiasGradient)) store_sums(values, p.m, p.n, true, matrix);
  if (p.has_epilogue(kBiasGradientA)) store_sums(a, p.m, p.k, true, matrix);
  if (p.has_epilogue(kBiasGradientB)) store_sums(b, p.k, p.n, false, matrix);
  for (const double value : values) largest_ = std::max(largest_, std::abs(value));
  if (p.description.scale_d) {
    const double scale = read_one(p.description.scale_d, DType::f32);
    for (double& value : values) value = rounded(scale * value);
  }
}

void Epilogue::finish() {
  if (!problem_.description.amax_d) return;
  const int64_t first = 0;
  write_runs(problem_.description.amax_d, DType::f32, {&first, 1}, 1, {&largest_, 1});
}

}  // namespace halfmark::kernels::software_gpu::cublaslt
