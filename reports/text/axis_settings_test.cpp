// Tables name the axes that their records were measured with.
#include "reports/text/axis_settings.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
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

bool has_part(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(AxisSettings, NamesTheHarnessesOfAnAxisWithOneValue) {
  const AxisSettings settings =
      all_settings({record_at("fp32", "error", {{"fused", "on"}}), record_at("fp16", "error", {{"fused", "on"}}),
                    record_at("fp32", "throughput", {}), record_at("fp16", "throughput", {{"fused", "on"}})});
  EXPECT_EQ(settings.common_text(), "fused=on (error; throughput: fp16)");
  EXPECT_TRUE(settings.varied().empty());
  EXPECT_EQ(settings.text_of("fp32"), "fused=on (error)");
  EXPECT_EQ(settings.text_of("fp16"), "fused=on (error; throughput)");
  EXPECT_FALSE(settings.has("bf16"));
}

TEST(AxisSettings, AnAxisVariesIfOnlySomeRecordsNameItInAnyOrder) {
  for (const bool turned : {false, true}) {
    std::vector<Record> records = {record_at("fp16", "error", {}), record_at("fp16", "error", {{"steps", "4"}})};
    if (turned) std::swap(records[0], records[1]);
    const AxisSettings settings = all_settings(records);
    EXPECT_EQ(settings.varied(), std::set<std::string>{"steps"});
    EXPECT_EQ(settings.common_text(), "");
    EXPECT_EQ(settings.text_of("fp16"), "steps=4|default (error)");
  }
}

// What a record does not name has the value of this program's version, if that is known.
TEST(AxisSettings, NameTheValueOfADefault) {
  const DefaultSettings defaults = {{"error", {{"fused", "off"}, {"sum", "fp16"}}}};
  const std::vector<Record> records = {record_at("fp16", "error", {}, 1),
                                       record_at("fp16", "error", {{"fused", "on"}}, 0.5)};
  EXPECT_EQ(all_settings(records).text_of("fp16", &defaults), "fused=on|off (error)");
  EXPECT_EQ(default_of(&defaults, "error", "steps"), "default");
  EXPECT_EQ(default_of(&defaults, "throughput", "fused"), "default");
  EXPECT_EQ(default_of(nullptr, "error", "fused"), "default");
  TextOptions options = kOneLine;
  options.defaults = &defaults;
  EXPECT_TRUE(has_part(show(report_named("a.json", records), options), "output NMSE: fp16 at fused=off"));
  EXPECT_TRUE(has_part(compare({report_named("a.json", records), report_named("b.json", records)}, options),
                       "settings of fp16: fused=on|off (error)"));
}

TEST(Show, NamesTheSettingsThatAllRecordsOfATableHave) {
  const std::vector<Record> plain = {record_at("fp32", "error", {}), record_at("fp16", "error", {})};
  EXPECT_FALSE(has_part(show(report_named("a.json", plain), kOneLine), "settings"));
  EXPECT_FALSE(has_part(compare({report_named("a.json", plain)}, kOneLine), "settings"));
  const std::vector<Record> fused = {record_at("fp32", "error", {{"fused", "on"}}),
                                     record_at("fp16", "error", {{"fused", "on"}})};
  EXPECT_TRUE(has_part(show(report_named("a.json", fused), kOneLine), "\nsettings: fused=on (error)\n"));
  EXPECT_TRUE(has_part(compare({report_named("a.json", fused)}, kOneLine), "\nsettings: fused=on (error)\n"));
}

TEST(AxisSettings, SeparatesPoliciesFromHarnesses) {
  const AxisSettings settings = all_settings(
      {record_at("fp16", "convergence", {{"fused", "on"}}), record_at("bf16", "convergence", {{"fused", "on"}}),
       record_at("fp32", "convergence", {}), record_at("fp32", "error", {{"fused", "on"}, {"steps", "4"}})});
  EXPECT_EQ(settings.common_text(), "fused=on (convergence: bf16 fp16; error), steps=4 (error)");
  EXPECT_EQ(settings.varied("fp16", "convergence"), std::set<std::string>{});
  EXPECT_EQ(settings.varied("fp64", "nothing"), std::set<std::string>{});
}

TEST(Show, ListsNoPlacesOfAValueThatIsTheSameAtAll) {
  const auto table = [](double other, AxisValues first) {
    return show(report_named("a.json", {record_at("fp16", "error", std::move(first), 0),
                                        record_at("fp16", "error", {{"sum", "fp32"}}, other)}),
                kOneLine);
  };
  const AxisValues zeros = {{"sum", "fp16"}, {"data", "zeros"}};
  EXPECT_TRUE(has_part(table(0.5, zeros), "over data, sum: "));
  EXPECT_TRUE(has_part(table(0.5, zeros), "output NMSE: fp16 at data=default sum=fp32"));
  EXPECT_TRUE(has_part(table(-0.5, {}), "output NMSE: fp16 at sum=default")) << "the worst is at the default";
  EXPECT_TRUE(has_part(table(0, zeros), "over data, sum: "));
  EXPECT_FALSE(has_part(table(0, zeros), "output NMSE: fp16 at"));
}

TEST(Show, ComparesCasesAndNotTheirPlaces) {
  const auto record = [](const char* sum, double second) {
    Record one = record_at("fp16", "error", {{"sum", sum}});
    one.measurements[0].at = "gradient/a";
    one.measurements.push_back(one.measurements[0]);
    one.measurements[1].at = "gradient/b", one.measurements[1].value = second;
    return one;
  };
  const auto table = [&](double other) {
    return show(report_named("a.json", {record("fp16", 5), record("fp32", other)}), kOneLine);
  };
  EXPECT_TRUE(has_part(table(7), "gradient NMSE: fp16 at sum=fp32"));
  EXPECT_FALSE(has_part(table(5), "gradient NMSE: fp16 at")) << "the worst place of both cases is 5";
}

TEST(Show, NamesNoSettingOfATimeThatMisleads) {
  const auto timed = [](const std::string& fused, double seconds, Status status) {
    Record one = record_at("fp16", "throughput", {{"fused", fused}});
    one.measurements = {{.metric = "time.step",
                         .at = "hot",
                         .value = seconds,
                         .unit = "s",
                         .better = Better::lower,
                         .kind = Kind::sampled}};
    one.status = status, one.reason = status == Status::ok ? "" : "an emulated kernel ran";
    return one;
  };
  const auto table = [&](Status status) {
    return show(report_named("a.json", {timed("off", 2, status), timed("on", 1, status)}), kOneLine);
  };
  EXPECT_TRUE(has_part(table(Status::ok), "train step: fp16 at fused=on"));
  EXPECT_FALSE(has_part(table(Status::suspect), "at fused="));
}

TEST(Compare, SaysOfOneReportOverWhichSettingsItsNumbersAre) {
  const std::string text = compare({report_named("a.json", {record_at("fp16", "error", {}, 0.1),
                                                            record_at("fp16", "error", {{"steps", "100"}}, 0.5)})},
                                   kOneLine);
  EXPECT_TRUE(has_part(text, "over steps: best time, worst of every other metric"));
  EXPECT_TRUE(has_part(text, "output NMSE: fp16 at steps=100"));
}

TEST(Compare, SaysWhichReportHasWhichSettings) {
  const NamedReport plain = report_named("old.json", {record_at("fp32", "error", {}), record_at("fp16", "error", {})}),
                    fused = report_named("new.json", {record_at("fp32", "error", {{"fused", "on"}}),
                                                      record_at("fp16", "error", {{"fused", "on"}})});
  EXPECT_TRUE(has_part(compare({plain, fused}, kOneLine),
                       "\nsettings of fp32 fp16: old.json cpu: default; new.json cpu: fused=on (error)\n"));
  EXPECT_TRUE(has_part(compare({fused, fused}, kOneLine), "\nsettings of fp32 fp16: fused=on (error)\n"));
  EXPECT_FALSE(has_part(compare({plain, plain}, kOneLine), "settings"));
}

TEST(Compare, NamesVaryingSettings) {
  const Record plain = record_at("fp16", "error", {}), longer = record_at("fp16", "error", {{"steps", "100"}});
  const NamedReport both = report_named("both.json", {plain, longer}), one = report_named("one.json", {plain});
  EXPECT_TRUE(has_part(compare({both, both}, kOneLine), "\nsettings of fp16: steps=100|default (error)\n"));
  EXPECT_TRUE(has_part(compare({both, one}, kOneLine),
                       "settings of fp16: both.json cpu: steps=100|default (error); one.json cpu: default"));
}

// What brackets and equal bits mean is said where there are some.
TEST(Compare, ExplainsOnlyWhatItsTablesHave) {
  const auto text = [](const std::vector<std::vector<Record>>& reports) {
    std::vector<NamedReport> all;
    for (const auto& records : reports) all.push_back(report_named(std::to_string(all.size()) + ".json", records));
    return compare(all, kOneLine);
  };
  const Record fp32 = record_at("fp32", "error", {}, 1), fp16 = record_at("fp16", "error", {}, 2);
  Record elsewhere = fp16;
  elsewhere.device = "cuda:0", elsewhere.subject = "mlp/h128";
  EXPECT_TRUE(has_part(text({{fp32, fp16}}), "In brackets, relative to fp32"));
  EXPECT_FALSE(has_part(text({{fp16}}), "In brackets"));
  EXPECT_FALSE(has_part(text({{fp32}}), "In brackets"));
  EXPECT_TRUE(has_part(text({{fp16}, {fp16}}), "In brackets, relative to the first column"));
  EXPECT_FALSE(has_part(text({{fp16}, {elsewhere}}), "In brackets"));
  EXPECT_FALSE(has_part(text({{fp16}, {fp16}}), "Equal bits: of how many"));
  Record printed = fp16;
  printed.fingerprint = "a1b2";
  EXPECT_TRUE(has_part(text({{printed}, {printed}}), "Equal bits: of how many"));
  EXPECT_FALSE(has_part(text({{fp16}, {elsewhere}}), "Equal bits: of how many"));
}

TEST(Compare, GivesNoRatioOfNumbersOverDifferentSettings) {
  const Record on = record_at("fp16", "error", {{"fused", "on"}}, 2), off = record_at("fp16", "error", {}, 3),
               doubled = record_at("fp16", "error", {}, 6);
  const NamedReport one = report_named("one.json", {on}), both = report_named("both.json", {on, off});
  EXPECT_FALSE(has_part(compare({one, both}, kOneLine), "(1.5")) << "the worst of two settings beside one of them";
  EXPECT_TRUE(has_part(compare({report_named("on.json", {on}), report_named("off.json", {off})}, kOneLine), "3 (1.5"))
      << "two settings, which are named";
  EXPECT_TRUE(has_part(compare({both, report_named("new.json", {on, doubled})}, kOneLine), "6 (2"));
}

TEST(Show, NamesOnlyAxesThatDecideAWorstNumber) {
  const auto record = [](const char* fused, const char* images, double value) {
    return record_at("fp16", "error", {{"fused", fused}, {"images", images}}, value);
  };
  const std::string one = show(report_named("a.json", {record("on", "nchw", 1), record("off", "nchw", 1),
                                                       record("on", "nhwc", 2), record("off", "nhwc", 2)}),
                               kOneLine);
  EXPECT_TRUE(has_part(one, "output NMSE: fp16 at images=nhwc\n")) << one;
  const std::string several = show(report_named("a.json", {record("on", "nchw", 2), record("off", "nchw", 1),
                                                           record("on", "nhwc", 1), record("off", "nhwc", 2)}),
                                   kOneLine);
  EXPECT_TRUE(has_part(several, "output NMSE: fp16 at several settings\n")) << several;
  const std::string none = show(report_named("a.json", {record("on", "nchw", 2), record("off", "nchw", 2)}), kOneLine);
  EXPECT_TRUE(has_part(none, "over fused: best time, worst of every other metric\n  no number depends on them\n"))
      << none;
}

TEST(Compare, SettingsOfManyPoliciesFitTheTerminal) {
  std::vector<Record> records;
  for (const char* policy :
       {"fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16", "fp16-master", "bf16-master", "fp8-current", "mxfp8"})
    records.push_back(record_at(policy, "error", {{"fused", "on"}}));
  const NamedReport named = report_named("a.json", records);
  for (const size_t width : {size_t{60}, size_t{80}}) {
    std::istringstream lines(compare({named, named}, {.width = width}));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
  }
}

}  // namespace
}  // namespace halfmark::reports
