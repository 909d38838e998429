// The throughput harness on a small layer: what it writes about its times, computed again from its own samples.
#include "bench/run/performance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/run/device_meter_testing.h"
#include "bench/run/known_names.h"
#include "bench/run/run_case.h"
#include "kernels/devices.h"
#include "kernels/repeating_device_testing.h"
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

// On which a launched step takes three times as long as a recorded one, and 2 milliseconds more.
class LaunchCostDevice : public kernels::RepeatingDevice {
 public:
  double time(const std::function<void()>& work) override {
    const int before = runs;
    kernels::RepeatingDevice::time(work);
    return runs > before ? 1e-3 : 3e-3;
  }
};

Record record_of(const std::string& id) { return run_case(case_of(id), open_device("cpu"), 0); }

double operations_of_a_step(const std::string& subject, const std::string& policy) {
  Trial trial(case_of(subject + "/cpu/" + policy + "/throughput").trial(open_device("cpu"), 0));
  trial.load_batch(0);
  trial.forward(), trial.backward(), trial.update();
  const kernels::KernelLog log;
  trial.forward(), trial.backward(), trial.update();
  uint64_t calls = 0;
  for (const kernels::LoggedKernel& one : log.entries()) calls += one.calls;
  return static_cast<double>(calls);
}

// On which launches make a step longer by 2 milliseconds, unless it pauses until the host has enqueued them.
class PausingDevice : public kernels::RepeatingDevice {
 public:
  explicit PausingDevice(bool host_waits = false) : host_waits_(host_waits) {}
  double time(const std::function<void()>& work) override {
    kernels::RepeatingDevice::time(work);
    return 3e-3;
  }
  std::optional<double> time_after_pause(double pause, const std::function<void()>& work) override {
    const double host = kernels::RepeatingDevice::time(work);
    const bool asks = pause == 1e-3;  // whether the device pauses at all, with no work
    return (host_waits_ && !asks) || host > pause ? std::nullopt : std::optional(1e-3);
  }

 private:
  bool host_waits_;  // for a result within the step
};

TEST(Throughput, TimesAStepWithoutGapsForLaunches) {
  const auto times_on = [](const std::shared_ptr<Device>& device, const std::string& axes) {
    return run_case(case_of("linear/b512_i512_o512/cpu/fp32/throughput" + axes), device, 0);
  };
  const Record record = times_on(std::make_shared<PausingDevice>(), "");
  EXPECT_DOUBLE_EQ(at(record, "time.step", "hot").value, 3e-3);
  EXPECT_DOUBLE_EQ(at(record, "time.device", "hot").value, 1e-3);
  EXPECT_EQ(at(record, "timing.device_covered", "hot").value, 1);
  EXPECT_EQ(at(record, "timing.target", "hot/device").value, 0.01);
  const Record waits = times_on(std::make_shared<PausingDevice>(true), "");
  EXPECT_EQ(at(waits, "timing.device_covered", "hot").value, 0);
  const Record graph = times_on(std::make_shared<PausingDevice>(), "/launch=graph"),
               cpu = times_on(open_device("cpu"), "");
  for (const Record* one : {&waits, &graph, &cpu}) {
    EXPECT_GT(at(*one, "time.step", "hot").value, 0);
    EXPECT_EQ(find(*one, "time.device", "hot"), nullptr) << one->id;
  }
  for (const Record* one : {&graph, &cpu}) EXPECT_EQ(find(*one, "timing.device_covered", "hot"), nullptr) << one->id;
}

// Between whose marks a millisecond passes.
class MarkingDevice : public PausingDevice {
 public:
  using PausingDevice::PausingDevice;
  std::unique_ptr<kernels::TimeMarks> time_marks() override { return std::make_unique<Marks>(); }

 private:
  struct Marks : kernels::TimeMarks {
    size_t mark() override { return count++; }
    double seconds(size_t from, size_t to) override { return 1e-3 * static_cast<double>(to - from); }
    size_t count = 0;
  };
};

// A linear layer has three products. Where a pause does not cover the launches, gaps would be among the times.
TEST(Throughput, DividesAStepBetweenItsOperations) {
  const std::string id = "linear/b512_i512_o512/cpu/fp32/throughput";
  const Record record = run_case(case_of(id), std::make_shared<MarkingDevice>(), 0);
  EXPECT_NEAR(at(record, "time.operation", "matmul").value, 3e-3, 1e-12);
  EXPECT_EQ(find(record, "time.operation", "cast"), nullptr);
  // fp64 is real on every CPU, half types are not.
  const Record casts = run_case(case_of("mlp/b8_i16_h24_o10/cpu/fp32+precision=fc1=fp64/throughput"),
                                std::make_shared<MarkingDevice>(), 0);
  EXPECT_GE(at(casts, "time.operation", "cast").value, 1e-3);
  const Record waits = run_case(case_of(id), std::make_shared<MarkingDevice>(true), 0);
  EXPECT_EQ(find(waits, "time.operation", "matmul"), nullptr);
  const Record cpu = record_of(id);
  EXPECT_GT(at(cpu, "time.operation", "matmul").value, 0);
}

