// The GPU's casts equal encode() bit for bit, including every NaN and subnormal.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/number/convert.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

class GpuCast : public Gpu {
 protected:
  Tensor from_codes(DType dtype, const std::vector<uint64_t>& codes) {
    Tensor tensor(gpu(), {static_cast<int64_t>(codes.size())}, dtype);
    std::vector<unsigned char> bytes(tensor.bytes());
    for (size_t i = 0; i < codes.size(); ++i) std::memcpy(&bytes[i * size_of(dtype)], &codes[i], size_of(dtype));
    gpu().copy_in(tensor.data(), bytes.data(), bytes.size());
    return tensor;
  }

  void expect_casts_like_encode(DType from, const std::vector<uint64_t>& codes, DType to) {
    const Tensor x = from_codes(from, codes);
    Tensor out(gpu(), x.shape(), to);
    run(Cast{.x = x, .out = out});
    const std::vector<unsigned char> bytes = out.codes();
    int shown = 0;
    for (size_t i = 0; i < codes.size() && shown < 5; ++i) {
      double value = decode(from, codes[i]);
      // encode() to f64 and f32 may propagate a payload; a cast gives the quiet NaN.
      if (std::isnan(value))
        value = std::copysign(std::numeric_limits<double>::quiet_NaN(), std::signbit(value) ? -1.0 : 1.0);
      uint64_t actual = 0;
      std::memcpy(&actual, &bytes[i * size_of(to)], size_of(to));
      if (actual == encode(to, value)) continue;
      ++shown;
      ADD_FAILURE() << name_of(from) << " code " << std::hex << codes[i] << " (" << value << ") to " << name_of(to)
                    << ": " << actual << ", encode says " << encode(to, value);
    }
  }
};

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2};

TEST_F(GpuCast, EveryCodeOfTheNarrowTypesToEveryType) {
  for (const DType from : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
    std::vector<uint64_t> codes(size_t{1} << (8 * size_of(from)));
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = i;
    for (const DType to : kFloating) expect_casts_like_encode(from, codes, to);
  }
}

TEST_F(GpuCast, RandomBitPatternsOfFp32AndFp64) {
  const RandomKey key(17);
  std::vector<uint64_t> narrow(1000003), wide(300007);
  for (size_t i = 0; i < narrow.size(); ++i) narrow[i] = key.bits(i) & 0xffffffff;
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = key.bits(i);
  for (const DType to : kFloating) {
    expect_casts_like_encode(DType::f32, narrow, to);
    expect_casts_like_encode(DType::f64, wide, to);
  }
}

TEST_F(GpuCast, TiesAndTheirNeighboursRoundOnce) {
  // Around every midpoint of two neighbouring f16, bf16 and FP8 values: the tie itself and the next fp64 numbers, for
  // which rounding through fp32 would round twice.
  for (const DType to : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
    std::vector<uint64_t> codes;
    const uint64_t sign = uint64_t{1} << (8 * size_of(to) - 1);
    for (uint64_t code = 0; code + 1 < sign; ++code) {
      const double low = decode(to, code), high = decode(to, code + 1);
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const auto middle = std::bit_cast<uint64_t>((low + high) / 2);
      for (const uint64_t step : {middle - 1, middle, middle + 1})
        codes.push_back(step), codes.push_back(step | uint64_t{1} << 63);
    }
    expect_casts_like_encode(DType::f64, codes, to);
  }
}

TEST_F(GpuCast, EveryRoundingGivesTheBitsOfEncode) {
  const RandomKey key(18);
  std::vector<uint64_t> codes(2003);
  for (size_t i = 0; i < codes.size(); ++i) {
    // Exponents around those of the narrow types, whose subnormal numbers begin at 2^-133.
    const uint64_t exponent = 1023 - 160 + key.below(i, 310), fraction = key.bits(i) >> 12;
    codes[i] = (i % 2) << 63 | exponent << 52 | (i % 5 == 0 ? fraction >> 47 << 47 : fraction);
  }
  const Tensor x = from_codes(DType::f64, codes);
  for (const DType to : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2})
    for (const Rounding rounding : {Rounding::toward_zero, Rounding::near_away, Rounding::stochastic}) {
      constexpr uint64_t kNoise = 0x123456789abcdef;
      Tensor out(gpu(), x.shape(), to);
      run(Cast{.x = x, .out = out, .rounding = rounding, .noise = kNoise});
      const std::vector<unsigned char> bytes = out.codes();
      int shown = 0;
      for (size_t i = 0; i < codes.size() && shown < 5; ++i) {
        uint64_t actual = 0;
        std::memcpy(&actual, &bytes[i * size_of(to)], size_of(to));
        const double value = decode(DType::f64, codes[i]);
        const uint64_t wanted = encode(to, value, rounding, nullptr, rounding_noise(kNoise, i));
        if (actual == wanted) continue;
        ++shown;
        ADD_FAILURE() << std::hex << codes[i] << " to " << name_of(to) << " " << name_of(rounding) << ": " << actual
                      << ", encode says " << wanted;
      }
    }
}

}  // namespace
}  // namespace halfmark::kernels
