// What the stand-in of cublasLt refuses, with which status, and which mistakes of a program it finds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/calls.h"
#include "kernels/cuda/software_gpu/libraries/cublaslt_testing.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE, kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

// Asks the heuristic and runs after a change of a product that is right.
void expect_refused(cublasStatus_t status, const std::function<void(Call&)>& change, cudaDataType_t type = CUDA_R_32F) {
  reset_device(90);
  Call call;
  call.type_a = call.type_b = call.type_c = call.type_d = type;
  if (is_fp8(type)) call.type_c = call.type_d = CUDA_R_16BF;
  call.m = 16, call.n = 32, call.k = 64;
  call.describe(), call.fill();
  ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
  change(call);
  EXPECT_EQ(call.run(), status);
}

// Runs after a change that no function can see; the result or the memory check must show it.
void expect_fault_or_wrong(const std::function<void(Call&)>& change, bool square = false) {
  reset_device(90);
  Call call;
  call.m = 16, call.n = square ? 16 : 32, call.k = square ? 16 : 64;
  call.describe(), call.fill();
  const std::vector<double> right = call.expected();
  change(call);
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  if (run_enqueued() != cudaSuccess) return;
  EXPECT_NE(from_device(call.d_memory, DType::f32, right.size()), right);
}

TEST(CublasLtRefusals, DescriptorsThatContradictEachOther) {
  const auto layout = [](cublasLtMatrixLayout_t Call::*which, cublasLtMatrixLayoutAttribute_t attribute, auto value) {
    return [=](Call& call) { call.set(call.*which, attribute, value); };
  };
  expect_refused(kInvalid, layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{63}));
  expect_refused(kInvalid, layout(&Call::b, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{31}));
  expect_refused(kInvalid, layout(&Call::c, CUBLASLT_MATRIX_LAYOUT_COLS, uint64_t{31}));
  expect_refused(kInvalid, layout(&Call::d, CUBLASLT_MATRIX_LAYOUT_ROWS, uint64_t{15}));
  expect_refused(kInvalid, layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{63}));
  expect_refused(kInvalid, layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_LD, int64_t{-64}));
  expect_refused(kInvalid, layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{77}));
  expect_refused(kUnsupported, layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_ORDER, int32_t{CUBLASLT_ORDER_COL32}));
  expect_refused(kInvalid, layout(&Call::a, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2}));
  expect_refused(kUnsupported, layout(&Call::d, CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, int64_t{64}));
  expect_refused(kInvalid, [](Call& call) {  // matrices of the result overlap
    for (const auto one : {call.a, call.b, call.c, call.d})
      call.set<int32_t>(one, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2);
  });
  expect_refused(kInvalid, [](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, 9); });
  expect_refused(kInvalid, [](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N); });
  expect_refused(kUnsupported, [](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSC, CUBLAS_OP_T); });
  expect_refused(kInvalid, [](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_POINTER_MODE, 9); });
  expect_refused(kInvalid, [](Call& call) { call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, 3); });
  // Scales where the types have none.
  expect_refused(kInvalid,
                 [](Call& call) { call.set<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.c_memory); });
  expect_refused(
      kInvalid, [](Call& call) { call.set<void*>(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, call.c_memory); },
      CUDA_R_8F_E4M3);
}

TEST(CublasLtRefusals, PointersHandlesAndForeignObjects) {
  expect_refused(kInvalid, [](Call& call) { call.a_memory = nullptr; });
  expect_refused(kInvalid, [](Call& call) { call.d_memory = nullptr; });
  expect_refused(kInvalid, [](Call& call) { call.c_memory = nullptr, call.beta = 1; });
  expect_refused(CUBLAS_STATUS_SUCCESS, [](Call& call) { call.c_memory = nullptr; });
  expect_refused(CUBLAS_STATUS_NOT_INITIALIZED, [](Call& call) {
    cublasLtDestroy(call.handle);
    EXPECT_EQ(cublasLtDestroy(call.handle), CUBLAS_STATUS_NOT_INITIALIZED);
  });
  expect_refused(kInvalid, [](Call& call) {
    cublasLtMatrixLayoutDestroy(call.b);
    EXPECT_EQ(cublasLtMatrixLayoutDestroy(call.b), kInvalid);
  });
  expect_refused(kInvalid, [](Call& call) { cublasLtMatmulDescDestroy(call.description); });
  expect_refused(kInvalid, [](Call& call) {  // a preference instead of a layout
    cublasLtMatrixLayoutDestroy(call.a);
    call.a = reinterpret_cast<cublasLtMatrixLayout_t>(call.preference);
  });
  expect_refused(kInvalid, [](Call& call) {  // in place, with another layout
    call.c_memory = call.d_memory;
    call.set<int64_t>(call.c, CUBLASLT_MATRIX_LAYOUT_LD, 20);
  });
}

