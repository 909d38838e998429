// What the kernels of quantisation share: largest magnitudes, the code of NaN, and the scale of a tile by the rule of a training
// recipe, bit by bit as number/quantizer.cpp.
#pragma once

#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/rounding.cuh"

namespace halfmark::kernels::cuda {

// Of a whole matrix. Set to zero before a kernel adds to it.
struct QuantizeTotals {
  uint32_t largest, flushed, saturated, blocks;
};

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float largest_float() { return __int_as_float(0x7f7fffff); }
__device__ __forceinline__ float lesser(float a, float b) { return b < a ? b : a; }  // std::min: a NaN first stays
__device__ __forceinline__ float greater(float a, float b) { return a < b ? b : a; }

// The code of the largest magnitude. Without a sign the codes of fp32 have the order of the numbers, and NaN is beyond
// infinity: the maximum does not depend on the order in which the warps come.
__device__ __forceinline__ uint32_t magnitude(const QuantizeForm& s, float x) {
  const uint32_t code = static_cast<uint32_t>(__float_as_int(x)) & 0x7fffffff;
  return code <= 0x7f800000 ? code : s.nan_spreads ? 0x7fc00000 : 0;
}
// The code of NaN in FP8; no rule defines its sign.
__device__ __forceinline__ uint32_t nan_code(const QuantizeForm& s) { return s.element == DType::e4m3 ? 0x7f : 0x7e; }

struct Most {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

__device__ __forceinline__ float power_of_two_below(float scale) {
  return __int_as_float(__float_as_int(scale) & static_cast<int>(0xff800000));
}

__device__ __forceinline__ TileFactors from_amax(float amax, float most, bool as_power_of_two,
                                                 float instead_of_infinity) {
  float scale = 1;
  if (amax > 0 && amax < infinity()) {
    scale = most / amax;
    if (scale == infinity()) scale = instead_of_infinity;
    if (as_power_of_two) scale = power_of_two_below(scale);
  }
  return {scale, 1 / scale, 0};
}

__device__ __forceinline__ TileFactors mx_rounded_up(float amax, float most) {
  const float x = amax * (1 / most);
  const uint32_t bits = static_cast<uint32_t>(__float_as_int(x)), exponent = bits >> 23, fraction = bits & 0x7fffff;
  uint32_t code = exponent + (fraction != 0 && exponent != 0xfe && !(exponent == 0 && fraction <= 0x400000));
  if (isnan(x)) code = 0xff;
  if (x == infinity()) code = 0xfe;
  const float decode = code == 0xff ? __int_as_float(0x7fc00000) : __int_as_float(code ? code << 23 : 0x400000);
  return {1 / decode, decode, code};
}

__device__ __forceinline__ TileFactors nvfp4(float amax, float tensor_amax) {
  float tensor_scale = lesser(448.0f * 6 / tensor_amax, largest_float());
  if (tensor_amax == 0 || tensor_scale == 0) tensor_scale = 1;
  const float wanted = lesser(amax * (tensor_scale * (1.0f / 6)), largest_float());
  const RoundTarget e4m3 = round_target(DType::e4m3);
  const uint32_t code = rounded_code(wanted > 448 ? 448.0 : static_cast<double>(wanted), e4m3, Rounding::near_even, 0);
  const float decode = widen<float>(E4m3{static_cast<uint8_t>(code)});
  return {lesser(1 / (decode * (1 / tensor_scale)), largest_float()), decode, code};
}

__device__ __forceinline__ TileFactors torchao(float amax, float most, bool as_power_of_two) {
  const double least = isnan(amax) ? static_cast<double>(amax) : fmax(static_cast<double>(amax), 1e-12);
  float scale = static_cast<float>(static_cast<double>(most) / least);
  if (as_power_of_two && scale > 0 && scale < infinity()) scale = power_of_two_below(scale);
  return {scale, 1 / scale, 0};
}

__device__ __forceinline__ TileFactors factors_of(const QuantizeForm& s, float amax, float tensor_amax) {
  const float most = s.most;
  switch (s.rule) {
    case QuantizeRule::current:
      return from_amax(amax, most, false, largest_float());
    case QuantizeRule::current_power_of_two:
      return from_amax(amax, most, true, largest_float());
    case QuantizeRule::block_power_of_two:
      return from_amax(amax, most, true, s.input_most);
    case QuantizeRule::block_fp32:
      return from_amax(amax, most, false, s.input_most);
    case QuantizeRule::mx_rounded_up:
      return mx_rounded_up(amax, most);
    case QuantizeRule::nvfp4:
      return nvfp4(amax, tensor_amax);
    case QuantizeRule::torchao:
      return torchao(amax, most, false);
    case QuantizeRule::torchao_power_of_two:
      return torchao(amax, most, true);
    case QuantizeRule::deepseek: {
      const float decode = greater(amax, 1e-4f) / most;
      return {1 / decode, decode, 0};
    }
  }
  return {};
}

}  // namespace halfmark::kernels::cuda
