#include "bench/run/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bench/namespaces.h"
#include "bench/run/json_lines.h"
#include "bench/run/known_names.h"
#include "bench/run/object_reader.h"
#include "bench/run/suites.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/families.h"
#include "models/network/layer_kinds.h"
#include "models/network/loss_arguments.h"
#include "models/network/training_arguments.h"
#include "models/zoo.h"
#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kKind = "model file";
// Of branches in branches; the parser's own limit counts every list and object.
constexpr size_t kMostNumbers = 100'000;
constexpr size_t kMostLayers = 10'000;
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestWord && std::isalnum(static_cast<unsigned char>(name[0])) &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
}

class ModelReader {
 public:
  ModelReader(const Json& root, const JsonLines& lines, const std::string& where)
      : root_(root), lines_(lines), where_(where) {}

  Subject model() {
    const ObjectReader reader(root_, lines_, where_);
    reader.only({"name", "input", "batch", "data", "classes", "loss", "training", "layers"});
    const std::string name = reader.word("name", "a word that ids begin with, as \"tiny\"");
    reader.check_of("name", is_name(name),
                    fmt::format("\"name\" is {}: a name consists of letters, digits, '_', '-' and '.', and "
                                "begins with a letter or digit",
                                short_text(root_["name"])));
    const Shape input = input_of(reader);
    const DataRow& data = data_of(reader, input);
    const int64_t classes = data.has_classes() ? reader.count("classes", "the number of classes", int64_t{1} << 20) : 0;
    reader.check_of("classes", data.has_classes() || !root_.contains("classes"),
                    fmt::format("data \"{}\" have no \"classes\"", data.name));
    reader.check_of(
        "classes", classes >= data.least_classes,
        fmt::format("\"classes\" is {}, data \"{}\" need {} or more", classes, data.name, data.least_classes));
    LossSpec loss;
    if (root_.contains("loss")) {
      reader.check_of("loss", data.has_labels(),
                      fmt::format("data \"{}\" have no labels, so there is no \"loss\"", data.name));
      loss = loss_of(root_["loss"], data.kind, classes);
    } else if (data.kind == DataKind::speech) {
      loss.kind = LossKind::ctc;
    } else if (data.kind == DataKind::boxes) {
      loss.kind = LossKind::detection;
    } else if (data.kind == DataKind::streets) {
      loss.ignored = kUnlabelled;
    }
    reader.check_of("loss", (loss.kind == LossKind::ctc) == (data.kind == DataKind::speech),
                    fmt::format("data \"{}\" and loss \"{}\" do not fit: ctc is the loss of speech", data.name,
                                row_of(loss.kind).name));
    reader.check_of("loss", (loss.kind == LossKind::detection) == (data.kind == DataKind::boxes),
                    fmt::format("data \"{}\" and loss \"{}\" do not fit: detection is the loss of boxes", data.name,
                                row_of(loss.kind).name));
    Network network{layers_of(reader)};
    reader.check_of("layers", !network.layers.empty() || data.kind == DataKind::logits, "\"layers\" is empty");
    check_model(network, input, data.kind, classes);
    check_entries(network.layers, data, classes);
    reader.check_of(
        "loss", loss.kind != LossKind::binary_cross_entropy || gives_probabilities(network.layers),
        "loss \"binary_cross_entropy\" takes probabilities, and the last layer gives none: end with a layer "
        "sigmoid, or take binary_cross_entropy_with_logits");
    Subject subject = subject_of_network(input, data.kind, classes, std::move(network));
    subject.loss = std::move(loss);
    if (root_.contains("training")) subject.settings = training_of(root_["training"], data);
    subject.name = name, subject.sizes = fmt::format("b{}", input[0]);
    return subject;
  }

 private:
  Shape input_of(const ObjectReader& reader) {
    constexpr const char* kForm = "the extents of one sample, as [3, 16, 16] or [64]";
    const Json& given = reader.member("input", kForm);
    reader.check_at(given, given.is_array() && !given.empty() && given.size() < static_cast<size_t>(Shape::kMaxRank),
                    fmt::format("\"input\" is {}, not {}", short_text(given), kForm));
    constexpr int64_t kMost = int64_t{1} << 24;
    std::vector<int64_t> extents = {reader.count("batch", "the number of samples in a batch", kMost)};
    double elements = static_cast<double>(extents[0]);
    for (const Json& one : given) {
      extents.push_back(reader.checked_count(one, "an extent of \"input\"", kMost));
      elements *= static_cast<double>(extents.back());
    }
    reader.check_at(given, elements <= 0x1p36, "the input would have more than 2^36 elements");
    return Shape(std::span<const int64_t>(extents));
  }

