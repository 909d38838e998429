// What is worth noticing in a report: which lines, in which order, and when there is none.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

Record noticed_record(const std::string& policy, const std::string& harness, std::vector<Measurement> measurements) {
  Record record;
  record.subject = "mlp/h64";
  record.device = "cuda:0";
  record.policy = policy;
  record.harness = harness;
  record.id = record.subject + "/" + record.device + "/" + policy + "/" + harness;
  record.measurements = std::move(measurements);
  return record;
}

TEST(WorthNoticing, LeavesOutScalesThatARuleRaisesToInfinity) {
  Report report;
  report.records = {noticed_record("amp-fp16", "training",
                                   {{.metric = "reference.norm", .at = "scaler/largest", .value = HUGE_VAL}})};
  EXPECT_EQ(worth_noticing(report).size(), 0u);
  report.records[0].measurements[0].at = "overflow/loss";
  EXPECT_EQ(worth_noticing(report).size(), 1u);
}

TEST(WorthNoticing, PutsBrokenPromisesFirstAndMergesSubjects) {
  Report report;
  Record zeroed = noticed_record("fp16", "error", {{.metric = "error.zeroed", .at = "gradient/w", .value = 0.2}});
  Record second = zeroed;
  second.subject = "cnn/s32";
  Record noop = noticed_record("bf16", "training", {{.metric = "training.noop_updates", .at = "", .value = 0.5}});
  noop.axes = {{"control", "small_rate"}};
  Record bound = noticed_record("tf32", "error",
                                {{.metric = "error.nmse", .at = "output", .value = 2e-3, .better = Better::lower}});
  bound.measurements[0].kind = Kind::bounded;
  bound.measurements[0].bound = 1e-3;
  Record unmet = noticed_record("fp16", "range", {});
  unmet.status = Status::failed;
  unmet.expectation = Expectation{"range.underflow", "gradients", ">", 0.1, 0, false};
  report.records = {zeroed, second, noop, bound, unmet};
  const std::vector<std::string> lines = worth_noticing(report);
  ASSERT_EQ(lines.size(), 4u) << testing::PrintToString(lines);
  EXPECT_EQ(lines[0], "fp16 on cuda:0: expected range.underflow at gradients > 0.1, found 0 (mlp/h64)");
  EXPECT_EQ(lines[1], "tf32 on cuda:0: error.nmse at output is 0.002, its bound is 0.001 (mlp/h64)");
  EXPECT_EQ(lines[2], "bf16 on cuda:0: 50% of the updates change nothing (mlp/h64 control=small_rate)");
  EXPECT_EQ(lines[3],
            "fp16 on cuda:0: 20% of gradient/w is zero here but not in the fp64 reference (mlp/h64, cnn/s32)");
}

TEST(WorthNoticing, SaysThatATrainingDidNotEndLikeFp32AndWhatIsKnownOfTheReason) {
  const auto trained = [](double verdict, double lost) {
    return noticed_record("bf16", "convergence",
                          {{.metric = "convergence.as_fp32", .value = verdict},
                           {.metric = "convergence.loss_gap", .value = 0.5},
                           {.metric = "convergence.fp32_spread", .value = 0.125},
                           {.metric = "convergence.noop_updates", .value = lost}});
  };
  Report report;
  report.records = {trained(1, 0.75), trained(0, 0.75)};
  EXPECT_TRUE(worth_noticing(report).empty()) << testing::PrintToString(worth_noticing(report));
  report.records = {trained(-1, 0.75), trained(-1, 0)};
  const std::vector<std::string> lines = worth_noticing(report);
  ASSERT_EQ(lines.size(), 2u) << testing::PrintToString(lines);
  EXPECT_EQ(lines[0],
            "bf16 on cuda:0: not trained to the loss of fp32: gap 0.5, spread of fp32 over seeds 0.125; 75% of the "
            "updates change nothing (mlp/h64)");
  EXPECT_EQ(lines[1],
            "bf16 on cuda:0: not trained to the loss of fp32: gap 0.5, spread of fp32 over seeds 0.125 (mlp/h64)");
}