TEST(Throughput, TimesAGraphAgainstTheLaunchesOfTheSameStep) {
  for (const char* policy : {"fp32", "tf32", "fp32+scaler=torch:1024"}) {
    const auto device = std::make_shared<LaunchCostDevice>();
    const Record record =
        run_case(case_of(std::string("batchnorm2d/b4_c3_s4/cpu/") + policy + "/throughput/launch=graph"), device, 0);
    ASSERT_TRUE(record.status == Status::ok || record.status == Status::suspect) << record.reason;
    EXPECT_DOUBLE_EQ(at(record, "time.step", "hot").value, 1e-3);
    EXPECT_NEAR(at(record, "speedup.launch", "hot").value, 3, 1e-9);
    EXPECT_NEAR(at(record, "time.launch_gap", "hot").value, 2e-3, 1e-12);
    EXPECT_NEAR(at(record, "speedup.control", "hot").value, 1, 1e-9);
    const std::string_view name = policy;
    EXPECT_EQ(at(record, "graph.kernels", "").value, operations_of_a_step("batchnorm2d/b4_c3_s4", policy)) << policy;
    EXPECT_EQ(at(record, "graph.copies", "").value, 2);
    EXPECT_EQ(at(record, "graph.fills", "").value, 1);
    if (name == "tf32") {
      EXPECT_NEAR(at(record, "speedup.step", "hot").value, 1, 1e-9) << "fp32 by a graph too";
    }
    EXPECT_EQ(find(record, "time.forward", "hot"), nullptr);
    EXPECT_GT(device->runs, 0);
  }
}

TEST(Throughput, RefusesAGraphWhereNoneCanBeRecorded) {
  const Record record = run_case(case_of("mlp/b8_i16_h24_o10/cpu/fp32/throughput/launch=graph"), open_device("cpu"), 0);
  EXPECT_EQ(record.status, Status::skipped);
  EXPECT_EQ(record.reason, "launch=graph: cpu cannot record work as a graph; GPUs can");
}

// A scale that stays too high: the device skips the optimizer's step, for which there is memory all the same.
TEST(MemoryUse, IsTheSameWhereEveryStepIsSkipped) {
  for (const std::string subject : {"mlp/b8_i16_h24_o10", "linear/b4_i16_o64"}) {
    const Record skipped = record_of(subject + "/cpu/amp-fp16+scaler=torch:1e38/memory"),
                 made = record_of(subject + "/cpu/amp-fp16/memory");
    ASSERT_EQ(skipped.status, Status::ok) << skipped.reason;
    for (const char* family : {"memory.peak", "memory.peak.input", "memory.peak.optimizer"})
      EXPECT_EQ(at(skipped, family, "train").value, at(made, family, "train").value) << subject << " " << family;
  }
}

TEST(Labels, Of64BitsAreCountedAndConverted) {
  const std::string gpt = "gpt/b2_t8_n1_h2_d8_v27/cpu/amp-fp16/";
  const Record narrow = record_of(gpt + "memory"), wide = record_of(gpt + "memory/labels=i64");
  ASSERT_EQ(wide.status, Status::ok) << wide.reason;
  EXPECT_EQ(wide.axes.at("labels"), "i64");
  // 16 characters and 16 labels of 4 bytes more each.
  EXPECT_EQ(at(wide, "memory.peak.input", "train").value - at(narrow, "memory.peak.input", "train").value, 32 * 4);
  EXPECT_EQ(at(wide, "work.bytes", "forward").value - at(narrow, "work.bytes", "forward").value, 16 * 4);
  EXPECT_NEAR(at(wide, "memory.predicted_ratio", "train").value, 1, 0.05);
  const auto conversions = [](const Record& record) {
    return std::count_if(record.kernels.begin(), record.kernels.end(),
                         [](const KernelUse& use) { return use.operation == "narrow_indices"; });
  };
  EXPECT_EQ(conversions(narrow), 0);
  EXPECT_GT(conversions(wide), 0);
  const Record times = record_of("mlp/b8_i16_h24_o10/cpu/fp32/throughput/labels=i64");
  EXPECT_NE(times.status, Status::failed) << times.reason;
  EXPECT_GT(conversions(times), 0);
}

