// Tests of the reasons for which the times of a record are not valid.
#include "bench/run/time_validity.h"

#include <gtest/gtest.h>

#include <string>

namespace halfmark::bench {
namespace {

Measurement number(const char* metric, const char* at, double value, Kind kind = Kind::information) {
  Measurement one;
  one.metric = metric, one.at = at, one.value = value, one.kind = kind;
  return one;
}

Record timed_record() {
  Record record;
  record.measurements = {number("time.step", "hot", 1e-3, Kind::sampled), number("timing.half_width", "hot/step", 0.01),
                         number("speedup.control", "hot", 1.004), number("contention.others", "hot/step", 0.01)};
  record.measurements[2].interval = Range{0.99, 1.02};
  return record;
}

TEST(TimeValidity, HasNothingToSayOfAQuietMachineOrOfARecordWithoutTimes) {
  EXPECT_EQ(why_times_mislead(timed_record()), std::nullopt);
  Record errors;
  errors.measurements = {number("error.nmse", "output", 1e-7, Kind::bounded)};
  errors.kernels.push_back({.operation = "matmul", .phase = "forward", .row = "upcast", .speed = "emulated"});
  EXPECT_EQ(why_times_mislead(errors), std::nullopt);
}

TEST(TimeValidity, NamesEachReason) {
  const auto reason = [](auto change) {
    Record record = timed_record();
    change(record);
    return why_times_mislead(record).value_or("valid");
  };
  EXPECT_EQ(reason([](Record& one) {
              one.measurements[2].interval = Range{1.01, 1.05}, one.measurements[2].value = 1.03;
            }),
            "the same step timed twice in turn has a ratio of 1.030 (1.010 to 1.050) instead of 1: the times depend on "
            "more than the work");
  EXPECT_NE(reason([](Record& one) { one.measurements[3].value = 1000; }).find("other processes"), std::string::npos);
  EXPECT_NE(reason([](Record& one) { one.measurements[1].value = 0.2; }).find("uncertain by 20 %"), std::string::npos);
  const auto add = [](const char* metric, const char* at, double value) {
    return [=](Record& one) { one.measurements.push_back(number(metric, at, value)); };
  };
  EXPECT_EQ(reason([&](Record& one) {
              for (const char* place : {"hot/step", "cold/phases"}) add("device.slowed", place, place[0] == 'c')(one);
              add("device.slowed_by", "hot/step/sync boost", 0.5)(one);
              add("device.slowed_by", "cold/phases/power cap", 1)(one);
              add("device.slowed_by", "cold/phases/power brake", 0.1)(one);
            }),
            "the GPU lowered its clock while it was timed (power cap, power brake)");
  EXPECT_EQ(reason(add("device.slowed", "hot/step", 0.1)),
            "the GPU lowered its clock while it was timed (for a reason that passed)");
  EXPECT_EQ(reason(add("device.discarded", "hot/step", 5)), "valid") << "what was kept is not slowed";
  EXPECT_EQ(reason(add("device.slowed_by", "hot/step/power cap", 0.3)), "valid") << "what was kept is not slowed";
  EXPECT_EQ(reason(add("device.other_processes", "hot/step", 0)), "valid");
  EXPECT_EQ(reason(add("device.other_processes", "cold/phases", 1)),
            "another process had a context on the GPU while it was timed");
  EXPECT_EQ(reason(add("device.other_processes", "hot/step", 2)),
            "2 other processes had a context on the GPU while it was timed");
  EXPECT_NE(reason([](Record& one) {
              one.kernels.push_back({.operation = "matmul",
                                     .phase = "forward",
                                     .dtypes = "f16,f16->f16",
                                     .row = "upcast",
                                     .speed = "emulated"});
            }).find("emulated arithmetic in the timed region, the timing is not valid: matmul f16,f16->f16 by upcast"),
            std::string::npos);
}

}  // namespace
}  // namespace halfmark::bench