TEST(WorthNoticing, SaysWhichStepsAreBoundByLaunches) {
  const auto timed = [](const char* policy, const char* subject, double device) {
    Record record =
        noticed_record(policy, "throughput", {{.metric = "time.step", .at = "hot", .value = 1e-3, .unit = "s"}});
    record.measurements.push_back({.metric = "time.device", .at = "hot", .value = device, .unit = "s"});
    record.subject = subject;
    return record;
  };
  Report report;
  report.records = {timed("fp32", "mlp/h64", 0.49e-3), timed("fp32", "cnn/s32", 0.1e-3),
                    timed("fp16", "mlp/h64", 0.51e-3)};
  const std::vector<std::string> lines = worth_noticing(report);
  ASSERT_EQ(lines.size(), 1u) << testing::PrintToString(lines);
  EXPECT_EQ(
      lines[0],
      "fp32 on cuda:0: bound by launches: the GPU waits for the host most of a step; run ... launch=graph times it "
      "without these waits (mlp/h64, cnn/s32)");
}

// The host was slower while fp32 had its own record: 0.74 times as fast in turn, although its record has the longer step.
TEST(WorthNoticing, SaysThatTimesOfTwoRecordsCannotBeComparedWhereThoseInTurnDisagree) {
  const auto timed = [](const char* policy, double step) {
    return noticed_record(policy, "throughput",
                          {{.metric = "time.step", .at = "hot", .value = step, .unit = "s"},
                           {.metric = "timing.half_width", .at = "hot/step", .value = 0.01}});
  };
  const auto in_turn = [&](double step, double ratio) {
    Record record = timed("fp16", step);
    record.measurements.push_back(
        {.metric = "speedup.step", .at = "hot", .value = ratio, .interval = Range{ratio * 0.99, ratio * 1.01}});
    return record;
  };
  Report report;
  report.records = {timed("fp32", 517e-6), in_turn(434e-6, 0.74)};
  const std::vector<std::string> lines = worth_noticing(report);
  ASSERT_EQ(lines.size(), 1u) << testing::PrintToString(lines);
  EXPECT_EQ(lines[0],
            "fp16 on cuda:0: fp32 took another time in turn with this policy than in its own record: compare by the "
            "speed-up, "
            "not by the times (mlp/h64)");
  report.records = {timed("fp32", 321e-6), in_turn(434e-6, 0.74)};
  EXPECT_TRUE(worth_noticing(report).empty()) << testing::PrintToString(worth_noticing(report));
  report.records = {timed("fp32", 321e-6 * 1.12), in_turn(434e-6, 0.74)};  // within what the half-widths allow
  EXPECT_TRUE(worth_noticing(report).empty()) << testing::PrintToString(worth_noticing(report));
  report.records = {timed("fp32", 250e-6), in_turn(434e-6, 0.74)};  // as far off in the other direction
  EXPECT_EQ(worth_noticing(report).size(), 1u);
  report.records = {timed("fp32", 517e-6), in_turn(434e-6, 0.74)};
  // Records of another case, and one whose times are suspect.
  const auto with = [&](const std::function<void(Record&)>& change) {
    Report changed = report;
    change(changed.records[0]);
    return worth_noticing(changed).size();
  };
  EXPECT_EQ(with([](Record&) {}), 1u);
  EXPECT_EQ(with([](Record& one) { one.axes = {{"fused", "on"}}; }), 0u);
  EXPECT_EQ(with([](Record& one) { one.subject = "cnn/s32"; }), 0u);
  EXPECT_EQ(with([](Record& one) { one.device = "cuda:1"; }), 0u);
  EXPECT_EQ(with([](Record& one) { one.harness = "other"; }), 0u);
  EXPECT_EQ(with([](Record& one) { one.policy = "tf32"; }), 0u);
  EXPECT_EQ(with([](Record& one) { one.status = Status::suspect; }), 0u);
}

TEST(WorthNoticing, NamesTheFirstTensorThatIsNotFinite) {
  Report report;
  report.records = {noticed_record("fp16", "range",
                                   {{.metric = "error.nan", .at = "output", .value = 1},
                                    {.metric = "range.first_nonfinite", .at = "forward/fc2/output", .value = 1}})};
  const std::vector<std::string> lines = worth_noticing(report);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "fp16 on cuda:0: the first tensor that is not finite is forward/fc2/output (and 1 remark like it in this "
            "record) (mlp/h64)");
}

}  // namespace
}  // namespace halfmark::reports
