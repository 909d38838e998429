// The table of types, row by row: what is listed runs and is right, what differs in one type is refused.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/software_gpu/libraries/cublaslt_testing.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

constexpr cublasComputeType_t kComputes[] = {
    CUBLAS_COMPUTE_16F,           CUBLAS_COMPUTE_16F_PEDANTIC, CUBLAS_COMPUTE_32F,
    CUBLAS_COMPUTE_32F_PEDANTIC,  CUBLAS_COMPUTE_32F_FAST_16F, CUBLAS_COMPUTE_32F_FAST_16BF,
    CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_64F,          CUBLAS_COMPUTE_64F_PEDANTIC,
};
constexpr cudaDataType_t kDataTypes[] = {CUDA_R_16F,     CUDA_R_16BF,    CUDA_R_32F,    CUDA_R_64F,
                                         CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUDA_R_4F_E2M1};

// The documented table once more, as text: compute, scale, A, B, C, D, first architecture.
const std::set<std::string> kDocumented = [] {
  std::set<std::string> rows;
  const auto add = [&](const char* compute, const char* scale, const std::string& a, const std::string& b,
                       const std::string& c, const std::string& d, int first) {
    rows.insert(std::string(compute) + " " + scale + " " + a + " " + b + " " + c + " " + d + " " +
                std::to_string(first));
  };
  for (const char* compute : {"16F", "16F_PEDANTIC"}) add(compute, "f16", "f16", "f16", "f16", "f16", 75);
  for (const char* compute : {"32F", "32F_PEDANTIC"}) {
    for (const char* out : {"f16", "f32"}) add(compute, "f32", "f16", "f16", out, out, 75);
    for (const char* out : {"bf16", "f32"}) add(compute, "f32", "bf16", "bf16", out, out, 80);
    add(compute, "f32", "f32", "f32", "f32", "f32", 75);
  }
  for (const char* compute : {"FAST_16F", "FAST_16BF", "FAST_TF32"})
    add(compute, "f32", "f32", "f32", "f32", "f32", 75);
  for (const char* compute : {"64F", "64F_PEDANTIC"}) add(compute, "f64", "f64", "f64", "f64", "f64", 75);
  for (const auto& [a, b] : {std::pair("e4m3", "e4m3"), std::pair("e4m3", "e5m2"), std::pair("e5m2", "e4m3")}) {
    for (const char* c : {"f16", "bf16"}) {
      add("32F", "f32", a, b, c, c, 89), add("32F", "f32", a, b, c, "e4m3", 89);
      if (std::string(a) != b) add("32F", "f32", a, b, c, "e5m2", 89);
    }
    add("32F", "f32", a, b, "f32", "f32", 89);
  }
  for (const char* c : {"f16", "bf16"})
    add("32F", "f32", "e2m1", "e2m1", c, c, 100), add("32F", "f32", "e2m1", "e2m1", c, "e2m1", 100);
  add("32F", "f32", "e2m1", "e2m1", "f32", "f32", 100);
  return rows;
}();

std::string name(cublasComputeType_t compute) {
  constexpr const char* kNames[] = {"16F",       "16F_PEDANTIC", "32F", "32F_PEDANTIC", "FAST_16F",
                                    "FAST_16BF", "FAST_TF32",    "64F", "64F_PEDANTIC"};
  return kNames[std::find(std::begin(kComputes), std::end(kComputes), compute) - std::begin(kComputes)];
}
std::string name(cudaDataType_t type) { return std::string(name_of(dtype(type))); }

// Block-scaled results are not computed.
bool is_computed(const Types& types) { return !is_fp4(types.d); }

TEST(CublasLtTypes, EveryCombinationIsListedOrRefused) {
  std::set<std::string> seen;
  for (const int architecture : {75, 80, 86, 89, 90, 100, 120}) {
    reset_device(architecture);
    for (const cublasComputeType_t compute : kComputes)
      for (const cudaDataType_t scale : {CUDA_R_16F, CUDA_R_32F, CUDA_R_64F})
        for (const cudaDataType_t a : kDataTypes)
          for (const cudaDataType_t b : kDataTypes)
            for (const cudaDataType_t c : {CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F, CUDA_R_64F})
              for (const cudaDataType_t d : kDataTypes) {
                const std::string text = name(compute) + " " + name(scale) + " " + name(a) + " " + name(b) + " " +
                                         name(c) + " " + name(d) + " ";
                const bool listed = std::any_of(kDocumented.begin(), kDocumented.end(), [&](const std::string& line) {
                  return line.starts_with(text) && std::stoi(line.substr(text.size())) <= architecture;
                });
                const Types* found = find_types(compute, scale, a, b, c, d);
                ASSERT_EQ(found && found->architecture <= architecture, listed) << text << architecture;
                if (found) seen.insert(text + std::to_string(found->architecture));
              }
  }
  EXPECT_EQ(seen, kDocumented);
}

