// OpenMetrics text 1.0.0. Source: github.com/prometheus/OpenMetrics, specification/OpenMetrics.md: samples of a family
// are consecutive, the unit is the suffix of the name, label sets are unique, the last line is "# EOF".
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "reports/outputs/clean.h"
#include "reports/outputs/export.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

std::string metric_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += plain ? c : '_';
  }
  return name;
}

// Base units in words, as OpenMetrics requires; a number without a unit has none.
std::string unit_in_words(std::string_view unit) {
  static const std::map<std::string_view, std::string_view> kWords = {{"1", ""},
                                                                      {"s", "seconds"},
                                                                      {"B", "bytes"},
                                                                      {"bit", "bits"},
                                                                      {"B/s", "bytes_per_second"},
                                                                      {"1/s", "per_second"},
                                                                      {"FLOP", "flops"},
                                                                      {"FLOP/s", "flops_per_second"},
                                                                      {"J", "joules"},
                                                                      {"W", "watts"},
                                                                      {"Hz", "hertz"},
                                                                      {"degC", "celsius"}};
  const auto found = kWords.find(unit);
  return found == kWords.end() ? metric_name(unit) : std::string(found->second);
}

std::string escaped_label(std::string_view given) {
  std::string text;
  for (const char c : valid_utf8(given)) {
    if (c == '\\')
      text += "\\\\";
    else if (c == '"')
      text += "\\\"";
    else if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text;
}

std::string sample_value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string case_labels(const Record& record) {
  std::string axes;
  for (const auto& [axis, setting] : record.axes) axes += (axes.empty() ? "" : " ") + axis + "=" + setting;
  return fmt::format(R"(id="{}",subject="{}",device="{}",policy="{}",harness="{}",axes="{}")", escaped_label(record.id),
                     escaped_label(record.subject), escaped_label(record.device), escaped_label(record.policy),
                     escaped_label(record.harness), escaped_label(axes));
}

struct MetricFamily {
  std::string unit, help, samples;
  std::set<std::string> labels;
};

}  // namespace

Exported openmetrics_of(const Report& report) {
  std::map<std::string, MetricFamily> families;
  MetricFamily info;
  size_t misleading = 0, twice = 0, unmeasured = 0;
  std::set<std::string> same_names;
  for (const Record& record : report.records) {
    const std::string labels = case_labels(record);
    if (info.labels.insert(labels).second)
      info.samples += fmt::format("halfmark_record_info{{{},status=\"{}\",reason=\"{}\"}} 1\n", labels,
                                  name_of(record.status), escaped_label(record.reason));
    if (record.status == Status::failed || record.status == Status::skipped) {
      ++unmeasured;
      continue;
    }
    for (const Measurement& one : record.measurements) {
      if (misleads(record, one)) {
        ++misleading;
        continue;
      }
      const std::string unit = unit_in_words(one.unit);
      std::string name = "halfmark_" + metric_name(one.metric);
      if (!unit.empty() && !name.ends_with("_" + unit)) name += "_" + unit;
      MetricFamily& family = families[name];
      if (family.help.empty()) {
        family.unit = unit;
        family.help = fmt::format("halfmark metric {}; better: {}", escaped_label(one.metric), name_of(one.better));
      }
      const std::string all = fmt::format("{},at=\"{}\"", labels, escaped_label(one.at));
      if (family.labels.insert(all).second)
        family.samples += fmt::format("{}{{{}}} {}\n", name, all, sample_value(one.value));
      else
        ++twice, same_names.insert(one.metric);
    }
  }
  Exported exported;
  for (const auto& [name, family] : families) {
    exported.text += fmt::format("# TYPE {} gauge\n", name);
    if (!family.unit.empty()) exported.text += fmt::format("# UNIT {} {}\n", name, family.unit);
    exported.text += fmt::format("# HELP {} {}\n{}", name, family.help, family.samples);
  }
  if (!info.samples.empty())
    exported.text += "# TYPE halfmark_record info\n# HELP halfmark_record status of each record\n" + info.samples;
  exported.text += "# EOF\n";
  if (unmeasured > 0) exported.left_out.push_back(counted(unmeasured, "skipped or failed record"));
  if (misleading > 0) exported.left_out.push_back(counted(misleading, "time") + " of suspect records");
  if (twice > 0)
    exported.left_out.push_back(fmt::format("{} whose name and labels are already used, of {}",
                                            counted(twice, "number"), fmt::join(same_names, ", ")));
  return exported;
}

}  // namespace halfmark::reports
