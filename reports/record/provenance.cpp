#include "reports/record/provenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <utility>

namespace halfmark::reports {

namespace {

// Facts on which results depend. A device is compared only if both have opened it: shards need not use every device.
bool matters(std::string_view key) {
  static constexpr std::string_view kFamilies[] = {"halfmark.",  "compiler.", "libraries.", "cpu.",
                                                   "variables.", "devices.",  "probed."};
  // Which of several equal GPUs it is, and how fast it may run, change no bits.
  for (const char* ending : {".memory_bytes", ".uuid", ".power limit", ".nvml"})
    if (key.ends_with(ending)) return false;
  if (key == "cpu.cores") return false;
  return std::any_of(std::begin(kFamilies), std::end(kFamilies),
                     [&](std::string_view family) { return key.starts_with(family); });
}

// "devices.cpu." for "devices.cpu.threads"; "" for other names.
std::string_view device_of(std::string_view key) {
  constexpr std::string_view kDevices = "devices.";
  if (!key.starts_with(kDevices)) return {};
  const size_t dot = key.find('.', kDevices.size());
  return dot == key.npos ? key : key.substr(0, dot + 1);
}

using Facts = std::map<std::string, std::string, std::less<>>;

bool has_device(const Facts& facts, std::string_view device) {
  const auto next = facts.lower_bound(device);
  return next != facts.end() && next->first.starts_with(device);
}

Facts telling(const nlohmann::ordered_json& environment) {
  Facts facts;
  for (auto& [key, value] : environment_facts(environment))
    if (matters(key)) facts.emplace(std::move(key), std::move(value));
  return facts;
}

}  // namespace

std::string fact(const nlohmann::ordered_json& environment, const char* pointer) {
  const nlohmann::ordered_json::json_pointer place(pointer);
  if (!environment.contains(place)) return {};
  const nlohmann::ordered_json& found = environment.at(place);
  return found.is_string() ? found.get<std::string>() : std::string();
}

std::vector<std::string> substitutes(const Report& report) {
  constexpr std::string_view kGpu = "cuda:";
  std::map<std::string, std::string> known;
  for (const Record& record : report.records)
    if (record.device.starts_with(kGpu) && !record.numerics.empty()) known.emplace(record.device, record.numerics);
  if (const auto devices = report.environment.find("devices");
      devices != report.environment.end() && devices->is_object())
    for (const auto& [name, facts] : devices->items())
      if (name.starts_with(kGpu) && facts.is_object() && facts.contains("numerics") && facts["numerics"].is_string())
        known.emplace(name, facts["numerics"].get<std::string>());
  std::vector<std::string> lines;
  for (const auto& [name, numerics] : known)
    lines.push_back(fmt::format("{} is not a GPU: {}; its numbers say nothing about one", name, numerics));
  return lines;
}

uint64_t Shard::size(uint64_t cases) const { return cases < part ? 0 : (cases - part) / parts + 1; }

std::optional<Shard> shard_named(std::string_view text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto part = std::from_chars(text.data(), end, shard.part);
  if (part.ec != std::errc() || part.ptr == end || *part.ptr != '/') return std::nullopt;
  const auto parts = std::from_chars(part.ptr + 1, end, shard.parts);
  if (parts.ec != std::errc() || parts.ptr != end) return std::nullopt;
  if (shard.part == 0 || shard.part > shard.parts) return std::nullopt;
  return shard;
}

std::string planned_case(const std::string& id, const std::string& definition, const std::string& data) {
  return id + (definition.empty() ? "" : " " + definition) + (data.empty() ? "" : " " + data);
}

// FNV-1a; a zero byte ends each case.
Plan plan_of(const std::vector<std::string>& ids) {
  uint64_t hash = 0xCBF29CE484222325u;
  const auto add = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001B3u; };
  for (const std::string& id : ids) {
    for (const char c : id) add(static_cast<unsigned char>(c));
    add(0);
  }
  return {ids.size(), fmt::format("{:016x}", hash)};
}

std::optional<Difference> difference_of(const nlohmann::ordered_json& here, const nlohmann::ordered_json& there) {
  const Facts first = telling(here), second = telling(there);
  Facts both = first;
  both.insert(second.begin(), second.end());
  for (const auto& [key, ignored] : both) {
    const std::string_view device = device_of(key);
    if (!device.empty() && !(has_device(first, device) && has_device(second, device))) continue;
    const auto a = first.find(key), b = second.find(key);
    const std::string one = a == first.end() ? "nothing" : a->second, other = b == second.end() ? "nothing" : b->second;
    if (one != other) return Difference{key, one, other};
  }
  return std::nullopt;
}

}  // namespace halfmark::reports
