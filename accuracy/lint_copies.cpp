#include "accuracy/lint_copies.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/number/error.h"
#include "kernels/number/format.h"

namespace halfmark::accuracy {
namespace {

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::fmax(largest, std::fabs(value));
  return largest;
}

std::vector<float> transposed(const CopiedMatrix& m) {
  std::vector<float> columns(m.values.size());
  for (size_t row = 0; row < m.rows; ++row)
    for (size_t k = 0; k < m.depth; ++k) columns[k * m.rows + row] = m.values[row * m.depth + k];
  return columns;
}

// As the quantiser, with a scale that is given.
Quantized with_scale(const Quantizer& quantizer, const CopiedMatrix& m, float factor) {
  Quantized result{&quantizer, m.rows, m.depth, std::vector<unsigned char>(m.values.size()), {{factor, 1 / factor, 0}}};
  for (size_t i = 0; i < m.values.size(); ++i)
    result.codes[i] = static_cast<unsigned char>(encode(quantizer.element, static_cast<double>(m.values[i] * factor),
                                                        Rounding::near_even, nullptr, 0, Overflow::saturate));
  return result;
}

// Share of the numbers of at least the smallest of the format, once scaled, whose code is 0 or -0.
std::vector<NamedNumber> zeros_of(const QuantizedCopy& copy) {
  const Quantized& q = copy.codes;
  const double smallest = std::ldexp(1.0, format_of(q.quantizer->element).min_subnormal_exponent());
  double zeros = 0, all = 0;
  for (size_t row = 0; row < q.rows; ++row)
    for (size_t k = 0; k < q.depth; ++k) {
      const size_t i = row * q.depth + k;
      const float scaled = copy.values[i] * q.tiles[q.tile_of(row, k)].factor;
      if (!(std::fabs(scaled) >= static_cast<float>(smallest))) continue;
      all += 1, zeros += decode(q.quantizer->element, q.codes[i]) == 0;
    }
  return {{"share of zeros among numbers that cannot round to 0", all > 0 ? zeros / all : 0}, {"numbers", all}};
}

std::optional<std::vector<NamedNumber>> amax_of(const QuantizedCopy& copy) {
  const auto amax = static_cast<double>(largest_magnitude(copy.values));
  const double largest = format_of(copy.codes.quantizer->element).max_finite();
  const auto factor = static_cast<double>(copy.codes.tiles.front().factor);
  if (!(amax > 0 && std::isfinite(amax) && std::isfinite(factor))) return {};
  double saturated = 0;
  for (const float value : copy.values) saturated += std::fabs(static_cast<double>(value)) * factor > largest;
  return {{{"difference of scale x largest magnitude to the largest number", std::fabs(factor * amax / largest - 1)},
           {"largest magnitude", amax},
           {"that of the scale", largest / factor},
           {"share of numbers that saturate", saturated / static_cast<double>(copy.values.size())}}};
}

// A scale that is a power of two is the least with which no number of its tile saturates.
std::vector<NamedNumber> tiles_of_others(const QuantizedCopy& copy) {
  const Quantized& q = copy.codes;
  const Format& element = format_of(q.quantizer->element);
  std::vector<double> amax(q.tiles.size(), 0);
  double off = 0;
  for (size_t row = 0; row < q.rows; ++row)
    for (size_t k = 0; k < q.depth; ++k) {
      const auto x = static_cast<double>(copy.values[row * q.depth + k]);
      const size_t tile = q.tile_of(row, k);
      amax[tile] = std::max(amax[tile], std::fabs(x));
      // Half a step at x, or half of the least step of the format.
      const double unit = static_cast<double>(q.tiles[tile].decode);
      const double half = std::max(std::fabs(x) * std::ldexp(1.0, -element.fraction_bits - 1),
                                   unit * std::ldexp(1.0, element.min_subnormal_exponent() - 1));
      off += !(std::fabs(q.value(row, k) - x) <= half);
    }
  const double least = std::ldexp(1.0, format_of(DType::e8m0).min_exponent()), largest = element.max_finite();
  constexpr double kRounding = 0x1p-22;  // of amax / largest to fp32, before it is rounded up
  double foreign = 0;
  for (size_t tile = 0; tile < amax.size(); ++tile) {
    const auto scale = static_cast<double>(q.tiles[tile].decode);
    const bool is_small = amax[tile] > scale * largest * (1 + kRounding);
    const bool is_large = scale > least && amax[tile] <= scale / 2 * largest * (1 - kRounding);
    foreign += is_small || is_large || !(scale > 0);
  }
  const double tiles = foreign / static_cast<double>(q.tiles.size()),
               numbers = off / static_cast<double>(q.codes.size());
  return {{"share of foreign tiles, or of numbers beyond half a step", std::max(tiles, numbers)},
          {"share of foreign tiles", tiles},
          {"share of numbers beyond half a step", numbers}};
}

}  // namespace

