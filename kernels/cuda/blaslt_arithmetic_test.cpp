// What rows of cublasLt promise, against a table written from Math and from the documentation of the flags.
#include "kernels/cuda/blaslt_arithmetic.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace halfmark::kernels::cuda {
namespace {

using enum DType;
constexpr uint64_t kFma = 1, kHmma = 2, kImma = 4, kDmma = 8, kGauss = 1ull << 32;
constexpr uint64_t kSum16 = 1 << 8, kSum32 = 2 << 8, kSum64 = 4 << 8, kSumInt = 8 << 8;
constexpr uint64_t kIn16 = 1 << 16, kInB16 = 2 << 16, kInTf32 = 4 << 16, kIn32 = 8 << 16, kIn64 = 16 << 16,
                   kIn8 = 32 << 16, kInE4 = 64 << 16, kInE5 = 128 << 16;
const Math kSingle{}, kDouble{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64},
    kHalfSums{.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}, kFast{.multiply = kTf32};

struct Case {
  const char* name;
  DType a, b, out;
  Math math;
  cublasComputeType_t compute;
  std::vector<uint64_t> kept, broken;
};
const Case kCases[] = {
    {"fp32",
     f32,
     f32,
     f32,
     kSingle,
     CUBLAS_COMPUTE_32F,
     {kFma | kSum32 | kIn32},
     {kHmma | kSum32 | kInTf32, kHmma | kSum32 | kIn32, kFma | kSum16 | kIn32, kFma | kSum32 | kIn16,
      kHmma | kSum32 | kInB16, kFma | kSum32 | kIn32 | kInTf32, kFma | kSum32, kSum32 | kIn32, kFma | kIn32, 0,
      kFma | kSum32 | kIn32 | kGauss, kImma | kSumInt | kIn8}},
    {"tf32",
     f32,
     f32,
     f32,
     kFast,
     CUBLAS_COMPUTE_32F_FAST_TF32,
     {kHmma | kSum32 | kInTf32, kHmma | kSum32 | kIn32, kHmma | kSum32 | kInTf32 | kIn32, kHmma | kSum32,
      kFma | kSum32 | kInTf32},  // but the first, they must prove it
     {kFma | kSum32 | kIn32, kFma | kSum32 | kIn32 | kInTf32, kFma | kSum32, kFma | kHmma | kSum32 | kIn32,
      kHmma | kSum32 | kInB16, kHmma | kSum32 | kIn16, kHmma | kSum16 | kInTf32, kHmma | kSum32 | kInTf32 | kIn16}},
    {"fp16",
     f16,
     f16,
     f16,
     kSingle,
     CUBLAS_COMPUTE_32F,
     {kHmma | kSum32 | kIn16, kFma | kSum32 | kIn16, kFma | kSum32 | kIn32, kHmma | kSum32 | kInTf32},
     {kHmma | kSum16 | kIn16, kHmma | kSum32 | kInB16, kHmma | kSum32, kHmma | kSum32 | kSum16 | kIn16}},
    {"fp16 sums",
     f16,
     f16,
     f16,
     kHalfSums,
     CUBLAS_COMPUTE_16F,
     {kHmma | kSum16 | kIn16, kFma | kSum16 | kIn16},
     {kHmma | kSum32 | kIn16, kFma | kSum32 | kIn32, kHmma | kSum16 | kSum32 | kIn16}},
    {"bf16",
     bf16,
     bf16,
     f32,
     kSingle,
     CUBLAS_COMPUTE_32F,
     {kHmma | kSum32 | kInB16, kFma | kSum32 | kIn32, kHmma | kSum32 | kIn16},  // the last must prove its range
     {kHmma | kSum16 | kInB16, kHmma | kSum32 | kInE5}},
    {"fp64",
     f64,
     f64,
     f64,
     kDouble,
     CUBLAS_COMPUTE_64F,
     {kDmma | kSum64 | kIn64, kFma | kSum64 | kIn64},
     {kFma | kSum32 | kIn64, kImma | kSumInt | kIn8, kFma | kSum64 | kIn32, kDmma | kSum64 | kIn64 | kGauss}},
    {"fp8",
     e4m3,
     e5m2,
     bf16,
     kSingle,
     CUBLAS_COMPUTE_32F,
     {kHmma | kSum32 | kInE4 | kInE5, kHmma | kSum32 | kIn16},
     {kHmma | kSum16 | kInE4, kHmma | kSum32, kFma | kSum32 | kInE4, kHmma | kSum32 | kIn8}},
    {"fp4",
     e2m1,
     e2m1,
     f32,
     kSingle,
     CUBLAS_COMPUTE_32F,
     {kHmma | kSum32, kHmma | kSum32 | kInE4},
     {kHmma | kSum16, kHmma | kSum32 | kIn8, kHmma}},
};

TEST(BlasltArithmetic, FlagsThatKeepThePromiseAndThoseThatDoNot) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(one.name);
    BlasltArithmetic arithmetic;
    ASSERT_FALSE(blaslt_arithmetic(100, one.a, one.b, one.out, one.math, 4096, arithmetic));
    EXPECT_EQ(arithmetic.compute, one.compute);
    for (const uint64_t flags : one.kept) {
      EXPECT_EQ(broken_promise(arithmetic, flags), "") << text_of_flags(flags);
      EXPECT_EQ(flags & ~allowed_flags(arithmetic), 0u) << text_of_flags(flags);
    }
    for (const uint64_t flags : one.broken) EXPECT_NE(broken_promise(arithmetic, flags), "") << text_of_flags(flags);
    EXPECT_EQ(must_prove_range(arithmetic, kHmma | kSum32 | kIn16), one.a == bf16);
    EXPECT_FALSE(must_prove_range(arithmetic, kHmma | kSum32 | kInB16));
    EXPECT_EQ(must_prove_tf32(arithmetic, kHmma | kSum32 | kIn32), one.math.multiply == kTf32);
    EXPECT_EQ(must_prove_tf32(arithmetic, kHmma | kSum32), one.math.multiply == kTf32);
    EXPECT_EQ(must_prove_tf32(arithmetic, kFma | kSum32 | kInTf32), one.math.multiply == kTf32);
    EXPECT_FALSE(must_prove_tf32(arithmetic, kHmma | kSum32 | kInTf32));
  }
}

