// Tests of the record that combines several processes of one case.
#include "bench/run/case_processes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "reports/gate/gate_rules.h"

namespace halfmark::bench {
namespace {

Record process_run(double step, const std::string& fingerprint, Status status = Status::ok) {
  Record record;
  record.id = "linear/b4_i16_o8/cpu/fp32/throughput";
  record.status = status;
  if (status != Status::ok) record.reason = "the machine was busy";
  Measurement time{.metric = "time.step", .at = "hot", .value = step};
  time.unit = "s", time.kind = Kind::sampled, time.samples = {step, step * 2, step * 3};
  record.measurements = {time};
  record.fingerprint = fingerprint;
  record.seconds = 1;
  return record;
}

TEST(Processes, GiveOneSampleEach) {
  std::optional<Record> record;
  for (const double step : {3.0, 1.0, 2.0, 5.0}) record = with_process(record, process_run(step, "5d0c"));
  const Measurement* times = find(*record, kProcessTime, "hot");
  ASSERT_TRUE(times);
  EXPECT_EQ(times->samples, (std::vector<double>{3, 1, 2, 5}));
  EXPECT_EQ(times->value, 2.5);
  EXPECT_EQ(times->kind, Kind::sampled);
  EXPECT_EQ(times->better, Better::lower);
  EXPECT_EQ(times->unit, "s");
  EXPECT_EQ(find(*record, "time.step", "hot")->value, 3);  // of the first
  EXPECT_EQ(record->measurements.size(), 2u);
  EXPECT_EQ(record->seconds, 4);
}

TEST(Processes, ShowWhetherTheBitsAreReproducible) {
  using Proof = Determinism::Proof;
  Record record = with_process({}, process_run(1, "5d0c"));
  EXPECT_EQ(record.determinism.proof(), Proof::unproved);
  record = with_process(record, process_run(1, "5d0c"));
  EXPECT_EQ(record.determinism.proof(), Proof::proved);
  record = with_process(record, process_run(1, "77a1"));
  EXPECT_EQ(record.determinism.proof(), Proof::refuted);
  EXPECT_EQ(record.fingerprint, "5d0c");
  EXPECT_EQ(record.status, Status::ok);  // a measurement, not a failure
  record = with_process(record, process_run(1, "5d0c"));
  EXPECT_EQ(record.determinism.processes, 4);
  EXPECT_EQ(record.determinism.differing, 1);
}

TEST(Processes, WithDifferentBitsReportTheWorstValue) {
  const auto run = [](double error, double accuracy, const std::string& fingerprint) {
    Record record = process_run(1, fingerprint);
    Measurement nmse{.metric = "error.nmse", .at = "output", .value = error, .better = Better::lower};
    nmse.kind = Kind::bounded;
    Measurement right{.metric = "evaluation.accuracy", .value = accuracy, .better = Better::higher};
    right.kind = Kind::bounded;
    Measurement note{.metric = "range.zero", .value = error, .kind = Kind::information};
    record.measurements.insert(record.measurements.end(), {nmse, right, note});
    return record;
  };
  Record record = with_process({}, run(2e-7, 0.9, "5d0c"));
  record = with_process(record, run(2e-7, 0.9, "5d0c"));
  EXPECT_TRUE(find(record, "error.nmse", "output")->samples.empty()) << "equal bits give equal numbers";
  record = with_process(record, run(3e-7, 0.95, "77a1"));
  record = with_process(record, run(1e-7, 0.8, "5d0c"));
  EXPECT_EQ(find(record, "error.nmse", "output")->samples, (std::vector<double>{2e-7, 2e-7, 3e-7, 1e-7}));
  EXPECT_EQ(find(record, "error.nmse", "output")->value, 3e-7);
  EXPECT_EQ(find(record, "evaluation.accuracy")->value, 0.8);
  EXPECT_TRUE(find(record, "range.zero")->samples.empty());
  record = with_process(record, run(NAN, 0.9, "0000"));
  record = with_process(record, run(9e-7, 0.9, "0000"));
  EXPECT_TRUE(std::isnan(find(record, "error.nmse", "output")->value));
}

TEST(Processes, ReplaceADisturbedFirstOneByALaterOne) {
  Record record = with_process({}, process_run(9, "5d0c", Status::suspect));
  EXPECT_EQ(record.status, Status::suspect);
  record = with_process(record, process_run(2, "5d0c"));
  record = with_process(record, process_run(7, "5d0c", Status::suspect));
  EXPECT_EQ(record.status, Status::ok);
  EXPECT_EQ(record.reason, "");
  EXPECT_EQ(find(record, "time.step", "hot")->value, 2);
  // All times are kept, independent of their value.
  EXPECT_EQ(find(record, kProcessTime, "hot")->samples, (std::vector<double>{9, 2, 7}));
  EXPECT_EQ(record.determinism.processes, 3);
}

TEST(Processes, FailTheRecordWhenOneOfThemDoes) {
  Record record = with_process({}, process_run(1, "5d0c"));
  Record crash = process_run(1, "", Status::failed);
  crash.reason = "crashed with signal 11", crash.measurements.clear();
  record = with_process(record, crash);
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.reason, "failed in process 2: crashed with signal 11");
  EXPECT_TRUE(is_complete(record, 24));
}

TEST(Processes, AreCompleteWhenAllAreDoneOrOneCannotMeasure) {
  Record record = with_process({}, process_run(1, "5d0c"));
  EXPECT_FALSE(is_complete(record, 2));
  record = with_process(record, process_run(1, "5d0c"));
  EXPECT_TRUE(is_complete(record, 2));
  EXPECT_FALSE(is_complete(record, 3));
  const Record refused = with_process({}, process_run(1, "", Status::skipped));
  EXPECT_TRUE(is_complete(refused, 2));
  EXPECT_EQ(refused.determinism.processes, 0);
}

TEST(Processes, HaveNoTimeIfTheCaseHasNone) {
  Record run = process_run(1, "5d0c");
  run.measurements.clear();
  const Record record = with_process(with_process({}, run), run);
  EXPECT_TRUE(record.measurements.empty());
  EXPECT_EQ(record.determinism.processes, 2);
}

}  // namespace
}  // namespace halfmark::bench
