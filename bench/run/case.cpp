// Builds and parses the ids of cases.
#include "bench/run/case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "accuracy/images.h"
#include "bench/run/known_names.h"
#include "bench/run/name_match.h"
#include "bench/run/performance.h"
#include "kernels/number/error.h"
#include "models/subject.h"

namespace halfmark::bench {

std::vector<std::string> Case::segments() const {
  std::vector<std::string> parts = {subject->name, subject->sizes, device, std::string(policy->name),
                                    std::string(harness->name)};
  for (const auto& [key, value] : axes) parts.push_back(key + "=" + value);
  return parts;
}

std::string Case::id() const { return fmt::format("{}", fmt::join(segments(), "/")); }

void Case::settle_axes() {
  for (auto& [key, value] : axes) {
    const auto axis = std::find_if(harness->axes.begin(), harness->axes.end(),
                                   [&, name = std::string_view(key)](const Axis& a) { return a.name == name; });
    HM_CHECK(axis != harness->axes.end(),
             fmt::format("case {}: harness {} has no axis '{}'", id(), harness->name, key));
    const std::optional<std::string> settled = accuracy::settled_value(*axis, value);
    HM_CHECK(settled, fmt::format("case {}: axis {} has no value '{}' (it has {})", id(), key, value,
                                  accuracy::values_text(*axis)));
    value = *settled;
  }
  for (const Axis& axis : harness->axes) {
    const auto named = axes.find(std::string(axis.name));
    if (named != axes.end() && named->second == axis.values.front()) axes.erase(named);
  }
}

TrialSpec Case::trial(std::shared_ptr<Device> opened, uint64_t seed) const {
  TrialSpec spec;
  spec.subject = subject;
  spec.device = std::move(opened);
  spec.policy = policy;
  spec.axes = axes;
  spec.seed = seed;
  spec.settings = subject->settings;
  spec.data = data;
  if (const auto labels = axes.find(std::string(kLabelsAxis)); labels != axes.end() && is_built_in(*harness))
    spec.settings.indices = labels->second == "i64" ? IndexType::i64 : IndexType::i32;
  if (const auto cache = axes.find(std::string(kCastCacheAxis)); cache != axes.end() && is_built_in(*harness))
    spec.settings.cast_cache = cache->second == "on";
  if (const auto fused = axes.find(std::string(accuracy::kFusedAxis)); fused != axes.end() && is_built_in(*harness))
    spec.settings.fused = fused->second == "on";
  if (const auto images = axes.find(std::string(accuracy::kImagesAxis));
      images != axes.end() && images->second != "device" && is_built_in(*harness))
    spec.settings.images = images->second == "nhwc" ? Layout::nhwc : Layout::plain;
  return spec;
}

Case case_of(const std::string& id) {
  const std::vector<std::string> parts = split(id, '/');
  if (parts.size() < 5)
    throw Error(fmt::format("case {}: an id is subject/sizes/device/policy/harness[/key=value...]", id));
  Case one;
  try {
    one.subject = &subject_named(parts[0] + "/" + parts[1]);
  } catch (const Error& error) {
    if (models::has_sizes(parts[0])) throw;
    throw Error(fmt::format("{}; a model of your own is read with --model FILE", error.what()));
  }
  one.device = chosen_names("device", {parts[2]}, device_names()).front();
  one.policy = &policy_named(parts[3]);
  one.harness = &harness_named(parts[4]);
  for (size_t i = 5; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    HM_CHECK(equals != std::string::npos, fmt::format("case {}: '{}' is not key=value", id, parts[i]));
    const auto [axis, is_new] = one.axes.emplace(parts[i].substr(0, equals), parts[i].substr(equals + 1));
    HM_CHECK(is_new, fmt::format("case {}: axis {} has two values, and a case takes one", id, axis->first));
  }
  one.settle_axes();
  if (const auto what = models::unquantised_layer(*one.policy, *one.subject))
    throw Error(fmt::format("case {}: {}", id, *what));
  return one;
}

}  // namespace halfmark::bench
