// halfmark compare --predict: the command line, and what the tables of reports/predict must have in common with the suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "bench/run/program_testing.h"
#include "kernels/ops/ops.h"
#include "kernels/sim/tensor_core.h"
#include "reports/predict/peaks.h"
#include "reports/predict/prediction.h"

namespace halfmark::bench {
namespace {

class ComparePredict : public ProcessTest {};

TEST_F(ComparePredict, FollowsTheMeasurementsAndChangesNoneOfThem) {
  ASSERT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear/b4_i16_o8 --policy fp32,fp16 "
                     "--harness throughput,memory -o report.json")
                .code,
            0);
  const Result without = halfmark("compare report.json"), with = halfmark("compare report.json --predict a100");
  EXPECT_EQ(with.code, 0) << with.err;
  ASSERT_TRUE(with.out.starts_with(without.out)) << with.out;
  const std::string added = with.out.substr(without.out.size());
  EXPECT_FALSE(says(without.out, "predicted, not measured"));
  EXPECT_TRUE(says(added, "predicted, not measured\n")) << added;
  EXPECT_TRUE(says(added, "\na100 predicted  fp32 ")) << added;
  EXPECT_TRUE(says(added, "\na100 predicted  fp16 ")) << added << "emulated here, so that only its time says nothing";
  // A name of an architecture stands for its GPUs.
  const std::string hopper = halfmark("compare report.json --predict hopper").out;
  EXPECT_TRUE(says(hopper, "\nh100 predicted  fp32 ") && says(hopper, "\nh200 predicted  fp32 ")) << hopper;
  EXPECT_EQ(halfmark("compare report.json --predict sim:hopper").out, hopper);
  // Exports know nothing of it: they take no such option.
  EXPECT_EQ(halfmark("export report.json --csv out.csv --predict a100").code, 2);
}

TEST_F(ComparePredict, SuggestsTheNameOfAGpuThatIsNotInTheTable) {
  const Result result = halfmark("compare report.json --predict a10o");
  EXPECT_EQ(result.code, 2);
  EXPECT_TRUE(says(result.err, "a10o") && says(result.err, "a100")) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

// A GPU has a peak for the operands that its simulated matrix instructions take, and none for others.
TEST(PublishedPeaks, AreThoseOfTheSimulatedMatrixInstructions) {
  std::set<std::string_view> architectures;
  for (const kernels::Architecture& one : kernels::architectures()) architectures.insert(one.name);
  const std::pair<const char*, kernels::Operands> types[] = {{"tf32", kernels::Operands::tf32},
                                                             {"f16", kernels::Operands::f16},
                                                             {"bf16", kernels::Operands::bf16},
                                                             {"fp8", kernels::Operands::fp8},
                                                             {"fp4", kernels::Operands::fp4}};
  for (const reports::PublishedGpu& gpu : reports::published_gpus()) {
    EXPECT_TRUE(architectures.contains(gpu.architecture)) << gpu.name;
    for (const auto& type : types) {
      const char* const name = type.first;
      const bool has = std::ranges::any_of(kernels::tensor_cores(), [&](const kernels::TensorCore& core) {
        return core.architecture == gpu.architecture && core.operands == type.second;
      });
      EXPECT_NE(has, gpu.without.contains(name)) << gpu.name << " " << name;
      EXPECT_TRUE(has || !gpu.flops.contains(name)) << gpu.name << " " << name;
    }
  }
}

TEST(PublishedPeaks, KnowTheMatrixProductsOfTheSuite) {
  for (const std::string_view name :
       {kernels::Matmul::name, kernels::BatchedMatmul::name, kernels::ScaledMatmul::name, kernels::Conv2d::name,
        kernels::Conv2dBackwardData::name, kernels::Conv2dBackwardWeights::name, kernels::Attention::name,
        kernels::AttentionBackward::name, kernels::PackedAttention::name, kernels::PackedAttentionBackward::name})
    EXPECT_TRUE(reports::is_matrix_product(name)) << name;
  for (const std::string_view name : {kernels::Softmax::name, kernels::Quantize::name, kernels::Cast::name})
    EXPECT_FALSE(reports::is_matrix_product(name)) << name;
}

}  // namespace
}  // namespace halfmark::bench
