// What is exported and what is not. readers_test.py tests whether the tools can read it.
#include "reports/outputs/gbench.h"

#include <gtest/gtest.h>

#include <set>

#include "reports/outputs/sample_report.h"

namespace halfmark::reports {
namespace {

using Json = nlohmann::ordered_json;

TEST(Gbench, HasARowForEachHotTimeOfAnOkRecord) {
  const Json json = Json::parse(gbench_of(timed_report()));
  ASSERT_EQ(json["benchmarks"].size(), 3u);
  const Json& row = json["benchmarks"][1];
  EXPECT_EQ(row["name"], "mlp/b32_i64_h128_o10/cpu/fp32/throughput/step");
  EXPECT_EQ(row["run_name"], row["name"]);
  EXPECT_EQ(row["run_type"], "iteration");
  EXPECT_DOUBLE_EQ(row["real_time"], 304073.5);
  EXPECT_EQ(row["cpu_time"], row["real_time"]);
  EXPECT_EQ(row["time_unit"], "ns");
  EXPECT_EQ(row["iterations"], 3);
  EXPECT_EQ(row["family_index"], 0);
  EXPECT_EQ(row["per_family_instance_index"], 1);
}

TEST(Gbench, LeavesOutTimesThatMeanNothingAndCountsThem) {
  const std::string text = gbench_of(timed_report());
  EXPECT_EQ(text.find("fp16/throughput"), std::string::npos);  // suspect
  EXPECT_EQ(text.find("cold"), std::string::npos);
  const Json context = Json::parse(text)["context"];
  EXPECT_EQ(context["halfmark_left_out_suspect_records"], "1");
  EXPECT_EQ(context["halfmark_left_out_rows_not_finite"], "1");
}

TEST(Gbench, ContextHasCachesWhateverTheEnvironmentSays) {
  for (const Report& report : {timed_report(), Report{}}) {
    const Json context = Json::parse(gbench_of(report))["context"];
    EXPECT_TRUE(context["caches"].is_array());
    EXPECT_EQ(context["json_schema_version"], 1);
  }
  EXPECT_EQ(Json::parse(gbench_of(timed_report()))["context"]["num_cpus"], 2);
}

TEST(Gbench, CountsRecordsAsFamiliesAndNamesTheBuild) {
  Report report = timed_report();
  report.records[1].status = Status::ok;
  report.environment["halfmark"]["build_type"] = "Debug";
  const Json json = Json::parse(gbench_of(report));
  EXPECT_EQ(json["context"]["library_build_type"], "debug");
  EXPECT_EQ(json["benchmarks"][2]["family_index"], 0);
  EXPECT_EQ(json["benchmarks"][3]["family_index"], 1);
  EXPECT_EQ(json["benchmarks"][3]["per_family_instance_index"], 0);
  EXPECT_EQ(Json::parse(gbench_of(timed_report()))["context"]["library_build_type"], "release");
}

TEST(Gbench, CustomKeysOfTheContextAreText) {
  const Json context = Json::parse(gbench_of(timed_report()))["context"];
  for (const auto& [key, value] : context.items())
    EXPECT_TRUE(!key.starts_with("halfmark") || value.is_string()) << key;
}

TEST(Gbench, NamesTooLongForReadersStayApart) {
  Report report = timed_report();
  Record other = report.records[0];
  report.records[0].id = std::string(2000, 'x') + "1" + std::string(2000, 'x');
  other.id = std::string(2000, 'x') + "2" + std::string(2000, 'x');
  report.records.push_back(other);
  const Json rows = Json::parse(gbench_of(report))["benchmarks"];
  std::set<std::string> names;
  for (const Json& row : rows) {
    EXPECT_LE(row["name"].get<std::string>().size(), 1024u);
    EXPECT_TRUE(names.insert(row["name"]).second) << row["name"];
  }
}

TEST(SmallerIsBetter, HoldsTheTellingErrorsAndBytes) {
  const Json rows = Json::parse(smaller_is_better_of(timed_report()));
  ASSERT_EQ(rows.size(), 2u) << rows.dump(1);
  EXPECT_EQ(rows[0]["name"], "mlp/b32_i64_h128_o10/cpu/fp32/error/error.nmse at output");
  EXPECT_EQ(rows[0]["value"], 2.19e-07);
  EXPECT_EQ(rows[1]["unit"], "B");
  EXPECT_EQ(rows[1]["value"], 645116);
  Report other = timed_report();
  other.records[2].measurements[0].better = Better::higher;
  EXPECT_EQ(Json::parse(smaller_is_better_of(other)).size(), 1u) << "of this number smaller would be worse";
}

}  // namespace
}  // namespace halfmark::reports
