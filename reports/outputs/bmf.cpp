// Bencher Metric Format. Source: bencher.dev/docs/reference/bencher-metric-format (names of benchmarks have at most 1024
// characters, names of measures 64).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>

#include "reports/outputs/clean.h"
#include "reports/outputs/export.h"
#include "reports/statistics/statistics.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr size_t kLongestBenchmark = 1024, kLongestMeasure = 64;

// "time.step" is "time-step"; other characters that a slug does not have become dashes too.
std::string measure_slug(std::string_view metric) {
  std::string slug;
  for (const char c : metric) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain)
      slug += c;
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  while (!slug.empty() && slug.back() == '-') slug.pop_back();
  return slug.empty() ? "unnamed" : slug.substr(0, kLongestMeasure);
}

nlohmann::ordered_json bmf_metric(const Measurement& measurement) {
  nlohmann::ordered_json metric = {{"value", measurement.value}};
  if (measurement.kind != Kind::sampled) return metric;
  const MedianInterval interval = median_interval(measurement.samples);
  if (std::isfinite(interval.lower) && std::isfinite(interval.upper) && interval.lower <= measurement.value &&
      measurement.value <= interval.upper)
    metric["lower_value"] = interval.lower, metric["upper_value"] = interval.upper;
  return metric;
}

}  // namespace

Exported bmf_of(const Report& report) {
  nlohmann::ordered_json benchmarks = nlohmann::ordered_json::object();
  size_t not_finite = 0, misleading = 0, twice = 0, unmeasured = 0;
  for (const Record& record : report.records) {
    if (record.status == Status::failed || record.status == Status::skipped) {
      ++unmeasured;
      continue;
    }
    for (const Measurement& one : record.measurements) {
      if (one.kind == Kind::information) continue;
      if (misleads(record, one)) {
        ++misleading;
      } else if (!std::isfinite(one.value)) {
        ++not_finite;
      } else {
        const std::string place = one.at.empty() ? record.id : fmt::format("{} at {}", record.id, one.at);
        auto& measures = benchmarks[short_name(place, kLongestBenchmark)];
        const std::string slug = measure_slug(one.metric);
        if (measures.contains(slug))
          ++twice;
        else
          measures[slug] = bmf_metric(one);
      }
    }
  }
  Exported exported{benchmarks.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"};
  if (not_finite > 0)
    exported.left_out.push_back(fmt::format("{} that {} NaN or infinite: JSON has none", counted(not_finite, "number"),
                                            not_finite == 1 ? "is" : "are"));
  if (unmeasured > 0) exported.left_out.push_back(counted(unmeasured, "skipped or failed record"));
  if (misleading > 0) exported.left_out.push_back(counted(misleading, "time") + " of suspect records");
  if (twice > 0) exported.left_out.push_back(counted(twice, "number") + " whose name is already used");
  return exported;
}

}  // namespace halfmark::reports
