// cublasLtMatmul() of the stand-in: results against plain loops, and what it refuses.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_testing.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

class CublasLtMatmul : public testing::Test {
 protected:
  void SetUp() override { reset_device(90); }
};

void expect_right(Call& call) {
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  call.check_result(call.expected());
}

TEST_F(CublasLtMatmul, TransposesSizesBatchesAndScalars) {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const cudaDataType_t type : {CUDA_R_32F, CUDA_R_16F}) {
        Call call;
        call.type_a = call.type_b = call.type_c = call.type_d = type;
        call.m = 7, call.n = 5, call.k = 9, call.batch = 3, call.transpose_a = ta, call.transpose_b = tb;
        call.alpha = 0.5f, call.beta = 2;
        call.describe(), call.fill();
        expect_right(call);
      }
}

TEST_F(CublasLtMatmul, RowMajorMatricesAndLeadingDimensions) {
  // A in rows of 12 elements of which 9 are used; what lies between is never written and never read.
  Call call;
  call.m = 7, call.n = 5, call.k = 9, call.transpose_a = false;
  call.describe(), call.fill();
  call.set<int32_t>(call.a, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_ORDER_ROW);
  call.set<int64_t>(call.a, CUBLASLT_MATRIX_LAYOUT_LD, 12);
  auto* memory = static_cast<float*>(allocate_on_device(static_cast<size_t>((call.m - 1) * 12 + 9) * sizeof(float)));
  for (int64_t r = 0; r < call.m; ++r) {
    std::vector<float> row;
    for (int64_t t = 0; t < call.k; ++t)
      row.push_back(static_cast<float>(call.a_values[static_cast<size_t>(t * call.m + r)]));
    copy_to_device(memory + r * 12, row.data(), row.size() * sizeof(float));
  }
  call.a_memory = memory;
  expect_right(call);
}

TEST_F(CublasLtMatmul, WorkRunsWhenTheStreamRuns) {
  Call call;
  call.describe(), call.fill();
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  EXPECT_EQ(run_enqueued(), cudaSuccess);
  call.check_result(call.expected());
}

TEST_F(CublasLtMatmul, ScalarsOnTheDeviceAreReadWhenTheWorkRuns) {
  Call call;
  call.describe(), call.fill();
  call.set<int32_t>(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
  const double one = 1, zero = 0;
  void* alpha = on_device(DType::f32, {&one, 1});
  void* beta = on_device(DType::f32, {&zero, 1});
  const float four = 4;  // the copy is enqueued before the product, and done when the product is
  ASSERT_EQ(cudaMemcpyAsync(alpha, &four, sizeof four, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  ASSERT_EQ(call.run_with_scalars(alpha, beta), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  call.alpha = 4;
  call.check_result(call.expected());
}

TEST_F(CublasLtMatmul, EpiloguesOfTheForwardDirection) {
  for (const cublasLtEpilogue_t epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS,
                                            CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS}) {
    Call call;
    call.m = 6;
    call.describe(), call.fill();
    const std::vector<double> bias = small_numbers(6, 9);
    call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    call.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, on_device(DType::f32, bias));
    ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(run_enqueued(), cudaSuccess);
    std::vector<double> wanted = call.expected();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (epilogue & CUBLASLT_EPILOGUE_BIAS) wanted[i] += bias[i % 6];
      if (epilogue & CUBLASLT_EPILOGUE_RELU) wanted[i] = wanted[i] > 0 ? wanted[i] : 0;
      const double x = wanted[i], u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
      if (epilogue & CUBLASLT_EPILOGUE_GELU) wanted[i] = x / 2 * (1 + std::tanh(u));
    }
    call.check_result(wanted, 1e-6);
  }
}

TEST_F(CublasLtMatmul, ReluMaskGoesFromForwardToBackward) {
  Call forward;
  forward.m = 10;
  forward.describe(), forward.fill();
  void* mask = allocate_on_device(16 * 16);
  forward.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_AUX);
  forward.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
  forward.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 128);
  ASSERT_EQ(forward.run(), CUBLAS_STATUS_SUCCESS);
  Call backward;
  backward.m = 10;
  backward.describe(), backward.fill();
  const std::vector<double> nothing(10);
  void* bias = allocate_on_device(10 * sizeof(float));
  backward.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DRELU_BGRAD);
  backward.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, mask);
  backward.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 128);
  backward.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  backward.alpha = -3;
  ASSERT_EQ(backward.run(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  const std::vector<double> before = forward.expected();
  std::vector<double> wanted = backward.expected(), sums(10);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (before[i] <= 0) wanted[i] = 0;
    sums[i % 10] += wanted[i];
  }
  backward.check_result(wanted);
  EXPECT_EQ(from_device(bias, DType::f32, 10), sums);
}

