// Tests of the fingerprint.
#include "bench/run/fingerprint.h"

#include <gtest/gtest.h>

#include <cmath>

namespace halfmark::bench {
namespace {

TEST(Fingerprint, ChangesWithOneBitAndNotWithTimes) {
  Findings findings;
  findings.measurements.push_back({.metric = "error.nmse", .at = "output", .value = 1});
  const std::string before = fingerprint_of(findings);
  Measurement time{.metric = "time.step", .value = 3};
  time.kind = Kind::sampled;
  findings.measurements.push_back(time);
  for (const char* metric : {"images.channels_last", "graph.kernels", "graph.copies", "graph.fills", "time.device",
                             "time.operation", "roofline.flops", "device.pool", "device.outside_pool"})
    findings.measurements.push_back({.metric = metric, .value = 1});
  EXPECT_EQ(fingerprint_of(findings), before);
  findings.measurements[0].value = std::nextafter(1.0, 2.0);
  EXPECT_NE(fingerprint_of(findings), before);
}

}  // namespace
}  // namespace halfmark::bench