TEST(Labels, Of64BitsAreRefusedWhereABatchHasNone) {
  for (const char* harness : {"memory", "throughput"}) {
    const Record record = record_of(std::string("linear/b4_i16_o8/cpu/fp32/") + harness + "/labels=i64");
    EXPECT_EQ(record.status, Status::skipped);
    EXPECT_EQ(record.reason, "labels=i64: a batch of linear/b4_i16_o8 has no labels or indices that are integers");
  }
}

// Layers of the detector share weights: without the cache each of them casts.
TEST(CastCacheAxis, TimesAStepWithoutTheCacheAndCountsItsCasts) {
  // fp16 is emulated, and gets few repetitions.
  const std::string id = "detector/b2_s64/cpu/amp-fp16/throughput";
  const Record with = record_of(id), without = record_of(id + "/cast_cache=off");
  EXPECT_NE(without.status, Status::failed) << without.reason;
  EXPECT_EQ(without.axes.at("cast_cache"), "off");
  const auto casts_per_convolution = [](const Record& record) {
    uint64_t convolutions = 0, casts = 0;  // of all repetitions of the timing
    for (const KernelUse& use : record.kernels) {
      if (use.phase != "forward") continue;
      if (use.operation == "cast") casts += use.calls;
      if (use.operation == "conv2d") convolutions += use.calls;
    }
    return static_cast<double>(casts) / static_cast<double>(convolutions);
  };
  EXPECT_GT(casts_per_convolution(without), casts_per_convolution(with));
}

TEST(CastCacheAxis, IsRefusedWithoutCastRules) {
  const Record record = record_of("mlp/b8_i16_h24_o10/cpu/fp32/throughput/cast_cache=off");
  EXPECT_EQ(record.status, Status::skipped);
  EXPECT_EQ(record.reason, "cast_cache=off: policy fp32 has no cast rules, so it casts no weights");
}

// A step on the CPU, with the states of a GPU.
Record times_with(const std::function<std::optional<DeviceState>(int)>& states) {
  const Harness& throughput = harness_named("throughput");
  const Case one{&subject_named("linear/b4_i16_o8"), "cpu", &policy_named("fp32"), &throughput, {}};
  return run_case(one, std::make_shared<CpuWithState>(states), 0);
}

constexpr const char* kTimedPlaces[] = {"hot/evaluation", "hot/phases", "hot/step", "cold/evaluation", "cold/phases"};

TEST(StateOfTheGpu, IsWrittenForEachPlaceAndNotForACpu) {
  for (const Measurement& one : times_of("linear/b4_i16_o8", "fp32").measurements)
    EXPECT_FALSE(one.metric.starts_with("device.")) << one.metric;
  const Record record = times_with([](int) {
    DeviceState state;
    state.core_clock = 1305, state.other_processes = 2;
    return state;
  });
  EXPECT_EQ(record.status, Status::suspect);
  EXPECT_EQ(record.reason, "2 other processes had a context on the GPU while it was timed");
  for (const char* place : kTimedPlaces) {
    EXPECT_EQ(at(record, "device.slowed", place).value, 0) << place;
    EXPECT_EQ(at(record, "device.discarded", place).value, 0) << place;
    EXPECT_EQ(at(record, "device.other_processes", place).value, 2) << place;
  }
  EXPECT_EQ(at(record, "device.core_clock", "hot/step").value, 1305e6);
  EXPECT_EQ(at(record, "device.core_clock", "hot/step").unit, "Hz");
}

TEST(StateOfTheGpu, LetsSamplesOfALoweredClockBeTakenAgain) {
  // The reading after the first samples of the evaluation is slowed.
  const Record record = times_with([](int reading) { return reading == 1 ? slowed_by("power cap") : DeviceState(); });
  EXPECT_EQ(record.reason.find("GPU"), std::string::npos) << record.reason;
  EXPECT_GE(at(record, "device.discarded", "hot/evaluation").value, 2) << "before and after that reading";
  EXPECT_GT(at(record, "device.slowed_by", "hot/evaluation/power cap").value, 0);
  for (const char* place : kTimedPlaces) {
    EXPECT_EQ(at(record, "device.slowed", place).value, 0) << place;
    if (place != std::string("hot/evaluation")) {
      EXPECT_EQ(at(record, "device.discarded", place).value, 0) << place;
    }
  }
}

TEST(StateOfTheGpu, LetsTheSamplesOfAllPhasesBeDroppedTogether) {
  // One of three pieces of work lies between two readings without a reason.
  const Record record =
      times_with([](int reading) { return reading % 3 == 0 ? slowed_by("power cap") : DeviceState(); });
  const size_t kept = at(record, "time.step", "cold").samples.size();
  for (const char* phase : {"time.forward", "time.backward", "time.optimizer"})
    EXPECT_EQ(at(record, phase, "cold").samples.size(), kept) << phase;
  const std::vector<double>& steps = at(record, "time.step", "cold").samples;
  for (size_t i = 0; i < kept; ++i)
    EXPECT_DOUBLE_EQ(steps[i], at(record, "time.forward", "cold").samples[i] +
                                   at(record, "time.backward", "cold").samples[i] +
                                   at(record, "time.optimizer", "cold").samples[i]);
}

