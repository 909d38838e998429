#include "reports/text/axis_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace halfmark::reports {

namespace {

std::string joined(const std::map<std::string, std::vector<std::string>>& harnesses_of) {
  std::vector<std::string> parts;
  for (const auto& [setting, harnesses] : harnesses_of)
    parts.push_back(fmt::format("{} ({})", setting, fmt::join(harnesses, "; ")));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

void AxisSettings::add(const Record& record) {
  Counts& counts = counts_[record.harness][record.policy];
  ++counts.records;
  for (const auto& [axis, value] : record.axes) ++counts.values[axis][value];
}

std::string AxisSettings::values_text(const Counts& counts, const std::string& axis, const std::string& of_others) {
  std::vector<std::string> values;
  size_t named = 0;
  for (const auto& [value, records] : counts.values.at(axis)) values.push_back(value), named += records;
  if (named < counts.records) values.push_back(of_others);
  return fmt::format("{}", fmt::join(values, "|"));
}

bool AxisSettings::is_common(const Counts& counts, const std::string& axis) {
  return counts.values.at(axis).begin()->second == counts.records;
}

std::set<std::string> AxisSettings::varied(const std::string& policy, const std::string& harness) const {
  std::set<std::string> varied;
  const auto policies = counts_.find(harness);
  if (policies == counts_.end()) return varied;
  const auto counts = policies->second.find(policy);
  if (counts == policies->second.end()) return varied;
  for (const auto& [axis, values] : counts->second.values)
    if (!is_common(counts->second, axis)) varied.insert(axis);
  return varied;
}

std::set<std::string> AxisSettings::varied() const {
  std::set<std::string> all;
  for (const auto& [harness, policies] : counts_)
    for (const auto& [policy, counts] : policies) all.merge(varied(policy, harness));
  return all;
}

std::string AxisSettings::common_text() const {
  std::map<std::string, std::vector<std::string>> harnesses_of;  // [setting]
  for (const auto& [harness, policies] : counts_) {
    std::map<std::string, std::vector<std::string>> policies_of;  // [setting]
    for (const auto& [policy, counts] : policies)
      for (const auto& [axis, values] : counts.values)
        if (is_common(counts, axis)) policies_of[fmt::format("{}={}", axis, values.begin()->first)].push_back(policy);
    for (const auto& [setting, having] : policies_of)
      harnesses_of[setting].push_back(
          having.size() == policies.size() ? harness : fmt::format("{}: {}", harness, fmt::join(having, " ")));
  }
  return joined(harnesses_of);
}

bool AxisSettings::has(const std::string& policy) const {
  return std::any_of(counts_.begin(), counts_.end(), [&](const auto& one) { return one.second.contains(policy); });
}

std::string AxisSettings::text_of(const std::string& policy, const DefaultSettings* defaults) const {
  return text_of(policy, "", defaults);
}
std::string AxisSettings::text_of(const std::string& policy, const std::string& harness) const {
  return text_of(policy, harness, nullptr);
}

std::string AxisSettings::text_of(const std::string& policy, const std::string& wanted,
                                  const DefaultSettings* defaults) const {
  std::map<std::string, std::vector<std::string>> harnesses_of;  // [setting]
  for (const auto& [harness, policies] : counts_) {
    if (!wanted.empty() && harness != wanted) continue;
    const auto found = policies.find(policy);
    if (found == policies.end()) continue;
    for (const auto& [axis, values] : found->second.values)
      harnesses_of[fmt::format("{}={}", axis, values_text(found->second, axis, default_of(defaults, harness, axis)))]
          .push_back(harness);
  }
  return joined(harnesses_of);
}

}  // namespace halfmark::reports
