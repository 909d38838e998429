// What the rows of cuBLAS and of cublasLt's epilogues say and refuse, on the software GPU. Each test has sizes of its own,
// because plans are kept.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/library_rows_testing.h"
#include "kernels/number/error.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

using GemmRows = LibraryRows;

const Kernel<Matmul>& cublas_row(Device& device) {
  for (const Kernel<Matmul>& row : device.kernels().of<Matmul>())
    if (row.name == "cublas") return row;
  throw Error("no row cublas");
}

struct Product {
  Tensor a, b, out;
  Matmul op;
  Product(Device& device, int64_t n, DType dtype, const Math& math, double value)
      : a(filled(device, n, dtype, value)),
        b(filled(device, n, dtype, 1)),
        out(device, {n, n}, dtype),
        op{.a = a, .b = b, .out = out, .math = math} {}
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  static Tensor filled(Device& device, int64_t n, DType dtype, double value) {
    return Tensor::from(device, {n, n}, dtype, std::vector<double>(static_cast<size_t>(n * n), value));
  }
};

constexpr Math kFp16Sums{.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}, kTf32Products{.multiply = kTf32};

TEST_F(GemmRows, CublasComesAfterCublasLtAndBeforeLoopsOfOurOwn) {
  std::string rows;
  for (const Kernel<Matmul>& row : gpu().kernels().of<Matmul>()) rows += std::string(row.name) + " ";
  EXPECT_EQ(rows, "cublaslt cublas cuda-direct ");
  const Planted planted("cublasLtMatmul");
  const Ran ran = multiply(gpu(), 20, DType::f32, {}, 2, 3);
  EXPECT_EQ(ran.row, "cublas");
  EXPECT_EQ(ran.values[0], 6 * 20);
}