  const DataRow& data_of(const ObjectReader& reader, const Shape& input) {
    std::vector<std::string_view> known;
    for (const DataRow& row : data_rows()) known.push_back(row.name);
    const std::string form = fmt::format("one of {}", fmt::join(known, ", "));
    const std::string name = reader.word("data", form.c_str());
    for (const DataRow& row : data_rows()) {
      if (row.name != name) continue;
      reader.check_of(
          "input", row.rank == 0 || input.rank() == row.rank,
          fmt::format("data \"{}\" have samples of rank {}, \"input\" has {}", name, row.rank - 1, input.rank() - 1));
      return row;
    }
    reader.fail_at(root_["data"], fmt::format("\"data\" is {}, not {}", short_text(root_["data"]), form));
  }

  Settings training_of(const Json& given, const DataRow& data) const {
    const ObjectReader whole(root_, lines_, where_);
    whole.check_at(given, data.has_labels(),
                   fmt::format("data \"{}\" have no labels, so there is no \"training\"", data.name));
    whole.check_at(given, given.is_object(),
                   fmt::format("\"training\" is {}, not an object as {{\"optimizer\": \"adamw\"}}", short_text(given)));
    const ObjectReader reader(given, lines_, where_);
    Arguments arguments;
    for (const auto& [key, value] : given.items())
      arguments.emplace(printable(key.substr(0, 40)), argument(key, value, reader));
    try {
      return training_from(arguments);
    } catch (const Error& error) {
      reader.fail(printable(error.what()));
    }
  }

  LossSpec loss_of(const Json& given, DataKind data, int64_t classes) const {
    const ObjectReader whole(root_, lines_, where_);
    whole.check_at(given, given.is_object(),
                   fmt::format("\"loss\" is {}, not an object as {{\"loss\": \"cross_entropy\"}}", short_text(given)));
    const ObjectReader reader(given, lines_, where_);
    const std::string kind = reader.word("loss", "the kind of the loss");
    Arguments arguments;
    for (const auto& [key, value] : given.items())
      if (key != "loss") arguments.emplace(printable(key.substr(0, 40)), argument(key, value, reader));
    try {
      LossSpec loss = loss_from(kind, arguments);
      HM_CHECK(loss.class_weights.empty() || loss.class_weights.size() == static_cast<size_t>(classes),
               fmt::format("{} class_weights for {} classes", loss.class_weights.size(), classes));
      check_loss(data, loss);
      make_loss(loss);
      return loss;
    } catch (const Error& error) {
      reader.fail(printable(error.what()));
    }
  }

  std::vector<LayerSpec> layers_of(const ObjectReader& reader) {
    const Json& given = reader.member("layers", "a list of layers");
    reader.check_at(given, given.is_array(), fmt::format("\"layers\" is {}, not a list of layers", short_text(given)));
    return sequence(given, reader);
  }

  std::vector<LayerSpec> sequence(const Json& given, const ObjectReader& reader) {
    std::vector<LayerSpec> layers;
    for (const Json& one : given) {
      reader.check_at(one, one.is_object(),
                      fmt::format("{} is no layer; a layer is an object with \"layer\": its kind", short_text(one)));
      layers.push_back(layer(one));
    }
    return layers;
  }

  LayerSpec layer(const Json& given) {
    const ObjectReader reader(given, lines_, where_);
    LayerSpec spec;
    spec.kind = reader.word("layer", "the kind of the layer");
    spec.line = lines_.of(given);
    reader.check(++layers_ <= kMostLayers, fmt::format("more than {} layers", kMostLayers));
    const LayerKind* kind = nullptr;
    try {
      kind = &layer_kind_named(spec.kind);
    } catch (const Error& error) {
      reader.fail(printable(error.what()));
    }
    spec.name = given.contains("name") ? reader.word("name", "a word") : fmt::format("{}{}", spec.kind, layers_);
    reader.check(is_name(spec.name), fmt::format("\"name\" is {}: a name consists of letters, digits, '_', '-' and "
                                                 "'.', and begins with a letter or digit",
                                                 short_text(given.value("name", Json()))));
    for (const auto& [key, value] : given.items()) {
      if (key == "layer" || key == "name") continue;
      if (key == "branches" && kind->branches != LayerKind::Branches::none) {
        reader.check_at(value, value.is_array(),
                        fmt::format("\"branches\" is {}, not a list of lists", short_text(value)));
        for (const Json& branch : value) {
          reader.check_at(branch, branch.is_array(),
                          fmt::format("a branch is {}, not a list of layers", short_text(branch)));
          spec.branches.push_back(sequence(branch, reader));
        }
        continue;
      }
      check_known(key, value, *kind, spec, reader);
      spec.arguments.emplace(printable(key.substr(0, 40)), argument(key, value, reader));
    }
    return spec;
  }

