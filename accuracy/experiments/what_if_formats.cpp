// The formats of the harness `what_if`.
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/what_if.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

// A cast of each number. Floats of 8 bits saturate, as the conversions of GPUs that frameworks use do (satfinite); fp16
// and bf16 become infinite.
FormattedMatrix cast_to(const Format& format, Overflow overflow, const MatrixView& matrix) {
  FormattedMatrix made;
  RoundEvents events;
  double infinite = 0;
  for (const float value : matrix.values) {
    made.values.push_back(round_to(format, value, Rounding::near_even, &events, 0, overflow));
    infinite += std::isinf(value);
  }
  const double clipped = static_cast<double>(events.overflow) + infinite;
  made.clipped = matrix.values.empty() ? 0 : clipped / static_cast<double>(matrix.values.size());
  return made;
}

FormattedMatrix with_scales(const Quantizer& quantizer, const MatrixView& matrix) {
  const Quantized codes = quantize(quantizer, matrix.values, matrix.rows, matrix.depth);
  FormattedMatrix made;
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t k = 0; k < matrix.depth; ++k) made.values.push_back(codes.value(row, k));
  const auto clipped = static_cast<double>(losses_of(codes, matrix.values).saturated);
  made.clipped = matrix.values.empty() ? 0 : clipped / static_cast<double>(matrix.values.size());
  return made;
}

// The largest magnitude of a tile becomes the largest number; the scale is an fp32 number, as in Transformer Engine's current
// scaling of tensors.
TileScale to_largest(const TileFacts& facts, const Format& element) {
  const float largest = static_cast<float>(element.max_finite());
  if (!(facts.amax > 0)) return {};
  const float factor = largest / facts.amax;
  if (!std::isfinite(factor)) return {};
  return {factor, 1 / factor, 0};
}

Quantizer by_tile(std::string_view name, DType element, int64_t rows, int64_t depth) {
  return {name, "", element, DType::f32, rows, depth, Quantizer::Nan::dropped, to_largest};
}

std::vector<WhatIfFormat> format_list() {
  using enum ViewOfTensor;
  const auto plain = [](std::string_view name, Overflow overflow) {
    return WhatIfFormat{name, "cast as it is", products,
                        [&format = format_named(name), overflow](const MatrixView& matrix) {
                          return cast_to(format, overflow, matrix);
                        }};
  };
  const auto scaled = [](std::string_view name, std::string_view about, ViewOfTensor view, const Quantizer& quantizer) {
    return WhatIfFormat{name, about, view,
                        [quantizer](const MatrixView& matrix) { return with_scales(quantizer, matrix); }};
  };
  std::vector<WhatIfFormat> list = {plain("fp16", Overflow::format_default), plain("bf16", Overflow::format_default),
                                    plain("e4m3", Overflow::saturate), plain("e5m2", Overflow::saturate)};
  constexpr std::pair<DType, std::array<std::string_view, 3>> kScaled[] = {
      {DType::e4m3, {"e4m3_tensor", "e4m3_channel", "e4m3_block32"}},
      {DType::e5m2, {"e5m2_tensor", "e5m2_channel", "e5m2_block32"}}};
  for (const auto& [element, names] : kScaled) {
    list.push_back(scaled(names[0], "one fp32 scale of the tensor", products,
                          quantizer_named(element == DType::e4m3 ? "te-current-e4m3" : "te-current-e5m2")));
    list.push_back(scaled(names[1], "an fp32 scale of each channel", channels, by_tile(names[1], element, 1, 0)));
    list.push_back(scaled(names[2], "an fp32 scale of 32 numbers along the sums of products", products,
                          by_tile(names[2], element, 1, 32)));
  }
  list.push_back(
      scaled("mxfp8_e4m3", "a power of two for 32 numbers (e8m0)", products, quantizer_named("te-mxfp8-e4m3")));
  list.push_back(scaled("mxfp8_e5m2", "the same, e5m2", products, quantizer_named("te-mxfp8-e5m2")));
  list.push_back(scaled("e2m1_block16", "NVFP4: an e4m3 scale of 16 numbers, one fp32 scale of the tensor", products,
                        quantizer_named("te-nvfp4")));
  return list;
}

}  // namespace

std::span<const WhatIfFormat> what_if_formats() {
  static const std::vector<WhatIfFormat> list = format_list();
  return list;
}

WhatIfLoss what_is_lost(const std::vector<float>& given, const std::vector<double>& decoded) {
  HM_CHECK(given.size() == decoded.size(), "what_if: a format gave another number of values");
  double error = 0, squares = 0, flushed = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto x = static_cast<double>(given[i]);
    error += (decoded[i] - x) * (decoded[i] - x), squares += x * x;
    flushed += x != 0 && decoded[i] == 0;
  }
  return {.nmse = error == 0 ? 0 : error / squares,
          .flushed = given.empty() ? 0 : flushed / static_cast<double>(given.size())};
}

}  // namespace halfmark::accuracy
