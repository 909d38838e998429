#include "reports/text/settings_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "reports/record/printable.h"

namespace halfmark::reports {

namespace {

// "  sum error: amp-fp16 at sum=fp16; bf16 at sum=fp32": the settings with the values that the table shows.
std::string folded_text(const Group& group, const Figure& figure, const std::vector<std::string>& policies,
                        const TextOptions& options) {
  std::vector<std::string> places;
  for (const std::string& policy : policies) {
    const Value* value = group.value(policy, figure);
    if (!value || !value->folded || value->suspect) continue;
    std::vector<std::string> settings;
    for (const std::string& axis : group.settings.varied(policy, value->record->harness)) {
      if (figure.mean && axis == kReplicates) continue;
      const auto setting = [&](const Record& record) {
        const auto named = record.axes.find(axis);
        return named == record.axes.end() ? default_of(options.defaults, record.harness, axis) : named->second;
      };
      const std::string own = setting(*value->record);
      // An axis that differs between cases with this number does not decide it.
      if (std::all_of(value->equal.begin(), value->equal.end(),
                      [&](const Record* one) { return setting(*one) == own; }))
        settings.push_back(axis + "=" + own);
    }
    if (settings.empty() && !figure.mean) settings.emplace_back("several settings");
    if (!settings.empty()) places.push_back(fmt::format("{} at {}", policy, fmt::join(settings, " ")));
  }
  if (places.empty()) return "";
  return wrapped(fmt::format("  {}: ", figure.title), printable(fmt::format("{}", fmt::join(places, "; "))),
                 options.width);
}

// "  accuracy: 1024 held-out samples for each of 3 seeds; +- standard error": what the means of a column come from.
std::string means_text(const Group& group, const Figure& figure, const std::vector<std::string>& policies,
                       const TextOptions& options) {
  std::set<double> samples;
  std::set<size_t> seeds;
  for (const std::string& policy : policies)
    if (const Value* value = group.value(policy, figure); value && value->error)
      samples.insert(value->samples), seeds.insert(value->seeds);
  if (samples.empty()) return "";
  const auto range = [](const auto& values) {
    return values.size() == 1 ? fmt::format("{}", *values.begin())
                              : fmt::format("{} to {}", *values.begin(), *values.rbegin());
  };
  const bool one = seeds.size() == 1 && *seeds.begin() == 1;
  return wrapped(fmt::format("  {}: ", figure.title),
                 fmt::format("{} samples{}; +- standard error{}", range(samples),
                             one ? " of one seed" : fmt::format(" for each of {} seeds", range(seeds)),
                             one ? ", which does not include other seeds" : ""),
                 options.width);
}

}  // namespace

std::string settings_text(const Group& group, std::span<const Figure> columns, const std::vector<std::string>& policies,
                          const TextOptions& options) {
  std::string text;
  for (const Figure& figure : columns)
    if (figure.mean) text += means_text(group, figure, policies, options);
  if (const std::string common = group.settings.common_text(); !common.empty() && !columns.empty())
    text += wrapped("settings: ", printable(common), options.width);
  const std::set<std::string> varied = group.settings.varied();
  const bool has_mean = varied.contains(std::string(kReplicates)) &&
                        std::any_of(columns.begin(), columns.end(), [](const Figure& figure) { return figure.mean; });
  if (!varied.empty() && !columns.empty()) {
    text += wrapped("",
                    fmt::format("over {}: best time, {}worst of every other metric", fmt::join(varied, ", "),
                                has_mean ? "mean accuracy of the seeds, " : ""),
                    options.width);
    std::string places;
    for (const Figure& figure : columns) places += folded_text(group, figure, policies, options);
    text += places.empty() && !has_mean ? "  no number depends on them\n" : places;
  }
  return text;
}

}  // namespace halfmark::reports