TEST_F(GemmRows, CublasSaysWhatItPromises) {
  struct Case {
    DType dtype;
    Math math;
    const char* promise;
  };
  const Math wide{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
  for (const Case& one : {Case{DType::f32, {}, "fp32 seen in a product; sums at least fp32"},
                          Case{DType::f32, kTf32Products, "tf32 seen in a product; sums at least fp32"},
                          Case{DType::f16, {}, "sums and partial sums at least fp32"},
                          Case{DType::bf16, {}, "sums and partial sums at least fp32"},
                          Case{DType::f16, kFp16Sums, "fp16 in all steps (pedantic, without tensor cores)"},
                          Case{DType::f64, wide, "fp64 in all steps"}}) {
    const Product product(gpu(), 28, one.dtype, one.math, 1);
    const Kernel<Matmul>& row = cublas_row(gpu());
    ASSERT_EQ(row.refuses(gpu(), product.op), Refusal()) << one.promise;
    const std::string choice = row.choice(gpu(), product.op);
    EXPECT_EQ(choice.find("28x28x28: cublasGemmEx of cuBLAS "), 0u) << choice;
    EXPECT_NE(choice.find(std::string("algorithm not stated; ") + one.promise), std::string::npos) << choice;
  }
}

// FAST_TF32 only permits tf32, and fp32 may be made tf32 by a variable or a bug: both are seen in a product.
TEST_F(GemmRows, CublasIsRefusedIfItsProductsAreOfAnotherFormat) {
  const auto refusal = [&](int64_t n, const Math& math) {
    const Product product(gpu(), n, DType::f32, math, 1);
    return cublas_row(gpu()).refuses(gpu(), product.op).value_or("none");
  };
  {
    const Planted planted("multiplies-tf32-as-fp32");
    EXPECT_EQ(refusal(44, kTf32Products), "does not multiply in tf32, which it is permitted to");
    EXPECT_EQ(refusal(44, {}), "none");
  }
  const Planted planted("multiplies-fp32-as-tf32");
  EXPECT_EQ(refusal(52, {}), "does not multiply in fp32");
  EXPECT_EQ(refusal(52, kTf32Products), "none");
}

TEST_F(GemmRows, CublasIsRefusedIfBf16IsFp16) {
  const Planted planted("multiplies-bf16-as-fp16");
  const Product product(gpu(), 60, DType::bf16, {}, 1);
  EXPECT_EQ(cublas_row(gpu()).refuses(gpu(), product.op).value_or("none"), "multiplies bf16 as fp16");
}

TEST_F(GemmRows, CublasSumsAreWiderThanTheResult) {
  const int64_t n = 64;
  Product product(gpu(), n, DType::bf16, {}, 0);
  std::vector<double> values(static_cast<size_t>(n * n), 0);
  values[0] = 256, values[1] = 1, values[static_cast<size_t>(n / 2)] = 1;  // in bf16 256 + 1 is 256
  product.a.set_values(values);
  run_with(cublas_row(gpu()), product.op);
  EXPECT_EQ(product.out.values()[0], 258);
}

// 2048 + 1 is 2048 in fp16, however often.
TEST_F(GemmRows, CublasSumsInFp16AreNoWider) {
  const int64_t n = 32;
  Product product(gpu(), n, DType::f16, kFp16Sums, 1);
  std::vector<double> values(static_cast<size_t>(n * n), 1);
  values[0] = 2048;
  product.a.set_values(values);
  run_with(cublas_row(gpu()), product.op);
  EXPECT_EQ(product.out.values()[0], 2048);
}

TEST_F(GemmRows, CublasFailsOrIsMissingAsARefusal) {
  const auto refusal = [&](Device& device, int64_t n) {
    const Product product(device, n, DType::f32, {}, 1);
    return cublas_row(device).refuses(device, product.op).value_or("none");
  };
  {
    const Planted planted("cublasGemmEx");
    EXPECT_EQ(refusal(gpu(), 68), "failed when it was tried: cublasGemmEx: an internal operation failed");
  }
  const std::shared_ptr<Device> other = device("cuda:3");
  if (!other) GTEST_SKIP() << "three software GPUs at most";
  {
    const Planted planted("no-cublas");
    EXPECT_NE(refusal(*other, 72).find("has no cublasCreate_v2"), std::string::npos);
  }
  EXPECT_EQ(refusal(*other, 76), "none");
}

// A layer of [m, k] to n, and what its row says.
struct Fused {
  std::string row, refusals, choice;
  std::vector<double> values, kept;
};

Fused fuse(Device& device, int64_t m, int64_t n, DType dtype, FusedActivation activation, bool keeps, DType bias_type,
           double bias_value = 1) {
  const auto filled = [&](const Shape& shape, DType type, double value) {
    return Tensor::from(device, shape, type, std::vector<double>(static_cast<size_t>(shape.elements()), value));
  };
  const Tensor a = filled({m, 16}, dtype, 1), b = filled({n, 16}, dtype, 1), bias = filled({n}, bias_type, bias_value);
  Tensor out(device, {m, n}, dtype), kept;
  if (keeps)
    kept = activation == FusedActivation::relu ? Tensor(device, {m, relu_mask_bytes(n)}, DType::u8)
                                               : Tensor(device, {m, n}, dtype);
  KernelLog log;
  run(FusedMatmul{
      .a = a, .b = b, .bias = bias, .out = out, .kept = kept, .transpose_b = true, .activation = activation});
  Fused ran;
  for (const LoggedKernel& entry : log.entries()) {
    if (entry.operation != FusedMatmul::name) continue;
    ran.row = entry.row;
    for (const std::string& one : entry.refusals) ran.refusals += one + "\n";
    ran.choice = entry.choices.empty() ? "none" : entry.choices[0];
  }
  ran.values = out.values();
  if (keeps) ran.kept = kept.values();
  return ran;
}

TEST_F(GemmRows, AnEpilogueIsCublasLtsAndSaysWhatBecomesOfNan) {
  const Fused keeps = fuse(gpu(), 8, 24, DType::f16, FusedActivation::relu, true, DType::f16);
  EXPECT_EQ(keeps.row, "cublaslt") << keeps.refusals;
  EXPECT_NE(keeps.choice.find("; ReLU of NaN is NaN"), std::string::npos) << keeps.choice;
  EXPECT_EQ(keeps.values[0], 17);
  // All z are positive: 24 bits of each row, and what the library does not write.
  for (size_t i = 0; i < keeps.kept.size(); ++i) EXPECT_EQ(keeps.kept[i], i % 16 < 3 ? 255 : 0) << i;
  const Fused none = fuse(gpu(), 8, 32, DType::f16, FusedActivation::none, false, DType::f16);
  EXPECT_EQ(none.choice.find("NaN"), std::string::npos) << none.choice;
  const Planted planted("loses-nan");
  const Fused loses = fuse(gpu(), 8, 40, DType::f16, FusedActivation::relu, false, DType::f16, NAN);
  EXPECT_NE(loses.choice.find("; ReLU of NaN is 0"), std::string::npos) << loses.choice;
  EXPECT_EQ(loses.values[0], 0);
}

TEST_F(GemmRows, AMaskOfReluThatPassesZeroIsARefusal) {
  const Planted planted("mask-passes-zero");
  const Fused keeps = fuse(gpu(), 8, 48, DType::f16, FusedActivation::relu, true, DType::f16);
  EXPECT_EQ(keeps.row, "cuda");
  EXPECT_NE(keeps.refusals.find("a mask of ReLU that lets the gradient pass where the sum is 0"), std::string::npos)
      << keeps.refusals;
  const Fused forward = fuse(gpu(), 8, 56, DType::f16, FusedActivation::relu, false, DType::f16);
  EXPECT_EQ(forward.row, "cublaslt") << forward.refusals;
}

// More rows than columns and fewer: in both the library is asked for what it has.
TEST_F(GemmRows, TheArgumentOfGeluIsKeptInRowsOfTheResult) {
  for (const int64_t m : {8, 56}) {
    constexpr int64_t kColumns = 24;
    const RandomKey key(3);
    std::vector<double> values(static_cast<size_t>(m * 16)), ones(16 * kColumns, 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(key.below(i, 5)) - 2;
    for (size_t i = 0; i < 16; ++i) ones[i * kColumns + i] = 1;  // b copies the columns of a, and the others are 0
    const Tensor a = Tensor::from(gpu(), {m, 16}, DType::f16, values),
                 b = Tensor::from(gpu(), {16, kColumns}, DType::f16, ones), bias;
    Tensor out(gpu(), {m, kColumns}, DType::f16), kept(gpu(), {m, kColumns}, DType::f16);
    const FusedMatmul op{
        .a = a, .b = b, .bias = bias, .out = out, .kept = kept, .activation = FusedActivation::gelu_tanh};
    ASSERT_EQ(chosen(op).name, "cublaslt");
    run(op);
    const std::vector<double> z = kept.values();
    for (size_t i = 0; i < z.size(); ++i)
      ASSERT_EQ(z[i], i % kColumns < 16 ? values[i / kColumns * 16 + i % kColumns] : 0) << m << " " << i;
  }
}

TEST_F(GemmRows, EpiloguesThatCublasLtHasNotAreOtherRows) {
  const Fused odd = fuse(gpu(), 8, 12, DType::f16, FusedActivation::gelu_tanh, true, DType::f16);
  EXPECT_EQ(odd.row, "cuda");
  EXPECT_NE(odd.refusals.find("keeps for GELU only rows of multiples of 8 elements"), std::string::npos);
  const Fused even = fuse(gpu(), 8, 12, DType::f16, FusedActivation::gelu_tanh, false, DType::f16);
  EXPECT_EQ(even.row, "cublaslt") << even.refusals;
  const Fused mixed = fuse(gpu(), 8, 16, DType::f16, FusedActivation::relu, false, DType::f32);
  EXPECT_EQ(mixed.row, "cuda");
  EXPECT_NE(mixed.refusals.find("has a bias of f16 here, not of f32"), std::string::npos) << mixed.refusals;
}

// A parameter may begin anywhere in a larger one. Which row runs is decided once for a shape.
TEST_F(GemmRows, ABiasMayBeginAnywhere) {
  const Tensor a = Tensor::zeros(gpu(), {8, 16}, DType::f16), b = Tensor::zeros(gpu(), {16, 24}, DType::f16);
  std::vector<double> values(32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const Tensor all = Tensor::from(gpu(), {32}, DType::f16, values);
  for (const int64_t first : {0, 1, 8}) {
    const Tensor bias = all.slice(first, 24);
    Tensor out(gpu(), {8, 24}, DType::f16), nothing;
    run(FusedMatmul{.a = a, .b = b, .bias = bias, .out = out, .kept = nothing});
    EXPECT_EQ(out.values()[25], static_cast<double>(first + 1));
  }
}

}  // namespace
}  // namespace halfmark::kernels
