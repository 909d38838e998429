#include "reports/predict/peaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "peaks_shipped.h"  // written by CMake from reports/predict/peaks.json
#include "reports/record/json_parser.h"
#include "reports/record/json_reader.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kPeaksKind = "table of peaks";
constexpr std::string_view kOperandTypes[] = {"f32", "tf32", "f16", "f16-sum16", "bf16", "fp8", "fp4"};

void expect_operand_type(const JsonReader& json, const std::string& name) {
  if (std::ranges::find(kOperandTypes, name) == std::end(kOperandTypes))
    json.fail(fmt::format("'{}' is no type of operands", name));
}

PublishedFigure figure_from(const JsonReader& json, const std::map<std::string, std::string>& sources) {
  static const std::vector<std::string_view> kFields = {"value", "source", "row", "note"};
  json.expect_object();
  json.expect_only(kFields);
  PublishedFigure figure{json.required("value").number(), "", json.required("row").text(), json.text("note")};
  if (!std::isfinite(figure.value) || figure.value <= 0) json.fail("is not positive");
  if (figure.row.empty()) json.fail("does not say which row of its source it is");
  const std::string key = json.required("source").text();
  const auto source = sources.find(key);
  if (source == sources.end()) json.fail(fmt::format("has the source '{}', which is not in the list", key));
  figure.source = source->second;
  return figure;
}

PublishedGpu gpu_from(const JsonReader& json, const std::map<std::string, std::string>& sources) {
  static const std::vector<std::string_view> kFields = {"name",   "board",     "architecture", "devices",
                                                        "memory", "bandwidth", "flops",        "without"};
  json.expect_object();
  json.expect_only(kFields);
  PublishedGpu gpu;
  gpu.name = json.required("name").text();
  gpu.board = json.required("board").text();
  gpu.architecture = json.required("architecture").text();
  json.each("devices", [&](const JsonReader& one) { gpu.devices.push_back(one.text()); });
  gpu.memory = figure_from(json.required("memory"), sources);
  gpu.bandwidth = figure_from(json.required("bandwidth"), sources);
  json.each_member("flops", [&](const std::string& type, const JsonReader& one) {
    expect_operand_type(one, type);
    gpu.flops.emplace(type, figure_from(one, sources));
  });
  json.each("without", [&](const JsonReader& one) {
    expect_operand_type(one, one.text());
    if (gpu.flops.contains(one.text())) one.fail("has a peak too");
    gpu.without.insert(one.text());
  });
  return gpu;
}

}  // namespace

std::vector<PublishedGpu> published_gpus_from(const nlohmann::ordered_json& json, std::string_view where) {
  static const std::vector<std::string_view> kFields = {"peaks", "about", "sources", "gpus"};
  const JsonReader reader(json, where, kPeaksKind);
  reader.expect_object();
  reader.expect_only(kFields);
  if (const JsonReader version = reader.required("peaks"); version.integer() != 1) version.fail("is not version 1");
  std::map<std::string, std::string> sources;
  reader.each_member("sources", [&](const std::string& key, const JsonReader& one) {
    if (one.text().empty()) one.fail("is empty");
    sources.emplace(key, one.text());
  });
  std::vector<PublishedGpu> gpus;
  reader.each("gpus", [&](const JsonReader& one) { gpus.push_back(gpu_from(one, sources)); });
  return gpus;
}

const std::vector<PublishedGpu>& published_gpus() {
  static const std::vector<PublishedGpu> gpus =
      published_gpus_from(parse_json(kShippedPeaks, "peaks.json", kPeaksKind), "peaks.json");
  return gpus;
}

std::vector<std::string> names_of_published_gpus() {
  std::vector<std::string> names;
  for (const PublishedGpu& gpu : published_gpus()) names.push_back(gpu.name);
  for (const std::string_view before : {"", "sim:"})
    for (const PublishedGpu& gpu : published_gpus())
      if (const std::string name = std::string(before) + gpu.architecture;
          std::ranges::find(names, name) == names.end())
        names.push_back(name);
  return names;
}

std::vector<const PublishedGpu*> published_gpus_named(const std::vector<std::string>& names) {
  std::vector<const PublishedGpu*> found;
  for (const PublishedGpu& gpu : published_gpus())
    for (const std::string& name : {gpu.name, gpu.architecture, "sim:" + gpu.architecture})
      if (std::ranges::find(names, name) != names.end()) {
        found.push_back(&gpu);
        break;
      }
  return found;
}

}  // namespace halfmark::reports
