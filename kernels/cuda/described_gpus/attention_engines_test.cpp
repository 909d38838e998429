// cuDNN recognises the graphs of attention, and has engines for them where the stand-in of the software GPU has.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cuda/cudnn_attention_graph.h"
#include "kernels/cuda/described_gpus/described_gpu_testing.h"

namespace halfmark::kernels::cuda {
namespace {

// The rule of the stand-in (software_gpu/libraries/cudnn_formula.cpp), which was made from these answers.
bool has_engine(const DescribedGpu& gpu, const AttentionProblem& p) {
  const bool is_half = p.dtype == DType::f16 || p.dtype == DType::bf16;
  if (gpu.capability < 800 || !is_half || p.d % 8 != 0) return false;
  return !p.backward || p.d <= (gpu.capability == 900 ? 256 : 128);
}

TEST_F(SlowDescribedGpus, HaveEnginesForTheAttentionThatTheStandInHasThemFor) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    for (const bool backward : {false, true})
      for (const DType dtype : {DType::f16, DType::bf16})
        for (const int64_t d : {12, 64, 128, 136, 256, 264})
          for (const int64_t t : {2, 1024})
            for (const int64_t s : {67, 1024})
              for (const auto& [causal, packed] :
                   {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
                if ((causal || packed) && t != s) continue;
                const AttentionProblem problem{.backward = backward,
                                               .dtype = dtype,
                                               .n = 2,
                                               .heads = 3,
                                               .t = t,
                                               .s = s,
                                               .d = d,
                                               .causal = causal,
                                               .packed = packed};
                const CudnnGraph graph = attention_graph(target, problem);
                const auto [usable, unwanted] = usable_engines(target, graph, TensorCores::allowed);
                const std::string name = std::string(gpu.name) + (backward ? " backward " : " forward ") +
                                         std::string(name_of(dtype)) + " t" + std::to_string(t) + " s" +
                                         std::to_string(s) + " d" + std::to_string(d) + (causal ? " causal" : "") +
                                         (packed ? " packed" : "");
                EXPECT_EQ(usable > 0, has_engine(gpu, problem)) << name;
                EXPECT_EQ(unwanted, 0u) << name;
              }
  }
}

// There is no driver to load it into: everything before that has succeeded.
TEST_F(SlowDescribedGpus, CompileTheCodeOfAttention) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  for (const DescribedGpu& gpu : kDescribedGpus) {
    if (gpu.capability < 800) continue;
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    for (const auto& [backward, packed] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
      const AttentionProblem problem{.backward = backward,
                                     .dtype = DType::bf16,
                                     .n = 1,
                                     .heads = 2,
                                     .t = 256,
                                     .s = 256,
                                     .d = 64,
                                     .causal = true,
                                     .packed = packed};
      const CudnnGraph graph = attention_graph(target, problem);
      const CudnnCandidates all = cudnn_candidates(target, graph.graph, TensorCores::allowed, size_t{1} << 40);
      EXPECT_NE(all.failed.find("CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"), std::string::npos)
          << gpu.name << ": " << all.refusal;
    }
  }
}

}  // namespace
}  // namespace halfmark::kernels::cuda
