// The tables of experiments in `halfmark show`.
#include "reports/text/experiments_text.h"

#include <gtest/gtest.h>

#include <string>

namespace halfmark::reports {
namespace {

constexpr TextOptions kExperimentWidth{.width = 200};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Record experiment_record(const char* policy) {
  Record record;
  record.id = "mlp/b8/cpu/x", record.subject = "mlp/b8", record.device = "cpu", record.policy = policy;
  return record;
}

TEST(ExperimentsText, IsEmptyWithoutExperiments) {
  Report report;
  report.records = {experiment_record("fp16")};
  EXPECT_EQ(experiments_text(report, kExperimentWidth), "");
}

TEST(ExperimentsText, ListsTheEntriesOfCastRulesByVerdict) {
  Report report;
  report.records = {experiment_record("amp-fp16")};
  report.records[0].measurements = {{.metric = "cast_lists.verdict", .at = "exp", .value = 1},
                                    {.metric = "cast_lists.verdict", .at = "acos", .value = 0},
                                    {.metric = "cast_lists.verdict", .at = "sum", .value = 1},
                                    {.metric = "cast_lists.verdict", .at = "relu", .value = 2}};
  const std::string text = experiments_text(report, kExperimentWidth);
  EXPECT_TRUE(holds(text, "amp-fp16 2 justified: exp sum\n")) << text;
  EXPECT_TRUE(holds(text, "amp-fp16 1 idle: acos\n")) << text;
  EXPECT_FALSE(holds(text, "relu")) << "it is not kept, and has not to be";
  EXPECT_FALSE(holds(text, "0 missing")) << text;
}

TEST(ExperimentsText, HasAColumnForEachNumberOfBits) {
  Report report;
  report.records = {experiment_record("fp32")};
  report.records[0].series = {{.metric = "mantissa.trained_gap", .at = "weights", .x = {23, 3}, .y = {0, 1.5}},
                              {.metric = "mantissa.trained_as_fp32", .at = "weights", .x = {23, 3}, .y = {1, -1}}};
  report.records[0].measurements = {{.metric = "mantissa.trained_least_bits", .at = "weights", .value = 23}};
  TextOptions coloured = kExperimentWidth;
  coloured.colour = true;
  const std::string text = experiments_text(report, kExperimentWidth);
  for (const char* part : {"23 bit", "3 bit", "weights", "1.5", "fewest as fp32"})
    EXPECT_TRUE(holds(text, part)) << text;
  EXPECT_TRUE(holds(experiments_text(report, coloured), toned("1.5", Tone::bad, true)));
  report.records[0].series[1].y.pop_back();
  EXPECT_EQ(experiments_text(report, kExperimentWidth), "") << "curves of different lengths";
}

TEST(ExperimentsText, ShowsInt8AndConclusionsWithTheirStandardErrors) {
  Report report;
  report.records = {experiment_record("fp16")};
  Measurement error{.metric = "evaluation.weights_logit_error", .at = "int8", .value = 0.005};
  error.standard_error = 0.0002;
  report.records[0].measurements = {error,
                                    {.metric = "evaluation.weights_bytes", .at = "int8", .value = 2048},
                                    {.metric = "evaluation.conclusion_gap", .at = "2^-1", .value = 0.29},
                                    {.metric = "evaluation.conclusion_wrong", .at = "trained/2^-1", .value = 0.35},
                                    {.metric = "evaluation.conclusion_chance", .at = "trained/2^-1", .value = 0.5}};
  const std::string text = experiments_text(report, kExperimentWidth);
  for (const char* part : {"0.005 +-0.0002", "2 KiB", "2^-1", "0.35", "0.29"}) EXPECT_TRUE(holds(text, part)) << text;
}

}  // namespace
}  // namespace halfmark::reports
