// Formats in which blocks of numbers share a scale: quantisation to codes and scales, and exact decoding.
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
  bool tensor_scale;  // a second scale, in f32, for the whole tensor
};

std::span<const BlockFormat> block_formats();
const BlockFormat& block_format_named(std::string_view name);  // throws Error naming the known ones

// A matrix [rows, depth] with blocks along depth (k), the axis that products are summed over. The value of an element
// is code * scale * tensor_scale.
struct BlockScaled {
  const BlockFormat* format;
  size_t rows, depth;
  std::vector<unsigned char> codes;   // [rows, depth], contiguous (e2m1: two per byte, also across rows)
  std::vector<unsigned char> scales;  // [rows, blocks()]
  float tensor_scale = 1;

  size_t blocks() const { return (depth + format->block - 1) / format->block; }  // per row; the last block may be short
  double value(size_t row, size_t k) const;                                      // exact
  std::vector<double> values() const;                                            // [rows, depth], exact
};

// Rounds each value once, to code * scale; values that are too
// large saturate. With amax the largest magnitude of a block:
// - scale e8m0 (MX): 2^(floor(log2 amax) - the exponent of the element's largest number), between 2^-127 and 2^127.
// - scale e4m3 (NVFP4): tensor_scale = the largest magnitude of the tensor / (448 * 6) in f32, at least 2^-149; 1 if no
//   element is non-zero. The block scale is amax / 6 / tensor_scale, rounded to nearest even, at most 448.
// Zeros keep their sign. A block of zeros gets the smallest scale: 2^-127, or 0 in e4m3. A block so small that its e4m3
// scale rounds to 0 becomes zeros. A block with a NaN or an infinity gets the scale NaN and zeros as codes, so that all
// of it decodes to NaN; it does not count for tensor_scale.
BlockScaled quantize(const BlockFormat& format, std::span<const float> values, size_t rows, size_t depth,
                     Rounding rounding = Rounding::near_even);

}  // namespace halfmark::kernels
