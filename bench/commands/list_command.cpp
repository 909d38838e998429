// halfmark list: the tables of the suite, as text and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/commands/claim_list.h"
#include "bench/commands/commands.h"
#include "bench/commands/kernel_lists.h"
#include "bench/commands/subject_text.h"
#include "bench/run/case.h"
#include "bench/run/known_names.h"
#include "bench/run/model_file.h"
#include "bench/run/program_name.h"
#include "bench/run/progress_line.h"
#include "bench/run/work.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/number/quantizer.h"
#include "kernels/sim/tensor_core.h"
#include "models/families.h"
#include "models/network/layer_kinds.h"
#include "models/optimizer.h"
#include "reports/record/report.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

using Json = nlohmann::ordered_json;

Json subjects_json() {
  Json list = Json::array();
  for (const Subject& s : subjects()) {
    const Work work = work_of(s);
    list.push_back({{"id", s.id()},
                    {"input", work.input.extents()},
                    {"output", work.output.extents()},
                    {"classes", s.classes},
                    {"parameters", static_cast<int64_t>(work.parameters)},
                    {"forward_flops", static_cast<int64_t>(work.forward_flops)}});
  }
  return list;
}

Json families_json() {
  Json list = Json::array();
  for (const Family& family : families()) {
    Json letters = Json::array();
    for (const SizeLetter& letter : family.letters)
      letters.push_back({{"letter", std::string(1, letter.letter)},
                         {"about", letter.about},
                         {"usual", letter.usual},
                         {"pair", letter.is_pair},
                         {"least", letter.least},
                         {"most", letter.most}});
    list.push_back({{"name", family.name},
                    {"about", family.about},
                    {"letters", letters},
                    {"example", fmt::format("{}/{}", family.name, family.example)}});
  }
  return list;
}

Json layer_kinds_json() {
  Json list = Json::array();
  for (const LayerKind& kind : layer_kinds()) {
    Json arguments = Json::array();
    for (const ArgumentRow& row : kind.arguments)
      arguments.push_back({{"name", row.name},
                           {"about", row.about},
                           {"value", name_of(row.type)},
                           {"usual", row.usual ? Json::parse(models::text_of(*row.usual)) : Json(nullptr)},
                           {"needed", !row.usual && !row.is_optional}});
    list.push_back({{"layer", kind.name},
                    {"about", kind.about},
                    {"branches", kind.branches != LayerKind::Branches::none},
                    {"arguments", arguments}});
  }
  return list;
}

Json policies_json() {
  Json list = Json::array();
  for (const Policy& p : policies())
    list.push_back({{"name", p.name},
                    {"about", p.about},
                    {"parameters", name_of(p.param)},
                    {"low", name_of(p.low)},
                    {"batch_norms", name_of(p.batch_norm)},
                    {"statistics", name_of(p.state)},
                    {"gradients", name_of(p.grad)},
                    {"master", p.master},
                    {"storage", models::row_of(p.storage).name},
                    {"autocast", p.rules ? std::string(p.rules->name) : "none"},
                    {"loss_scaling", p.scaler.kind != ScalerSpec::Kind::none},
                    {"scaler", models::text_of(p.scaler)}});
  return list;
}

Json scalers_json() {
  Json list = Json::array();
  for (const models::ScalerRow& row : models::scalers()) {
    const ScalerSpec& s = row.spec;
    const bool is_dynamic = s.kind == ScalerSpec::Kind::dynamic;
    const auto if_dynamic = [&](const Json& value) { return is_dynamic ? value : Json(nullptr); };
    list.push_back({{"name", row.name},
                    {"about", row.about},
                    {"source", row.source},
                    {"initial", s.kind == ScalerSpec::Kind::none ? Json(nullptr) : Json(s.initial)},
                    {"interval", if_dynamic(s.interval)},
                    {"hysteresis", if_dynamic(s.hysteresis)},
                    {"floor", if_dynamic(s.floor)},
                    {"cap", if_dynamic(std::isfinite(s.cap) ? Json(s.cap) : Json(nullptr))},
                    {"stops_at_floor", if_dynamic(s.stops_at_floor)}});
  }
  return list;
}

Json devices_json() {
  Json list = Json::array();
  for (const DeviceRow& row : known_devices())
    list.push_back({{"name", row.name}, {"about", row.about}, {"absent", row.absent}});
  return list;
}

