#include "bench/commands/all_reduce_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "accuracy/probe/all_reduce.h"
#include "bench/commands/commands.h"
#include "bench/run/default_device.h"
#include "bench/run/progress_line.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/record/file.h"
#include "reports/text/table.h"

namespace halfmark::bench {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::shared_ptr<Device>> devices_named(const std::string& names) {
  HM_CHECK(!names.empty(), "--all-reduce needs --device with two devices or more, as cuda:0,cuda:1");
  std::vector<std::shared_ptr<Device>> devices;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    devices.push_back(open_device(names.substr(begin, end - begin)));
    begin = end + 1;
  }
  return devices;
}

Json json_of(const std::vector<probe::Finding>& findings) {
  Json all = Json::array();
  for (const probe::Finding& one : findings)
    all.push_back({{"parameter", one.parameter}, {"value", one.value}, {"evidence", one.evidence}});
  return all;
}

Json json_of(const probe::AllReduceReport& report) {
  Json settings = Json::object(), orders = Json::array();
  for (const auto& [name, value] : report.settings) settings[name] = value;
  for (const probe::OrderReport& one : report.orders)
    orders.push_back({{"elements", one.elements},
                      {"count", one.count},
                      {"order", one.order},
                      {"evidence", one.evidence},
                      {"findings", json_of(one.findings)},
                      {"replayed", one.replayed},
                      {"replays", one.replays}});
  return {{"devices", report.devices},
          {"types", report.dtype},
          {"library", report.library},
          {"settings", settings},
          {"elements", report.elements},
          {"orders", orders},
          {"findings", json_of(report.findings)},
          {"fingerprint", report.fingerprint},
          {"hash", report.hash}};
}

std::string text_of(const probe::AllReduceReport& report, const TextOptions& options) {
  std::vector<std::string> settings;
  for (const auto& [name, value] : report.settings) settings.push_back(name + "=" + value);
  std::string text = toned(fmt::format("{} {} (all-reduce of {}, {}{}{})", report.devices, report.dtype,
                                       counted(static_cast<size_t>(report.elements), "element"), report.library,
                                       settings.empty() ? "" : ", ", fmt::join(settings, ", ")),
                           Tone::strong, options.colour) +
                     "\n";
  size_t widest = std::string_view("orders of addition").size(), replayed = 0, replays = 0, with_replay = 0;
  for (const probe::Finding& finding : report.findings) widest = std::max(widest, finding.parameter.size());
  const auto line = [&](std::string_view name, const std::string& what) {
    text += wrapped(fmt::format("  {:<{}}  ", name, widest), what, options.width);
  };
  const auto findings = [&](const std::vector<probe::Finding>& all) {
    for (const probe::Finding& one : all) line(one.parameter, fmt::format("{}  ({})", one.value, one.evidence));
  };
  findings({report.findings.begin(), report.findings.begin() + 1});
  for (const probe::OrderReport& one : report.orders) {
    const bool is_found = one.order != probe::kNotObservable;
    line("  ranks in order", fmt::format("{} in element{} {}{}", one.order, one.count == 1 ? "" : "s", one.elements,
                                         is_found ? "" : fmt::format("  ({})", one.evidence)));
    for (const probe::Finding& finding : one.findings)
      line("    " + finding.parameter, fmt::format("{}  ({})", finding.value, finding.evidence));
    replayed += one.replayed, replays += one.replays, with_replay += one.replays > 0 ? 1 : 0;
  }
  findings({report.findings.begin() + 1, report.findings.end()});
  if (replays > 0)
    line("replay", fmt::format("{} of {} fresh random sums have the same bits in software{}{}", replayed, replays,
                               replayed == replays ? "" : ": the findings above do not describe them completely",
                               with_replay == report.orders.size()
                                   ? ""
                                   : fmt::format("; of {} orders {} were not replayed", report.orders.size(),
                                                 report.orders.size() - with_replay)));
  line("fingerprint", report.hash);
  return text + "\n";
}

}  // namespace

void probe_all_reduce(const AllReduceArguments& arguments) {
  const std::vector<std::shared_ptr<Device>> devices = devices_named(arguments.devices);
  std::vector<DType> types = {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2};
  if (!arguments.types.empty()) {
    types.clear();
    for (const std::string& name : arguments.types) types.push_back(dtype_named(name));
  }
  probe::Options options;
  options.replays = arguments.replays;
  std::vector<probe::AllReduceReport> reports;
  std::vector<std::pair<std::string, std::string>> refused;
  for (const DType dtype : types) {
    HM_CHECK(is_floating(dtype) && !is_packed(dtype), fmt::format("{} is not summed across devices", name_of(dtype)));
    // Of its own for each type: a group that a library has refused something is not used again.
    const std::unique_ptr<AllReduceGroup> group = all_reduce_group(devices);
    try {
      reports.push_back(probe::examine_all_reduce(devices, *group, dtype, arguments.elements, options));
    } catch (const Unsupported& reason) {
      if (!arguments.types.empty()) throw;  // it was requested
      refused.emplace_back(name_of(dtype), reason.what());
    }
  }
  if (reports.empty()) throw Unsupported(refused.front().second);
  TextOptions text;
  text.width = terminal_width(STDOUT_FILENO), text.colour = wants_colour(STDOUT_FILENO);
  const std::string substitute = substitute_text(*devices[0]);
  Json all = Json::array(), reasons = Json::object();
  for (const probe::AllReduceReport& report : reports) all.push_back(json_of(report));
  for (const auto& [name, reason] : refused) reasons[name] = reason;
  Json whole = {{"all_reduce", all}, {"refused", reasons}};
  if (!substitute.empty()) whole["substitute"] = substitute;
  const std::string json = whole.dump(2) + "\n";
  if (!arguments.output.empty()) write_file(arguments.output, json);
  if (arguments.json) {
    fmt::print("{}", json);
    return;
  }
  if (!substitute.empty()) fmt::print("{}", wrapped("", substitute, text.width));
  for (const probe::AllReduceReport& report : reports) fmt::print("{}", text_of(report, text));
  for (const auto& [name, reason] : refused)
    fmt::print("{}", wrapped(fmt::format("not supported: {}: ", name), reason, text.width));
}

}  // namespace halfmark::bench
