// Tests of the readings of a GPU's state: when they are made, which work counts, and the numbers of a record.
#include "bench/run/device_meter.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/device_meter_testing.h"

namespace halfmark::bench {
namespace {

using MeterNumbers = std::map<std::string, double>;  // by metric and place

template <class Write>
MeterNumbers written_by_meter(const Write& write) {
  FindingsWriter out(device_table());
  write(out);
  MeterNumbers numbers;
  for (const Measurement& one : out.take().measurements) {
    numbers[one.metric + " " + one.at] = one.value;
    EXPECT_EQ(one.kind, Kind::information) << one.metric;
  }
  return numbers;
}

TEST(DeviceMeter, LetsAllWorkOfADeviceWithoutStateCountAndWritesNothing) {
  CpuWithState cpu([](int) { return std::nullopt; });
  DeviceMeter meter(cpu);
  EXPECT_FALSE(meter.tells());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(meter.counts());
    EXPECT_EQ(meter.judge(false), true);
    EXPECT_EQ(meter.judge(true), true);
  }
  EXPECT_EQ(written_by_meter([&](FindingsWriter& out) { meter.write_all(out, "hot/step", 0, 0); }), MeterNumbers{});
  EXPECT_EQ(cpu.readings(), 1);
}

TEST(DeviceMeter, LetsWorkCountOnlyBetweenTwoReadingsWithoutAReason) {
  const std::vector<bool> slowed = {false, false, true, false, false, true, true, false, false};
  CpuWithState gpu(
      [&](int reading) { return slowed[static_cast<size_t>(reading)] ? slowed_by("power cap") : DeviceState(); });
  DeviceMeter meter(gpu);
  std::vector<bool> counts;
  for (size_t i = 1; i < slowed.size(); ++i) counts.push_back(meter.counts());
  EXPECT_EQ(counts, (std::vector<bool>{true, false, false, true, false, false, false, true}));
}

TEST(DeviceMeter, DoesNotLetTheFirstWorkCountIfTheGpuWasSlowBeforeIt) {
  CpuWithState gpu([](int reading) { return reading == 0 ? slowed_by("power cap") : DeviceState(); });
  DeviceMeter meter(gpu);
  EXPECT_FALSE(meter.counts());
  EXPECT_TRUE(meter.counts());
}

TEST(DeviceMeter, ReadsAtMostEachFiveMillisecondsAndFivePercentOfTheTime) {
  double now = 0, cost = 1e-5;
  CpuWithState gpu([&](int) {
    now += cost;
    return DeviceState();
  });
  DeviceMeter meter(gpu, [&] { return now; });
  const auto readings_in = [&](double seconds) {
    const int before = gpu.readings();
    for (const double end = now + seconds; now < end; now += 1e-4) (void)meter.judge(false);
    return gpu.readings() - before;
  };
  const int quick = readings_in(1);
  EXPECT_GE(quick, 190);
  EXPECT_LE(quick, 200);
  cost = 2e-3;
  const int slow = readings_in(1);
  EXPECT_GE(slow, 23);
  EXPECT_LE(slow, 26);
  EXPECT_TRUE(meter.judge(true)) << "not due, but needed";
  EXPECT_EQ(meter.judge(false), std::nullopt);
}

TEST(DeviceMeter, WritesMediansOfTheReadingsAfterWorkThatCounts) {
  // Reading 2 is slowed, so that the work before readings 2 and 3 does not count.
  CpuWithState gpu([](int reading) {
    DeviceState state = reading == 2 ? slowed_by("power cap") : DeviceState();
    state.core_clock = reading == 0 ? 100 : 1000 + 100 * reading, state.most_core_clock = 1980;
    state.memory_clock = 2619, state.temperature = 40 + reading;
    state.other_processes = reading == 3 ? 2 : reading == 5 ? DeviceState::kUnknown : 0;
    state.uncorrected_errors = reading;
    return state;
  });
  DeviceMeter meter(gpu);
  for (int i = 0; i < 5; ++i) (void)meter.counts();  // 1, 4 and 5 count
  EXPECT_EQ(written_by_meter([&](FindingsWriter& out) { meter.write_all(out, "hot/step", 2, 0); }),
            (MeterNumbers{{"device.core_clock hot/step", 1400e6},
                          {"device.most_core_clock hot/step", 1980e6},
                          {"device.memory_clock hot/step", 2619e6},
                          {"device.temperature hot/step", 44},
                          {"device.discarded hot/step", 2},
                          {"device.slowed hot/step", 0},
                          {"device.slowed_by hot/step/power cap", 0.2},
                          {"device.other_processes hot/step", 2},
                          {"device.uncorrected_errors hot/step", 5}}));
}

TEST(DeviceMeter, WritesMediansOfAllReadingsIfNoWorkCounts) {
  CpuWithState gpu([](int reading) {
    DeviceState state = slowed_by("power brake");
    if (reading % 2) state.slowed_by.push_back("sync boost");
    state.core_clock = 500 + reading;
    return state;
  });
  DeviceMeter meter(gpu);
  for (int i = 0; i < 3; ++i) (void)meter.counts();
  EXPECT_EQ(written_by_meter([&](FindingsWriter& out) { meter.write_all(out, "hot/step", 0, 1); }),
            (MeterNumbers{{"device.core_clock hot/step", 502e6},
                          {"device.discarded hot/step", 0},
                          {"device.slowed hot/step", 1},
                          {"device.slowed_by hot/step/power brake", 1},
                          {"device.slowed_by hot/step/sync boost", 2.0 / 3}}))
      << "and nothing for what the GPU does not tell";
  EXPECT_EQ(written_by_meter([&](FindingsWriter& out) { meter.write(out, "cold/phases", 4, 0.5); }).size(), 4u);
}

TEST(DeviceMeter, CountsProcessesThatWereThereBeforeTheWork) {
  CpuWithState gpu([](int reading) {
    DeviceState state;
    state.other_processes = reading == 0 ? 3 : 1;
    return state;
  });
  DeviceMeter meter(gpu);
  (void)meter.counts();
  EXPECT_EQ(written_by_meter([&](FindingsWriter& out) {
              meter.write(out, "hot/step", 0, 0);
            }).at("device.other_processes hot/step"),
            3);
}

}  // namespace
}  // namespace halfmark::bench
