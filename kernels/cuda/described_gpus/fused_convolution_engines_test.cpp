// cuDNN has engines for the convolutions with bias and ReLU for which the stand-in of the software GPU has them.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/cuda/cudnn_convolution_graph.h"
#include "kernels/cuda/described_gpus/described_gpu_testing.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr DType kConvolutionTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

// The rule is that of the stand-in (software_gpu/libraries/cudnn_formula.cpp), which was made from these answers.
bool has_engine(const DescribedGpu& gpu, const ConvolutionProblem& p) {
  if (p.dtype == DType::bf16 && gpu.capability < 800) return false;
  if (p.bias) return true;
  if (!p.last || p.dtype == DType::f64) return false;
  return p.dtype != DType::bf16 || p.w[1] > 1;
}

TensorCores tensor_cores_for(DType dtype) { return dtype == DType::f32 ? TensorCores::excluded : TensorCores::allowed; }

std::string text_of(const DescribedGpu& gpu, const ConvolutionProblem& p) {
  return std::string(gpu.name) + " " + std::string(name_of(p.dtype)) + " " + p.x.text() + " by " + p.w.text() +
         (p.last ? " nhwc" : "") + (p.bias ? " bias" : "") + (p.relu ? " relu" : "");
}

ConvolutionProblem fused(DType dtype, bool last, int64_t channels, int64_t filters, int64_t groups) {
  return {.dtype = dtype,
          .tensor_cores = tensor_cores_for(dtype),
          .x = {2, channels, 16, 16},
          .w = {filters, channels / groups, 3, 3},
          .y = {2, filters, 16, 16},
          .last = last,
          .window = {.pad_h = 1, .pad_w = 1},
          .alignment_x = 16,
          .alignment_w = 16,
          .alignment_y = 16,
          .bias = true,
          .relu = true};
}

// Which sizes have TF32 depends on what the heuristics prefer. Before the next test: once cuDNN 9.19 has been asked for a
// convolution with ReLU alone on a T4, which has no TF32, it lists none for the other GPUs either.
TEST_F(SlowDescribedGpus, HaveTf32ForFusedConvolutionsFromAmpereOn) {
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    size_t usable = 0;
    for (const int64_t filters : {5, 64})
      for (const bool last : {false, true}) {
        const CudnnGraph graph = convolution_graph(target, fused(DType::f32, last, 16, filters, 1));
        usable += usable_engines(target, graph, TensorCores::needed).first;
      }
    EXPECT_EQ(usable > 0, gpu.capability >= 800) << gpu.name;
  }
}

TEST_F(SlowDescribedGpus, HaveEnginesForTheFusedConvolutionsThatTheStandInHasThemFor) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  struct Size {
    int64_t channels, filters, groups;
  };
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    for (const DType dtype : kConvolutionTypes)
      for (const bool last : {false, true})
        for (const Size& size : {Size{3, 5, 1}, {64, 64, 1}, {64, 64, 2}, {6, 6, 6}})
          for (const auto& [bias, relu] : {std::pair{true, true}, {true, false}, {false, true}}) {
            ConvolutionProblem p = fused(dtype, last, size.channels, size.filters, size.groups);
            p.bias = bias, p.relu = relu;
            const CudnnGraph graph = convolution_graph(target, p);
            EXPECT_EQ(usable_engines(target, graph, p.tensor_cores).first > 0, has_engine(gpu, p)) << text_of(gpu, p);
          }
  }
}

// A plan, or code for which there is no driver to load it into: everything before that has succeeded.
TEST_F(SlowDescribedGpus, PlanFusedConvolutions) {
  if (!has_stub()) GTEST_SKIP() << "no stub of libcuda, without which cuDNN lists no engine that compiles its code";
  const std::optional<CudnnDescriptor> properties = properties_of(kDescribedGpus[2]);
  ASSERT_TRUE(properties.has_value());
  const CudnnTarget target{.properties = &*properties};
  for (const DType dtype : kConvolutionTypes)
    for (const bool bias : {false, true}) {
      ConvolutionProblem p = fused(dtype, true, 64, 64, 1);
      p.bias = bias;
      if (!has_engine(kDescribedGpus[2], p)) continue;
      const CudnnGraph graph = convolution_graph(target, p);
      const CudnnCandidates all = cudnn_candidates(target, graph.graph, p.tensor_cores, size_t{1} << 40);
      EXPECT_TRUE(!all.found.empty() ||
                  all.failed.find("CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER") != std::string::npos)
          << text_of(kDescribedGpus[2], p) << ": " << all.refusal << all.failed;
    }
}

}  // namespace
}  // namespace halfmark::kernels::cuda
