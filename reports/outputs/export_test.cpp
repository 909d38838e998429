// What each export contains and what it leaves out. readers_test.py tests whether other tools can read it.
#include "reports/outputs/export.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "reports/outputs/csv.h"
#include "reports/outputs/sample_report.h"

namespace halfmark::reports {
namespace {

bool exports(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Export, NoFormatShowsATimeOfASuspectRecord) {
  Report report = timed_report();
  for (const auto& [metric, unit] :
       {std::pair{"time.operation", "s"}, {"speedup.control", "1"}, {"device.energy", "J"}})
    report.records[1].measurements.push_back(
        {.metric = metric, .at = "matmul", .unit = unit, .kind = Kind::information});
  for (Measurement& one : report.records[1].measurements) one.value = 0.123456;
  report.records[1].measurements.push_back(
      {.metric = "work.parameters", .at = "", .value = 424242, .unit = "1", .kind = Kind::information});
  ASSERT_EQ(report.records[1].status, Status::suspect);
  for (const ExportFormat& format : export_formats()) {
    const std::string text = format.write(report).text;
    EXPECT_FALSE(exports(text, "0.123456")) << format.name;
    EXPECT_FALSE(exports(text, "123456")) << format.name;
  }
  EXPECT_TRUE(exports(measurements_csv_of(report), ",suspect,time.step,hot,,s,lower,sampled,,,,,3\r\n"));
  EXPECT_TRUE(exports(measurements_csv_of(report), "424242")) << "a count is no time";
}

TEST(Export, CsvHasARowForEachMeasurement) {
  const Report report = timed_report();
  size_t measurements = 0;
  for (const Record& record : report.records) measurements += record.measurements.size();
  const std::string text = measurements_csv_of(report);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), measurements + 1);
  EXPECT_TRUE(text.starts_with("id,case_version,subject,device,policy,harness,axes,status,metric,at,value,"));
  EXPECT_TRUE(exports(text, "error.nmse,output,2.19e-07,1,lower,information,,,,,0\r\n")) << text;
  EXPECT_TRUE(exports(text, "time.backward,hot,NaN,s,lower,sampled,,,,,3\r\n")) << "NaN is a finding\n" << text;
  EXPECT_TRUE(exports(text, "error.max_relative,output,Infinity,")) << text;
}

// A report of one record with one number.
Report one_number(const std::string& metric, double value, const std::string& unit = "1") {
  Report report;
  Record record;
  record.id = "mlp/h64/sim:hopper/amp-fp16/error/eval=half", record.case_version = 3;
  record.subject = "mlp/h64", record.device = "sim:hopper", record.policy = "amp-fp16", record.harness = "error";
  record.axes = {{"eval", "half"}, {"layout", "nhwc"}};
  Measurement one{.metric = metric, .at = "output", .value = value, .unit = unit, .better = Better::lower};
  one.kind = Kind::bounded, one.bound = 1.5e-06, one.samples = {value, value};
  one.interval = Range{0.25, 0.5};
  record.measurements = {one};
  report.records = {record};
  return report;
}

TEST(Export, CsvHasEveryFieldOfAMeasurement) {
  const std::string text = measurements_csv_of(one_number("error.nmse", 1.0 / 3));
  EXPECT_EQ(text.substr(text.find("\r\n") + 2),
            "mlp/h64/sim:hopper/amp-fp16/error/eval=half,3,mlp/h64,sim:hopper,amp-fp16,error,eval=half layout=nhwc,ok,"
            "error.nmse,output,0.3333333333333333,1,lower,bounded,0.25,0.5,,1.5e-06,2\r\n");
}

TEST(Export, CsvQuotesWhatWouldEndAField) {
  for (const char* text : {"a,b", "a\nb", "a\rb"}) EXPECT_EQ(csv_field(text), fmt::format("\"{}\"", text));
  EXPECT_EQ(csv_field("a\"b"), "\"a\"\"b\"");
  EXPECT_EQ(csv_field("a;b c"), "a;b c");
}

