// A matrix product by cublasLt for the tests: every attribute can be changed before it runs.
#pragma once

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_types.h"
#include "kernels/cuda/software_gpu/libraries/device_testing.h"

namespace halfmark::kernels::software_gpu::cublaslt {

inline DType dtype(cudaDataType_t type) { return *dtype_of(type); }

struct Call {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F, type_a = CUDA_R_32F, type_b = CUDA_R_32F, type_c = CUDA_R_32F, type_d = CUDA_R_32F;
  int64_t m = 16, n = 16, k = 32, batch = 1;
  bool transpose_a = true, transpose_b = false;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::vector<double> a_values, b_values, c_values;  // as stored
  void *a_memory = nullptr, *b_memory = nullptr, *c_memory = nullptr, *d_memory = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  float alpha = 1, beta = 0;
  double wide_alpha = 1, wide_beta = 0;

  Call() = default;
  Call(const Types& types, cublasComputeType_t how)
      : compute(how), scale(types.scale), type_a(types.a), type_b(types.b), type_c(types.c), type_d(types.d) {}
  ~Call() {
    cublasLtMatrixLayoutDestroy(a), cublasLtMatrixLayoutDestroy(b), cublasLtMatrixLayoutDestroy(c);
    cublasLtMatrixLayoutDestroy(d), cublasLtMatmulDescDestroy(description);
    cublasLtMatmulPreferenceDestroy(preference);
    if (handle) cublasLtDestroy(handle);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    ASSERT_EQ(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
    ASSERT_EQ(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    ASSERT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }

  void describe() {
    ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&description, compute, scale), CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (is_fp4(type_a)) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3);
      // In tiles of 128 rows and 4 blocks of 16; zero beyond the matrix.
      const auto ones = [&](int64_t rows) {
        const int64_t tiles = (k + 63) / 64;
        std::vector<double> scales(static_cast<size_t>((rows + 127) / 128 * tiles * 512), 0.0);
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t block = 0; block < k / 16; ++block) {
            const int64_t tile = row / 128 * tiles + block / 4, in_tile = row % 128;
            scales[static_cast<size_t>(tile * 512 + in_tile % 32 * 16 + in_tile / 32 * 4 + block % 4)] = 1;
          }
        return on_device(DType::e4m3, scales);
      };
      set<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, ones(m));
      set<const void*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, ones(n));
    }
    lay_out(a, type_a, transpose_a ? k : m, transpose_a ? m : k);
    lay_out(b, type_b, transpose_b ? n : k, transpose_b ? k : n);
    lay_out(c, type_c, m, n), lay_out(d, type_d, m, n);
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    prefer<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1 << 20);
  }
  void lay_out(cublasLtMatrixLayout_t& layout, cudaDataType_t type, int64_t rows, int64_t columns) {
    ASSERT_EQ(
        cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
        CUBLAS_STATUS_SUCCESS);
    if (batch > 1) {
      set<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
      set<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, rows * columns);
    }
  }
  void fill() {
    a_values = small_numbers(static_cast<size_t>(m * k * batch), 1);
    b_values = small_numbers(static_cast<size_t>(k * n * batch), 2);
    c_values = small_numbers(static_cast<size_t>(m * n * batch), 3);
    if (is_fp4(type_a))  // E2M1 has 2.5 and 3.5 not
      for (auto* values : {&a_values, &b_values})
        for (double& value : *values) value = value > 2 ? 3 : value < -2 ? -3 : value;
    a_memory = on_device(dtype(type_a), a_values), b_memory = on_device(dtype(type_b), b_values);
    c_memory = on_device(dtype(type_c), c_values);
    d_memory = allocate_on_device(bytes_for(dtype(type_d), static_cast<size_t>(m * n * batch)));
  }
  cublasStatus_t ask(int wanted = 12) {
    found.resize(static_cast<size_t>(wanted));
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, c, d, preference, wanted, found.data(), &count);
    found.resize(static_cast<size_t>(count));
    return status;
  }
  cublasStatus_t run(const cublasLtMatmulAlgo_t* algorithm = nullptr) {
    const bool wide = scale == CUDA_R_64F, half = scale == CUDA_R_16F;
    uint16_t halves[2];
    store(DType::f16, halves, 0, alpha), store(DType::f16, halves, 1, beta);
    wide_alpha = alpha, wide_beta = beta;
    const void* one = wide ? static_cast<const void*>(&wide_alpha) : half ? static_cast<const void*>(halves) : &alpha;
    const void* other = wide   ? static_cast<const void*>(&wide_beta)
                        : half ? static_cast<const void*>(halves + 1)
                               : &beta;
    return run_with_scalars(one, other, algorithm);
  }
  cublasStatus_t run_with_scalars(const void* one, const void* other, const cublasLtMatmulAlgo_t* algorithm = nullptr) {
    return cublasLtMatmul(handle, description, one, a_memory, a, b_memory, b, other, c_memory, c, d_memory, d,
                          algorithm, workspace, workspace_bytes, nullptr);
  }
  // Plain loops over the column-major operands.
  std::vector<double> expected() const {
    std::vector<double> result;
    for (int64_t i = 0; i < batch; ++i)
      for (int64_t column = 0; column < n; ++column)
        for (int64_t row = 0; row < m; ++row) {
          double sum = 0;
          for (int64_t t = 0; t < k; ++t)
            sum += a_values[static_cast<size_t>(i * m * k + (transpose_a ? row * k + t : t * m + row))] *
                   b_values[static_cast<size_t>(i * k * n + (transpose_b ? t * n + column : column * k + t))];
          result.push_back(static_cast<double>(alpha) * sum +
                           static_cast<double>(beta) * c_values[static_cast<size_t>(i * m * n + column * m + row)]);
        }
    return result;
  }
  // The numbers are small enough for exact sums; each format rounds once, FP8 and FP4 saturate.
  void check_result(const std::vector<double>& wanted, double relative = 0) const {
    const std::vector<double> got = from_device(d_memory, dtype(type_d), static_cast<size_t>(m * n * batch));
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double rounded = round_to(format_of(dtype(type_d)), wanted[i], Rounding::near_even, nullptr, 0,
                                      is_fp8(type_d) ? Overflow::saturate : Overflow::format_default);
      ASSERT_NEAR(got[i], rounded, relative * std::abs(rounded)) << i;
    }
  }
};

}  // namespace halfmark::kernels::software_gpu::cublaslt
