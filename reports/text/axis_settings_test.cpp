// Tables name the axes that their records were measured with.
#include "reports/text/axis_settings.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

constexpr TextOptions kOneLine{.width = 1000};
using AxisValues = std::map<std::string, std::string>;

Record record_at(const std::string& policy, const std::string& harness, AxisValues axes, double value = 1) {
  Record record;
  record.subject = "mlp/h64", record.device = "cpu", record.policy = policy, record.harness = harness;
  record.axes = std::move(axes);
  record.measurements = {{.metric = harness == "error" ? "error.nmse" : "time.step",
                          .at = harness == "error" ? "output" : "hot",
                          .value = value,
                          .better = Better::lower}};
  return record;
}

AxisSettings all_settings(const std::vector<Record>& records) {
  AxisSettings settings;
  for (const Record& record : records) settings.add(record);
  return settings;
}

NamedReport report_named(const std::string& name, std::vector<Record> records) {
  NamedReport named{name, {}};
  named.report.records = std::move(records);
  named.report.run.planned = named.report.records.size();
  return named;
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(AxisSettings, NamesTheHarnessesOfAnAxisWithOneValue) {
  const AxisSettings settings =
      all_settings({record_at("fp32", "error", {{"fused", "on"}}), record_at("fp16", "error", {{"fused", "on"}}),
                    record_at("fp32", "throughput", {}), record_at("fp16", "throughput", {{"fused", "on"}})});
  EXPECT_EQ(settings.common_text(), "fused=on (error, throughput of fp16)");
  EXPECT_TRUE(settings.varied().empty());
  EXPECT_TRUE(settings.has_common("fp32"));
  EXPECT_EQ(settings.text_of("fp32"), "fused=on (error)");
  EXPECT_EQ(settings.text_of("fp16"), "fused=on (error, throughput)");
  EXPECT_FALSE(settings.has("bf16"));
}

TEST(AxisSettings, AnAxisVariesIfOnlySomeRecordsNameItInAnyOrder) {
  for (const bool turned : {false, true}) {
    std::vector<Record> records = {record_at("fp16", "error", {}), record_at("fp16", "error", {{"steps", "4"}})};
    if (turned) std::swap(records[0], records[1]);
    const AxisSettings settings = all_settings(records);
    EXPECT_EQ(settings.varied(), std::set<std::string>{"steps"});
    EXPECT_EQ(settings.common_text(), "");
    EXPECT_FALSE(settings.has_common("fp16"));
    EXPECT_EQ(settings.text_of("fp16"), "steps=4|default (error)");
  }
}

TEST(Show, NamesTheSettingsThatAllRecordsOfATableHave) {
  const std::vector<Record> plain = {record_at("fp32", "error", {}), record_at("fp16", "error", {})};
  EXPECT_FALSE(says(show(report_named("a.json", plain), kOneLine), "settings"));
  EXPECT_FALSE(says(compare({report_named("a.json", plain)}, kOneLine), "settings"));
  const std::vector<Record> fused = {record_at("fp32", "error", {{"fused", "on"}}),
                                     record_at("fp16", "error", {{"fused", "on"}})};
  EXPECT_TRUE(says(show(report_named("a.json", fused), kOneLine), "\nsettings: fused=on (error)\n"));
  EXPECT_TRUE(says(compare({report_named("a.json", fused)}, kOneLine), "\nsettings: fused=on (error)\n"));
}

TEST(Show, ListsNoPlacesOfAValueThatIsTheSameAtAll) {
  const auto table = [](double other) {
    return show(report_named("a.json", {record_at("fp16", "error", {{"sum", "fp16"}, {"data", "zeros"}}, 0),
                                        record_at("fp16", "error", {{"sum", "fp32"}}, other)}),
                kOneLine);
  };
  EXPECT_TRUE(says(table(0.5), "over data, sum: "));
  EXPECT_TRUE(says(table(0.5), "output NMSE: fp16 at sum=fp32"));
  EXPECT_TRUE(says(table(0), "over data, sum: "));
  EXPECT_FALSE(says(table(0), "output NMSE: fp16 at"));
}

TEST(Compare, SaysWhichReportHasWhichSettings) {
  const NamedReport plain = report_named("old.json", {record_at("fp32", "error", {}), record_at("fp16", "error", {})}),
                    fused = report_named("new.json", {record_at("fp32", "error", {{"fused", "on"}}),
                                                      record_at("fp16", "error", {{"fused", "on"}})});
  EXPECT_TRUE(says(compare({plain, fused}, kOneLine),
                   "\nsettings of fp32, fp16: old.json cpu: default; new.json cpu: fused=on (error)\n"));
  EXPECT_TRUE(says(compare({fused, fused}, kOneLine), "settings of fp32, fp16: new.json cpu: fused=on (error); "));
  EXPECT_FALSE(says(compare({plain, plain}, kOneLine), "settings"));
}

TEST(Compare, NamesVaryingSettingsOnlyIfTheyDifferBetweenReports) {
  const Record plain = record_at("fp16", "error", {}), longer = record_at("fp16", "error", {{"steps", "100"}});
  const NamedReport both = report_named("both.json", {plain, longer}), one = report_named("one.json", {plain});
  EXPECT_FALSE(says(compare({both, both}, kOneLine), "settings"));
  EXPECT_TRUE(says(compare({both, one}, kOneLine),
                   "settings of fp16: both.json cpu: steps=100|default (error); one.json cpu: default"));
}

}  // namespace
}  // namespace halfmark::reports
