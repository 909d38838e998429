// What the plugin makes of libraries that fail or do not keep to what they were asked for. Only on the software GPU, whose
// stand-ins give wrong answers on request (software_gpu/libraries/planted_answers.h). Each test has sizes of its own,
// because plans are kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/library_rows_testing.h"
#include "kernels/number/error.h"
#include "kernels/ops/cases/cases.h"

namespace halfmark::kernels {
namespace {

// 3x3 with padding 1; the centre of the result sums 9 * channels products of x and 1.
Ran convolve(Device& device, int64_t channels, DType dtype, const Math& math, double x) {
  const auto filled = [&](const Shape& shape, double value) {
    return Tensor::from(device, shape, dtype, std::vector<double>(static_cast<size_t>(shape.elements()), value));
  };
  const Tensor image = filled({1, channels, 4, 4}, x), filter = filled({channels, channels, 3, 3}, 1);
  Tensor out(device, {1, channels, 4, 4}, dtype);
  KernelLog log;
  run(Conv2d{.x = image, .w = filter, .out = out, .window = {.pad_h = 1, .pad_w = 1}, .math = math});
  const LoggedKernel entry = log.entries().at(0);
  return {entry.row, entry.refusals, entry.choices, {out.values()[5]}};
}

constexpr Math kTf32Math{.multiply = kTf32};

TEST_F(LibraryRows, TheChosenAlgorithmIsRecorded) {
  const Ran ran = multiply(gpu(), 48, DType::f16, {}, 1, 1);
  EXPECT_EQ(ran.row, "cublaslt");
  ASSERT_EQ(ran.choices.size(), 1u);
  EXPECT_EQ(ran.choice().find("48x48x48: algorithm 1"), 0u) << ran.choice();
  EXPECT_NE(ran.choice().find("(HMMA, sums fp32, inputs fp16); the library's number 1 of "), std::string::npos)
      << ran.choice();
}

TEST_F(LibraryRows, EverySizeHasItsChoiceInTheRecord) {
  KernelLog log;
  for (const int64_t n : {40, 56, 40}) {
    const Tensor a = Tensor::zeros(gpu(), {n, n}, DType::f16);
    Tensor out(gpu(), {n, n}, DType::f16);
    run(Matmul{.a = a, .b = a, .out = out});
  }
  const std::vector<LoggedKernel> entries = log.entries();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].calls, 3u);
  ASSERT_EQ(entries[0].choices.size(), 2u);
  EXPECT_EQ(entries[0].choices[0].find("40x40x40: "), 0u) << entries[0].choices[0];
  EXPECT_EQ(entries[0].choices[1].find("56x56x56: "), 0u) << entries[0].choices[1];
}

// As on a GPU: each algorithm is timed on random numbers, and the next one is proved on its constants again. Those of bf16 need
// the proof, because they report fp16 inputs.
TEST_F(LibraryRows, AlgorithmsAreComparedByTheirTimes) {
  const Planted planted("names-bf16-fp16");
  setenv("HALFMARK_SOFTWARE_GPU_COMPARES", "1", 1);
  const Ran bf16 = multiply(gpu(), 72, DType::bf16, {}, 1.5, 2),
            tf32 = multiply(gpu(), 76, DType::f32, kTf32Math, 1, 3), image = convolve(gpu(), 40, DType::f16, {}, 2);
  unsetenv("HALFMARK_SOFTWARE_GPU_COMPARES");
  for (const Ran* ran : {&bf16, &tf32, &image})
    EXPECT_NE(ran->choice().find(", the fastest of "), std::string::npos) << ran->choice();
  EXPECT_EQ(bf16.choice().find("bf16 as fp16"), std::string::npos) << bf16.choice();
  EXPECT_EQ(bf16.values[0], 3 * 72);
  EXPECT_EQ(tf32.values[0], 3 * 76);
  EXPECT_EQ(image.values[0], 2 * 9 * 40);
}

// 160 terms in two halves: 80 of 20.03125 and 80 of 0.3125 times that. fp16 has neither 1602.5 nor 500.78125.
Ran multiply_in_halves(Device& device, DType dtype, const Math& math) {
  constexpr int64_t kTerms = 160;
  std::vector<double> left(kTerms, 1.0);
  std::fill(left.begin() + kTerms / 2, left.end(), 0.3125);
  const Tensor a = Tensor::from(device, {1, kTerms}, dtype, left),
               b = Tensor::from(device, {kTerms, 8}, dtype, std::vector<double>(kTerms * 8, 20.03125));
  Tensor out(device, {1, 8}, dtype);
  KernelLog log;
  run(Matmul{.a = a, .b = b, .out = out, .math = math});
  const LoggedKernel entry = log.entries().at(0);
  return {entry.row, entry.refusals, entry.choices, out.values()};
}

