#include "bench/run/known_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/run/performance.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::bench {

namespace {

const std::vector<Harness>& own_harnesses() {
  static const std::vector<Harness> own = [] {
    std::vector<Harness> rows = accuracy_harnesses();
    rows.push_back(throughput_harness());
    rows.push_back(memory_harness());
    return rows;
  }();
  return own;
}

std::vector<Harness>& harness_rows() {
  static std::vector<Harness> all = own_harnesses();
  return all;
}

}  // namespace

const std::vector<Harness>& all_harnesses() { return harness_rows(); }

bool is_built_in(const Harness& harness) {
  return std::any_of(own_harnesses().begin(), own_harnesses().end(),
                     [&](const Harness& own) { return own.measure == harness.measure; });
}

void add_harnesses(const std::vector<Harness>& more) {
  harness_rows().insert(harness_rows().end(), more.begin(), more.end());
}

const reports::DefaultSettings& default_settings() {
  static const reports::DefaultSettings all = [] {
    reports::DefaultSettings defaults;
    for (const Harness& harness : all_harnesses())
      for (const Axis& axis : harness.axes)
        defaults[std::string(harness.name)][std::string(axis.name)] = axis.values.front();
    return defaults;
  }();
  return all;
}

const Harness& harness_named(std::string_view name) { return named("harness", all_harnesses(), name); }

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy& policy : policies()) names.emplace_back(policy.name);
  return names;
}

void require_plain_policy(const std::string& word) {
  const size_t plus = word.find('+');
  const std::vector<std::string> names = policy_names();
  if (plus == word.npos || word.find('/') != word.npos || std::ranges::find(names, word.substr(0, plus)) == names.end())
    return;
  throw Error(fmt::format("'{}': changes of a policy are options, --scaler, --cast-rules and --precision", word));
}

std::vector<std::string> harness_names() {
  std::vector<std::string> names;
  for (const Harness& harness : all_harnesses()) names.emplace_back(harness.name);
  return names;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const DeviceRow& row : known_devices()) names.push_back(row.name);
  return names;
}

}  // namespace halfmark::bench
