// What each export contains and what it leaves out. readers_test.py tests whether other tools can read it.
#include "reports/outputs/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "reports/outputs/csv.h"
#include "reports/outputs/sample_report.h"

namespace halfmark::reports {
namespace {

bool exports(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Export, NoFormatShowsATimeOfASuspectRecord) {
  Report report = timed_report();
  for (Measurement& one : report.records[1].measurements) one.value = 0.123456;
  ASSERT_EQ(report.records[1].status, Status::suspect);
  for (const ExportFormat& format : export_formats()) {
    const std::string text = format.write(report).text;
    EXPECT_FALSE(exports(text, "0.123456")) << format.name;
    EXPECT_FALSE(exports(text, "123456")) << format.name;
  }
  EXPECT_TRUE(exports(measurements_csv_of(report), ",suspect,time.step,hot,,s,lower,sampled,,3\r\n"));
}

TEST(Export, CsvHasARowForEachMeasurement) {
  const Report report = timed_report();
  size_t measurements = 0;
  for (const Record& record : report.records) measurements += record.measurements.size();
  const std::string text = measurements_csv_of(report);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')), measurements + 1);
  EXPECT_TRUE(text.starts_with("id,case_version,subject,device,policy,harness,axes,status,metric,at,value,"));
  EXPECT_TRUE(exports(text, "error.nmse,output,2.19e-07,1,lower,information,,0\r\n")) << text;
  EXPECT_TRUE(exports(text, "time.backward,hot,NaN,s,lower,sampled,,3\r\n")) << "NaN is a finding\n" << text;
  EXPECT_TRUE(exports(text, "error.max_relative,output,Infinity,")) << text;
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
  EXPECT_EQ(exported.left_out[0], "1 numbers that are NaN or infinite: JSON has none");
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