// Flags 0x40201 and 0x40202 are those that cublasLt 13.1 states on an H200 for products in tf32 by wgmma and by mma.
TEST(BlasltArithmetic, BothKindsOfTf32AreAskedForAtOnceAndNoProductsInFp32) {
  BlasltArithmetic arithmetic;
  ASSERT_FALSE(blaslt_arithmetic(90, f32, f32, f32, kFast, 4096, arithmetic));
  const std::vector<uint64_t> masks = implementation_masks(arithmetic);
  ASSERT_EQ(masks.size(), 2u);
  EXPECT_EQ(0x40201 & ~masks[0], 0u);
  EXPECT_EQ(0x40202 & ~masks[0], 0u);
  for (const uint64_t mask : masks) {
    EXPECT_NE((kFma | kSum32 | kIn32) & ~mask, 0u);
    EXPECT_EQ(mask & ~allowed_flags(arithmetic), 0u);
  }
  for (const uint64_t flags : {uint64_t{kHmma | kSum32 | kIn32}, uint64_t{kHmma | kSum32}})
    EXPECT_EQ(flags & ~masks[1], 0u) << text_of_flags(flags);
  ASSERT_FALSE(blaslt_arithmetic(90, f32, f32, f32, kSingle, 4096, arithmetic));
  EXPECT_EQ(implementation_masks(arithmetic), std::vector{allowed_flags(arithmetic)});
}

TEST(BlasltArithmetic, PartialSums) {
  const auto reductions = [](DType in, DType out, Math math, int64_t depth) {
    BlasltArithmetic arithmetic;
    const Refusal refusal = blaslt_arithmetic(90, in, in, out, math, depth, arithmetic);
    return refusal ? -1 : static_cast<int>(arithmetic.reductions);
  };
  constexpr int kNone = CUBLASLT_REDUCTION_SCHEME_NONE, kInComputeType = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                kInOutputType = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  EXPECT_EQ(reductions(f32, f32, kSingle, 100), kInComputeType);
  EXPECT_EQ(reductions(f16, f16, kHalfSums, 100), kNone);
  EXPECT_EQ(reductions(f32, f32, {.split_k = 2}, 512), kInComputeType);
  EXPECT_EQ(reductions(f16, f16, {.split_k = 2}, 512), kInComputeType);
  EXPECT_EQ(reductions(f16, f16, {.partial = kFp16, .split_k = 2}, 512), kInOutputType);
  EXPECT_EQ(reductions(bf16, f32, {.partial = kBf16, .split_k = 2}, 512), -1) << "the result is f32";
  EXPECT_EQ(reductions(f32, f32, {.split_k = 3}, 512), -1) << "parts of unequal length";
  EXPECT_EQ(reductions(f32, f32, {.split_k = 8}, 512), -1) << "parts shorter than a tile";
}

TEST(BlasltArithmetic, WhatItDoesNotPromiseItRefuses) {
  const auto refusal = [](int capability, DType a, DType b, DType out, Math math) {
    BlasltArithmetic arithmetic;
    return blaslt_arithmetic(capability, a, b, out, math, 256, arithmetic).value_or("");
  };
  EXPECT_NE(refusal(75, bf16, bf16, bf16, kSingle), "");
  EXPECT_NE(refusal(75, f32, f32, f32, kFast), "");
  EXPECT_EQ(refusal(75, f32, f32, f32, kSingle), "");
  EXPECT_NE(refusal(80, e4m3, e4m3, f32, kSingle), "");
  EXPECT_EQ(refusal(89, e4m3, e4m3, f32, kSingle), "");
  EXPECT_NE(refusal(90, e2m1, e2m1, f32, kSingle), "");
  EXPECT_NE(refusal(90, e5m2, e5m2, f32, kSingle), "");
  EXPECT_NE(refusal(90, f16, f32, f32, kSingle), "");
  EXPECT_NE(refusal(90, f32, f32, f16, kSingle), "");
  EXPECT_NE(refusal(90, f32, f32, f32, {.multiply = kBf16}), "");
  EXPECT_NE(refusal(90, bf16, bf16, bf16, {.multiply = kBf16, .accumulate = kBf16, .partial = kBf16}), "");
  EXPECT_NE(refusal(90, f16, f16, f16, {.fast_accumulate = true}), "");
  EXPECT_EQ(refusal(90, e4m3, e4m3, f16, {.fast_accumulate = true}), "");
}

TEST(BlasltArithmetic, FlagsAsText) {
  EXPECT_EQ(text_of_flags(kHmma | kSum32 | kIn16 | kInB16), "HMMA, sums fp32, inputs fp16 bf16");
  EXPECT_EQ(text_of_flags(kInE4), "not stated, sums not stated, inputs e4m3");
}

}  // namespace
}  // namespace halfmark::kernels::cuda