  // Before the value is read: that of an unknown key can be of any form.
  static void check_known(const std::string& key, const Json& value, const LayerKind& kind, const LayerSpec& spec,
                          const ObjectReader& reader) {
    std::vector<std::string> known;
    for (const ArgumentRow& row : kind.arguments) known.emplace_back(row.name);
    std::string has = arguments_text(kind.arguments);
    if (kind.branches != LayerKind::Branches::none) {
      known.emplace_back("branches");
      has += std::string(has.empty() ? "" : ", ") + "branches (lists of layers)";
    }
    reader.check_at(value, std::ranges::find(known, key) != known.end(),
                    fmt::format("layer {} ({}): unknown argument \"{}\"; it has {}{}", spec.name, spec.kind,
                                printable(key.substr(0, 40)), has.empty() ? "none" : has, hint(key, known)));
  }

  static Value argument(const std::string& key, const Json& value, const ObjectReader& reader) {
    constexpr int64_t kMost = int64_t{1} << 53;
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_string()) {
      reader.check_length(key, value);
      return value.get<std::string>();
    }
    if (value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(kMost))
      return value.get<int64_t>();
    if (value.is_number_integer() && !value.is_number_unsigned()) return value.get<int64_t>();
    if (value.is_number()) return value.get<double>();
    const auto is_size = [](const Json& one) {
      return one.is_number_unsigned() && one.get<uint64_t>() <= static_cast<uint64_t>(kMost);
    };
    if (value.is_array() && value.size() == 2 && is_size(value[0]) && is_size(value[1]))
      return Extent{value[0].get<int64_t>(), value[1].get<int64_t>()};
    if (value.is_array() && value.size() <= kMostNumbers &&
        std::ranges::all_of(value, [](const Json& one) { return one.is_number(); }))
      return value.get<std::vector<double>>();
    reader.fail_at(value, fmt::format("\"{}\" is {}, not a number, a list of numbers, true, false or a word",
                                      printable(key.substr(0, 40)), short_text(value)));
  }

  // Layers that take the input: each has a row for every index that the data have.
  void check_entries(const std::vector<LayerSpec>& layers, const DataRow& data, int64_t classes) const {
    if (!data.has_indices || layers.empty()) return;
    const LayerSpec& first = layers.front();
    for (const std::vector<LayerSpec>& branch : first.branches) check_entries(branch, data, classes);
    if (first.kind != "embedding") return;
    const int64_t entries = std::get<int64_t>(first.arguments.at("entries")),
                  needed = data.kind == DataKind::tokens ? kTokenKinds : classes;
    if (entries < needed)
      throw Error(fmt::format("{}:{}: layer {} (embedding): entries is {}, data \"{}\" need {} or more", where_,
                              first.line, first.name, entries, data.name, needed));
  }

  // Whether all outputs are in 0 ... 1, as far as the kinds of the last layers tell.
  static bool gives_probabilities(const std::vector<LayerSpec>& layers) {
    constexpr std::string_view kKeeps[] = {"flatten",
                                           "max_pool2d",
                                           "avg_pool2d",
                                           "global_avg_pool2d",
                                           "adaptive_avg_pool2d",
                                           "upsample_bilinear2d",
                                           "upsample_nearest2d",
                                           "take_step",
                                           "to_sequence"};
    const auto last = std::find_if(layers.rbegin(), layers.rend(), [&](const LayerSpec& layer) {
      return std::ranges::find(kKeeps, layer.kind) == std::end(kKeeps);
    });
    return last != layers.rend() && (last->kind == "sigmoid" || last->kind == "softmax");
  }

  // `data`: what the output of the last layer has to fit.
  void check_model(const Network& network, const Shape& input, DataKind data, int64_t classes) const {
    const auto complain = [&](size_t line, const Error& error) {
      throw Error(fmt::format("{}{}: {}", where_, line ? fmt::format(":{}", line) : "", printable(error.what())));
    };
    Shape output;
    try {
      output = output_shape(network, input);
    } catch (const LayerError& error) {
      complain(error.line(), error);
    } catch (const Error& error) {
      complain(0, error);
    }
    try {
      check_output(data, input, classes, output);
    } catch (const Error& error) {
      complain(network.layers.empty() ? 0 : network.layers.back().line, error);
    }
  }

  const Json& root_;
  const JsonLines& lines_;
  const std::string& where_;
  size_t layers_ = 0;
};

