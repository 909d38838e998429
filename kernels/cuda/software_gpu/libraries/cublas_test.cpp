// cublasGemmEx() and cublasGemmStridedBatchedEx() of the stand-in: results against plain loops, statuses, modes.
#include "kernels/cuda/software_gpu/libraries/cublas.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/cublas_functions.h"
#include "kernels/cuda/software_gpu/libraries/device_testing.h"
#include "kernels/cuda/software_gpu/libraries/real_library_testing.h"

namespace halfmark::kernels::software_gpu::cublas {
namespace {

constexpr cublasStatus_t kFine = CUBLAS_STATUS_SUCCESS, kInvalid = CUBLAS_STATUS_INVALID_VALUE,
                         kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

DType dtype_of_type(cudaDataType_t type) { return *cublaslt::dtype_of(type); }

// A product whose arguments can be changed before it runs.
struct Product {
  cublasHandle_t handle = nullptr;
  Gemm g;
  std::vector<double> a, b, c;  // as stored, without gaps
  double alpha = 1, beta = 0;
  bool is_batched = false;
  unsigned char scalars[16] = {};

  explicit Product(cudaDataType_t in = CUDA_R_32F, cudaDataType_t out = CUDA_R_32F, int architecture = 90) {
    reset_device(architecture);
    EXPECT_EQ(cublasCreate_v2(&handle), kFine);
    set_mode(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    g.type_a = g.type_b = in, g.type_c = out;
    g.m = 7, g.n = 5, g.k = 9;
  }
  ~Product() { cublasDestroy_v2(handle); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void set_mode(int mode) { EXPECT_EQ(cublasSetMathMode(handle, static_cast<cublasMath_t>(mode)), kFine); }
  bool ta() const { return g.transpose_a != CUBLAS_OP_N; }
  bool tb() const { return g.transpose_b != CUBLAS_OP_N; }
  void fill() {
    g.lda = ta() ? g.k : g.m, g.ldb = tb() ? g.n : g.k, g.ldc = g.m;
    g.stride_a = int64_t{g.m} * g.k, g.stride_b = int64_t{g.k} * g.n, g.stride_c = int64_t{g.m} * g.n;
    const auto all = [&](long long one) { return static_cast<size_t>(one * g.batch); };
    a = small_numbers(all(g.stride_a), 1), b = small_numbers(all(g.stride_b), 2), c = small_numbers(all(g.stride_c), 3);
    g.a = on_device(dtype_of_type(g.type_a), a), g.b = on_device(dtype_of_type(g.type_b), b);
    g.c = on_device(dtype_of_type(g.type_c), c);
    const GemmTypes* types = find_gemm_types(g.compute, g.type_a, g.type_b, g.type_c);
    const DType scale = types ? dtype_of_type(types->scale) : DType::f32;
    store(scale, scalars, 0, alpha), store(scale, scalars + 8, 0, beta);
    g.alpha = scalars, g.beta = scalars + 8;
  }
  cublasStatus_t run() {
    if (!is_batched)
      return ::cublasGemmEx(handle, g.transpose_a, g.transpose_b, g.m, g.n, g.k, g.alpha, g.a, g.type_a, g.lda, g.b,
                            g.type_b, g.ldb, g.beta, g.c, g.type_c, g.ldc, g.compute, g.algorithm);
    return ::cublasGemmStridedBatchedEx(handle, g.transpose_a, g.transpose_b, g.m, g.n, g.k, g.alpha, g.a, g.type_a,
                                        g.lda, g.stride_a, g.b, g.type_b, g.ldb, g.stride_b, g.beta, g.c, g.type_c,
                                        g.ldc, g.stride_c, g.batch, g.compute, g.algorithm);
  }
  std::vector<double> expected() const {
    std::vector<double> result;
    for (int i = 0; i < g.batch; ++i)
      for (int column = 0; column < g.n; ++column)
        for (int row = 0; row < g.m; ++row) {
          double sum = 0;
          for (int t = 0; t < g.k; ++t)
            sum += a[static_cast<size_t>(i * g.stride_a + (ta() ? row * g.k + t : t * g.m + row))] *
                   b[static_cast<size_t>(i * g.stride_b + (tb() ? t * g.n + column : column * g.k + t))];
          const double before = c[static_cast<size_t>(i * g.stride_c + column * g.m + row)];
          result.push_back(round_to(format_of(dtype_of_type(g.type_c)), alpha * sum + beta * before));
        }
    return result;
  }
  std::vector<double> result() const { return from_device(g.c, dtype_of_type(g.type_c), c.size()); }
};

TEST(Cublas, TypesTransposesScalarsAndBatches) {
  struct Kind {
    cublasComputeType_t compute;
    cudaDataType_t in, out;
  };
  for (const Kind& kind :
       {Kind{CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F}, Kind{CUBLAS_COMPUTE_32F, CUDA_R_16F, CUDA_R_16F},
        Kind{CUBLAS_COMPUTE_32F, CUDA_R_16F, CUDA_R_32F}, Kind{CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF},
        Kind{CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_16BF, CUDA_R_32F}, Kind{CUBLAS_COMPUTE_16F, CUDA_R_16F, CUDA_R_16F},
        Kind{CUBLAS_COMPUTE_16F_PEDANTIC, CUDA_R_16F, CUDA_R_16F},
        Kind{CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F}, Kind{CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const int batch : {1, 3}) {
          Product product(kind.in, kind.out);
          product.g.compute = kind.compute;
          product.g.transpose_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N,
          product.g.transpose_b = tb ? CUBLAS_OP_C : CUBLAS_OP_N;
          product.g.batch = batch, product.is_batched = batch > 1;
          product.alpha = 0.5, product.beta = 2;
          product.fill();
          ASSERT_EQ(product.run(), kFine);
          ASSERT_EQ(run_enqueued(), cudaSuccess);
          EXPECT_EQ(product.result(), product.expected()) << kind.compute << " " << kind.in << " " << kind.out;
        }
}

void expect_status(cublasStatus_t status, const std::function<void(Product&)>& change) {
  Product product;
  product.fill();
  change(product);
  EXPECT_EQ(product.run(), status);
}

TEST(Cublas, WhatItRefuses) {
  expect_status(kFine, [](Product&) {});
  for (int Gemm::*extent : {&Gemm::m, &Gemm::n, &Gemm::k})
    expect_status(kInvalid, [&](Product& p) { p.g.*extent = -1; });
  for (int Gemm::*ld : {&Gemm::lda, &Gemm::ldb, &Gemm::ldc}) expect_status(kInvalid, [&](Product& p) { p.g.*ld -= 1; });
  expect_status(kInvalid, [](Product& p) { p.g.transpose_a = static_cast<cublasOperation_t>(9); });
  expect_status(kInvalid, [](Product& p) { p.g.transpose_a = CUBLAS_OP_T; });  // lda is too small for k rows
  expect_status(kInvalid, [](Product& p) { p.g.alpha = nullptr; });
  expect_status(kInvalid, [](Product& p) { p.g.beta = nullptr; });
  expect_status(kInvalid, [](Product& p) { p.g.a = nullptr; });
  expect_status(kInvalid, [](Product& p) { p.g.c = nullptr; });
  expect_status(kInvalid, [](Product& p) { p.g.algorithm = static_cast<cublasGemmAlgo_t>(50); });
  expect_status(kInvalid, [](Product& p) { p.g.type_a = static_cast<cudaDataType_t>(999); });
  expect_status(kUnsupported, [](Product& p) { p.g.type_c = CUDA_R_16F; });
  expect_status(kUnsupported, [](Product& p) { p.g.type_b = CUDA_R_16F; });
  expect_status(kUnsupported, [](Product& p) { p.g.type_a = p.g.type_b = CUDA_R_8F_E4M3; });
  expect_status(kUnsupported, [](Product& p) { p.g.compute = CUBLAS_COMPUTE_16F; });
  expect_status(kUnsupported, [](Product& p) { p.g.compute = CUBLAS_COMPUTE_64F; });
  expect_status(kInvalid, [](Product& p) { p.is_batched = true, p.g.batch = 2, p.g.stride_c -= 1; });
  expect_status(kInvalid, [](Product& p) { p.is_batched = true, p.g.batch = -1; });
  expect_status(CUBLAS_STATUS_NOT_INITIALIZED, [](Product& p) { cublasDestroy_v2(p.handle); });
  expect_status(kFine, [](Product& p) { p.g.m = 0, p.g.lda = p.g.ldc = 1; });

  Product old(CUDA_R_16BF, CUDA_R_16BF, 75);
  old.fill();
  EXPECT_EQ(old.run(), CUBLAS_STATUS_ARCH_MISMATCH);
}

TEST(Cublas, ModesAndWorkspaceOfAHandle) {
  Product product;
  EXPECT_EQ(cublasSetMathMode(product.handle, static_cast<cublasMath_t>(5)), kInvalid);
  EXPECT_EQ(cublasSetMathMode(product.handle, static_cast<cublasMath_t>(32)), kInvalid);
  cublasMath_t mode{};
  EXPECT_EQ(cublasGetMathMode(product.handle, &mode), kFine);
  EXPECT_EQ(mode, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
  EXPECT_EQ(cublasSetPointerMode_v2(product.handle, static_cast<cublasPointerMode_t>(7)), kInvalid);
  auto* memory = static_cast<std::byte*>(allocate_on_device(4096));
  EXPECT_EQ(cublasSetWorkspace_v2(product.handle, memory + 16, 1024), kInvalid);
  EXPECT_EQ(cublasSetWorkspace_v2(product.handle, memory, 1024), kFine);
  int version = 0;
  EXPECT_EQ(cublasGetVersion_v2(product.handle, &version), kFine);
  EXPECT_EQ(version, CUBLAS_VERSION);
  EXPECT_EQ(cublasCreate_v2(nullptr), kInvalid);
  EXPECT_EQ(cublasDestroy_v2(nullptr), CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST(Cublas, ScalarsOnTheDevice) {
  Product product;
  product.alpha = 4, product.beta = 0.5;
  product.fill();
  ASSERT_EQ(cublasSetPointerMode_v2(product.handle, CUBLAS_POINTER_MODE_DEVICE), kFine);
  product.g.alpha = on_device(DType::f32, {&product.alpha, 1}),
  product.g.beta = on_device(DType::f32, {&product.beta, 1});
  ASSERT_EQ(product.run(), kFine);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  EXPECT_EQ(product.result(), product.expected());
}

// 1 + 2^-12 is no tf32 number. A mode of the handle permits tf32, and so does a compute type.
TEST(Cublas, WhatPermitsTf32) {
  const auto first = [](int mode, cublasComputeType_t compute) {
    Product product;
    product.set_mode(mode), product.g.compute = compute;
    product.fill();
    const std::vector<double> fine(product.a.size(), 1 + 0x1p-12), ones(product.b.size(), 1);
    product.g.a = on_device(DType::f32, fine), product.g.b = on_device(DType::f32, ones);
    // The stand-in's tf32 needs lines of multiples of 16 bytes.
    product.g.m = product.g.n = product.g.k = 4, product.g.lda = product.g.ldb = product.g.ldc = 4;
    EXPECT_EQ(product.run(), kFine);
    EXPECT_EQ(run_enqueued(), cudaSuccess);
    return from_device(product.g.c, DType::f32, 1)[0];
  };
  const double wide = 4 * (1 + 0x1p-12);
  EXPECT_EQ(first(CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F), wide);
  EXPECT_EQ(first(CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F), 4);
  EXPECT_EQ(first(CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_COMPUTE_32F_PEDANTIC), wide);
  EXPECT_EQ(first(CUBLAS_DEFAULT_MATH, CUBLAS_COMPUTE_32F_FAST_TF32), 4);
}

// Halves of k are 1024 + 1/2 and 1, or so: rounded to bf16 apart from each other, they give another sum.
TEST(Cublas, PartialSumsAreNarrowUnlessTheModeSaysSo) {
  const auto first = [](int mode) {
    Product product(CUDA_R_16BF, CUDA_R_16BF);
    product.set_mode(mode);
    product.g.m = product.g.n = 8, product.g.k = 16;
    product.fill();
    std::vector<double> a(8 * 16, 0), ones(16 * 8, 1);
    a[0] = 256, a[8] = 1, a[8 * 8] = 1;  // k 0, 1 and 8 of the first row: 257 is no bf16 number, 258 is
    product.g.a = on_device(DType::bf16, a), product.g.b = on_device(DType::bf16, ones);
    EXPECT_EQ(product.run(), kFine);
    EXPECT_EQ(run_enqueued(), cudaSuccess);
    return from_device(product.g.c, DType::bf16, 1)[0];
  };
  EXPECT_EQ(first(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION), 258);
  EXPECT_EQ(first(CUBLAS_DEFAULT_MATH), 256);
}

TEST(Cublas, TheRealLibraryHasTheFunctionsThatAreFoundByName) {
  for (const std::string_view name : cublas_function_names()) EXPECT_NE(cublas_function(name), nullptr) << name;
  EXPECT_EQ(cublas_function("cublasSgemm_v2"), nullptr);
  void* real = dlopen(HALFMARK_CUBLAS, RTLD_LAZY | RTLD_LOCAL);
  if (!real) GTEST_SKIP() << "cannot load " << HALFMARK_CUBLAS;
  for (const std::string_view name : cublas_function_names())
    EXPECT_NE(dlsym(real, std::string(name).c_str()), nullptr) << name;
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublas
