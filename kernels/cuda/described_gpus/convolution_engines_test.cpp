// NVIDIA's own answers: cuDNN has an engine for every kind of convolution that a row promises, on several GPUs.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/cudnn_convolution_graph.h"
#include "kernels/cuda/described_gpus/described_gpu_testing.h"

namespace halfmark::kernels::cuda {
namespace {

TEST_F(SlowDescribedGpus, HaveAnEngineForEveryConvolutionThatARowPromises) {
  for (const DescribedGpu& gpu : kDescribedGpus) {
    const std::optional<CudnnDescriptor> properties = properties_of(gpu);
    ASSERT_TRUE(properties.has_value());
    const CudnnTarget target{.properties = &*properties};
    for (const Direction direction : {Direction::forward, Direction::backward_data, Direction::backward_weights})
      for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
        for (const bool last : {false, true})
          for (const int64_t groups : {1, 32}) {
            if (dtype == DType::bf16 && gpu.capability < 800) continue;
            const ConvolutionProblem problem{.direction = direction,
                                             .dtype = dtype,
                                             .x = {2, 32, 16, 16},
                                             .w = {32, 32 / groups, 3, 3},
                                             .y = {2, 32, 16, 16},
                                             .last = last,
                                             .window = {.pad_h = 1, .pad_w = 1},
                                             .alignment_x = 16,
                                             .alignment_w = 16,
                                             .alignment_y = 16};
            const CudnnGraph graph = convolution_graph(target, problem);
            const auto has_engine = [&](TensorCores tensor_cores) {
              return usable_engines(target, graph, tensor_cores).first > 0;
            };
            const std::string name = std::string(gpu.name) + " direction " +
                                     std::to_string(static_cast<int>(direction)) + " " + std::string(name_of(dtype)) +
                                     (last ? " nhwc" : "") + " groups " + std::to_string(groups);
            if (dtype != DType::f32) {
              EXPECT_TRUE(has_engine(TensorCores::allowed)) << name;
              continue;
            }
            EXPECT_TRUE(has_engine(TensorCores::excluded)) << name;
            // Tensor cores multiply FP32 as TF32, which exists from compute capability 8.0 on: the note is that of TF32.
            EXPECT_EQ(has_engine(TensorCores::needed), gpu.capability >= 800) << name;
          }
  }
}

}  // namespace
}  // namespace halfmark::kernels::cuda
