// Sources, all read: NVIDIA TransformerEngine d0067d0 (common/recipe, common/cast, common/transpose, common/util/ptx.cuh;
// tests/pytorch/references; pytorch/custom_recipes), pytorch/ao 36027d8 (torchao/float8/float8_utils.py), DeepSeek-V3 9b4e978
// (inference/kernel.py), DeepGEMM 54e2261 (deep_gemm/utils/math.py), Azure MS-AMP 9746ea8 (msamp/common/tensor/meta.py). Every
// float operation below is one rounding to nearest even; the build forbids contraction.
#include "kernels/number/quantizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::kernels {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float max_of(const Format& element) { return static_cast<float>(element.max_finite()); }
float power_of_two_below(float scale) { return std::bit_cast<float>(std::bit_cast<uint32_t>(scale) & 0xFF800000); }

// compute_scale_from_amax of common/recipe/recipe_common.cuh with epsilon 0. `largest`: instead of an infinite scale.
TileScale from_amax(float amax, const Format& element, bool as_power_of_two, float largest) {
  float scale = 1;
  if (amax > 0 && amax < kInfinity) {
    scale = max_of(element) / amax;
    if (scale == kInfinity) scale = largest;
    if (as_power_of_two) scale = power_of_two_below(scale);
  }
  return {scale, 1 / scale, 0};
}

TileScale current(const TileFacts& facts, const Format& element) {
  return from_amax(facts.amax, element, false, kLargest);
}
TileScale current_power_of_two(const TileFacts& facts, const Format& element) {
  return from_amax(facts.amax, element, true, kLargest);
}

float largest_of(DType dtype) { return static_cast<float>(format_of(dtype).max_finite()); }
TileScale block_power_of_two(const TileFacts& facts, const Format& element) {
  return from_amax(facts.amax, element, true, largest_of(facts.input));
}
TileScale block_fp32(const TileFacts& facts, const Format& element) {
  return from_amax(facts.amax, element, false, largest_of(facts.input));
}

// cvt.rp.satfinite.ue8m0x2: the exponent of the next power of two that is not smaller. NaN has a code, infinity becomes the
// largest power of two.
unsigned char e8m0_rounded_up(float x) {
  if (std::isnan(x)) return 0xFF;
  if (x == kInfinity) return 0xFE;
  const uint32_t bits = std::bit_cast<uint32_t>(x), exponent = bits >> 23, fraction = bits & 0x7FFFFF;
  const bool is_up = fraction != 0 && exponent != 0xFE && !(exponent == 0 && fraction <= 0x400000);
  return static_cast<unsigned char>(exponent + is_up);
}

TileScale mx_rounded_up(const TileFacts& facts, const Format& element) {
  const unsigned char code = e8m0_rounded_up(facts.amax * (1 / max_of(element)));
  const auto decode = static_cast<float>(decode_format(kE8m0, code));
  return {1 / decode, decode, code};
}

// Of a tensor: by how much its blocks are scaled before their own scales are rounded.
float nvfp4_tensor_scale(float amax) {
  const float scale = std::min(448.0F * 6 / amax, kLargest);
  return amax == 0 || scale == 0 ? 1 : scale;
}

TileScale nvfp4(const TileFacts& facts, const Format&) {
  const float tensor_scale = nvfp4_tensor_scale(facts.tensor_amax), sixth = tensor_scale * (1.0F / 6);
  const auto code =
      static_cast<unsigned char>(encode(DType::e4m3, static_cast<double>(std::min(facts.amax * sixth, kLargest)),
                                        Rounding::near_even, nullptr, 0, Overflow::saturate));
  const auto decode = static_cast<float>(kernels::decode(DType::e4m3, code));
  return {std::min(1 / (decode * (1 / tensor_scale)), kLargest), decode, code};
}

TileScale torchao(const TileFacts& facts, const Format& element) {
  const double amax = std::isnan(facts.amax) ? std::nan("") : std::max(static_cast<double>(facts.amax), 1e-12);
  const auto scale = static_cast<float>(element.max_finite() / amax);
  return {scale, 1 / scale, 0};
}
TileScale torchao_power_of_two(const TileFacts& facts, const Format& element) {
  const float scale = torchao(facts, element).factor;
  const float power = scale > 0 && scale < kInfinity ? power_of_two_below(scale) : scale;
  return {power, 1 / power, 0};
}

TileScale deepseek(const TileFacts& facts, const Format& element) {
  const float decode = std::max(facts.amax, 1e-4F) / max_of(element);
  return {1 / decode, decode, 0};
}

constexpr DType f32 = DType::f32, e4m3 = DType::e4m3, e5m2 = DType::e5m2, e2m1 = DType::e2m1, e8m0 = DType::e8m0;
using enum Quantizer::Nan;
constexpr Quantizer kQuantizers[] = {
    {"te-current-e4m3", "Transformer Engine, Float8CurrentScaling, forward", e4m3, f32, 0, 0, dropped, current},
    {"te-current-e5m2", "the same, gradients", e5m2, f32, 0, 0, dropped, current},
    {"te-current-pow2-e4m3", "the same, scales rounded down to powers of two", e4m3, f32, 0, 0, dropped,
     current_power_of_two},
    {"te-current-pow2-e5m2", "the same, gradients", e5m2, f32, 0, 0, dropped, current_power_of_two},
    {"te-block-1x128", "Transformer Engine, Float8BlockScaling, activations and gradients", e4m3, f32, 1, 128, dropped,
     block_power_of_two},
    {"te-block-128x128", "the same, weights", e4m3, f32, 128, 128, dropped, block_power_of_two},
    {"te-block-1x128-fp32", "te-block-1x128 with NVTE_FP8_BLOCK_SCALING_FP32_SCALES", e4m3, f32, 1, 128, dropped,
     block_fp32},
    {"te-block-128x128-fp32", "the same, weights", e4m3, f32, 128, 128, dropped, block_fp32},
    {"te-mxfp8-e4m3", "Transformer Engine, MXFP8BlockScaling: scales rounded up", e4m3, e8m0, 1, 32, dropped,
     mx_rounded_up},
    {"te-mxfp8-e5m2", "the same with gradients in e5m2", e5m2, e8m0, 1, 32, dropped, mx_rounded_up},
    {"te-mxfp8-32x32", "the same, weights with enable_2d_quantization", e4m3, e8m0, 32, 32, dropped, mx_rounded_up},
    {"te-nvfp4", "Transformer Engine, NVFP4BlockScaling, activations and gradients", e2m1, e4m3, 1, 16, dropped, nvfp4,
     false, true},
    {"te-nvfp4-16x16", "the same, weights", e2m1, e4m3, 16, 16, dropped, nvfp4, false, true},
    {"torchao-tensorwise-e4m3", "torchao float8, tensorwise, inputs and weights", e4m3, f32, 0, 0, spreads, torchao},
    {"torchao-tensorwise-e5m2", "the same, gradients of outputs", e5m2, f32, 0, 0, spreads, torchao},
    {"torchao-rowwise", "torchao float8, rowwise: powers of two", e4m3, f32, 1, 0, spreads, torchao_power_of_two},
    {"deepseek-1x128", "DeepSeek-V3, activations: divides by the scale", e4m3, f32, 1, 128, spreads, deepseek, true},
    {"deepseek-128x128", "the same, weights", e4m3, f32, 128, 128, spreads, deepseek, true},
    {"deepgemm-1x128", "DeepGEMM, activations: multiplies by the reciprocal of the scale", e4m3, f32, 1, 128, spreads,
     deepseek},
    {"deepgemm-128x128", "the same, weights", e4m3, f32, 128, 128, spreads, deepseek},
};

// Of one magnitude more.
float larger(float amax, float x, Quantizer::Nan nan) {
  if (nan == spreads && (std::isnan(amax) || std::isnan(x))) return std::nanf("");
  return std::fmax(amax, std::fabs(x));
}

// The codes of numbers that have been scaled, a byte each. Clamped first, so that nothing is left to saturate.
std::vector<unsigned char> codes_of(DType element, std::vector<float> scaled) {
  const float largest = max_of(format_of(element));
  std::vector<unsigned char> codes(scaled.size());
  if (!is_packed(element)) {
    for (float& x : scaled) x = x > largest ? largest : x < -largest ? -largest : x;  // NaN stays
    convert(DType::f32, scaled.data(), element, codes.data(), scaled.size());
    return codes;
  }
  for (float& x : scaled) x = std::isnan(x) || x > largest ? largest : x < -largest ? -largest : x;
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<unsigned char>(encode(element, static_cast<double>(scaled[i])));
  return codes;
}