Json metrics_json(const std::vector<MetricRow>& rows) {
  Json list = Json::array();
  for (const MetricRow& m : rows)
    list.push_back({{"metric", m.metric},
                    {"unit", m.unit},
                    {"better", name_of(m.better)},
                    {"kind", name_of(m.kind)},
                    {"formula", m.formula}});
  return list;
}

Json harnesses_json() {
  Json list = Json::array();
  for (const Harness& harness : all_harnesses()) {
    Json axes = Json::object();
    Json numbers = Json::object();  // that an axis takes beside its values
    Json abouts = Json::object();
    for (const Axis& axis : harness.axes) {
      axes[std::string(axis.name)] = axis.values;
      abouts[std::string(axis.name)] = axis.about;
      if (axis.numbers) numbers[std::string(axis.name)] = numbers_text(*axis.numbers);
    }
    list.push_back({{"name", harness.name},
                    {"about", harness.about},
                    {"axes", axes},
                    {"numbers", numbers},
                    {"axes_about", abouts},
                    {"metrics", metrics_json(harness.metrics)}});
  }
  return list;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "-";
  return value.dump();
}

// A column of a table: the JSON key and the heading.
struct ListColumn {
  const char* key;
  const char* title;
};

// The first `text_columns` columns are text, the others numbers.
std::string table_of(const Json& list, const std::vector<ListColumn>& columns, size_t text_columns,
                     const TextOptions& options) {
  std::vector<std::string> titles;
  for (const ListColumn& column : columns) titles.emplace_back(column.title);
  Table table(titles, text_columns);
  for (const Json& row : list) {
    std::vector<Cell> cells;
    for (const ListColumn& column : columns) cells.push_back({text_of(row.at(column.key)), Tone::plain});
    table.add(std::move(cells));
  }
  return table.text(options);
}

std::string families_text(const Json&, const TextOptions& options) {
  constexpr size_t kNarrowestText = 40;
  size_t longest = 0;
  for (const Family& family : families()) longest = std::max(longest, family.name.size());
  const bool is_beside = longest + 2 + kNarrowestText <= options.width;  // else the text is below the name
  std::string text;
  for (const Family& family : families()) {
    const std::string indent(is_beside ? longest + 2 : 2, ' ');
    if (!is_beside) text += std::string(family.name) + "\n";
    text +=
        wrapped(is_beside ? fmt::format("{:<{}}", family.name, indent.size()) : indent, family.about, options.width);
    text += wrapped(indent, letters_text(family.letters), options.width);
    text += wrapped(indent, fmt::format("example: {}/{}", family.name, family.example), options.width);
  }
  return text + "\n" +
         wrapped("",
                 fmt::format("A subject is a family with its sizes: {} run conv2d/b32_c256_o256_s14_k3 throughput. "
                             "Sizes, kernels, strides, dilations and paddings of images may be height x width: "
                             "s28x14, k3x1. Letters with a usual value may be left out.",
                             program_name()),
                 options.width);
}

std::string subjects_text(const Json& list, const TextOptions& options) {
  Table table({"subject (layer or model/sizes)", "input", "output", "parameters", "forward FLOP"}, 3);
  for (const Json& row : list) {
    const double flops = row["forward_flops"].get<double>();
    table.add({{text_of(row["id"])},
               {text_of(row["input"])},
               {text_of(row["output"])},
               {fmt::format("{:.0f}", row["parameters"].get<double>())},
               {flops > 0 ? human(flops, "FLOP") : "-"}});
  }
  return families_text(families_json(), options) + "\nSizes that the suite full and patterns with it have:\n" +
         table.text(options) +
         wrapped("",
                 "Shapes begin with the batch. FLOP: of matmul and convolution in one forward pass of the batch, a "
                 "multiply-add counts two; a training step has three times as many.",
                 options.width);
}

std::string layer_kinds_text(const Json&, const TextOptions& options) {
  std::string text;
  for (const LayerKind& kind : layer_kinds()) {
    const std::string lead = fmt::format("{:<20}", kind.name), indent(lead.size(), ' ');
    text += wrapped(lead, std::string(kind.about), options.width);
    if (!kind.arguments.empty()) text += wrapped(indent, arguments_text(kind.arguments), options.width);
  }
  return text;
}