TEST(CublasLtTypes, ListedRowsRunAndAreRight) {
  for (const Types& types : software_gpu::cublaslt::types())
    for (const cublasComputeType_t compute : kComputes) {
      if (find_types(compute, types.scale, types.a, types.b, types.c, types.d) != &types) continue;
      for (const int architecture : {75, 80, 89, 90, 100, 120}) {
        SCOPED_TRACE(name(compute) + " " + name(types.a) + " " + name(types.b) + " " + name(types.c) + " " +
                     name(types.d) + " sm_" + std::to_string(architecture));
        reset_device(architecture);
        Call call(types, compute);
        call.m = 32;  // 16 bytes of FP4
        call.describe(), call.fill();
        call.beta = 0.5f;
        if (architecture < types.architecture) {
          EXPECT_EQ(call.ask(), CUBLAS_STATUS_NOT_SUPPORTED);
          EXPECT_EQ(call.run(), CUBLAS_STATUS_ARCH_MISMATCH);
          continue;
        }
        if (!is_computed(types)) {
          EXPECT_EQ(call.ask(), CUBLAS_STATUS_NOT_SUPPORTED);
          continue;
        }
        ASSERT_EQ(call.ask(), CUBLAS_STATUS_SUCCESS);
        for (const auto& result : call.found) {
          call.workspace_bytes = result.workspaceSize;
          call.workspace = result.workspaceSize ? allocate_on_device(result.workspaceSize) : nullptr;
          ASSERT_EQ(call.run(&result.algo), CUBLAS_STATUS_SUCCESS);
          ASSERT_EQ(run_enqueued(), cudaSuccess);
          // Partial sums in a narrow output type, and FP16 sums, are rounded more often.
          const bool narrow_sums = types.d != CUDA_R_32F && types.d != CUDA_R_64F && result.workspaceSize;
          call.check_result(call.expected(), narrow_sums ? 0.1 : 0);
        }
      }
    }
}

// A row with one type exchanged is not a row, unless the table lists it: refused with NOT_SUPPORTED by the descriptors alone.
TEST(CublasLtTypes, NeighboursOfARowAreRefused) {
  for (const Types& types : software_gpu::cublaslt::types()) {
    const auto compute = *std::find_if(std::begin(kComputes), std::end(kComputes),
                                       [&](cublasComputeType_t one) { return *compute_of(one) == types.compute; });
    for (cudaDataType_t Types::*member : {&Types::scale, &Types::a, &Types::b, &Types::c, &Types::d})
      for (const cudaDataType_t other : kDataTypes) {
        Types changed = types;
        changed.*member = other;
        if (find_types(compute, changed.scale, changed.a, changed.b, changed.c, changed.d)) continue;
        reset_device(100);
        Call call(changed, compute);
        call.m = 32;
        call.describe(), call.fill();
        ASSERT_EQ(call.ask(), CUBLAS_STATUS_NOT_SUPPORTED) << name(changed.a) << name(changed.d);
        ASSERT_EQ(call.run(), CUBLAS_STATUS_NOT_SUPPORTED);
      }
  }
}

TEST(CublasLtTypes, NarrowTypesHaveTheirRules) {
  const auto status = [](int architecture, const std::function<void(Call&)>& before,
                         const std::function<void(Call&)>& after = {}) {
    reset_device(architecture);
    Call call;
    call.type_a = call.type_b = CUDA_R_8F_E4M3, call.type_c = call.type_d = CUDA_R_16BF;
    before(call);
    call.describe();
    if (after) after(call);
    return call.ask();
  };
  const auto same = [](Call&) {};
  EXPECT_EQ(status(90, same), CUBLAS_STATUS_SUCCESS);
  // TN only, except on compute capability 10.x.
  for (const auto& [ta, tb] : {std::pair(false, false), std::pair(false, true), std::pair(true, true)})
    for (const int architecture : {89, 90, 100, 120})
      EXPECT_EQ(status(architecture, [&](Call& c) { c.transpose_a = ta, c.transpose_b = tb; }),
                architecture == 100 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED);
  // 16 bytes: of k, of m in the result's type, of leading dimensions. n is free.
  EXPECT_EQ(status(90, [](Call& c) { c.k = 24; }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(90, [](Call& c) { c.m = 12; }), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(90, [](Call& c) { c.m = 8, c.n = 5; }), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status(90, same, [](Call& c) { c.set<int64_t>(c.a, CUBLASLT_MATRIX_LAYOUT_LD, 40); }),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(90, same, [](Call& c) { c.set<int64_t>(c.a, CUBLASLT_MATRIX_LAYOUT_LD, 48); }),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(status(90, [](Call& c) { c.compute = CUBLAS_COMPUTE_32F_PEDANTIC; }), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(CublasLtTypes, ScalingModesByArchitecture) {
  struct Row {
    cublasLtMatmulMatrixScale_t mode;
    cudaDataType_t type;
    std::set<int> architectures;
  };
  const Row rows[] = {
      {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUDA_R_8F_E4M3, {89, 90, 100, 120}},
      {CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, CUDA_R_8F_E4M3, {90}},
      {CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, CUDA_R_8F_E4M3, {90}},
      {CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, CUDA_R_8F_E4M3, {100, 120}},
      {CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, CUDA_R_8F_E4M3, {}},
      {CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, CUDA_R_4F_E2M1, {100, 120}},
      {CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0, CUDA_R_4F_E2M1, {}},
      {CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUDA_R_4F_E2M1, {}},
  };
  for (const Row& row : rows)
    for (const int architecture : {89, 90, 100, 120}) {
      reset_device(architecture);
      Call call;
      call.type_a = call.type_b = row.type, call.type_c = call.type_d = CUDA_R_32F;
      call.describe();
      call.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, row.mode), call.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, row.mode);
      const void* scales = allocate_on_device(4096);
      call.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales), call.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales);
      EXPECT_EQ(call.ask(),
                row.architectures.contains(architecture) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED)
          << row.mode << " sm_" << architecture;
    }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu::cublaslt