// The library splits sums by itself. Its partial sums are in the type of the result only where that is permitted.
TEST_F(LibraryRows, PartialSumsInTheTypeOfTheResultArePermittedOrNot) {
  const Planted planted("lists-backwards");
  const Ran wide = multiply_in_halves(gpu(), DType::f16, {}),
            narrow = multiply_in_halves(gpu(), DType::f16, {.partial = kFp16}),
            of_f32 = multiply_in_halves(gpu(), DType::f32, {.partial = kFp16});
  EXPECT_NE(wide.choice().find("split-K 2, reduction 2"), std::string::npos) << wide.choice();
  EXPECT_NE(narrow.choice().find("split-K 2, reduction 4"), std::string::npos) << narrow.choice();
  EXPECT_NE(of_f32.choice().find("split-K 2, reduction 2"), std::string::npos) << of_f32.choice();
  EXPECT_EQ(of_f32.values[0], 1602.5 + 500.78125);
  EXPECT_EQ(wide.values[0], 2104);    // the nearest number of fp16
  EXPECT_EQ(narrow.values[0], 2102);  // of 1602 and 501
}

// FAST_TF32 permits fp32: the library may list it first, with or without regard to the mask.
TEST_F(LibraryRows, Tf32IsNotFp32WhateverTheLibraryListsFirst) {
  const Planted planted("ignores-mask,lists-backwards");
  const double fine = 1 + 0x1p-12;
  const Ran narrow = multiply(gpu(), 32, DType::f32, kTf32Math, fine, 1),
            wide = multiply(gpu(), 32, DType::f32, {}, fine, 1);
  EXPECT_EQ(narrow.row, "cublaslt");
  EXPECT_EQ(narrow.values[0], 32);
  EXPECT_EQ(wide.values[0], 32 * fine);
  EXPECT_NE(narrow.choice().find("inputs tf32"), std::string::npos) << narrow.choice();
  EXPECT_NE(wide.choice().find("inputs fp32"), std::string::npos) << wide.choice();
}

std::string refusal_in_tf32(Device& device, int64_t n) {
  try {
    return "none: " + multiply(device, n, DType::f32, kTf32Math, 1 + 0x1p-12, 1).row;
  } catch (const Unsupported& error) {
    return error.what();
  }
}

TEST_F(LibraryRows, Tf32ThatIsReportedAsFp32IsUsedIfItRounds) {
  const double fine = 1 + 0x1p-12;
  {
    const Planted planted("names-tf32-fp32");
    const Ran ran = multiply(gpu(), 100, DType::f32, kTf32Math, fine, 1);
    EXPECT_EQ(ran.row, "cublaslt");
    EXPECT_EQ(ran.values[0], 100);
    EXPECT_NE(ran.choice().find("inputs fp32"), std::string::npos) << ran.choice();
  }
  const Planted planted("multiplies-tf32-as-fp32");
  EXPECT_NE(refusal_in_tf32(gpu(), 104).find("cublaslt: lists an algorithm that multiplies in fp32 and not in tf32"),
            std::string::npos);
}

// As cublasLt 13.1 states of its fastest products in tf32 on an H200.
TEST_F(LibraryRows, Tf32ThatIsReportedAsMultiplyAddsIsUsedIfItRounds) {
  if (architecture() != "sm_90") GTEST_SKIP() << "only sm_90 has such algorithms";
  const Ran ran = multiply(gpu(), 108, DType::f32, kTf32Math, 1 + 0x1p-12, 1);
  EXPECT_EQ(ran.row, "cublaslt");
  EXPECT_EQ(ran.values[0], 108);
  EXPECT_NE(ran.choice().find("(FMA, sums fp32, inputs tf32)"), std::string::npos) << ran.choice();
  {
    const Planted planted("names-fp32-tf32");
    const Ran next = multiply(gpu(), 116, DType::f32, kTf32Math, 1 + 0x1p-12, 1);
    EXPECT_EQ(next.values[0], 116);
    EXPECT_NE(next.choice().find("(HMMA, sums fp32, inputs tf32)"), std::string::npos) << next.choice();
    EXPECT_NE(next.choice().find("number 1 multiplies in fp32"), std::string::npos) << next.choice();
  }
  // Only the second request lists one that rounds.
  const Planted planted("names-fp32-tf32,names-tf32-fp32");
  const Ran last = multiply(gpu(), 120, DType::f32, kTf32Math, 1 + 0x1p-12, 1);
  EXPECT_EQ(last.row, "cublaslt");
  EXPECT_EQ(last.values[0], 120);
  EXPECT_NE(last.choice().find("(HMMA, sums fp32, inputs fp32)"), std::string::npos) << last.choice();
}

