// Words choose records of a report.
#include "reports/text/selection.h"

#include <gtest/gtest.h>

#include "reports/record/folder_testing.h"

namespace halfmark::reports {
namespace {

NamedReport twelve_records() {
  NamedReport named{"r.json", {}};
  for (const char* subject : {"mlp/b8_i16", "convnet/b4"})
    for (const char* policy : {"fp16", "amp-fp16", "fp32"})
      for (const char* harness : {"error", "range"}) {
        Record record;
        record.subject = subject, record.device = "cpu", record.policy = policy, record.harness = harness;
        if (record.harness == "range") record.axes = {{"data", "random"}};
        if (record.policy == "fp16") record.axes["fused"] = "on";
        record.id = record.subject + "/cpu/" + record.policy + "/" + record.harness;
        named.report.records.push_back(record);
      }
  return named;
}

size_t records_chosen(const std::vector<std::string>& words) {
  NamedReport named = twelve_records();
  select_records(named, words, {{"error", {{"fused", "off"}}}, {"range", {{"fused", "off"}}}});
  return named.report.records.size();
}

TEST(Selection, TakesAlternativesOfOnePartAndAllOfSeveral) {
  EXPECT_EQ(records_chosen({}), 12u);
  EXPECT_EQ(records_chosen({"mlp"}), 6u);
  EXPECT_EQ(records_chosen({"mlp/b8_i16"}), 6u);
  EXPECT_EQ(records_chosen({"b8_i16"}), 6u);
  EXPECT_EQ(records_chosen({"mlp", "convnet"}), 12u);
  EXPECT_EQ(records_chosen({"mlp", "fp16"}), 2u) << "fp16 is not amp-fp16";
  EXPECT_EQ(records_chosen({"mlp", "*fp16"}), 4u);
  EXPECT_EQ(records_chosen({"fp16", "fp32", "error"}), 4u);
  EXPECT_EQ(records_chosen({"data=random"}), 6u);
  EXPECT_EQ(records_chosen({"cpu"}), 12u);
}

TEST(Selection, TakesAxesOneByOne) {
  EXPECT_EQ(records_chosen({"data=random", "fused=on"}), 2u) << "not alternatives";
  EXPECT_EQ(records_chosen({"fused=on", "fused=off"}), 12u) << "alternatives";
}

TEST(Selection, TakesTheDefaultOfAnAxisThatRecordsDoNotName) {
  EXPECT_EQ(records_chosen({"fused=off"}), 8u);
  EXPECT_EQ(records_chosen({"fused=default"}), 8u);
  EXPECT_EQ(records_chosen({"fused=off", "mlp", "error"}), 2u);
  EXPECT_SAYS(complaint([] { records_chosen({"fused=of"}); }),
              "no record matches 'fused=of'; its axes: fused=default, fused=off, fused=on");
  EXPECT_SAYS(complaint([] { records_chosen({"fusd=on"}); }),
              "its axes: data=random, fused=default, fused=off, fused=on");
  EXPECT_SAYS(complaint([] { records_chosen({"eror"}); }),
              "harnesses: amp-fp16, convnet/b4, error, fp16, fp32, mlp/b8_i16, range");
  EXPECT_SAYS(complaint([] { records_chosen({"amp-fp16+scaler=static:12"}); }),
              "its subjects, policies and harnesses: amp-fp16");
  EXPECT_SAYS(complaint([] { records_chosen({"data=default"}); }), "no record matches 'data=default'");
}

TEST(Selection, RefusesWordsThatNothingMatches) {
  EXPECT_SAYS(complaint([] { records_chosen({"fp17"}); }),
              "no record matches 'fp17'; its subjects, policies and harnesses: amp-fp16");
  EXPECT_SAYS(complaint([] {
                records_chosen({"data=random", "error"});
              }),
              "no record matches data=random error together");
}

}  // namespace
}  // namespace halfmark::reports
