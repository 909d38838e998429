#include "reports/outputs/export.h"

#include <array>

#include "reports/outputs/csv.h"
#include "reports/outputs/gbench.h"

namespace halfmark::reports {

std::span<const ExportFormat> export_formats() {
  static constexpr std::array kFormats = {
      ExportFormat{"csv", "one row for each measurement (RFC 4180)",
                   [](const Report& report) { return Exported{measurements_csv_of(report)}; }},
      ExportFormat{"bmf", "Bencher Metric Format, JSON", bmf_of},
      ExportFormat{"gbench", "Google Benchmark's JSON: the hot times",
                   [](const Report& report) { return Exported{gbench_of(report)}; }},
      ExportFormat{"openmetrics", "OpenMetrics text, for Prometheus", openmetrics_of},
      ExportFormat{"junit", "JUnit XML: a test case for each record", report_junit_of},
  };
  return kFormats;
}

}  // namespace halfmark::reports