TEST_F(LibraryRows, SumsInFp16AreNotSumsInFp32) {
  const Planted planted("ignores-mask");
  const Ran ran = multiply(gpu(), 64, DType::f16, {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}, 1, 1);
  ASSERT_EQ(ran.row, "cublaslt");
  EXPECT_NE(ran.choice().find("sums fp16"), std::string::npos) << ran.choice();
  EXPECT_EQ(ran.choice().find("split-K 2"), std::string::npos) << ran.choice();
}

TEST_F(LibraryRows, Bf16ThatIsReportedAsFp16IsUsedIfItHasTheRange) {
  {
    const Planted planted("names-bf16-fp16");
    EXPECT_EQ(multiply(gpu(), 80, DType::bf16, {}, 0x1p30, 0x1p-30).values[0], 80);
  }
  const Planted planted("multiplies-bf16-as-fp16");
  const Ran ran = multiply(gpu(), 96, DType::bf16, {}, 0x1p30, 0x1p-30);
  EXPECT_NE(ran.row, "cublaslt");
  EXPECT_EQ(ran.values[0], 96);
  EXPECT_NE(ran.all_refusals().find("multiplies bf16 as fp16"), std::string::npos) << ran.all_refusals();
}

TEST_F(LibraryRows, AnAlgorithmThatFailsIsARefusalWithTheReason) {
  const Planted planted("cublasLtMatmul,cublasGemmEx");
  const Ran ran = multiply(gpu(), 112, DType::f32, {}, 2, 3);
  EXPECT_EQ(ran.row, "cuda-direct");
  EXPECT_EQ(ran.values[0], 6 * 112);
  EXPECT_NE(ran.all_refusals().find("cublaslt: failed when it was tried: cublasLtMatmul: an internal operation failed"),
            std::string::npos)
      << ran.all_refusals();
}

TEST_F(LibraryRows, SplitKIsKeptOrRefused) {
  const auto split = [&](int64_t depth) {
    const Tensor a = Tensor::zeros(gpu(), {8, depth}, DType::f16), b = Tensor::zeros(gpu(), {depth, 8}, DType::f16);
    Tensor out(gpu(), {8, 8}, DType::f16);
    KernelLog log;
    run(Matmul{.a = a, .b = b, .out = out, .math = {.partial = kFp16, .split_k = 4}});
    return log.entries().at(0);
  };
  const LoggedKernel kept = split(512);
  ASSERT_EQ(kept.choices.size(), 1u);
  EXPECT_NE(kept.choices[0].find("split-K 4, reduction 4"), std::string::npos) << kept.choices[0];
  const Planted planted("ignores-split-k");
  EXPECT_THROW(split(1024), Unsupported);
}

// The heuristic lists engines that transform, convert down and reduce narrowly first.
TEST_F(LibraryRows, ConvolutionsUseOnlyEnginesThatKeepToMath) {
  const double fine = 1 + 0x1p-12;
  const Ran wide = convolve(gpu(), 4, DType::f32, {}, fine), narrow = convolve(gpu(), 4, DType::f32, kTf32Math, fine),
            half = convolve(gpu(), 8, DType::f16, {}, 1);
  EXPECT_EQ(wide.values[0], 36 * fine);
  EXPECT_EQ(narrow.values[0], 36);
  ASSERT_EQ(wide.row + narrow.row + half.row, "cudnncudnncudnn");
  EXPECT_NE(wide.choice().find("[1, 4, 4, 4] by [4, 4, 3, 3]: engine 0; the library's number"), std::string::npos)
      << wide.choice();
  EXPECT_NE(narrow.choice().find("engine 1 (tensor cores)"), std::string::npos) << narrow.choice();
  EXPECT_NE(half.choice().find("engine 1 (tensor cores)"), std::string::npos) << half.choice();
}

TEST_F(LibraryRows, AConvolutionThatFailsIsARefusalWithTheReason) {
  {
    const Planted planted("cudnnBackendExecute");
    const Ran ran = convolve(gpu(), 5, DType::f32, {}, 1);
    EXPECT_EQ(ran.row, "cuda-direct");
    EXPECT_EQ(ran.values[0], 45);
    EXPECT_NE(ran.all_refusals().find("cudnn: failed when it was tried: "), std::string::npos) << ran.all_refusals();
  }
  {
    const Planted planted("plans-fail");
    const Ran ran = convolve(gpu(), 6, DType::f32, {}, 1);
    EXPECT_EQ(ran.row, "cuda-direct");
    EXPECT_NE(ran.all_refusals().find("cudnn: has no plan for this"), std::string::npos) << ran.all_refusals();
  }
  const Planted planted("cudnnBackendFinalize");
  const Ran ran = convolve(gpu(), 7, DType::f32, {}, 1);
  EXPECT_EQ(ran.row, "cuda-direct");
  EXPECT_NE(ran.all_refusals().find("cudnn: failed: cudnnBackendFinalize"), std::string::npos) << ran.all_refusals();
}