TEST(Export, CountsWhatIsLeftOut) {
  Report report = timed_report();
  for (Record& record : report.records)
    for (Measurement& one : record.measurements)
      if (one.kind == Kind::information) one.kind = Kind::exact;
  const Exported bmf = bmf_of(report), openmetrics = openmetrics_of(report);
  EXPECT_EQ(bmf.left_out, (std::vector<std::string>{"2 numbers that are NaN or infinite: JSON has none",
                                                    "1 skipped or failed record", "1 time of suspect records"}));
  EXPECT_EQ(openmetrics.left_out,
            (std::vector<std::string>{"1 skipped or failed record", "1 time of suspect records"}));
  EXPECT_TRUE(exports(bmf.text, "fp32/memory")) << bmf.text;
  EXPECT_FALSE(exports(bmf.text, "bf16/memory")) << "it has failed";
  EXPECT_TRUE(exports(openmetrics.text, "halfmark_memory_peak_bytes{id=\"mlp/b32_i64_h128_o10/cpu/fp32/memory\""));
  EXPECT_FALSE(exports(openmetrics.text, "halfmark_memory_peak_bytes{id=\"mlp/b32_i64_h128_o10/cpu/bf16/memory\""));
  EXPECT_TRUE(nlohmann::json::parse(bmf_of(one_number("error.nmse", 1)).text).size() == 1);
  report = one_number("error.nmse", 1);
  report.records[0].measurements[0].kind = Kind::information;
  EXPECT_EQ(bmf_of(report).text, "{}\n") << "nobody judges it";
}

TEST(Export, KeepsTheFirstOfTwoNumbersWithOneName) {
  Report report = one_number("error.nmse", 1);
  std::vector<Measurement>& measurements = report.records[0].measurements;
  measurements.push_back(measurements[0]);
  measurements[1].metric = "error_nmse", measurements[1].value = 2;
  const Exported bmf = bmf_of(report);
  EXPECT_EQ(nlohmann::json::parse(bmf.text).front(), (nlohmann::json{{"error-nmse", {{"value", 1.0}}}}));
  EXPECT_EQ(bmf.left_out, std::vector<std::string>{"1 number whose name is already used"});
  report.records.push_back(report.records[0]);
  report.records[1].measurements[0].value = 3;
  const Exported openmetrics = openmetrics_of(report);
  EXPECT_EQ(openmetrics.left_out,
            std::vector<std::string>{"3 numbers whose name and labels are already used, of error.nmse, error_nmse"});
  for (const char* part : {"halfmark_error_nmse{", "halfmark_record_info{"}) {
    const size_t first = openmetrics.text.find(part);
    EXPECT_NE(first, std::string::npos) << part;
    EXPECT_EQ(openmetrics.text.find(part, first + 1), std::string::npos) << part;
  }
  EXPECT_TRUE(exports(openmetrics.text, "} 1\n"));
}

TEST(Export, BmfKeepsToTheLengthsThatBencherTakes) {
  Report report = one_number(std::string(100, 'm'), 1);
  report.records[0].id = std::string(3000, 'x');
  const auto json = nlohmann::json::parse(bmf_of(report).text);
  EXPECT_LE(json.begin().key().size(), 1024u);
  EXPECT_EQ(json.front().begin().key(), std::string(64, 'm'));
}

TEST(Export, BmfHasNoBoundsThatDoNotHoldTheValue) {
  for (const double value : {1.0, 9.0}) {
    Report report = one_number("time.step", value, "s");
    report.records[0].measurements[0].kind = Kind::sampled;
    report.records[0].measurements[0].samples = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    EXPECT_FALSE(exports(bmf_of(report).text, "lower_value")) << value;
  }
}

TEST(Export, OpenMetricsWritesUnitsAsWordsAndNumbersInFull) {
  const std::pair<const char*, const char*> units[] = {{"1", "halfmark_a_b{"},
                                                       {"s", "halfmark_a_b_seconds{"},
                                                       {"B", "halfmark_a_b_bytes{"},
                                                       {"bit", "halfmark_a_b_bits{"},
                                                       {"B/s", "halfmark_a_b_bytes_per_second{"},
                                                       {"1/s", "halfmark_a_b_per_second{"},
                                                       {"FLOP", "halfmark_a_b_flops{"},
                                                       {"FLOP/s", "halfmark_a_b_flops_per_second{"},
                                                       {"J", "halfmark_a_b_joules{"},
                                                       {"W", "halfmark_a_b_watts{"},
                                                       {"Hz", "halfmark_a_b_hertz{"},
                                                       {"degC", "halfmark_a_b_celsius{"},
                                                       {"ulp", "halfmark_a_b_ulp{"}};
  for (const auto& [unit, name] : units) {
    const std::string text = openmetrics_of(one_number("a.b", 1.0 / 3, unit)).text;
    EXPECT_TRUE(exports(text, std::string("\n") + name)) << text;
    EXPECT_TRUE(exports(text, ",at=\"output\"} 0.3333333333333333\n")) << text;
  }
  EXPECT_TRUE(exports(openmetrics_of(one_number("a.seconds", 1, "s")).text, "\nhalfmark_a_seconds{"));
  EXPECT_TRUE(exports(openmetrics_of(one_number("a.b", -HUGE_VAL)).text, ",at=\"output\"} -Inf\n"));
}

