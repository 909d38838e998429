// Changes of layout inside operations stand beside the traffic of their operands and not in it.
#include <gtest/gtest.h>

#include "accuracy/experiments/experiment_testing.h"
#include "reports/record/measurement.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

TEST(TrafficOfReorders, IsBesideThatOfTheOperands) {
  const Findings found = findings_of(traffic_harness(), experiment_trial("conv2d/b2_c32_o32_s8_k3", "fp32"));
  double of_phases = 0;
  for (const Measurement& one : found.measurements)
    if (one.metric == "traffic.reorders" && !one.at.empty()) of_phases += one.value;
  EXPECT_EQ(of_phases, number_at(found, "traffic.reorders"));
  // Read and written: at least the filter, which the optimizer has changed, and as a whole.
  constexpr double kFilter = 32 * 32 * 3 * 3 * 4;
#if HALFMARK_ONEDNN
  EXPECT_GE(of_phases, 2 * kFilter);
#endif
  constexpr double kImage = 2 * 32 * 8 * 8 * 4;
  EXPECT_EQ(number_at(found, "traffic.read", "forward/conv2d"), kImage + kFilter);
  EXPECT_EQ(number_at(found, "traffic.written", "forward/conv2d"), kImage);
}

}  // namespace
}  // namespace halfmark::accuracy
