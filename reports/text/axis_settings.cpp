#include "reports/text/axis_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace halfmark::reports {

namespace {

constexpr const char* kDefault = "default";  // of an axis that a record does not name

std::string joined(const std::map<std::string, std::vector<std::string>>& harnesses_of) {
  std::vector<std::string> parts;
  for (const auto& [setting, harnesses] : harnesses_of)
    parts.push_back(fmt::format("{} ({})", setting, fmt::join(harnesses, ", ")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

void AxisSettings::add(const Record& record) {
  Axes& axes = axes_[record.harness][record.policy];
  ++axes.records;
  for (const auto& [axis, value] : record.axes) ++axes.values[axis][value];
}

std::string AxisSettings::values_text(const Axes& axes, const std::string& axis) {
  std::vector<std::string> values;
  size_t named = 0;
  for (const auto& [value, records] : axes.values.at(axis)) values.push_back(value), named += records;
  if (named < axes.records) values.emplace_back(kDefault);
  return fmt::format("{}", fmt::join(values, "|"));
}

bool AxisSettings::is_common(const Axes& axes, const std::string& axis) {
  return axes.values.at(axis).begin()->second == axes.records;
}

std::set<std::string> AxisSettings::varied() const {
  std::set<std::string> varied;
  for (const auto& [harness, policies] : axes_)
    for (const auto& [policy, axes] : policies)
      for (const auto& [axis, values] : axes.values)
        if (!is_common(axes, axis)) varied.insert(axis);
  return varied;
}

std::string AxisSettings::common_text() const {
  std::map<std::string, std::vector<std::string>> harnesses_of;  // [setting]
  for (const auto& [harness, policies] : axes_) {
    std::map<std::string, std::vector<std::string>> policies_of;  // [setting]
    for (const auto& [policy, axes] : policies)
      for (const auto& [axis, values] : axes.values)
        if (is_common(axes, axis)) policies_of[fmt::format("{}={}", axis, values.begin()->first)].push_back(policy);
    for (const auto& [setting, having] : policies_of)
      harnesses_of[setting].push_back(
          having.size() == policies.size() ? harness : fmt::format("{} of {}", harness, fmt::join(having, ", ")));
  }
  return joined(harnesses_of);
}

bool AxisSettings::has(const std::string& policy) const {
  return std::any_of(axes_.begin(), axes_.end(), [&](const auto& one) { return one.second.contains(policy); });
}

bool AxisSettings::has_common(const std::string& policy) const {
  for (const auto& [harness, policies] : axes_)
    if (const auto found = policies.find(policy); found != policies.end())
      for (const auto& [axis, values] : found->second.values)
        if (is_common(found->second, axis)) return true;
  return false;
}

std::string AxisSettings::text_of(const std::string& policy) const {
  std::map<std::string, std::vector<std::string>> harnesses_of;  // [setting]
  for (const auto& [harness, policies] : axes_) {
    const auto found = policies.find(policy);
    if (found == policies.end()) continue;
    for (const auto& [axis, values] : found->second.values)
      harnesses_of[fmt::format("{}={}", axis, values_text(found->second, axis))].push_back(harness);
  }
  return joined(harnesses_of);
}

}  // namespace halfmark::reports
