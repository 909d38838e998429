// cuDNN has engines for the norms and the pooling for which the stand-in of the software GPU has them.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/cudnn_norm_graph.h"
#include "kernels/cuda/cudnn_pool_graph.h"
#include "kernels/cuda/described_gpus/described_gpu_testing.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr DType kNormTypes[] = {DType::f32, DType::f16, DType::bf16};

std::string text_of(const DescribedGpu& gpu, DType dtype, const CudnnExtents& x, bool backward, bool last) {
  return std::string(gpu.name) + (backward ? " backward " : " forward ") + std::string(name_of(dtype)) + " " +
         Shape(x).text() + (last ? " nhwc" : "");
}

// The rules are those of the stand-in (software_gpu/libraries/cudnn_norm.cpp), which were made from these answers.
bool has_engine(const DescribedGpu& gpu, const NormProblem& p) {
  if (p.dtype == DType::bf16 && gpu.capability < 800) return false;
  if (p.kind == NormKind::constant) return p.last && p.dtype != DType::f32 && p.x[1] > 1;
  const int64_t in_access = 16 / static_cast<int64_t>(size_of(p.dtype));
  return p.kind != NormKind::batch || (gpu.capability >= 800 && p.x[1] % in_access == 0);
}

TEST_F(SlowDescribedGpus, HaveEnginesForTheNormsThatTheStandInHasThemFor) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  const auto try_norm = [](const DescribedGpu& gpu, const CudnnTarget& target, const NormProblem& p) {
    const CudnnGraph graph = norm_graph(target, p);
    const TensorCores cores = p.dtype == DType::f32 ? TensorCores::excluded : TensorCores::allowed;
    EXPECT_EQ(usable_engines(target, graph, cores).first > 0, has_engine(gpu, p))
        << text_of(gpu, p.dtype, p.x, p.backward, p.last) << " kind " << static_cast<int>(p.kind) << " parameters "
        << name_of(p.parameters);
  };
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    for (const DType dtype : kNormTypes)
      for (const DType parameters : {DType::f32, dtype})
        for (const bool backward : {false, true}) {
          for (const NormKind kind : {NormKind::layer, NormKind::rms})
            for (const int64_t width : {7, 256})
              for (const bool has_shift : {false, true})
                try_norm(gpu, target,
                         {.kind = kind,
                          .backward = backward,
                          .dtype = dtype,
                          .parameters = parameters,
                          .x = {6, width, 1, 1},
                          .has_shift = has_shift});
          for (const int64_t c : {4, 12, 64})
            for (const bool last : {false, true})
              try_norm(gpu, target,
                       {.kind = NormKind::batch,
                        .backward = backward,
                        .dtype = dtype,
                        .parameters = parameters,
                        .x = {2, c, 5, 3},
                        .last = last});
        }
  }
}

TEST_F(SlowDescribedGpus, HaveEnginesForConstantStatisticsWhereTheStandInHasThem) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    for (const DType dtype : kNormTypes)
      for (const DType parameters : {DType::f32, dtype})
        for (const int64_t c : {1, 7, 16})
          for (const bool last : {false, true}) {
            const NormProblem p{
                .kind = NormKind::constant, .dtype = dtype, .parameters = parameters, .x = {2, c, 5, 3}, .last = last};
            const CudnnGraph graph = norm_graph(target, p);
            const TensorCores cores = dtype == DType::f32 ? TensorCores::excluded : TensorCores::allowed;
            EXPECT_EQ(usable_engines(target, graph, cores).first > 0, has_engine(gpu, p))
                << text_of(gpu, dtype, p.x, false, last) << " parameters " << name_of(parameters);
          }
  }
}

// There is no driver to load it into: everything before that has succeeded.
TEST_F(SlowDescribedGpus, CompileTheCodeOfNormsAndPooling) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  const DescribedGpu& gpu = kDescribedGpus[2];
  const std::optional<CudnnDescriptor> properties = properties_of(gpu);
  ASSERT_TRUE(properties.has_value());
  const CudnnTarget target{.properties = &*properties};
  const auto expect_compiled = [&](const CudnnGraph& graph, const std::string& name) {
    const CudnnCandidates all = cudnn_candidates(target, graph.graph, TensorCores::allowed, size_t{1} << 40);
    EXPECT_NE(all.failed.find("CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"), std::string::npos)
        << name << ": " << all.refusal;
  };
  for (const bool backward : {false, true}) {
    for (const NormKind kind : {NormKind::layer, NormKind::rms, NormKind::batch, NormKind::constant}) {
      if (kind == NormKind::constant && backward) continue;
      const bool is_image = kind == NormKind::batch || kind == NormKind::constant;
      const CudnnExtents x = is_image ? CudnnExtents{2, 64, 5, 3} : CudnnExtents{6, 256, 1, 1};
      expect_compiled(
          norm_graph(target, {.kind = kind, .backward = backward, .dtype = DType::f16, .x = x, .last = is_image}),
          "norm of kind " + std::to_string(static_cast<int>(kind)));
    }
    for (const bool average : {false, true})
      expect_compiled(pool_graph(target, {.average = average,
                                          .backward = backward,
                                          .dtype = DType::f16,
                                          .x = {2, 16, 8, 6},
                                          .y = {2, 16, 4, 3},
                                          .last = true,
                                          .has_indices = !average,
                                          .window = {.stride_h = 2, .stride_w = 2}}),
                      average ? "average pooling" : "max pooling");
  }
}

// software_gpu/libraries/cudnn_pool.cpp
bool has_engine(const DescribedGpu& gpu, const PoolProblem& p) {
  if (p.dtype == DType::bf16 && gpu.capability < 800) return false;
  if (!p.last) return !(p.backward && !p.average);
  if (p.dtype == DType::f64) return false;
  return p.dtype != DType::f32 || (!p.backward && !p.has_indices);
}

TEST_F(SlowDescribedGpus, HaveEnginesForThePoolingThatTheStandInHasThemFor) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    for (const bool average : {false, true})
      for (const bool backward : {false, true})
        for (const bool has_indices : {false, true})
          for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
            for (const bool last : {false, true})
              for (const int64_t c : {3, 16}) {
                if (average ? has_indices : backward && !has_indices) continue;
                const PoolProblem p{.average = average,
                                    .backward = backward,
                                    .dtype = dtype,
                                    .x = {2, c, 7, 6},
                                    .y = {2, c, 4, 3},
                                    .last = last,
                                    .has_indices = has_indices,
                                    .kernel_h = 3,
                                    .kernel_w = 2,
                                    .window = {.stride_h = 2, .stride_w = 2, .pad_h = 1}};
                const CudnnGraph graph = pool_graph(target, p);
                const bool is_half = dtype == DType::f16 || dtype == DType::bf16;
                const auto usable =
                    usable_engines(target, graph, is_half ? TensorCores::allowed : TensorCores::excluded);
                EXPECT_EQ(usable.first > 0, has_engine(gpu, p))
                    << text_of(gpu, dtype, p.x, backward, last) << (average ? " average" : " maximum")
                    << (has_indices ? " with indices" : "");
              }
  }
}

}  // namespace
}  // namespace halfmark::kernels::cuda
