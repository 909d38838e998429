// Tests of the probe on boxes with known order and rounding, and on matmul kernels of the CPU, replayed bit for bit.
#include "accuracy/probe/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {
namespace {

// A box with fp32 operands and results that computes the given function.
BlackBox box_of(size_t k, std::function<float(const std::vector<float>&, const std::vector<float>&, float)> sum,
                bool takes_c = true) {
  BlackBox box{"test", "f32>f32", "a function", kFp32, kFp32, kFp32, kFp32, DType::f32, takes_c, k, {}};
  box.answers = [sum](std::span<const Question> questions) {
    std::vector<uint64_t> codes;
    for (const Question& q : questions)
      codes.push_back(
          std::bit_cast<uint32_t>(sum({q.a.begin(), q.a.end()}, {q.b.begin(), q.b.end()}, static_cast<float>(q.c))));
    return codes;
  };
  return box;
}

Options quick(size_t replays = 500) {
  Options options;
  options.replays = replays, options.match = false;
  return options;
}

Report report_of(const BlackBox& box, size_t replays = 500) {
  RecordingBox recorder(box);
  return examine(recorder, quick(replays));
}

std::string value_of(const Report& report, std::string_view parameter) {
  const Finding* finding = report.find(parameter);
  return finding ? finding->value : "no such line";
}

void expect_replayed(const Report& report) {
  ASSERT_TRUE(report.model) << value_of(report, "summation tree");
  EXPECT_EQ(report.replayed, report.replays) << report.fingerprint;
}

TEST(Probe, FindsAChainOfFusedMultiplyAddsFromC) {
  const Report report = report_of(box_of(12, [](const auto& a, const auto& b, float c) {
    for (size_t i = 0; i < a.size(); ++i) c = std::fma(a[i], b[i], c);
    return c;
  }));
  EXPECT_EQ(value_of(report, "summation tree"), "{c + 0}, 1-11");
  EXPECT_EQ(value_of(report, "products per block"), "1");
  EXPECT_EQ(value_of(report, "order"), "k increasing");
  EXPECT_EQ(value_of(report, "rounding of sums"), "near_even");
  EXPECT_EQ(value_of(report, "accumulator"), "fp32");
  EXPECT_EQ(value_of(report, "products"), "added unrounded (fused multiply-add)");
  expect_replayed(report);
}

TEST(Probe, DistinguishesRoundedProductsFromFusedOnes) {
  const Report report = report_of(box_of(12, [](const auto& a, const auto& b, float c) {
    float sum = a[0] * b[0];
    for (size_t i = 1; i < a.size(); ++i) sum = sum + a[i] * b[i];
    return sum + c;
  }));
  EXPECT_EQ(value_of(report, "summation tree"), "0-11, c");
  EXPECT_EQ(value_of(report, "c"), "added last");
  EXPECT_EQ(value_of(report, "products"), "rounded before they are added");
  expect_replayed(report);
}

TEST(Probe, FindsPairwiseAndReversedAndStridedSums) {
  const std::function<float(const std::vector<float>&, const std::vector<float>&, size_t, size_t)> pairwise =
      [&pairwise](const auto& a, const auto& b, size_t begin, size_t end) -> float {
    if (end - begin == 1) return a[begin] * b[begin];
    const size_t middle = begin + (end - begin) / 2;
    return pairwise(a, b, begin, middle) + pairwise(a, b, middle, end);
  };
  const Report tree = report_of(box_of(
      8, [&](const auto& a, const auto& b, float) { return pairwise(a, b, 0, a.size()); }, false));
  EXPECT_EQ(value_of(tree, "summation tree"), "((0-1) + (2-3)) + ((4-5) + (6-7))");
  EXPECT_EQ(value_of(tree, "c"), kNotObservable);
  expect_replayed(tree);

  const Report reversed = report_of(box_of(8, [](const auto& a, const auto& b, float c) {
    for (size_t i = a.size(); i-- > 0;) c = std::fma(a[i], b[i], c);
    return c;
  }));
  EXPECT_EQ(value_of(reversed, "order"), "blocks in another order");
  expect_replayed(reversed);

  const Report lanes = report_of(box_of(16, [](const auto& a, const auto& b, float c) {
    std::array<float, 4> lane{};
    for (size_t i = 0; i < a.size(); ++i) lane[i % 4] = std::fma(a[i], b[i], lane[i % 4]);
    return (lane[0] + lane[2]) + (lane[1] + lane[3]) + c;
  }));
  EXPECT_EQ(value_of(lanes, "summation tree"), "((0 4 .. 12) + (2 6 .. 14)) + ((1 5 .. 13) + (3 7 .. 15)), c");
  expect_replayed(lanes);
}

TEST(Probe, AbbreviatesRepeatedParts) {
  // Even and odd products in separate chains, sixteen at a time, as in AMX.
  const Report report = report_of(box_of(64, [](const auto& a, const auto& b, float c) {
    float total = 0;
    for (size_t begin = 0; begin < a.size(); begin += 16) {
      float even = 0, odd = 0;
      for (size_t i = begin; i < begin + 16; i += 2) {
        even = std::fma(a[i], b[i], even), odd = std::fma(a[i + 1], b[i + 1], odd);
      }
      total += even + odd;
    }
    return total + c;
  }));
  EXPECT_EQ(value_of(report, "summation tree"),
            "((0 2 .. 14) + (1 3 .. 15)) and so on every 16 up to 63, added in turn, c");
  expect_replayed(report);
}

TEST(Probe, FindsASplitOfKAndTheFormatOfItsPartialSums) {
  const auto split = [](const auto& a, const auto& b, const Format& partial) {
    float total = 0;
    for (size_t begin = 0; begin < a.size(); begin += 4) {
      float sum = 0;
      for (size_t i = begin; i < begin + 4; ++i) sum = std::fma(a[i], b[i], sum);
      total += static_cast<float>(round_to(partial, sum));
    }
    return total;
  };
  for (const Format& partial : {kFp32, kBf16, kFp16}) {
    const Report report =
        report_of(box_of(12, [&](const auto& a, const auto& b, float c) { return split(a, b, partial) + c; }));
    EXPECT_EQ(value_of(report, "slices of K"), "3");
    EXPECT_EQ(value_of(report, "partial sums"),
              partial == kFp32 ? "as the sums of a slice" : "rounded to " + std::string(partial.name));
    expect_replayed(report);
  }
}

TEST(Probe, FindsOperandsThatAreRoundedToTf32) {
  for (const Rounding rounding : {Rounding::toward_zero, Rounding::near_even, Rounding::near_away}) {
    const Report report = report_of(box_of(8, [&](const auto& a, const auto& b, float c) {
      for (size_t i = 0; i < a.size(); ++i)
        c = std::fma(static_cast<float>(round_to(kTf32, a[i], rounding)),
                     static_cast<float>(round_to(kTf32, b[i], rounding)), c);
      return c;
    }));
    EXPECT_EQ(value_of(report, "operands"), rounding == Rounding::toward_zero ? "cut to tf32"
                                            : rounding == Rounding::near_even
                                                ? "rounded to nearest even to tf32"
                                                : "rounded to nearest, ties away to tf32");
    expect_replayed(report);
  }
}

TEST(Probe, FindsASumThatIsWiderOrNarrowerThanTheResult) {
  const Report wide = report_of(box_of(8, [](const auto& a, const auto& b, float c) {
    double sum = c;
    for (size_t i = 0; i < a.size(); ++i) sum = std::fma(static_cast<double>(a[i]), static_cast<double>(b[i]), sum);
    return static_cast<float>(sum);
  }));
  EXPECT_EQ(value_of(wide, "accumulator"), "fp64");
  const Report narrow = report_of(box_of(8, [](const auto& a, const auto& b, float c) {
    double sum = c;
    for (size_t i = 0; i < a.size(); ++i) sum = fused_multiply_add(kFp16, a[i], b[i], sum);
    return static_cast<float>(sum);
  }));
  EXPECT_EQ(value_of(narrow, "accumulator"), "10 fraction bits");
}

TEST(Probe, ReportsNoTreeForExactSums) {
  // Exact sums: masks cancel at every position, and all other units remain.
  const Report report = report_of(box_of(6, [](const auto& a, const auto& b, float c) {
    std::vector<double> terms{c};
    for (size_t i = 0; i < a.size(); ++i) terms.push_back(static_cast<double>(a[i]) * static_cast<double>(b[i]));
    std::sort(terms.begin(), terms.end(), [](double x, double y) { return std::fabs(x) > std::fabs(y); });
    return static_cast<float>(std::accumulate(terms.begin(), terms.end(), 0.0));
  }));
  EXPECT_EQ(value_of(report, "summation tree"), kNotObservable);
  EXPECT_FALSE(report.model);
}

TEST(Probe, FindsAndReplaysFlushedSubnormals) {
  const Report report = report_of(box_of(6, [](const auto& a, const auto& b, float c) {
    const auto flush = [](float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
    for (size_t i = 0; i < a.size(); ++i) c = flush(std::fma(flush(a[i]), flush(b[i]), c));
    return c;
  }));
  EXPECT_EQ(value_of(report, "subnormal operands"), "flushed to zero");
  EXPECT_EQ(value_of(report, "subnormal results"), "flushed to zero");
  expect_replayed(report);
}

TEST(Probe, ReplaysTheMatmulsOfTheCpuBitForBit) {
  const auto device = open_device("cpu");
#if HALFMARK_SANITIZED
  constexpr size_t kReplays = 500;
#else
  constexpr size_t kReplays = 10000;
#endif
  for (const char* name : {"f32>f32", "bf16>f32", "f16>f32", "f16>f16"}) {
    RecordingBox recorder(matmul_box(*device, matmul_types_named(name), {32, 32, 64}));
    const Report report = examine(recorder, quick(kReplays));
    ASSERT_TRUE(report.model) << name << ": " << report.find("summation tree")->evidence;
    EXPECT_EQ(report.replayed, kReplays) << name << ": " << report.fingerprint;
  }
}

TEST(Probe, FindsTheMathRequestedFromTheReferenceRows) {
  const auto device = open_device("cpu");
  const Report report = report_of(matmul_box(*device, matmul_types_named("f16>f32+split3:bf16"), {4, 4, 12}));
  EXPECT_EQ(value_of(report, "slices of K"), "3");
  EXPECT_EQ(value_of(report, "partial sums"), "rounded to bf16");
  expect_replayed(report);
  const Report half = report_of(matmul_box(*device, matmul_types_named("f16>f16"), {4, 4, 12}));
  EXPECT_EQ(value_of(half, "accumulator"), "fp16");
  const Report wide = report_of(matmul_box(*device, matmul_types_named("f16>f16+wide"), {4, 4, 12}));
  EXPECT_EQ(value_of(wide, "accumulator"), "fp32");
}

TEST(Probe, FindsThatRunsAreRepeatable) {
  const auto device = open_device("cpu");
  std::vector<Finding> findings;
  find_repeatability(*device, matmul_types_named("f16>f16"), {4, 4, 12}, findings);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].value, "the same bits");
  EXPECT_EQ(findings[1].value, "invariant");  // a reference kernel computes each row of the matrix independently
}

TEST(Probe, RefusesTypesItCannotParse) {
  for (const char* name : {"f16", "f16>", "f16>f32+", "f16>f32+split0", "f16>f32+splitX", "u8>f32", "f99>f32"})
    EXPECT_THROW(matmul_types_named(name), Error) << name;
}

TEST(Probe, GivesEqualSumsOneFingerprintAndDifferentSumsTwo) {
  const auto chain = [](bool fused) {
    return box_of(8, [fused](const auto& a, const auto& b, float c) {
      for (size_t i = 0; i < a.size(); ++i) c = fused ? std::fma(a[i], b[i], c) : c + a[i] * b[i];
      return c;
    });
  };
  EXPECT_EQ(report_of(chain(true)).hash, report_of(chain(true)).hash);
  EXPECT_NE(report_of(chain(true)).hash, report_of(chain(false)).hash);
}

}  // namespace
}  // namespace halfmark::accuracy::probe