TEST(Export, JUnitHasCountsReasonsAndSeconds) {
  Report report = timed_report();
  report.run.seed = 42;
  Record& failed = report.records[4];
  failed.seconds = 0.25, failed.repro = "halfmark run --case x";
  report.records[3].status = Status::skipped, report.records[3].reason = "not here";
  report.records[3].seconds = std::nan("");
  const std::string text = report_junit_of(report).text;
  for (const char* part :
       {"<testsuite name=\"memory\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\"",
        "<testsuite name=\"throughput\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"0\"",
        "name=\"mlp/b32_i64_h128_o10/cpu/bf16/memory\" time=\"0.250000\"",
        "name=\"mlp/b32_i64_h128_o10/cpu/fp32/memory\" time=\"0.000000\"",
        "<failure type=\"failed\" message=\"out of memory\">out of memory\nreproduce: halfmark run --case x\n<",
        "<skipped message=\"not here\">", "<property name=\"seed\" value=\"42\" />"})
    EXPECT_TRUE(exports(text, part)) << part << "\n" << text;
}

TEST(Export, BmfHasBoundsWhereThereAreSamplesEnough) {
  Report report = timed_report();
  report.records.resize(1);
  Measurement& step = report.records[0].measurements[1];
  step.value = 5, step.samples = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Exported exported = bmf_of(report);
  const auto json = nlohmann::json::parse(exported.text);
  const auto& benchmark = json.at("mlp/b32_i64_h128_o10/cpu/fp32/throughput at hot");
  EXPECT_EQ(benchmark.at("time-step").at("value"), 5);
  // Binomial(9, 1/2): the 2nd and the 8th of nine values cover the median with 96 %.
  EXPECT_EQ(benchmark.at("time-step").at("lower_value"), 2);
  EXPECT_EQ(benchmark.at("time-step").at("upper_value"), 8);
  EXPECT_FALSE(benchmark.at("time-forward").contains("lower_value")) << "three samples are too few";
  EXPECT_FALSE(benchmark.contains("time-backward"));
  ASSERT_EQ(exported.left_out.size(), 1u);
  EXPECT_EQ(exported.left_out[0], "1 number that is NaN or infinite: JSON has none");
}

TEST(Export, OpenMetricsNamesUnitsAndEscapesLabels) {
  Report report = timed_report();
  report.records[0].id = "a\"b\\c\nd";
  const std::string text = openmetrics_of(report).text;
  EXPECT_TRUE(exports(text, "# TYPE halfmark_time_step_seconds gauge\n# UNIT halfmark_time_step_seconds seconds\n"))
      << text;
  EXPECT_TRUE(exports(text, R"(id="a\"b\\c\nd")")) << text;
  EXPECT_TRUE(exports(text, "halfmark_memory_peak_bytes{")) << text;
  EXPECT_TRUE(exports(text, "at=\"hot\"} NaN\n")) << text;
  EXPECT_TRUE(exports(text, "at=\"output\"} +Inf\n")) << text;
  EXPECT_TRUE(exports(text, "status=\"suspect\",reason=\"an emulated kernel ran\"} 1\n")) << text;
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
}

TEST(Export, JUnitFailsWhatFailedAndOnlyThat) {
  Report report = timed_report();
  report.records[2].status = Status::skipped, report.records[2].reason = "no fp8 here";
  const std::string text = report_junit_of(report).text;
  std::istringstream lines(text);
  std::string failed, skipped, suspect;
  for (std::string line, name; std::getline(lines, line);) {
    if (const size_t at = line.find("<testcase"); at != line.npos) name = line;
    if (exports(line, "<failure")) failed += name;
    if (exports(line, "<skipped")) skipped += name;
    if (exports(line, "<system-out")) suspect += name;
  }
  EXPECT_TRUE(exports(failed, "cpu/bf16/memory")) << text;
  EXPECT_TRUE(exports(skipped, "cpu/fp32/error")) << text;
  EXPECT_TRUE(exports(suspect, "cpu/fp16/throughput")) << text;
  EXPECT_EQ(failed.find("<testcase", 20), failed.npos) << text;
}

}  // namespace
}  // namespace halfmark::reports
