#include "reports/outputs/gbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "reports/outputs/clean.h"
#include "reports/record/provenance.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kNanoseconds = 1e9;
constexpr size_t kLongestName = 1024;  // bencher rejects a file with a longer name

bool is_hot_time(const Measurement& measurement) {
  return measurement.metric.starts_with("time.") && measurement.at == "hot" && measurement.unit == "s";
}

bool has_hot_time(const Record& record) {
  for (const Measurement& measurement : record.measurements)
    if (is_hot_time(measurement)) return true;
  return false;
}

std::string name_of_row(std::string_view id, std::string_view what) {
  return short_name(fmt::format("{}/{}", id, what), kLongestName);
}

// The layout of the environment is not fixed: values that are not found are left out.
const Json* leaf(const Json& tree, const char* pointer) {
  const Json::json_pointer place(pointer);
  return tree.contains(place) ? &tree.at(place) : nullptr;
}

Json context_of(const Report& report, size_t suspect, size_t not_finite) {
  Json context = {
      {"date", report.run.started}, {"host_name", fact(report.environment, "/machine")}, {"executable", "halfmark"}};
  const Json* cores = leaf(report.environment, "/cpu/cores");
  if (cores && cores->is_number()) context["num_cpus"] = static_cast<int64_t>(cores->get<double>());
  context["caches"] = Json::array();  // always present: bencher rejects a file without it
  context["load_avg"] = Json::array();
  context["library_version"] = "halfmark " + fact(report.environment, "/halfmark/version");
  context["library_build_type"] = fact(report.environment, "/halfmark/build_type") == "Debug" ? "debug" : "release";
  context["json_schema_version"] = 1;
  context["halfmark_git"] = fact(report.environment, "/halfmark/git");
  context["halfmark_rows"] =
      "median of the hot samples of one process; cpu_time was not measured and repeats real_time";
  context["halfmark_left_out_suspect_records"] = fmt::format("{}", suspect);
  context["halfmark_left_out_rows_not_finite"] = fmt::format("{}", not_finite);
  return context;
}

std::string dump(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string gbench_of(const Report& report) {
  Json rows = Json::array();
  size_t suspect = 0, not_finite = 0, family = 0;
  for (const Record& record : report.records) {
    if (!has_hot_time(record)) continue;
    if (record.status != Status::ok) {
      ++suspect;
      continue;
    }
    size_t instance = 0;
    for (const Measurement& measurement : record.measurements) {
      if (!is_hot_time(measurement)) continue;
      const double nanoseconds = measurement.value * kNanoseconds;
      if (!std::isfinite(nanoseconds)) {
        ++not_finite;
        continue;
      }
      const std::string name = name_of_row(record.id, measurement.metric.substr(measurement.metric.find('.') + 1));
      rows.push_back({{"name", name},
                      {"family_index", family},
                      {"per_family_instance_index", instance++},
                      {"run_name", name},
                      {"run_type", "iteration"},
                      {"repetitions", 1},
                      {"repetition_index", 0},
                      {"threads", 1},
                      {"iterations", std::max<size_t>(measurement.samples.size(), 1)},
                      {"real_time", nanoseconds},
                      {"cpu_time", nanoseconds},
                      {"time_unit", "ns"}});
    }
    ++family;
  }
  return dump({{"context", context_of(report, suspect, not_finite)}, {"benchmarks", rows}});
}

std::string smaller_is_better_of(const Report& report) {
  // Only the most informative numbers are written: a record may have a hundred.
  struct Telling {
    std::string_view metric, at;
  };
  static constexpr Telling kTelling[] = {{"error.nmse", "output"},
                                         {"error.arithmetic.nmse", "output"},
                                         {"error.max_relative", "output"},
                                         {"memory.peak", "train"},
                                         {"memory.peak", "evaluate"}};
  Json rows = Json::array();
  for (const Record& record : report.records) {
    if (record.status == Status::skipped || record.status == Status::failed) continue;
    for (const auto& [metric, at] : kTelling) {
      const Measurement* found = find(record, metric, at);
      if (found == nullptr || found->better != Better::lower || !std::isfinite(found->value)) continue;
      rows.push_back({{"name", name_of_row(record.id, fmt::format("{} at {}", metric, at))},
                      {"value", found->value},
                      {"unit", found->unit}});
    }
  }
  return dump(rows);
}

}  // namespace halfmark::reports
