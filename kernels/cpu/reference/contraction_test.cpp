// The fast paths of the reference contraction give the bits of the slow one, and their arithmetic equals round_to.
#include "kernels/cpu/contraction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cpu/reference/contraction_paths.h"
#include "kernels/cpu/reference/round.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"

namespace halfmark::kernels::reference {
namespace {

bool has_fma() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

// Finite numbers over the whole exponent range of the dtype, so that sums cancel, underflow and lose bits.
std::vector<double> wild(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> values;
  while (values.size() < count) {
    double x = 0;
    if (dtype == DType::f32)  // exponents of -60 .. 60: products and sums stay finite
      x = static_cast<double>(
          std::bit_cast<float>(static_cast<uint32_t>((random() & 0x807FFFFF) | ((67 + random() % 120) << 23))));
    else
      x = decode(dtype, random() & (size_of(dtype) == 2 ? 0xFFFF : 0xFF));
    if (dtype == DType::bf16 && std::fabs(x) > 0x1p60) continue;
    if (std::isfinite(x)) values.push_back(x);
  }
  return values;
}

std::vector<unsigned char> result_of(const Matmul& op, Path path) {
  contract(Contraction(op), path);
  return op.out.codes();
}

TEST(ReferenceContraction, FastPathsEqualTheSlowOneBitForBit) {
  const auto device = open_device("cpu");
  int multiply_add = 0;
  for (const auto& [a_type, b_type] : {std::pair{DType::f16, DType::f16},
                                       {DType::bf16, DType::bf16},
                                       {DType::f32, DType::f32},
                                       {DType::f16, DType::f32},
                                       {DType::e4m3, DType::e5m2},
                                       {DType::f16, DType::bf16}})
    for (const Format& multiply : {kFp32, kTf32})
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const Tensor a = Tensor::from(*device, {9, 70}, a_type, wild(a_type, 630, seed)),
                     b = Tensor::from(*device, {70, 11}, b_type, wild(b_type, 770, seed + 100));
        Tensor out(*device, {9, 11}, DType::f32);
        const Matmul op{.a = a, .b = b, .out = out, .math = {.multiply = multiply, .split_k = seed % 2 ? 3 : 1}};
        const std::vector<unsigned char> slow = result_of(op, Path::generic);
        if (has_fma()) {
          ASSERT_EQ(result_of(op, Path::fma), slow)
              << name_of(a_type) << " " << name_of(b_type) << " " << multiply.name;
        }
        if (!products_exact_in_float(Contraction(op))) continue;
        ++multiply_add;
        ASSERT_EQ(result_of(op, Path::multiply_add), slow)
            << name_of(a_type) << " " << name_of(b_type) << " " << multiply.name;
      }
  EXPECT_GT(multiply_add, 40) << "f16 and fp8 products are always exact in fp32";
}

TEST(ReferenceContraction, ProductsOfBf16AreNotAlwaysExactInFp32) {
  const auto device = open_device("cpu");
  const Tensor tiny = Tensor::from(*device, {1, 1}, DType::bf16, std::vector<double>{0x1.02p-80});
  Tensor out(*device, {1, 1}, DType::f32);
  EXPECT_FALSE(products_exact_in_float(Contraction(Matmul{.a = tiny, .b = tiny, .out = out})));
  const Tensor one = Tensor::from(*device, {1, 1}, DType::bf16, std::vector<double>{1.0078125});
  EXPECT_TRUE(products_exact_in_float(Contraction(Matmul{.a = one, .b = one, .out = out})));
}

TEST(ReferenceContraction, DoesNotDependOnTheNumberOfThreads) {
  const auto device = open_device("cpu");
  const Tensor x = Tensor::from(*device, {4, 8, 12, 12}, DType::f16, wild(DType::f16, 4608, 1)),
               w = Tensor::from(*device, {8, 8, 3, 3}, DType::f16, wild(DType::f16, 576, 2));
  Tensor out(*device, {4, 8, 12, 12}, DType::f32);
  const int before = host_threads();
  std::vector<std::vector<unsigned char>> results;
  for (const int threads : {1, 2, 3}) {
    set_host_threads(threads);
    run(Conv2d{.x = x, .w = w, .out = out, .window = {.pad_h = 1, .pad_w = 1}});
    results.push_back(out.codes());
  }
  set_host_threads(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(ReferenceContraction, SumsInIncreasingKAndRoundsEachStep) {
  const auto device = open_device("cpu");
  // 2048 + 1 + 1 in fp16 is 2048 in this order and 2050 in the other.
  const Tensor ones = Tensor::from(*device, {3, 1}, DType::f16, std::vector<double>{1, 1, 1});
  Tensor out(*device, {1, 1}, DType::f32);
  const Math math{.accumulate = kFp16};
  run(Matmul{.a = Tensor::from(*device, {1, 3}, DType::f16, std::vector<double>{2048, 1, 1}),
             .b = ones,
             .out = out,
             .math = math});
  EXPECT_EQ(out.values()[0], 2048);
  run(Matmul{.a = Tensor::from(*device, {1, 3}, DType::f16, std::vector<double>{1, 1, 2048}),
             .b = ones,
             .out = out,
             .math = math});
  EXPECT_EQ(out.values()[0], 2050);
}

TEST(ReferenceContraction, PaddingIsLeftOutSoThatItMakesNoNaN) {
  const auto device = open_device("cpu");
  const Tensor x = Tensor::from(*device, {1, 1, 1, 1}, DType::f32, std::vector<double>{2});
  std::vector<double> weights(9, HUGE_VAL);
  weights[4] = 3;
  const Tensor w = Tensor::from(*device, {1, 1, 3, 3}, DType::f32, weights);
  Tensor out(*device, {1, 1, 1, 1}, DType::f32);
  run_with(device->kernels().of<Conv2d>().back(),
           Conv2d{.x = x, .w = w, .out = out, .window = {.pad_h = 1, .pad_w = 1}});
  EXPECT_EQ(out.values()[0], 6);
}

TEST(Rounder, IsRoundToOfNearestEven) {
  std::mt19937_64 random(1);
  for (const Format& format : formats()) {
    if (!format.has_nan() || format.is_scale()) {
      EXPECT_THROW(Rounder{format}, Error) << format.name;
      continue;
    }
    const Rounder round(format);
    for (int i = 0; i < 300'000; ++i) {
      // The whole range, then values near the format's range with short significands, which produce ties.
      double x = std::bit_cast<double>(random());
      if (i % 3)
        x = std::ldexp(static_cast<double>(static_cast<int64_t>(random() % 16384) - 8192),
                       static_cast<int>(random() % 64) - 44);
      if (i % 3 == 2 && format.exponent_bits == 8) x = std::ldexp(x, random() % 2 ? -118 : 110);
      const double expected = round_to(format, x);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(round(x)));
      } else {
        ASSERT_EQ(std::bit_cast<uint64_t>(round(x)), std::bit_cast<uint64_t>(expected))
            << format.name << " " << std::hexfloat << x;
      }
    }
  }
}

TEST(AddOdd, IsAddToOdd) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1'000'000; ++i) {
    const double a = std::bit_cast<double>(random()),
                 b = i % 2 ? std::bit_cast<double>(random())
                           : a * std::ldexp(-1.0 - 0x1p-30, static_cast<int>(random() % 120) - 60);
    const double expected = add_to_odd(a, b), actual = add_odd(a, b);
    if (!std::isnan(expected)) {
      ASSERT_EQ(std::bit_cast<uint64_t>(actual), std::bit_cast<uint64_t>(expected)) << std::hexfloat << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace halfmark::kernels::reference
