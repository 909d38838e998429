// One report in the formats of other tools: `halfmark export REPORT --to FORMAT`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

struct Exported {
  std::string text;
  std::vector<std::string> left_out{};  // what the format cannot represent: one line per kind, with the count
};

struct ExportFormat {
  std::string_view name;   // "bmf"
  std::string_view about;  // one line for --help
  Exported (*write)(const Report&);
};

// Every format that this program writes itself, in the order of --help.
std::span<const ExportFormat> export_formats();

// Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}, bencher.dev/bmf.json. A benchmark is
// a case and a place ("ID at hot"), a measure is a metric, written as a slug of Bencher ("time-step"); values are in
// base units. The bounds are the 95 % interval of the median if there are enough samples. Numbers that are not finite,
// metrics of kind `information` and times of suspect records are left out.
Exported bmf_of(const Report& report);

// OpenMetrics text 1.0.0: a gauge for each metric, its unit as suffix, the case in labels; and an info metric with the
// status of every record. NaN and infinities are samples. Times of suspect records are left out.
Exported openmetrics_of(const Report& report);

// JUnit XML: a suite for each harness, a test case for each record. failed is a failure, skipped is skipped; suspect
// passes with a line in system-out.
Exported report_junit_of(const Report& report);

}  // namespace halfmark::reports