// f(tile, first element, one behind the last) for every piece of a row that lies in one tile.
void each_piece(const Quantized& matrix, auto&& f) {
  const auto step =
      matrix.quantizer->tile_depth == 0 ? matrix.depth : static_cast<size_t>(matrix.quantizer->tile_depth);
  for (size_t row = 0; row < matrix.rows; ++row)
    for (size_t k = 0; k < matrix.depth; k += step)
      f(matrix.tile_of(row, k), row * matrix.depth + k, row * matrix.depth + std::min(k + step, matrix.depth));
}

void check_sizes(std::span<const float> values, size_t rows, size_t depth) {
  HM_CHECK(values.size() == rows * depth, "a matrix of " + std::to_string(rows) + " x " + std::to_string(depth) +
                                              " has " + std::to_string(rows * depth) + " values, not " +
                                              std::to_string(values.size()));
}

size_t tiles_of(size_t elements, int64_t tile) {
  return tile == 0 ? 1 : (elements + static_cast<size_t>(tile) - 1) / static_cast<size_t>(tile);
}

}  // namespace

std::span<const Quantizer> quantizers() { return kQuantizers; }

const Quantizer& quantizer_named(std::string_view name) { return named("quantizer", kQuantizers, name); }

size_t Quantized::tile_of(size_t row, size_t k) const {
  const auto index = [](size_t at, int64_t tile) { return tile == 0 ? 0 : at / static_cast<size_t>(tile); };
  return index(row, quantizer->tile_rows) * tiles_of(depth, quantizer->tile_depth) + index(k, quantizer->tile_depth);
}

double Quantized::value(size_t row, size_t k) const {
  return decode(quantizer->element, codes[row * depth + k]) * static_cast<double>(tiles[tile_of(row, k)].decode) *
         tensor_decode;
}

Quantized quantize(const Quantizer& quantizer, std::span<const float> values, size_t rows, size_t depth, DType input,
                   std::optional<NoiseStream> noise) {
  check_sizes(values, rows, depth);
  HM_CHECK(!noise || quantizer.element == e2m1,
           std::string(quantizer.name) + " has no stochastic rounding: only e2m1 codes have");
  Quantized result{&quantizer, rows, depth, {}, {}};
  result.tiles.resize(tiles_of(rows, quantizer.tile_rows) * tiles_of(depth, quantizer.tile_depth));
  std::vector<float> amax(result.tiles.size(), 0.0F);
  each_piece(result, [&](size_t tile, size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) amax[tile] = larger(amax[tile], values[i], quantizer.nan);
  });
  for (const float one : amax) result.amax = larger(result.amax, one, quantizer.nan);
  for (size_t tile = 0; tile < amax.size(); ++tile)
    result.tiles[tile] = quantizer.tile({amax[tile], result.amax, input}, format_of(quantizer.element));
  if (quantizer.has_tensor_scale) result.tensor_decode = static_cast<double>(result.amax) / (448 * 6);
  std::vector<float> scaled(values.size());
  each_piece(result, [&](size_t tile, size_t begin, size_t end) {
    const TileScale& scale = result.tiles[tile];
    for (size_t i = begin; i < end; ++i)
      scaled[i] = quantizer.divides ? values[i] / scale.decode : values[i] * scale.factor;
  });
  if (!noise) {
    result.codes = codes_of(quantizer.element, std::move(scaled));
    return result;
  }
  result.codes.resize(values.size());
  uint64_t word = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 4 == 0) word = rounding_noise(noise->seed, noise->first + i / 4);
    result.codes[i] = stochastic_e2m1(scaled[i], static_cast<unsigned char>(word >> (8 * (i % 4))));
  }
  return result;
}