std::vector<std::string>& options() {
  static std::vector<std::string> all;
  return all;
}

Json json_of(const Value& value) {
  if (const auto* pair = std::get_if<Extent>(&value))
    return pair->h == pair->w ? Json(pair->h) : Json::array({pair->h, pair->w});
  return std::visit(
      [](const auto& one) -> Json {
        using Kind = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<Kind, Extent>) {
          return nullptr;
        } else if constexpr (std::is_same_v<Kind,
                                            std::vector<double>>) {  // lengths are whole, weights of classes are not
          Json list = Json::array();
          for (const double number : one)
            list.push_back(std::fabs(number) < 0x1p53 && number == std::floor(number)
                               ? Json(static_cast<int64_t>(number))
                               : Json(number));
          return list;
        } else {
          return one;
        }
      },
      value);
}

Json json_of(const std::vector<LayerSpec>& layers) {
  Json list = Json::array();
  for (const LayerSpec& spec : layers) {
    Json one = {{"layer", spec.kind}, {"name", spec.name}};
    const LayerKind& kind = layer_kind_named(spec.kind);
    const Arguments arguments = checked(kind.arguments, spec.arguments);
    for (const ArgumentRow& row : kind.arguments)
      if (const auto given = arguments.find(row.name); given != arguments.end())
        one[given->first] = json_of(given->second);
    if (!spec.branches.empty()) {
      one["branches"] = Json::array();
      for (const auto& branch : spec.branches) one["branches"].push_back(json_of(branch));
    }
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

Subject model_in(std::string_view text, const std::string& where) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const Json root = reports::parse_json(text, where, kKind);
  HM_CHECK(root.is_object(),
           fmt::format("{}: is {}, not an object; a model file begins with {{", where, short_text(root)));
  const JsonLines lines(text, root);
  return ModelReader(root, lines, where).model();
}

std::string add_model_file(const std::string& file) {
  static std::map<std::string, std::string> files;  // of the names of models
  const Subject subject = model_in(reports::read_file(file), file);
  // What a word of a command line may mean beside a subject.
  std::vector<std::pair<std::string, std::string>> taken = {{"halfmark", "the program"}};
  for (const std::string& name : policy_names()) taken.emplace_back(name, "a policy");
  for (const std::string& name : harness_names()) taken.emplace_back(name, "a harness");
  for (const std::string& name : device_names()) taken.emplace_back(name, "a device");
  for (const Suite& suite : suites()) taken.emplace_back(suite.name, "a suite");
  for (const Family& family : families()) taken.emplace_back(family.name, "subjects of the suite");
  for (const Subject& known : subjects())
    taken.emplace_back(known.name,
                       files.contains(known.name) ? "the model of " + files[known.name] : "a subject of the suite");
  for (const auto& [name, what] : taken)
    HM_CHECK(name != subject.name, fmt::format("{}: \"name\" is \"{}\", which is the name of {}; choose another, as "
                                               "my_{}",
                                               file, subject.name, what, subject.name));
  add_model(subject);
  files[subject.name] = file;
  options().insert(options().end(), {"--model", std::filesystem::absolute(file).lexically_normal().string()});
  return subject.id();
}

const std::vector<std::string>& model_file_options() { return options(); }

Json model_json(const Subject& subject) {
  HM_CHECK(subject.network, "subject " + subject.id() + " is a function of a program and cannot be written as a file");
  std::vector<int64_t> sample(subject.input.extents().begin() + 1, subject.input.extents().end());
  // Ids of the suite's own subjects cannot be those of a file. Without the sizes, because the file is there to be changed.
  const std::string name = family_named(subject.name) ? "my_" + subject.name : subject.name;
  Json json = {{"name", name}, {"input", sample}, {"batch", subject.input[0]}};
  json["data"] = row_of(subject.data).name;
  if (subject.classes > 0) json["classes"] = subject.classes;
  if (subject.has_labels()) {
    json["loss"] = {{"loss", row_of(subject.loss.kind).name}};
    for (const auto& [key, value] : arguments_of(subject.loss)) json["loss"][key] = json_of(value);
  }
  if (const Arguments training = arguments_of_training(subject.settings); !training.empty())
    for (const auto& [key, value] : training) json["training"][key] = json_of(value);
  json["layers"] = json_of(subject.network->layers);
  return json;
}

}  // namespace halfmark::bench