std::string policies_text(const Json& list, const TextOptions& options) {
  return table_of(list,
                  {{"name", "policy"},
                   {"about", "what it does"},
                   {"parameters", "parameters"},
                   {"low", "activations"},
                   {"gradients", "gradients"},
                   {"statistics", "BN statistics"},
                   {"master", "fp32 master copy"},
                   {"loss_scaling", "loss scaling"}},
                  2, options) +
         wrapped("",
                 "parameters, activations, gradients, BN statistics: the type in which they are stored. BN: BatchNorm.",
                 options.width);
}

std::string scalers_text(const Json& list, const TextOptions& options) {
  Table table({"scaler", "initial", "grows after", "overflows to fall", "least", "most", "about"}, 6);
  const auto power = [](const Json& value) {
    if (value.is_null() || value == 0) return std::string("-");
    const double number = value.get<double>(), exponent = std::log2(number);
    return number > 1024 && exponent == std::floor(exponent) ? fmt::format("2^{}", exponent)
                                                             : fmt::format("{}", number);
  };
  for (const Json& row : list)
    table.add({{row["name"].get<std::string>()},
               {power(row["initial"])},
               {power(row["interval"])},
               {power(row["hysteresis"])},
               {power(row["floor"])},
               {power(row["cap"])},
               {row["about"].get<std::string>()}});
  return table.text(options) +
         wrapped(
             "",
             "--scaler NAME, or NAME:INITIAL:STEPS with another scale and other steps until it grows, as static:1024 "
             "and torch:1024:100.",
             options.width);
}

// In a narrow terminal text in place of a table, whose columns would be wider than their text.
std::string metrics_text(const Json& metrics, const std::vector<ListColumn>& columns, const TextOptions& options) {
  constexpr size_t kNarrowestTable = 60;
  if (options.width >= kNarrowestTable) return table_of(metrics, columns, columns.size(), options);
  std::string text;
  for (const Json& row : metrics)
    text += wrapped("  ",
                    fmt::format("{} ({}, {}, {}): {}", text_of(row["metric"]), text_of(row["unit"]),
                                text_of(row["better"]), text_of(row["kind"]), text_of(row["formula"])),
                    options.width, true);
  return text;
}

std::string harnesses_text(const Json& list, const TextOptions& options) {
  const std::vector<ListColumn> columns = {
      {"metric", "metric"}, {"unit", "unit"}, {"better", "better"}, {"kind", "kind"}, {"formula", "formula"}};
  std::string text;
  for (const Json& harness : list) {
    text += toned(harness["name"].get<std::string>(), Tone::strong, options.colour) + "\n";
    text += wrapped("  ", harness["about"].get<std::string>(), options.width);
    for (const auto& [axis, values] : harness["axes"].items()) {
      const Json& numbers = harness["numbers"];
      const std::string about = harness["axes_about"][axis];
      auto names = values.get<std::vector<std::string>>();
      names.front() += " (default)";
      text += wrapped(fmt::format("  axis {} = ", axis),
                      fmt::format("{}{}{}", fmt::join(names, " | "),
                                  numbers.contains(axis) ? " | " + numbers[axis].get<std::string>() : "",
                                  about.empty() ? "" : ": " + about),
                      options.width);
    }
    text += metrics_text(harness["metrics"], columns, options);
    text += "\n";
  }
  text += toned("every harness", Tone::strong, options.colour) + "\n";
  text += wrapped("  ", "what one batch of the subject computes and moves, in each record", options.width);
  text += metrics_text(metrics_json(work_table()), columns, options) + "\n";
  return text +
         wrapped("",
                 "unit 1: a pure number. better: the direction of an improvement. kind: exact = the same on every run "
                 "of one build and machine; bounded = has a bound from theory; sampled = differs from run to run, as "
                 "times do; information = never judged by a gate. An axis is a setting; its first value is the "
                 "default.",
                 options.width);
}

std::string heading(const std::string& name, const TextOptions& options) {
  return toned(name, Tone::strong, options.colour) + "\n";
}