TEST(StateOfTheGpu, MakesTheTimesSuspectIfItsClockIsLowAllTheTime) {
  const Record record = times_with([](int) { return slowed_by("power cap"); });
  EXPECT_EQ(record.status, Status::suspect);
  EXPECT_EQ(record.reason, "the GPU lowered its clock while it was timed (power cap)");
  for (const char* place : kTimedPlaces) {
    EXPECT_EQ(at(record, "device.slowed", place).value, 1) << place;
    EXPECT_EQ(at(record, "device.discarded", place).value, 0) << place;
    EXPECT_EQ(at(record, "device.slowed_by", (std::string(place) + "/power cap").c_str()).value, 1) << place;
  }
}

bool ran(const Record& record, const char* operation) {
  return std::any_of(record.kernels.begin(), record.kernels.end(),
                     [&](const KernelUse& use) { return use.operation == operation; });
}

TEST(Images, HaveALayoutThatCanBeChosen) {
  const std::string net = "conv2d/b2_c4_o6_s6_k3/cpu/fp32/";
  const double usual = at(record_of(net + "error"), "error.nmse", "output").value;
  EXPECT_EQ(find(record_of("mlp/b8_i16_h24_o10/cpu/fp32/error"), "images.channels_last", ""), nullptr);
  for (const char* layout : {"nchw", "nhwc"}) {
    const Record chosen = record_of(net + "error/images=" + layout);
    ASSERT_EQ(chosen.status, Status::ok) << chosen.reason;
    EXPECT_LT(at(chosen, "error.nmse", "output").value, 100 * usual + 1e-13);
    EXPECT_EQ(at(chosen, "images.channels_last", "").value, std::string(layout) == "nhwc");
    const Record timed = record_of(net + "throughput/images=" + layout);  // suspect on a busy machine
    EXPECT_TRUE(timed.status == Status::ok || timed.status == Status::suspect) << timed.reason;
    EXPECT_EQ(at(timed, "images.channels_last", "").value, std::string(layout) == "nhwc");
    for (const char* harness : {"error", "throughput"})
      EXPECT_EQ(record_of(std::string("mlp/b8_i16_h24_o10/cpu/fp32/") + harness + "/images=" + layout).reason,
                std::string("images=") + layout + ": the input of mlp/b8_i16_h24_o10 is not a batch of images");
  }
}

TEST(Fused, IsTimedInTurnWithSeparateOperations) {
  const std::string mlp = "mlp/b8_i16_h24_o10/cpu/fp32/throughput";
  const Record fused = record_of(mlp + "/fused=on"), separate = record_of(mlp);
  ASSERT_TRUE(fused.status == Status::ok || fused.status == Status::suspect) << fused.reason;
  EXPECT_GT(at(fused, "speedup.fused", "hot").value, 0);
  EXPECT_EQ(find(separate, "speedup.fused", "hot"), nullptr);
  EXPECT_TRUE(ran(fused, "fused_matmul") && ran(fused, "fused_matmul_backward"));
  EXPECT_TRUE(!ran(fused, "add_bias") && !ran(fused, "relu") && !ran(fused, "relu_backward"));
  EXPECT_TRUE(!ran(separate, "fused_matmul") && ran(separate, "add_bias") && ran(separate, "relu"));
}

TEST(Fused, RoundsOnce) {
  const std::string linear = "linear/b32_i64_o48/cpu/bf16/error";
  const Record fused = record_of(linear + "/fused=on"), separate = record_of(linear);
  ASSERT_EQ(fused.status, Status::ok) << fused.reason;
  const double once = at(fused, "error.arithmetic.nmse", "output").value,
               twice = at(separate, "error.arithmetic.nmse", "output").value;
  EXPECT_LT(once, twice);
  EXPECT_GT(once, twice / 4);
  EXPECT_EQ(case_of(linear + "/fused=off").id(), linear);
}

TEST(Fused, RefusesASubjectWithoutSuchLayers) {
  for (const char* harness : {"throughput", "error"}) {
    const Record record = record_of(std::string("batchnorm2d/b4_c3_s4/cpu/fp32/") + harness + "/fused=on");
    EXPECT_EQ(record.status, Status::skipped);
    EXPECT_EQ(record.reason, "fused=on: batchnorm2d/b4_c3_s4 has no operations that can be fused under fp32");
  }
}

}  // namespace
}  // namespace halfmark::bench
