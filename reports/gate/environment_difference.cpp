#include "reports/gate/environment_difference.h"

#include <fmt/format.h>

#include <utility>

#include "reports/text/summary.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kDevices = "devices.";
constexpr size_t kLongest = 60;  // characters of a value: some describe how a matmul adds, clause by clause

using Leaves = std::vector<std::pair<std::string, std::string>>;

Leaves leaves_with_seed(const Report& report) {
  Leaves leaves = leaves_of(report.environment);
  leaves.emplace_back("run.seed", fmt::format("{}", report.run.seed));
  return leaves;
}

std::string shown(const std::string& value) {
  const std::string text = printable(value);
  if (text.size() <= kLongest) return text.empty() ? "\"\"" : text;
  size_t end = kLongest - 2;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // never half a character
  return text.substr(0, end) + "..";
}

// A fact about another device than this one. The names of devices hold no dot.
bool is_of_other_device(std::string_view leaf, std::string_view device) {
  if (!leaf.starts_with(kDevices)) return false;
  leaf.remove_prefix(kDevices.size());
  return leaf.substr(0, leaf.find('.')) != device;
}

}  // namespace

EnvironmentDifference::EnvironmentDifference(const Report& base, const Report& found) {
  const Leaves before = leaves_with_seed(base), after = leaves_with_seed(found);
  std::map<std::string, std::string> left(after.begin(), after.end());
  for (const auto& [leaf, value] : before) {
    const auto same = left.find(leaf);
    if (same == left.end()) {
      changes_.push_back({leaf, value, "absent"});
      continue;
    }
    if (same->second != value) changes_.push_back({leaf, value, same->second});
    left.erase(same);
  }
  for (const auto& [leaf, value] : after)
    if (left.contains(leaf)) changes_.push_back({leaf, "absent", value});
}

std::vector<std::string> EnvironmentDifference::lines() const {
  std::vector<std::string> lines;
  for (const Change& change : changes_)
    lines.push_back(fmt::format("{}: {} -> {}", printable(change.leaf), shown(change.base), shown(change.found)));
  return lines;
}

const std::vector<std::string>& EnvironmentDifference::in(const Keys& keys, const std::string& device) {
  const auto [place, is_new] = known_.try_emplace({&keys, device});
  if (is_new)
    for (const Change& change : changes_)
      if (!is_of_other_device(change.leaf, device) && is_key(keys, change.leaf))
        place->second.push_back(printable(change.leaf));
  return place->second;
}

std::string some_of(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

}  // namespace halfmark::reports