std::string devices_text(const Json& list, const TextOptions& options) {
  std::string text;
  size_t longest = 0;
  for (const Json& row : list) longest = std::max(longest, row["name"].get<std::string>().size());
  for (const Json& row : list) {
    const std::string absent = row["absent"].get<std::string>();
    text += wrapped(fmt::format("{:<{}}  ", row["name"].get<std::string>(), longest),
                    absent.empty() ? row["about"].get<std::string>() : "absent: " + absent, options.width);
  }
  return text;
}

struct Listing {
  std::string_view name;
  Json (*json)();
  std::string (*text)(const Json&, const TextOptions&);
};

const Listing kListings[] = {
    {"families", families_json, families_text},
    {"subjects", subjects_json, subjects_text},
    {"layers", layer_kinds_json, layer_kinds_text},
    {"policies", policies_json, policies_text},
    {"scalers", scalers_json, scalers_text},
    {"devices", devices_json, devices_text},
    {"harnesses", harnesses_json, harnesses_text},
    {"kernels", kernels_json, kernels_text},
    {"instructions", instructions_json, instructions_text},
    {"quantizers", quantizers_json, quantizers_text},
    {"claims", claims_list_json, claims_list_text},
};
// Shown only if they are requested by name: long lists, and the families, which are listed with the subjects.
constexpr std::string_view kLong[] = {"families",     "layers",     "scalers", "kernels",
                                      "instructions", "quantizers", "claims"};

void list_subjects(const std::vector<std::string>& ids, const std::vector<std::string>& files, bool json) {
  std::vector<std::string> all;
  for (const std::string& file : files) all.push_back(add_model_file(file));
  if (!ids.empty()) all = ids;
  HM_CHECK(!json || all.size() == 1,
           fmt::format("{} subjects: a model file is one model; write each to its own file", all.size()));
  TextOptions options;
  options.width = terminal_width(STDOUT_FILENO);
  options.colour = wants_colour(STDOUT_FILENO);
  std::string text;
  for (const std::string& id : all) {
    const Subject& subject = subject_named(id);
    text += json ? model_json(subject).dump(2) + "\n" : (text.empty() ? "" : "\n") + subject_text(subject, options);
  }
  fmt::print("{}", text);
}

void list(const std::string& what, bool json) {
  TextOptions options;
  options.width = terminal_width(STDOUT_FILENO);
  options.colour = wants_colour(STDOUT_FILENO);
  Json all = Json::object();
  std::string text;
  for (const Listing& listing : kListings) {
    const bool is_long = std::ranges::find(kLong, listing.name) != std::end(kLong);
    if (what.empty() ? is_long : listing.name != what) continue;
    const Json rows = listing.json();
    all[std::string(listing.name)] = rows;
    if (!json)
      text += (what.empty() ? heading(std::string(listing.name), options) : "") + listing.text(rows, options) +
              (what.empty() ? "\n" : "");
  }
  fmt::print("{}", json ? (what.empty() ? all : all[what]).dump(2) + "\n" : text);
}

}  // namespace

void add_list_command(CommandLine& line, Program&) {
  struct Arguments {
    std::string what;
    std::vector<std::string> ids, models;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  std::vector<std::string> names;
  for (const Listing& listing : kListings) names.emplace_back(listing.name);
  line.add("list",
           "what there is: subjects, layers of model files, policies, scalers, devices, harnesses with their metrics, "
           "kernels, "
           "instructions, quantizers, claims")
      .choice("what", arguments->what, names)
      .words(
          "ids", arguments->ids,
          "after subjects: the layers of these subjects and the memory of a training step, predicted; with --json as a "
          "model file")
      .files("--model", arguments->models, "after subjects: a model of your own, as in halfmark run")
      .flag("--json", arguments->json, "machine-readable output")
      .examples({"halfmark list", "halfmark list devices", "halfmark list harnesses --json",
                 "halfmark list subjects convnet/b16_c3_s16_w16"})
      .action([arguments] {
        if (arguments->ids.empty() && arguments->models.empty()) return list(arguments->what, arguments->json);
        HM_CHECK(
            arguments->what == "subjects",
            fmt::format(
                "'{}': only subjects are listed by their ids, as in halfmark list subjects ID; halfmark list {} takes "
                "no further words and no --model",
                arguments->ids.empty() ? "--model" : arguments->ids.front(), arguments->what));
        list_subjects(arguments->ids, arguments->models, arguments->json);
      });
}

}  // namespace halfmark::bench
