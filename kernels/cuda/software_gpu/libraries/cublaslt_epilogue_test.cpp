// Epilogues of the stand-in that a training needs: what forward keeps, the gradients of activations, and those of biases.
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_testing.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

class CublasLtEpilogue : public testing::Test {
 protected:
  void SetUp() override { reset_device(90); }
};

// By its definition; the slope as a difference.
double gelu_by_tanh(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
double slope_of_gelu(double x) { return (gelu_by_tanh(x + 1e-5) - gelu_by_tanh(x - 1e-5)) / 2e-5; }

void run_it(Call& call) {
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
}

// Small sums, so that GELU is neither 0 nor its argument.
void fill_small(Call& call) {
  call.describe(), call.fill();
  call.alpha = 1.0F / 64;
}

TEST_F(CublasLtEpilogue, GeluKeepsItsArgumentInColumnsOfItsLeadingDimension) {
  Call call;
  call.m = 10, call.n = 3;
  fill_small(call);
  constexpr int64_t kLd = 16;
  const std::vector<double> bias = small_numbers(10, 9);
  void* aux = on_device(DType::f32, std::vector<double>(kLd * 3, -77));
  call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  call.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, on_device(DType::f32, bias));
  call.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  call.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kLd);
  run_it(call);
  std::vector<double> z = call.expected(), y;
  for (size_t i = 0; i < z.size(); ++i) z[i] += bias[i % 10], y.push_back(gelu_by_tanh(z[i]));
  call.check_result(y, 1e-5);
  const std::vector<double> kept = from_device(aux, DType::f32, kLd * 3);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i], i % kLd < 10 ? z[i / kLd * 10 + i % kLd] : -77) << i;
}

TEST_F(CublasLtEpilogue, ReluMaskIsOneBitForEachRowInColumns) {
  Call call;
  call.m = 10, call.n = 3;
  call.describe(), call.fill();
  void* aux = on_device(DType::u8, std::vector<double>(16 * 3, 0));
  call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_AUX);
  call.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  call.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 128);
  run_it(call);
  const std::vector<double> z = call.expected(), mask = from_device(aux, DType::u8, 16 * 3);
  for (size_t i = 0; i < z.size(); ++i) {
    const auto byte = static_cast<int>(mask[i / 10 * 16 + i % 10 / 8]);
    EXPECT_EQ(byte >> (i % 10 % 8) & 1, z[i] > 0) << i;
  }
}

TEST_F(CublasLtEpilogue, GradientOfGeluAndOfItsBias) {
  for (const bool sums : {false, true}) {
    Call call;
    call.m = 8, call.n = 3;
    fill_small(call);
    const std::vector<double> z = small_numbers(8 * 3, 6);
    void* bias = allocate_on_device(8 * sizeof(float));
    call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, sums ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU);
    call.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, on_device(DType::f32, z));
    call.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 8);
    if (sums) call.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    run_it(call);
    std::vector<double> wanted = call.expected(), of_rows(8);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] *= slope_of_gelu(z[i]), of_rows[i % 8] += wanted[i];
    const std::vector<double> got = from_device(call.d_memory, DType::f32, wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << i;
    if (!sums) continue;
    const std::vector<double> gradient = from_device(bias, DType::f32, 8);
    for (size_t r = 0; r < 8; ++r) EXPECT_NEAR(gradient[r], of_rows[r], 1e-5) << r;
  }
}

// "The bias size corresponds to the number of rows [A] or columns [B] of the matrix D. The reduction happens over the GEMM's
// k dimension."
TEST_F(CublasLtEpilogue, SumsOfAnOperandOverK) {
  for (const bool of_a : {true, false})
    for (const bool transposed : {true, false}) {
      Call call;
      call.m = 6, call.n = 4, call.k = 5, call.transpose_a = call.transpose_b = transposed;
      call.describe(), call.fill();
      const int64_t length = of_a ? call.m : call.n;
      void* bias = allocate_on_device(static_cast<size_t>(length) * sizeof(float));
      call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, of_a ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB);
      call.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
      run_it(call);
      call.check_result(call.expected());
      std::vector<double> wanted(static_cast<size_t>(length));
      for (int64_t r = 0; r < length; ++r)
        for (int64_t t = 0; t < call.k; ++t) {
          // By columns: A is [m, k] or, transposed, [k, m]; B is [k, n] or [n, k].
          const bool k_is_inner = of_a == transposed;
          const int64_t at = k_is_inner ? r * call.k + t : t * length + r;
          wanted[static_cast<size_t>(r)] += (of_a ? call.a_values : call.b_values)[static_cast<size_t>(at)];
        }
      EXPECT_EQ(from_device(bias, DType::f32, wanted.size()), wanted) << of_a << transposed;
    }
}

// Beside a result in f32 of f16 operands the bias is f32; the tables of types say it for each row.
TEST_F(CublasLtEpilogue, TheBiasHasTheTypeOfTheResult) {
  for (const auto& [out, bias, status] : {std::tuple{CUDA_R_32F, CUDA_R_32F, CUBLAS_STATUS_SUCCESS},
                                          {CUDA_R_32F, CUDA_R_16F, CUBLAS_STATUS_INVALID_VALUE},
                                          {CUDA_R_16F, CUDA_R_16F, CUBLAS_STATUS_SUCCESS},
                                          {CUDA_R_16F, CUDA_R_32F, CUBLAS_STATUS_INVALID_VALUE}}) {
    Call call;
    call.type_a = call.type_b = CUDA_R_16F, call.type_c = call.type_d = out;
    call.describe(), call.fill();
    call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    call.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, on_device(DType::f32, small_numbers(16, 9)));
    call.set<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias);
    EXPECT_EQ(call.run(), status) << out << " " << bias;
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublaslt
