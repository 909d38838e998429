// The GPU's casts equal encode() bit for bit, including every NaN and subnormal.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
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

// More elements than one grid takes at a time, so that threads go on to others. The counts are known from the values.
TEST_F(GpuCast, CountsTheEventsOfMoreElementsThanAGridHasThreads) {
  struct Kind {
    float value;
    int inexact, overflow, underflow, subnormal;
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr Kind kKinds[] = {
      {1, 0, 0, 0, 0},         {1 + 0x1p-12F, 1, 0, 0, 0}, {0x1p-26F, 1, 0, 1, 0}, {-0x1.8p-24F, 1, 0, 0, 1},
      {0x1p-20F, 0, 0, 0, 1},  {-65520, 1, 1, 0, 0},       {65519, 1, 0, 0, 0},    {0, 0, 0, 0, 0},
      {kInfinity, 0, 0, 0, 0}, {kNan, 0, 0, 0, 0}};
  constexpr size_t kCount = size_t{2048} * 256 * 8 + 12345;
  std::vector<float> values(kCount);
  std::vector<double> expected(4);
  for (size_t i = 0; i < kCount; ++i) {
    const Kind& kind = kKinds[RandomKey(19).below(i, std::size(kKinds))];
    values[i] = kind.value;
    expected[0] += kind.inexact, expected[1] += kind.overflow;
    expected[2] += kind.underflow, expected[3] += kind.subnormal;
  }
  Tensor x(gpu(), {static_cast<int64_t>(kCount)}, DType::f32), out(gpu(), x.shape(), DType::f16),
      single(gpu(), x.shape(), DType::f16), events = Tensor::zeros(gpu(), {CountedCast::kEvents}, DType::f64);
  gpu().copy_in(x.data(), values.data(), x.bytes());
  run(CountedCast{.x = x, .out = out, .events = events});
  run(Cast{.x = x, .out = single});
  EXPECT_EQ(events.values(), expected);
  EXPECT_TRUE(out.codes() == single.codes());
}

// Bit patterns of all kinds, with NaN, infinities and subnormal numbers of both dtypes among them.
std::vector<uint64_t> patterns(DType dtype, size_t count, uint64_t seed) {
  const RandomKey key(seed);
  const uint64_t mask = dtype == DType::f64 ? ~uint64_t{0} : (uint64_t{1} << bits_of(dtype)) - 1;
  std::vector<uint64_t> codes(count);
  for (size_t i = 0; i < count; ++i) codes[i] = key.bits(i) & mask;
  const double ends[] = {65504, 65520, 0x1p-24,  0x1p-25, 448,      464,      61440,
                         1e39,  -1e39, 0x1p-133, -0.0,    HUGE_VAL, -HUGE_VAL};
  for (size_t i = 0; i < count && i < std::size(ends); ++i)
    codes[i] = encode(dtype, ends[(i + seed) % std::size(ends)]);
  return codes;
}

class GpuCastLists : public GpuCast {
 protected:
  // A pair whose tensors begin so many elements behind multiples of 256 bytes, and the memory that they are parts of.
  struct Pair {
    Tensor x, out, memory;
    int64_t first, count;
  };
  Pair pair_of(DType from, DType to, int64_t count, int64_t x_first, int64_t out_first) {
    const Tensor x = from_codes(from, patterns(from, static_cast<size_t>(x_first + count), ++seed_));
    Tensor memory(gpu(), {out_first + count + 32}, to);
    std::vector<unsigned char> bytes(memory.bytes(), kUntouched);
    gpu().copy_in(memory.data(), bytes.data(), bytes.size());
    return {x.slice(x_first, count), memory.slice(out_first, count), memory, out_first, count};
  }

  // As single casts, and nothing beside the results is written.
  void expect_alike(std::vector<Pair>& pairs, Rounding rounding = Rounding::near_even) {
    std::vector<CastPair> list;
    for (const Pair& pair : pairs) list.push_back({pair.x, pair.out, 5 + list.size()});
    run(CastTensors{.pairs = list, .rounding = rounding});
    for (size_t i = 0; i < pairs.size(); ++i) {
      const Pair& pair = pairs[i];
      Tensor single(gpu(), pair.out.shape(), pair.out.dtype());
      run(Cast{.x = pair.x, .out = single, .rounding = rounding, .noise = list[i].noise});
      const std::string what = std::string(name_of(pair.x.dtype())) + " to " + std::string(name_of(single.dtype())) +
                               ", " + std::to_string(pair.count) + " elements from " + std::to_string(pair.first);
      const std::vector<unsigned char> bytes = pair.memory.codes();
      std::vector<unsigned char> expected(bytes.size(), kUntouched);
      std::ranges::copy(single.codes(), expected.begin() + pair.first * static_cast<int64_t>(size_of(single.dtype())));
      ASSERT_EQ(bytes, expected) << what << " " << name_of(rounding);
    }
  }

  uint64_t kernels_of(std::vector<Pair>& pairs) {
    std::vector<CastPair> list;
    for (const Pair& pair : pairs) list.push_back({pair.x, pair.out});
    const auto work = [&] { run(CastTensors{.pairs = list}); };
    work();
    return gpu().record(work)->counts().kernels;
  }

 private:
  static constexpr unsigned char kUntouched = 0xa5;
  uint64_t seed_ = 100;
};

// A block takes 2048 elements, a thread 8 of 16 bytes or more.
TEST_F(GpuCastLists, HaveTheBitsOfSingleCasts) {
  for (const DType from : kFloating)
    for (const DType to : kFloating) {
      std::vector<Pair> pairs;
      for (const int64_t count : {1, 7, 8, 9, 2047, 2048, 2049, 5000}) pairs.push_back(pair_of(from, to, count, 0, 0));
      pairs.push_back(pair_of(from, to, 300, 1, 0)), pairs.push_back(pair_of(from, to, 2100, 0, 3));
      pairs.push_back(pair_of(from, to, 2100, 5, 7)), pairs.push_back(pair_of(from, to, 33, 16, 16));
      expect_alike(pairs);
    }
}

TEST_F(GpuCastLists, OfManyTensorsOfAllDtypesHaveTheBitsOfSingleCasts) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 620; ++i) {
    const bool is_usual = i % 3 != 0;  // more than 250 of those that are vectors
    const DType half = i % 2 == 0 ? DType::f16 : DType::bf16;
    const DType from = is_usual ? (i % 5 < 2 ? half : DType::f32) : kFloating[i % 6];
    const DType to = is_usual ? (i % 5 < 2 ? DType::f32 : half) : kFloating[i / 6 % 6];
    pairs.push_back(pair_of(from, to, i % 50 == 0 ? 4100 : 1 + i % 37, 0, i % 4));
  }
  expect_alike(pairs);
}

TEST_F(GpuCastLists, RoundAsSingleCastsInEveryMode) {
  std::vector<Pair> pairs;
  for (const DType to : kFloating)
    pairs.push_back(pair_of(DType::f32, to, 77, 1, 1)), pairs.push_back(pair_of(DType::f64, to, 2050, 0, 0));
  for (const Rounding rounding : {Rounding::toward_zero, Rounding::near_away, Rounding::stochastic})
    expect_alike(pairs, rounding);
}

TEST_F(GpuCastLists, AreOneLaunchForUpTo250Tensors) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 250; ++i)
    pairs.push_back(pair_of(i % 2 == 0 ? DType::f32 : DType::f16, i % 2 == 0 ? DType::bf16 : DType::f32, 1 + i, 0, 0));
  EXPECT_EQ(kernels_of(pairs), 1u);
  pairs.push_back(pair_of(DType::f32, DType::bf16, 3, 0, 0));
  EXPECT_EQ(kernels_of(pairs), 2u);
  pairs.pop_back();
  pairs.push_back(pair_of(DType::f32, DType::e4m3, 3, 0, 0));
  EXPECT_EQ(kernels_of(pairs), 2u) << "dtypes of which no vectors are made";
}

}  // namespace
}  // namespace halfmark::kernels