TEST_F(CublasLtMatmul, ScalesOfNarrowTypes) {
  Call call;
  call.type_a = CUDA_R_8F_E4M3, call.type_b = CUDA_R_8F_E5M2, call.type_c = CUDA_R_16BF, call.type_d = CUDA_R_8F_E4M3;
  call.describe(), call.fill();
  const double a = 0.5, b = 0.25, d = 2;
  void* largest = allocate_on_device(sizeof(float));
  call.set<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, on_device(DType::f32, {&a, 1}));
  call.set<const void*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, on_device(DType::f32, {&b, 1}));
  call.set<const void*>(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, on_device(DType::f32, {&d, 1}));
  call.set<void*>(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, largest);
  call.b_values = small_numbers(call.b_values.size(), 5);
  for (double& value : call.b_values) value = std::abs(value) == 3.5 || std::abs(value) == 2.5 ? 2 : value;
  for (double& value : call.b_values) value = value == 3.5 ? 4 : value;
  call.b_memory = on_device(DType::e5m2, call.b_values);
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  std::vector<double> wanted = call.expected();
  double most = 0;
  for (double& value : wanted) {
    value *= a * b;
    most = std::max(most, std::abs(value));
    value *= d;
  }
  call.check_result(wanted);
  EXPECT_EQ(from_device(largest, DType::f32, 1)[0], most);
}

// Block scales lie in tiles of 128 rows and 4 blocks; the test computes each place from the documented figure.
TEST_F(CublasLtMatmul, BlockScales) {
  for (const bool fp4 : {false, true}) {
    reset_device(100);
    Call call;
    call.type_a = call.type_b = fp4 ? CUDA_R_4F_E2M1 : CUDA_R_8F_E4M3;
    call.m = 160, call.n = 8, call.k = 192;
    call.describe(), call.fill();
    const int64_t block = fp4 ? 16 : 32, blocks = call.k / block, tiles = (blocks + 3) / 4;
    const DType type = fp4 ? DType::e4m3 : DType::e8m0;
    const auto scale = [](int64_t row, int64_t s) { return std::exp2(static_cast<double>((row * 3 + s * 5) % 4)); };
    const auto stored = [&](int64_t rows) {
      std::vector<double> scales(static_cast<size_t>((rows + 127) / 128 * tiles * 512), fp4 ? 0 : 0x1p-127);  // code 0
      for (int64_t tile = 0; tile < (rows + 127) / 128; ++tile)
        for (int64_t r = 0; r < std::min<int64_t>(128, rows - tile * 128); ++r)
          for (int64_t s = 0; s < blocks; ++s)
            scales[static_cast<size_t>((tile * tiles + s / 4) * 512 + (r % 32) * 16 + (r / 32) * 4 + s % 4)] =
                scale(tile * 128 + r, s);
      return on_device(type, scales);
    };
    const auto mode = fp4 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3 : CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    call.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode), call.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    call.set<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, stored(call.m));
    call.set<const void*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, stored(call.n));
    ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(run_enqueued(), cudaSuccess);
    for (int64_t row = 0; row < call.m; ++row)
      for (int64_t t = 0; t < call.k; ++t)
        call.a_values[static_cast<size_t>(row * call.k + t)] *= scale(row, t / block);
    for (int64_t column = 0; column < call.n; ++column)
      for (int64_t t = 0; t < call.k; ++t)
        call.b_values[static_cast<size_t>(column * call.k + t)] *= scale(column, t / block);
    call.check_result(call.expected());
  }
}

