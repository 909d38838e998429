#include "reports/text/experiments_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace halfmark::reports {
namespace {

std::string number_text(const Measurement* measurement) {
  if (!measurement) return "";
  std::string text = fmt::format("{:.3g}", measurement->value);
  if (measurement->standard_error) text += fmt::format(" +-{:.2g}", *measurement->standard_error);
  return text;
}

std::string section(std::string_view name, const std::string& text, const TextOptions& options) {
  return text.empty() ? "" : "\n" + toned(name, Tone::strong, options.colour) + "\n" + text;
}

// The codes of the metric cast_lists.verdict.
constexpr std::array<std::pair<double, std::string_view>, 3> kVerdicts = {
    {{1, "justified"}, {0, "idle"}, {-1, "missing"}}};

std::string cast_lists_text(const Report& report, const TextOptions& options) {
  std::string text;
  for (const Record& record : report.records)
    for (const auto& [code, verdict] : kVerdicts) {
      std::vector<std::string> names;
      for (const Measurement& one : record.measurements)
        if (one.metric == "cast_lists.verdict" && one.value == code) names.push_back(printable(one.at));
      if (!names.empty())
        text += wrapped(fmt::format("  {} {} {}: ", record.policy, names.size(), verdict),
                        fmt::format("{}", fmt::join(names, " ")), options.width);
    }
  if (!text.empty())
    text +=
        wrapped("  ", "justified: half fails where fp32 does not; idle: half is as good; missing: fails, not listed",
                options.width);
  return section("operations that autocast keeps in fp32", text, options);
}

const Series* curve_of(const Record& record, std::string_view metric, std::string_view at) {
  for (const Series& one : record.series)
    if (one.metric == metric && one.at == at) return &one;
  return nullptr;
}

// Gaps that are not shown to be within the spread of seeds are in the colour of what is bad.
std::string trained_bits_text(const Report& report, const TextOptions& options) {
  std::vector<std::string> titles = {"subject", "rounded"};
  std::vector<double> bits;
  Table table(titles, 2);
  for (const Record& record : report.records)
    for (const std::string_view mode : {"passes", "weights"}) {
      const Series *gaps = curve_of(record, "mantissa.trained_gap", mode),
                   *judged = curve_of(record, "mantissa.trained_as_fp32", mode);
      if (!gaps || !judged || judged->y.size() != gaps->x.size() || gaps->y.size() != gaps->x.size()) continue;
      if (bits.empty()) {
        bits = gaps->x;
        for (const double bit : bits) titles.push_back(fmt::format("{} bit", bit));
        titles.emplace_back("fewest as fp32");
        table = Table(titles, 2);
      }
      if (gaps->x != bits) continue;
      std::vector<Cell> cells = {{record.subject}, {std::string(mode)}};
      for (size_t i = 0; i < bits.size(); ++i)
        cells.push_back({fmt::format("{:.2g}", gaps->y[i]), judged->y[i] == 1 ? Tone::plain : Tone::bad});
      cells.push_back({number_text(find(record, "mantissa.trained_least_bits", mode))});
      table.add(std::move(cells));
    }
  if (table.empty()) return "";
  return section("gap of the held-out loss to fp32, trained with so many fraction bits", table.text(options), options);
}

std::string int8_text(const Report& report, const TextOptions& options) {
  Table table({"subject", "parameters", "logit error", "loss gap", "flips per 10,000", "bytes", "floats"}, 2);
  for (const Record& record : report.records)
    for (const Measurement& one : record.measurements) {
      if (one.metric != "evaluation.weights_logit_error") continue;
      const auto number = [&](std::string_view metric) { return find(record, metric, one.at); };
      const Measurement *bytes = number("evaluation.weights_bytes"), *floats = number("evaluation.weights_floats");
      table.add({{record.subject},
                 {printable(one.at)},
                 {number_text(&one)},
                 {number_text(number("evaluation.weights_loss_gap"))},
                 {number_text(number("evaluation.weights_flips"))},
                 {bytes ? human(bytes->value, "B") : ""},
                 {floats ? human_share(floats->value) : ""}});
    }
  return table.empty() ? "" : section("weights in int8 after the training, beside half", table.text(options), options);
}

std::string conclusions_text(const Report& report, const TextOptions& options) {
  Table table({"subject", "policy", "rate times", "loss gap", "wrong seeds: fp32", "half evaluation", "trained so",
               "by chance"},
              3);
  for (const Record& record : report.records)
    for (const Measurement& one : record.measurements) {
      if (one.metric != "evaluation.conclusion_gap") continue;
      const auto number = [&](std::string_view metric, std::string_view way) {
        return number_text(find(record, metric, std::string(way) + "/" + one.at));
      };
      table.add({{record.subject},
                 {record.policy},
                 {printable(one.at)},
                 {number_text(&one)},
                 {number("evaluation.conclusion_wrong", "fp32")},
                 {number("evaluation.conclusion_wrong", "evaluated")},
                 {number("evaluation.conclusion_wrong", "trained")},
                 {number("evaluation.conclusion_chance", "trained")}});
    }
  return table.empty()
             ? ""
             : section("which of two rates is better: seeds that say the wrong one", table.text(options), options);
}

}  // namespace

std::string experiments_text(const Report& report, const TextOptions& options) {
  return cast_lists_text(report, options) + trained_bits_text(report, options) + int8_text(report, options) +
         conclusions_text(report, options);
}

}  // namespace halfmark::reports
