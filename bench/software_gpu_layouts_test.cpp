// The layouts of images on a software GPU.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "bench/software_gpu_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

class SoftwareGpuLayouts : public SoftwareGpu {};

// cuDNN's choice of an engine names the layout, also backward, where flattening gives a gradient in NCHW.
TEST_F(SoftwareGpuLayouts, HalfPrecisionImagesAreChannelsLast) {
  const auto kernels = [&](const std::string& policy, const std::string& axes) {
    const Ran run = ran("", "run --no-probes --case resnet/b2_s8_n1_w4/cuda:0/" + policy + "/error" + axes);
    EXPECT_EQ(run.code, 0) << run.err;
    std::map<std::string, std::set<bool>> last;  // by operation: whether its convolutions are channels last
    if (!run.report || run.report->records.size() != 1) return last;
    const Record& record = run.report->records.front();
    EXPECT_EQ(record.status, Status::ok) << record.reason;
    for (const auto& kernel : record.kernels) {
      if (kernel.row == "cudnn")
        for (const std::string& choice : kernel.choices) last[kernel.operation].insert(says(choice, " nhwc:"));
      else
        last[kernel.operation];
    }
    return last;
  };
  const std::set<bool> all = {true}, none = {false};
  for (const char* policy : {"fp16", "amp-bf16"})
    for (const char* axes : {"", "/images=nhwc", "/fused=on"}) {
      auto last = kernels(policy, axes);
      for (const char* operation : {"conv2d", "conv2d_backward_data", "conv2d_backward_weights"})
        EXPECT_EQ(last[operation], all) << policy << axes << " " << operation;
      EXPECT_EQ(last.contains("fused_batch_norm"), std::string(axes) == "/fused=on") << policy << axes;
    }
  for (const auto& [policy, axes] : {std::pair("fp32", ""), std::pair("fp16", "/images=nchw")})
    for (const char* operation : {"conv2d", "conv2d_backward_data", "conv2d_backward_weights"})
      EXPECT_EQ(kernels(policy, axes)[operation], none) << policy << axes << " " << operation;
  EXPECT_EQ(kernels("fp32", "/images=nhwc")["conv2d"], all);
  // The layout of fp32 where all layers are in it, for equal bits; else that of the layers in half precision.
  EXPECT_EQ(kernels("fp16+precision=*=fp32", "")["conv2d"], none);
  EXPECT_EQ(kernels("fp16+precision=conv1=fp32", "")["conv2d"], all);
  EXPECT_EQ(kernels("fp32+precision=conv1=fp16", "")["conv2d"], all);
}

}  // namespace
}  // namespace halfmark::bench
