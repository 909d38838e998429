#include "bench/commands/harness_lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "bench/commands/list_tables.h"
#include "bench/run/known_names.h"
#include "bench/run/work.h"

namespace halfmark::bench {

namespace {

nlohmann::ordered_json metrics_json(const std::vector<MetricRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (const MetricRow& m : rows)
    list.push_back({{"metric", m.metric},
                    {"unit", m.unit},
                    {"better", name_of(m.better)},
                    {"kind", name_of(m.kind)},
                    {"formula", m.formula}});
  return list;
}

}  // namespace

nlohmann::ordered_json harnesses_json() {
  auto list = nlohmann::ordered_json::array();
  for (const Harness& harness : all_harnesses()) {
    auto axes = nlohmann::ordered_json::object();
    auto numbers = nlohmann::ordered_json::object();  // that an axis takes beside its values
    auto abouts = nlohmann::ordered_json::object();
    for (const Axis& axis : harness.axes) {
      axes[std::string(axis.name)] = axis.values;
      abouts[std::string(axis.name)] = axis.about;
      if (axis.numbers) numbers[std::string(axis.name)] = numbers_text(*axis.numbers);
    }
    list.push_back({{"name", harness.name},
                    {"about", harness.about},
                    {"axes", axes},
                    {"numbers", numbers},
                    {"axes_about", abouts},
                    {"metrics", metrics_json(harness.metrics)}});
  }
  return list;
}

namespace {

// In a narrow terminal text in place of a table, whose columns would be wider than their text.
std::string metrics_text(const nlohmann::ordered_json& metrics, const std::vector<ListColumn>& columns,
                         const TextOptions& options) {
  constexpr size_t kNarrowestTable = 100;
  if (options.width >= kNarrowestTable) return table_of(metrics, columns, columns.size(), options);
  std::string text;
  for (const nlohmann::ordered_json& row : metrics)
    text += wrapped("  ",
                    fmt::format("{} ({}, {}, {}): {}", text_of(row["metric"]), text_of(row["unit"]),
                                text_of(row["better"]), text_of(row["kind"]), text_of(row["formula"])),
                    options.width, true);
  return text;
}

}  // namespace

std::string harnesses_text(const nlohmann::ordered_json& list, const TextOptions& options) {
  const std::vector<ListColumn> columns = {
      {"metric", "metric"}, {"unit", "unit"}, {"better", "better"}, {"kind", "kind"}, {"formula", "formula"}};
  std::string text;
  for (const nlohmann::ordered_json& harness : list) {
    text += toned(harness["name"].get<std::string>(), Tone::strong, options.colour) + "\n";
    text += wrapped("  ", harness["about"].get<std::string>(), options.width);
    for (const auto& [axis, values] : harness["axes"].items()) {
      const nlohmann::ordered_json& numbers = harness["numbers"];
      const std::string about = harness["axes_about"][axis];
      auto names = values.get<std::vector<std::string>>();
      names.front() += " (default)";
      text += wrapped(fmt::format("  axis {} = ", axis),
                      fmt::format("{}{}{}", fmt::join(names, " | "),
                                  numbers.contains(axis) ? " | " + numbers[axis].get<std::string>() : "",
                                  about.empty() ? "" : ": " + about),
                      options.width);
    }
    text += metrics_text(harness["metrics"], columns, options);
    text += "\n";
  }
  text += toned("every harness", Tone::strong, options.colour) + "\n";
  text += wrapped("  ", "what one batch of the subject computes and moves, in each record", options.width);
  text += metrics_text(metrics_json(work_table()), columns, options) + "\n";
  return text +
         wrapped("",
                 "unit 1: a pure number. better: the direction of an improvement. kind: exact = the same on every run "
                 "of one build and machine; bounded = has a bound from theory; sampled = differs from run to run, as "
                 "times do; information = never judged by a gate. An axis is a setting; its first value is the "
                 "default.",
                 options.width);
}

}  // namespace halfmark::bench