TEST(CublasLtRefusals, AlgorithmsAndWorkspace) {
  reset_device(90);
  Call call;
  call.describe(), call.fill();
  ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
  const auto split =
      std::find_if(call.found.begin(), call.found.end(), [](const auto& one) { return one.workspaceSize; });
  ASSERT_NE(split, call.found.end());
  call.workspace = allocate_on_device(split->workspaceSize + 16), call.workspace_bytes = split->workspaceSize - 1;
  EXPECT_EQ(call.run(&split->algo), kInvalid);
  ++call.workspace_bytes;
  EXPECT_EQ(call.run(&split->algo), CUBLAS_STATUS_SUCCESS);
  call.workspace = static_cast<std::byte*>(call.workspace) + 4;
  EXPECT_EQ(call.run(&split->algo), kInvalid);
  call.workspace = nullptr;
  EXPECT_EQ(call.run(&split->algo), kInvalid);
  const cublasLtMatmulAlgo_t empty{};
  EXPECT_EQ(call.run(&empty), kInvalid);
  Call other;  // an algorithm of other types
  other.type_a = other.type_b = other.type_c = other.type_d = CUDA_R_16F;
  other.describe(), other.fill();
  EXPECT_EQ(other.run(&call.found[0].algo), kInvalid);
}

TEST(CublasLtRefusals, PreferencesLeaveAlgorithmsOut) {
  reset_device(90);
  Call call;
  call.compute = CUBLAS_COMPUTE_16F, call.scale = CUDA_R_16F;
  call.type_a = call.type_b = call.type_c = call.type_d = CUDA_R_16F;
  call.describe();
  ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_GT(call.found.size(), 8u);
  ASSERT_EQ(call.ask(2), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call.found.size(), 2u);
  EXPECT_EQ(call.ask(0), kInvalid);
  call.prefer<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_NONE);
  ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call.found.size(), 3u);  // matrix instructions with FP16 sums and with FP32 sums, multiply-adds
  call.prefer<uint64_t>(CUBLASLT_MATMUL_PREF_IMPL_MASK, CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_TYPE_MASK |
                                                            CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F |
                                                            CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_INPUT_TYPE_MASK);
  ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call.found.size(), 2u);
  call.prefer<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 8);
  ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call.found.size(), 1u);
  call.prefer<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 1);
  EXPECT_EQ(call.ask(), kUnsupported);
  call.prefer<uint64_t>(CUBLASLT_MATMUL_PREF_IMPL_MASK, 0);
  EXPECT_EQ(call.ask(), kUnsupported);
}

TEST(CublasLtRefusals, EpiloguesWithoutTheirAttributes) {
  const auto with = [](uint32_t epilogue, bool bias, bool aux, int64_t ld) {
    return [=](Call& call) {
      call.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      if (bias) call.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.c_memory);
      if (aux) call.set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, allocate_on_device(4096));
      if (ld) call.set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    };
  };
  expect_refused(kInvalid, with(CUBLASLT_EPILOGUE_BIAS, false, false, 0));  // the forgotten bias pointer
  expect_refused(CUBLAS_STATUS_SUCCESS, with(CUBLASLT_EPILOGUE_BIAS, true, false, 0));
  expect_refused(kInvalid, with(CUBLASLT_EPILOGUE_RELU_AUX, false, false, 128));
  expect_refused(kInvalid, with(CUBLASLT_EPILOGUE_RELU_AUX, false, true, 0));
  expect_refused(kInvalid, with(CUBLASLT_EPILOGUE_RELU_AUX, false, true, 64));
  expect_refused(CUBLAS_STATUS_SUCCESS, with(CUBLASLT_EPILOGUE_RELU_AUX, false, true, 128));
  expect_refused(kInvalid, with(CUBLASLT_EPILOGUE_GELU_AUX, false, true, 20));
  expect_refused(kInvalid, with(CUBLASLT_EPILOGUE_GELU_AUX, false, true, 8));
  expect_refused(CUBLAS_STATUS_SUCCESS, with(CUBLASLT_EPILOGUE_GELU_AUX, false, true, 24));
  expect_refused(kInvalid, [](Call& call) {
    call.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    call.set<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.c_memory);
    call.set<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16F);
  });
}

