// The throughput harness on a small layer: what it writes about its times, computed again from its own samples.
#include "bench/run/performance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/known_names.h"
#include "bench/run/run_case.h"
#include "kernels/devices.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {
namespace {

Record times_of(const char* subject, const char* policy) {
  const Harness& throughput = harness_named("throughput");
  const Case one{&subject_named(subject), "cpu", &policy_named(policy), &throughput, {}};
  return run_case(one, open_device("cpu"), 0);
}

const Measurement& at(const Record& record, const char* metric, const char* place) {
  const Measurement* found = find(record, metric, place);
  if (!found) throw std::runtime_error(std::string("no ") + metric + " at " + place);
  return *found;
}

TEST(Throughput, WritesTheIntervalsOfRatiosWithTheOffsetThatTwoTrialsCanHave) {
  const Record record = times_of("batchnorm2d/b4_c3_s4", "tf32");
  for (const auto& [metric, confidence] : {std::pair("speedup.step", 0.95), std::pair("speedup.control", 0.99)}) {
    const Measurement& ratio = at(record, metric, "hot");
    std::vector<double> logarithms;
    for (const double sample : ratio.samples) logarithms.push_back(std::log(sample));
    const reports::Interval raw = reports::hodges_lehmann_interval(logarithms, confidence);
    ASSERT_TRUE(ratio.interval) << metric;
    EXPECT_NEAR(ratio.interval->lower, std::exp(raw.lower) / 1.01, 1e-12) << metric;
    EXPECT_NEAR(ratio.interval->upper, std::exp(raw.upper) * 1.01, 1e-12) << metric;
  }
  EXPECT_EQ(at(record, "speedup.same_kernels", "hot").value, 1);
}

TEST(Throughput, WritesTheTargetOfEachStoppingRule) {
  const Record record = times_of("linear/b4_i16_o8", "fp32");
  for (const char* place : {"hot/evaluation", "hot/phases", "cold/evaluation", "cold/phases"})
    EXPECT_EQ(at(record, "timing.target", place).value, 0.01) << place;
  EXPECT_EQ(at(record, "timing.target", "hot/step").value, 0.025);  // no ratio to fp32, so less precision is enough
}

}  // namespace
}  // namespace halfmark::bench
