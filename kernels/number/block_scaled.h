// Formats whose blocks of numbers share a scale: quantised into codes and scales, and decoded exactly.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/number/dtype.h"

namespace halfmark::kernels {

struct BlockFormat {
  std::string_view name;
  DType element, scale;
  size_t block;       // consecutive elements that share a scale
  bool tensor_scale;  // a second scale, in f32, for all of them
};

std::span<const BlockFormat> block_formats();
const BlockFormat& block_format_named(std::string_view name);  // throws Error naming the known ones

// A matrix [rows, depth] whose sums run along depth (k). An element is worth code * scale * tensor_scale.
struct BlockScaled {
  const BlockFormat* format;
  size_t rows, depth;
  std::vector<unsigned char> codes;   // [rows, depth], in one run (e2m1: two to a byte, also across rows)
  std::vector<unsigned char> scales;  // [rows, blocks()]
  float tensor_scale = 1;

  size_t blocks() const { return (depth + format->block - 1) / format->block; }  // of a row; the last may be short
  double value(size_t row, size_t k) const;                                      // exact
  std::vector<double> values() const;                                            // [rows, depth], exact
};

// Rounds each value once, to code * scale; too large ones saturate. With amax the largest magnitude of a block:
// - scale e8m0 (MX): 2^(floor(log2 amax) - the exponent of the element's largest number), between 2^-127 and 2^127.
// - scale e4m3 (NVFP4): tensor_scale = the largest magnitude of all / (448 * 6) in f32 (1 when there is none, at least
//   2^-149); the scale is amax / 6 / tensor_scale, rounded to nearest even, at most 448.
// Zeros keep their sign. A block of zeros alone has the smallest scale: 2^-127, or 0 in e4m3; a block so small that its
// e4m3 scale rounds to 0 becomes zeros. A block that holds a NaN or an infinity has the scale NaN and zeros as codes,
// so that all of it decodes to NaN, and it does not count for tensor_scale.
BlockScaled quantize(const BlockFormat& format, std::span<const float> values, size_t rows, size_t depth,
                     Rounding rounding = Rounding::near_even);

}  // namespace halfmark::kernels
