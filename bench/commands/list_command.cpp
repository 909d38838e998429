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
#include "bench/commands/harness_lists.h"
#include "bench/commands/kernel_lists.h"
#include "bench/commands/list_tables.h"
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

Json scaler_json(std::string_view name, const models::ScalerRow& row, const ScalerSpec& s) {
  const bool is_dynamic = s.kind == ScalerSpec::Kind::dynamic;
  const auto if_dynamic = [&](const Json& value) { return is_dynamic ? value : Json(nullptr); };
  return {{"name", name},
          {"about", row.about},
          {"source", row.source},
          {"initial", s.kind == ScalerSpec::Kind::none ? Json(nullptr) : Json(s.initial)},
          {"interval", if_dynamic(s.interval)},
          {"hysteresis", if_dynamic(s.hysteresis)},
          {"floor", if_dynamic(s.floor > 0 ? Json(s.floor) : Json(nullptr))},
          {"cap", if_dynamic(std::isfinite(s.cap) ? Json(s.cap) : Json(nullptr))},
          {"stops_at_floor", if_dynamic(s.stops_at_floor)}};
}

Json scalers_json() {
  Json list = Json::array();
  for (const models::ScalerRow& row : models::scalers()) list.push_back(scaler_json(row.name, row, row.spec));
  return list;
}

// The rows that words name, "torch:1024:100" with its own numbers, as --scaler takes it.
Json named_scalers(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  Json changed = Json::array();
  for (const std::string& word : words) {
    if (word.find(':') == word.npos) {
      names.push_back(word);
      continue;
    }
    const ScalerSpec spec = models::scaler_of(word);
    for (const models::ScalerRow& row : models::scalers())
      if (row.name == word.substr(0, word.find(':'))) changed.push_back(scaler_json(word, row, spec));
  }
  Json rows = Json::array();
  if (!names.empty() || changed.empty())
    rows = named_rows(scalers_json(), {"name"}, names, "scaler", "halfmark list scalers");
  rows.insert(rows.end(), changed.begin(), changed.end());
  return rows;
}

Json devices_json() {
  Json list = Json::array();
  for (const DeviceRow& row : known_devices())
    list.push_back({{"name", row.name}, {"about", row.about}, {"absent", row.absent}});
  return list;
}

std::string families_text(const Json& list, const TextOptions& options) {
  constexpr size_t kNarrowestText = 40;
  size_t longest = 0;
  for (const Family& family : families()) longest = std::max(longest, family.name.size());
  const bool is_beside = longest + 2 + kNarrowestText <= options.width;  // else the text is below the name
  std::string text;
  for (const Family& family : families()) {
    if (!has_row(list, "name", family.name)) continue;
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

std::string layer_kinds_text(const Json& list, const TextOptions& options) {
  std::string text;
  for (const LayerKind& kind : layer_kinds()) {
    if (!has_row(list, "layer", kind.name)) continue;
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
  Table table({"scaler", "initial", "grows after", "overflows to fall", "least", "most"});
  size_t longest = 0;
  for (const Json& row : list) longest = std::max(longest, row["name"].get<std::string>().size());
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
               {power(row["cap"])}});
  std::string abouts;
  for (const Json& row : list)
    abouts += wrapped(fmt::format("{:<{}}  ", row["name"].get<std::string>(), longest), row["about"].get<std::string>(),
                      options.width);
  return table.text(options) + abouts +
         wrapped(
             "",
             "--scaler NAME, or NAME:INITIAL:STEPS with another scale and other steps until it grows, as static:1024 "
             "and torch:1024:100.",
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
  std::string_view name, named;  // what it lists, and what words name
  Json (*json)();
  std::string (*text)(const Json&, const TextOptions&);
  std::vector<std::string_view> keys;  // at which further words name rows
};

const std::vector<Listing>& listings() {
  static const std::vector<Listing> list = {
      {"families", "family", families_json, families_text, {"name"}},
      {"subjects", "subject", subjects_json, subjects_text, {}},  // words show one subject each: list_subjects
      {"layers", "layer", layer_kinds_json, layer_kinds_text, {"layer"}},
      {"policies", "policy", policies_json, policies_text, {"name"}},
      {"scalers", "scaler", scalers_json, scalers_text, {"name"}},
      {"devices", "device", devices_json, devices_text, {"name"}},
      {"harnesses", "harness", harnesses_json, harnesses_text, {"name"}},
      {"kernels", "device or operation", kernels_json, kernels_text, {"device", "operation"}},
      {"instructions",
       "architecture, instruction or operand type",
       instructions_json,
       instructions_text,
       {"architecture", "instruction", "operands"}},
      {"quantizers", "quantizer", quantizers_json, quantizers_text, {"name"}},
      {"claims", "claim", claims_list_json, claims_list_text, {"id"}},
  };
  return list;
}
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

void list(const std::string& what, const std::vector<std::string>& words, bool json) {
  TextOptions options;
  options.width = terminal_width(STDOUT_FILENO);
  options.colour = wants_colour(STDOUT_FILENO);
  Json all = Json::object();
  std::string text;
  for (const Listing& listing : listings()) {
    const bool is_long = std::ranges::find(kLong, listing.name) != std::end(kLong);
    if (what.empty() ? is_long : listing.name != what) continue;
    const Json rows = listing.name == "scalers" ? named_scalers(words)
                                                : named_rows(listing.json(), listing.keys, words, listing.named,
                                                             fmt::format("halfmark list {}", what));
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
    std::vector<std::string> names, models;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  std::vector<std::string> names;
  for (const Listing& listing : listings()) names.emplace_back(listing.name);
  line.add("list",
           "what there is: subjects, layers of model files, policies, scalers, devices, harnesses with their metrics, "
           "kernels, "
           "instructions, quantizers, claims")
      .choice("what", arguments->what, names)
      .words("names", arguments->names,
             "only these rows: a name, * as a glob; after subjects: the layers of these subjects and the memory of a "
             "training step, predicted; with --json as a model file")
      .files("--model", arguments->models, "after subjects: a model of your own, as in halfmark run")
      .flag("--json", arguments->json, "machine-readable output")
      .examples({"halfmark list", "halfmark list devices", "halfmark list harnesses range --json",
                 "halfmark list subjects convnet/b16_c3_s16_w16"})
      .action([arguments] {
        const bool is_subjects = arguments->what == "subjects";
        HM_CHECK(
            arguments->models.empty() || is_subjects,
            fmt::format("--model: halfmark list {} takes none, only halfmark list subjects does", arguments->what));
        if (!is_subjects || (arguments->names.empty() && arguments->models.empty()))
          list(arguments->what, arguments->names, arguments->json);
        else
          list_subjects(arguments->names, arguments->models, arguments->json);
      });
}

}  // namespace halfmark::bench