std::vector<QuantizedCopy> CopyMaker::copies_of(const CopiedMatrix& matrix) {
  using Scaling = QuantizedCopy::Scaling;
  const Quantizer &current = quantizer_named("te-current-e5m2"), &mx = quantizer_named("te-mxfp8-e5m2"),
                  &fp4 = quantizer_named("te-nvfp4");
  const float amax = largest_magnitude(matrix.values);
  const auto made = [&](const Quantizer& quantizer) {
    return quantize(quantizer, matrix.values, matrix.rows, matrix.depth);
  };
  std::vector<QuantizedCopy> copies;

  const bool stale = mistakes_.uses_old_amax && amax_before_ && *amax_before_ > 0;
  copies.push_back({.name = "current scaling",
                    .values = matrix.values,
                    .codes = stale ? with_scale(current, matrix, 57344.0F / *amax_before_) : made(current)});
  copies.push_back({.name = "delayed scaling",
                    .scaling = Scaling::delayed,
                    .values = matrix.values,
                    .codes = with_scale(current, matrix, history_.scale())});
  history_.observe(amax), history_.update();
  amax_before_ = amax;

  copies.push_back(
      {.name = "NVFP4",
       .stochastic = true,
       .values = matrix.values,
       .codes = quantize(fp4, matrix.values, matrix.rows, matrix.depth, DType::f32, NoiseStream{noise_, steps_})});
  if (mistakes_.rounds_to_zero) std::ranges::fill(copies.back().codes.codes, static_cast<unsigned char>(0));
  steps_ += matrix.values.size();

  copies.push_back({.name = "MXFP8 rowwise", .values = matrix.values, .codes = made(mx)});
  QuantizedCopy columns{.name = "MXFP8 columnwise", .columnwise = true, .values = transposed(matrix), .codes = {}};
  columns.codes = quantize(mx, columns.values, matrix.depth, matrix.rows);
  if (mistakes_.copies_rowwise) {
    // The codes transposed, as a copy shares them; each tile has the scale of the rowwise tile that its first number is in.
    const Quantized& rowwise = copies.back().codes;
    for (size_t k = 0; k < matrix.depth; ++k)
      for (size_t row = 0; row < matrix.rows; ++row) {
        columns.codes.codes[k * matrix.rows + row] = rowwise.codes[row * matrix.depth + k];
        if (row % 32 == 0) columns.codes.tiles[columns.codes.tile_of(k, row)] = rowwise.tiles[rowwise.tile_of(row, k)];
      }
  }
  copies.push_back(std::move(columns));
  return copies;
}

std::optional<std::vector<NamedNumber>> evidence_of(CopyFault fault, const QuantizedCopy& copy) {
  switch (fault) {
    case CopyFault::stochastic_zeros:
      if (copy.stochastic) return zeros_of(copy);
      return {};
    case CopyFault::stale_amax:
      if (copy.scaling == QuantizedCopy::Scaling::current && copy.codes.quantizer->scale == DType::f32 &&
          copy.codes.tiles.size() == 1)
        return amax_of(copy);
      return {};
    case CopyFault::foreign_tiles:
      if (copy.codes.quantizer->scale == DType::e8m0) return tiles_of_others(copy);
      return {};
  }
  throw Error("unknown fault of a copy");
}

}  // namespace halfmark::accuracy