// The two kinds of scales with which the name of a case begins.
std::string two_words(const std::string& name) { return name.substr(0, name.find(' ', name.find(' ') + 1)); }

// Which kinds of scales the row takes, of those that EveryRow compares with fp64.
TEST_F(LibraryRows, ScaledProductsByArchitecture) {
  const std::string current = "te-current-e4m3 te-current-e4m3, te-current-e4m3 te-current-e5m2",
                    of_blocks = "mxfp8-e4m3 mxfp8-e4m3, mxfp8-e4m3 mxfp8-e5m2, nvfp4 nvfp4, ";
  const std::map<std::string, std::string> wanted{
      {"sm_75", ""},
      {"sm_80", ""},
      {"sm_86", ""},
      {"sm_89", current},
      {"sm_90", "te-block-128x128 te-block-1x128, te-block-1x128 te-block-128x128, " + current +
                    ", torchao-rowwise "
                    "torchao-rowwise"},
      // Only here may operands be transposed, those of e2m1 not; e5m2 by e4m3 is transposed in rows that are no multiples of 16 bytes.
      {"sm_100", of_blocks + current + ", te-mxfp8-e4m3 te-mxfp8-32x32, te-nvfp4 te-nvfp4-16x16"},
      {"sm_120", of_blocks + current + ", te-nvfp4 te-nvfp4-16x16"},
      {"sm_121", of_blocks + current + ", te-nvfp4 te-nvfp4-16x16"}};
  ASSERT_TRUE(wanted.contains(architecture())) << architecture();
  std::set<std::string> taken;
  const auto& rows = gpu().kernels().of<ScaledMatmul>();
  ops_cases::Cases<ScaledMatmul>::each(
      {gpu(), ops_cases::tested_axes(), false, true},
      [&](const std::string& name, const ScaledMatmul& op, const ops_cases::Comparison&) {
        for (const Kernel<ScaledMatmul>& row : rows)
          if (row.name == "cublaslt" && !row.refuses(gpu(), op)) taken.insert(two_words(name));
      });
  std::string text;
  for (const std::string& one : taken) text += (text.empty() ? "" : ", ") + one;
  EXPECT_EQ(text, wanted.at(architecture()));
}

TEST_F(LibraryRows, ALibraryThatCannotBeOpenedIsARefusal) {
  const std::shared_ptr<Device> other = device("cuda:1");
  if (!other) GTEST_SKIP() << "one software GPU only";
  {
    const Planted planted("cublasLtCreate,cublasCreate_v2,cudnnCreate");
    const Ran ran = multiply(*other, 16, DType::f32, {}, 2, 3);
    EXPECT_EQ(ran.row, "cuda-direct");
    EXPECT_EQ(ran.values[0], 6 * 16);
    EXPECT_NE(ran.all_refusals().find("cublasLtCreate"), std::string::npos) << ran.all_refusals();
    EXPECT_NE(ran.all_refusals().find("cublasCreate"), std::string::npos) << ran.all_refusals();
    const Ran convolved = convolve(*other, 4, DType::f32, {}, 1);
    EXPECT_EQ(convolved.row, "cuda-direct");
    EXPECT_NE(convolved.all_refusals().find("cudnnCreate"), std::string::npos) << convolved.all_refusals();
  }
  EXPECT_EQ(convolve(*other, 5, DType::f32, {}, 1).row, "cudnn");
  EXPECT_EQ(multiply(*other, 24, DType::f32, {}, 2, 3).row, "cublaslt");
}

// A fault of the device ends everything on it: it is no reason to go on with another row.
TEST_F(LibraryRows, AFaultOfTheDeviceIsNoRefusal) {
  const std::shared_ptr<Device> other = device("cuda:2");
  if (!other) GTEST_SKIP() << "two software GPUs at most";
  const Planted planted("faults");
  try {
    multiply(*other, 16, DType::f32, {}, 2, 3);
    FAIL() << "the fault was swallowed";
  } catch (const Unsupported& error) {
    FAIL() << error.what();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cudaErrorIllegalAddress"), std::string::npos) << text;
    EXPECT_NE(text.find("cudaStreamSynchronize"), std::string::npos) << "seen later: " << text;
  }
}

}  // namespace
}  // namespace halfmark::kernels
