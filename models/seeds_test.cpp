// Compares the effect of the precision with the effect of the
// seed: a small network under fp32 and amp-fp16, five seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/devices.h"
#include "models/trial.h"

namespace halfmark::models {
namespace {

// The loss on held-out data after training. Every subject and policy sees the same data.
double final_loss(const char* subject, double rate, std::string_view policy, uint64_t seed) {
  constexpr int64_t kSteps = 200, kHeldOutSamples = 256;
  Settings settings;
  settings.rate = rate;
  Trial trial({.subject = &subject_named(subject),
               .device = open_device("cpu"),
               .policy = &policy_named(policy),
               .axes = {},
               .seed = seed,
               .settings = settings,
               .round_first = nullptr});
  for (int64_t step = 0; step < kSteps; ++step) trial.train_step(step);
  return trial.evaluate(kHeldOutSamples).loss;
}

TEST(SlowSeeds, AmpFp16EndsWithinTheSpreadOfFp32OverFiveSeeds) {
  constexpr const char* kConvnet = "convnet/b16_c3_s16_w16";
  std::vector<double> fp32, amp;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    fp32.push_back(final_loss(kConvnet, 0.01, "fp32", seed));
    amp.push_back(final_loss(kConvnet, 0.01, "amp-fp16", seed));
    // Both learn what a linear model cannot (0.001 is the best rate for softmax regression, see data_test.cpp).
    const double linear = final_loss("logistic/b16_c3_s16", 0.001, "fp32", seed);
    EXPECT_LT(fp32.back(), linear) << "seed " << seed;
    EXPECT_LT(amp.back(), linear) << "seed " << seed;
  }
  const auto mean = [](const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  };
  const auto [least, most] = std::minmax_element(fp32.begin(), fp32.end());
  const double spread = *most - *least, difference = std::fabs(mean(amp) - mean(fp32));
  RecordProperty("fp32_mean", std::to_string(mean(fp32)));
  RecordProperty("amp_fp16_mean", std::to_string(mean(amp)));
  RecordProperty("fp32_spread", std::to_string(spread));
  std::printf("held-out loss, mean of five seeds: fp32 %.4f, amp-fp16 %.4f; spread of fp32 %.4f\n", mean(fp32),
              mean(amp), spread);
  EXPECT_GT(spread, 0);  // otherwise the seeds had no effect
  EXPECT_LE(difference, spread);
}

}  // namespace
}  // namespace halfmark::models
