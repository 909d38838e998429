// What a harness of another program may do wrong: the record fails with a reason, and the run goes on.
#include "bench/run/run_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bench/run/fingerprint.h"
#include "bench/run/known_names.h"
#include "kernels/devices.h"

namespace halfmark::bench {
namespace {

Harness harness_with(Findings (*measure)(const TrialSpec&)) {
  return {.name = "own",
          .about = "",
          .axes = {},
          .metrics = {{"own.number", "1", Better::lower, Kind::bounded, ""},
                      {"own.curve", "1", Better::lower, Kind::bounded, ""}},
          .measure = measure};
}

Record record_of(const Harness& harness) {
  const Case one{&subject_named("linear/b4_i16_o8"), "cpu", &policy_named("fp32"), &harness, {}};
  return run_case(one, open_device("cpu"), 0);
}

Measurement number(const char* metric, const char* at) { return {.metric = metric, .at = at, .value = 1}; }

void expect_failure(Findings (*measure)(const TrialSpec&), const std::string& reason) {
  const Record record = record_of(harness_with(measure));
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.reason, reason);
  EXPECT_TRUE(record.measurements.empty());
}

TEST(RunCase, TakesEachNumberAndCurveOnce) {
  const Record record = record_of(harness_with([](const TrialSpec&) {
    return Findings{{number("own.number", "a"), number("own.number", "b")}, {{.metric = "own.curve", .at = "a"}}};
  }));
  EXPECT_EQ(record.status, Status::ok) << record.reason;
}

// A row that had no memory to try something in an earlier case may take it now (kernels/cuda/kept_plans.h).
TEST(RunCase, RowsAreChosenAgain) {
  const auto device = open_device("cpu");
  const Harness harness = harness_with([](const TrialSpec&) { return Findings{}; });
  const Case one{&subject_named("linear/b4_i16_o8"), "cpu", &policy_named("fp32"), &harness, {}};
  device->dispatch = std::make_shared<int>(1);
  const std::weak_ptr<void> earlier = device->dispatch;
  (void)run_case(one, device, 0);
  EXPECT_TRUE(earlier.expired());
}

TEST(RunCase, FailsForWhatAReportCannotHold) {
  expect_failure(
      [](const TrialSpec&) {
        return Findings{{number("own.number", "a"), number("own.number", "a")}, {}};
      },
      "harness own: own.number at a is given twice");
  expect_failure(
      [](const TrialSpec&) {
        return Findings{{}, {{.metric = "own.curve"}, {.metric = "own.curve"}}};
      },
      "harness own: own.curve is given twice");
  expect_failure(
      [](const TrialSpec&) {
        return Findings{{number("error.nmse", "")}, {}};
      },
      "harness own: error.nmse is not in its table of metrics");
  expect_failure(
      [](const TrialSpec&) {
        return Findings{{}, {{.metric = "own.curve", .x = {1, 2}, .y = {1}}}};
      },
      "own: own.curve: x and y differ in length");
}

TEST(RunCase, FailsForAnExceptionOfAnyType) {
  expect_failure([](const TrialSpec&) -> Findings { throw 42; }, "an exception that is not a std::exception");
}

Determinism determinism_of(const char* subject, const char* device, const char* policy, const Harness& harness) {
  const Case one{&subject_named(subject), device, &policy_named(policy), &harness, {}};
  const Record record = run_case(one, open_device(device), 0);
  EXPECT_EQ(record.status, Status::ok) << record.reason;
  return record.determinism;
}

TEST(RunCase, ProvesTheBitsOfKernelsThatRepeatByConstruction) {
  const Harness& error = harness_named("error");
  for (const auto& [subject, device, policy] :
       {std::tuple("relu/b2_c4_s5", "cpu", "fp16"), std::tuple("linear/b4_i16_o8", "sim:hopper", "amp-fp16")}) {
    const Determinism found = determinism_of(subject, device, policy, error);
    EXPECT_TRUE(found.by_construction) << subject;
    EXPECT_EQ(found.proof(), Determinism::Proof::proved);
  }
}

TEST(RunCase, ProvesNothingForKernelsOfALibraryForTimesAndForCodeOfOthers) {
  Record of_library = record_of(harness_named("error"));
  const bool is_library = std::any_of(of_library.kernels.begin(), of_library.kernels.end(),
                                      [](const KernelUse& use) { return use.row == "onednn"; });
  EXPECT_EQ(of_library.determinism.proof(), is_library ? Determinism::Proof::unproved : Determinism::Proof::proved);
  EXPECT_FALSE(record_of(harness_with([](const TrialSpec&) {
                 return Findings{{number("own.number", "")}, {}};
               })).determinism.by_construction);
}

TEST(Fingerprint, LeavesOutWhatIsAboutATimeMeasurement) {
  Findings findings{{number("error.nmse", "output")}, {}};
  const std::string before = fingerprint_of(findings);
  for (const char* metric : {"timing.half_width", "speedup.control", "contention.others", "device.core_clock"})
    findings.measurements.push_back(number(metric, "hot"));
  EXPECT_EQ(fingerprint_of(findings), before);
}

}  // namespace
}  // namespace halfmark::bench