Quantized quantize_with(const Quantizer& quantizer, float factor, std::span<const float> values, size_t rows,
                        size_t depth) {
  check_sizes(values, rows, depth);
  HM_CHECK(quantizer.tile_rows == 0 && quantizer.tile_depth == 0,
           std::string(quantizer.name) + " has several tiles, which do not share a scale");
  Quantized result{&quantizer, rows, depth, {}, {{factor, 1 / factor, 0}}};
  std::vector<float> scaled(values.begin(), values.end());
  for (float& x : scaled) result.amax = larger(result.amax, x, quantizer.nan), x *= factor;
  result.codes = codes_of(quantizer.element, std::move(scaled));
  return result;
}

QuantizationLosses losses_of(const Quantized& quantized, std::span<const float> values) {
  const Quantizer& rule = *quantized.quantizer;
  const Format& format = format_of(rule.element);
  // From the middle between the largest number and the next on; the middle itself becomes the even of the two.
  const double last_place = std::ldexp(1.0, format.max_exponent() - format.fraction_bits),
               middle = format.max_finite() + last_place / 2;
  const bool largest_is_even = std::fmod(format.max_finite() / last_place, 2) == 0;
  QuantizationLosses losses;
  each_piece(quantized, [&](size_t tile, size_t begin, size_t end) {
    const TileScale& scale = quantized.tiles[tile];
    for (size_t i = begin; i < end; ++i) {
      const float x = values[i];
      if (std::isnan(x) || x == 0) continue;
      const auto size = std::fabs(static_cast<double>(rule.divides ? x / scale.decode : x * scale.factor));
      losses.saturated += size > middle || (size == middle && !largest_is_even);
      losses.flushed += scale.decode == 0 || decode(rule.element, quantized.codes[i]) == 0;
    }
  });
  return losses;
}

unsigned char stochastic_e2m1(float x, unsigned char noise) {
  if (std::isnan(x)) return 7;
  const auto step_at = [](float magnitude) { return magnitude < 2 ? 0.5F : magnitude < 4 ? 1.0F : 2.0F; };
  const float magnitude = std::fabs(x);
  const float moved = static_cast<float>(noise) / 256 * step_at(magnitude) + magnitude, step = step_at(moved);
  const float rounded = std::min(std::floor(moved / step) * step, 6.0F);
  constexpr unsigned char kCodes[13] = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7};  // by halves; 5, 7 and 9 do not occur
  return static_cast<unsigned char>(kCodes[static_cast<int>(rounded * 2)] | (std::signbit(x) ? 8 : 0));
}

void hadamard_16(std::span<const float, 16> x, std::span<float, 16> out) {
  static constexpr auto kSigns = [] {
    constexpr unsigned kNegative = 0xD7E8;  // bit i: the sign of number i
    std::array<std::array<float, 16>, 16> signs{};
    for (unsigned i = 0; i < 16; ++i)
      for (unsigned j = 0; j < 16; ++j)
        signs[i][j] = (kNegative >> i & 1U) != (static_cast<unsigned>(std::popcount(i & j)) & 1U) ? -1.0F : 1.0F;
    return signs;
  }();
  std::array<float, 16> sums{};
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j) sums[j] += kSigns[i][j] * x[i];
  for (float& sum : sums) sum /= 4;
  round_array(kBf16, sums.data(), out.data(), 16);
}

AmaxHistory::AmaxHistory(const Format& element, size_t length, AmaxChoice choice, int margin)
    : history_(length, 0.0F),
      largest_(static_cast<float>(element.max_finite() * std::ldexp(1.0, -margin))),
      choice_(choice) {
  HM_CHECK(length > 0, "an amax history needs at least one entry");
}

void observe_amax(std::span<float> history, float amax) { history[0] = std::fmax(history[0], std::fabs(amax)); }

float scale_after_step(std::span<float> history, float last, float scale, float most, AmaxChoice choice) {
  if (last == 0) return scale;
  std::rotate(history.begin(), history.begin() + 1, history.end());
  history.back() = last;
  const float amax = choice == AmaxChoice::most_recent ? last : *std::max_element(history.begin(), history.end());
  history[0] = 0;
  if (!(amax > 0 && amax < kInfinity)) return scale;
  return std::fmin(most / amax, kLargest);
}

void AmaxHistory::observe(float amax) { observe_amax(history_, amax); }

void AmaxHistory::update(float reduced) {
  scale_ = scale_after_step(history_, reduced != 0 ? reduced : history_[0], scale_, largest_, choice_);
}

}  // namespace halfmark::kernels