TEST(CublasLtRefusals, MistakesOfPrograms) {
  // m and n exchanged, a transpose that is missing, a wrong leading dimension.
  expect_refused(kInvalid, [](Call& call) { std::swap(call.a, call.b), std::swap(call.a_memory, call.b_memory); });
  expect_refused(kInvalid, [](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N); });
  expect_refused(kInvalid, [](Call& call) { call.set<int64_t>(call.a, CUBLASLT_MATRIX_LAYOUT_LD, 16); });
  // The same where the shapes do not show it.
  expect_fault_or_wrong([](Call& call) { std::swap(call.a_memory, call.b_memory); }, true);
  expect_fault_or_wrong([](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N); }, true);
  expect_fault_or_wrong([](Call& call) { call.set<int64_t>(call.a, CUBLASLT_MATRIX_LAYOUT_LD, 65); });
  expect_fault_or_wrong([](Call& call) { call.set<int64_t>(call.d, CUBLASLT_MATRIX_LAYOUT_LD, 17); });
  // Operands that end too early, and a workspace that is one.
  expect_fault_or_wrong([](Call& call) { call.a_memory = static_cast<std::byte*>(call.a_memory) + 16; });
  expect_fault_or_wrong([](Call& call) { call.d_memory = call.a_memory; });
  // The scale type of FP16 sums, and FP32 scalars for FP64.
  expect_refused(kUnsupported, [](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_64F); });
  expect_refused(
      kUnsupported, [](Call& call) { call.set<int32_t>(CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_16F); }, CUDA_R_16F);
  // Misaligned FP8.
  expect_refused(
      kUnsupported, [](Call& call) { call.a_memory = static_cast<std::byte*>(call.a_memory) + 8; }, CUDA_R_8F_E4M3);
}

TEST(CublasLtRefusals, ScalarsOfAnotherTypeGiveWrongResults) {
  reset_device(90);
  Call call;
  call.compute = CUBLAS_COMPUTE_64F, call.scale = CUDA_R_64F;
  call.type_a = call.type_b = call.type_c = call.type_d = CUDA_R_64F;
  call.describe(), call.fill();
  const float one[2] = {1, 0}, zero[2] = {0, 0};
  ASSERT_EQ(call.run_with_scalars(one, zero), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(run_enqueued(), cudaSuccess);
  EXPECT_NE(from_device(call.d_memory, DType::f64, 256), call.expected());
}

TEST(CublasLtRefusals, WhatIsReadMustHaveBeenWritten) {
  reset_device(90);
  Call call;
  call.describe(), call.fill();
  call.c_memory = allocate_on_device(16 * 16 * sizeof(float));
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run_enqueued(), cudaSuccess);  // beta is 0
  call.beta = 1;
  ASSERT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(run_enqueued(), cudaSuccess);
}

TEST(CublasLtRefusals, RequestedFailuresComeFirst) {
  reset_device(90);
  Call call;
  call.describe(), call.fill();
  fail_call("cublasLtMatmul", 2, CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(call.run(), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(call.run(), CUBLAS_STATUS_SUCCESS);
  fail_call("cublasLtCreate", 1, CUBLAS_STATUS_ALLOC_FAILED);
  cublasLtHandle_t handle = nullptr;
  EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(handle, nullptr);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublaslt
