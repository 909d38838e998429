#include "reports/gate/environment_difference.h"

#include <fmt/format.h>

#include <utility>

#include "reports/text/summary.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kDevices = "devices.";
constexpr size_t kLongest = 60;  // maximum length of a shown value: descriptions of how a matmul adds are long

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts facts_with_seed(const Report& report) {
  Facts facts = environment_facts(report.environment);
  for (auto& [name, value] : facts)  // the machines, starts and commands of merged shards: too long to show
    if (name == "shards" && report.environment.contains(name))
      value = counted(report.environment.at(name).size(), "shard");
  facts.emplace_back("run.seed", fmt::format("{}", report.run.seed));
  return facts;
}

std::string shown(const std::string& value) {
  const std::string text = printable(value);
  if (text.size() <= kLongest) return text.empty() ? "\"\"" : text;
  size_t end = kLongest - 2;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // never splits a UTF-8 character
  return text.substr(0, end) + "..";
}

// True for a fact about a different device. Names of devices contain no dot.
bool is_of_other_device(std::string_view name, std::string_view device) {
  if (!name.starts_with(kDevices)) return false;
  name.remove_prefix(kDevices.size());
  return name.substr(0, name.find('.')) != device;
}

}  // namespace

EnvironmentDifference::EnvironmentDifference(const Report& base, const Report& found) {
  const Facts before = facts_with_seed(base), after = facts_with_seed(found);
  std::map<std::string, std::string> left(after.begin(), after.end());
  for (const auto& [name, value] : before) {
    const auto same = left.find(name);
    if (same == left.end()) {
      changes_.push_back({name, value, "absent"});
      continue;
    }
    if (same->second != value) changes_.push_back({name, value, same->second});
    left.erase(same);
  }
  for (const auto& [name, value] : after)
    if (left.contains(name)) changes_.push_back({name, "absent", value});
}

std::vector<std::string> EnvironmentDifference::lines() const {
  std::vector<std::string> lines;
  for (const Change& change : changes_)
    lines.push_back(fmt::format("{}: {} -> {}", printable(change.name), shown(change.base), shown(change.found)));
  return lines;
}

const std::vector<std::string>& EnvironmentDifference::in(const Keys& keys, const std::string& device) {
  const auto [place, is_new] = known_.try_emplace({&keys, device});
  if (is_new)
    for (const Change& change : changes_)
      if (!is_of_other_device(change.name, device) && is_key(keys, change.name))
        place->second.push_back(printable(change.name));
  return place->second;
}

}  // namespace halfmark::reports