TEST_F(CublasLtMatmul, BlockScalesFillWholeTilesWithZeros) {
  for (const bool whole : {true, false}) {
    reset_device(100);
    Call call;
    call.type_a = call.type_b = CUDA_R_8F_E4M3;
    call.describe(), call.fill();  // 16 rows of one block, in tiles of 128 rows by 4 blocks
    for (const auto mode : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE})
      call.set(mode, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0);
    std::vector<unsigned char> codes(whole ? 512 : 508, 0);
    for (size_t row = 0; row < 16; ++row) codes[row * 16] = 127;
    for (const bool zeros : {true, false}) {
      if (!zeros) codes[1] = 127;  // of the second block
      void* scales = allocate_on_device(codes.size());
      copy_to_device(scales, codes.data(), codes.size());
      call.set<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales);
      call.set<const void*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales);
      ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
      if (zeros && whole) {
        ASSERT_EQ(run_enqueued(), cudaSuccess);
        call.check_result(call.expected());
      } else {
        EXPECT_NE(run_enqueued(), cudaSuccess);
        break;
      }
    }
  }
}

TEST_F(CublasLtMatmul, ScalesOfRowsAndOfBlocksOf128) {
  for (const bool outer : {true, false}) {
    reset_device(90);
    Call call;
    call.type_a = call.type_b = CUDA_R_8F_E4M3;
    call.k = 256;
    call.describe(), call.fill();
    const auto mode = outer ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    call.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode), call.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    std::vector<double> scales;
    for (int i = 0; i < 32; ++i) scales.push_back(std::exp2(i % 3));
    const void* memory = on_device(DType::f32, scales);
    call.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, memory), call.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, memory);
    ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(run_enqueued(), cudaSuccess);
    for (auto* values : {&call.a_values, &call.b_values})  // 16 rows of A, 16 columns of B
      for (size_t i = 0; i < values->size(); ++i) (*values)[i] *= scales[i / 256 + (outer ? 0 : i % 256 / 128 * 16)];
    call.check_result(call.expected());
  }
}

// What each type of arithmetic keeps: a product that differs in TF32, and a sum that differs in FP16.
TEST_F(CublasLtMatmul, AlgorithmsComputeAsTheirFlagsSay) {
  Call call;
  call.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  call.describe(), call.fill();
  const double fine = 1 + std::exp2(-12);
  call.a_values.assign(call.a_values.size(), fine), call.b_values.assign(call.b_values.size(), 1);
  call.a_memory = on_device(DType::f32, call.a_values), call.b_memory = on_device(DType::f32, call.b_values);
  ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
  bool tf32 = false, fp32 = false;
  for (const auto& result : call.found) {
    uint64_t flags = 0;
    ASSERT_EQ(cublasLtMatmulAlgoCapGetAttribute(&result.algo, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS, &flags,
                                                sizeof flags, nullptr),
              CUBLAS_STATUS_SUCCESS);
    const bool narrow = (flags & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32) != 0;
    (narrow ? tf32 : fp32) = true;
    call.workspace = allocate_on_device(1 << 20), call.workspace_bytes = 1 << 20;
    ASSERT_EQ(call.run(&result.algo), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(run_enqueued(), cudaSuccess);
    EXPECT_EQ(from_device(call.d_memory, DType::f32, 1)[0], narrow ? 32 : 32 * fine);
  }
  EXPECT_TRUE(tf32 && fp32);  // FAST_TF32 permits TF32, it does not promise it
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublaslt
