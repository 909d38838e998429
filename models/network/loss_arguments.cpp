#include "models/network/loss_arguments.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

ArgumentRow number_row(std::string_view name, std::string_view about, double usual, double least, double most) {
  return {.name = name, .about = about, .type = ArgumentType::number, .usual = usual, .least = least, .most = most};
}

constexpr int64_t kNoneIgnored = -100;  // PyTorch's usual ignore_index: no label is negative

struct LossArgument {
  ArgumentRow row;
  void (*set)(LossSpec&, const Value&);
  Value (*get)(const LossSpec&);
};

template <auto kMember>
LossArgument number_of(ArgumentRow row) {
  return {std::move(row), [](LossSpec& spec, const Value& value) { spec.*kMember = std::get<double>(value); },
          [](const LossSpec& spec) -> Value { return spec.*kMember; }};
}

// Every member of LossSpec. Which ones a kind reads is in loss_rows().
const std::vector<LossArgument>& all_arguments() {
  constexpr double kMost = 1e6;
  const LossSpec usual;
  static const std::vector<LossArgument> all = {
      number_of<&LossSpec::smoothing>(number_row("smoothing", "of labels", usual.smoothing, 0, 1)),
      {{.name = "ignored",
        .about = "positions with this label do not count",
        .usual = kNoneIgnored,
        .least = -0x1p24,
        .most = 0x1p24},
       [](LossSpec& spec, const Value& value) {
         spec.ignored.reset();
         if (std::get<int64_t>(value) != kNoneIgnored) spec.ignored = std::get<int64_t>(value);
       },
       [](const LossSpec& spec) -> Value { return spec.ignored.value_or(kNoneIgnored); }},
      {{.name = "class_weights",
        .about = "a weight for each class",
        .type = ArgumentType::numbers,
        .usual = std::vector<double>(),
        .least = 0,
        .most = kMost},
       [](LossSpec& spec, const Value& value) { spec.class_weights = std::get<std::vector<double>>(value); },
       [](const LossSpec& spec) -> Value { return spec.class_weights; }},
      number_of<&LossSpec::pos_weight>(number_row("pos_weight", "of the targets 1", usual.pos_weight, 0, kMost)),
      number_of<&LossSpec::beta>(number_row("beta", "where the square ends", usual.beta, 0, kMost)),
      number_of<&LossSpec::alpha>(
          number_row("alpha", "weight of the targets 1; negative: no weights", usual.alpha, -1, 1)),
      number_of<&LossSpec::gamma>(number_row("gamma", "exponent", usual.gamma, 0, 100)),
      {{.name = "blank",
        .about = "the class that stands for no label",
        .usual = int64_t{usual.blank},
        .least = 0,
        .most = 0x1p24},
       [](LossSpec& spec, const Value& value) { spec.blank = static_cast<int>(std::get<int64_t>(value)); },
       [](const LossSpec& spec) -> Value { return int64_t{spec.blank}; }},
      {{.name = "zero_infinity",
        .about = "an impossible sequence has the loss 0",
        .type = ArgumentType::flag,
        .usual = usual.zero_infinity},
       [](LossSpec& spec, const Value& value) { spec.zero_infinity = std::get<bool>(value); },
       [](const LossSpec& spec) -> Value { return spec.zero_infinity; }},
  };
  return all;
}

const LossArgument& argument_named(std::string_view name) {
  for (const LossArgument& one : all_arguments())
    if (one.row.name == name) return one;
  throw Error("a loss names the argument " + std::string(name) + ", which has no row");
}

std::vector<ArgumentRow> rows_of(const LossRow& loss) {
  std::vector<ArgumentRow> rows;
  std::string_view rest = loss.arguments;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    rows.push_back(argument_named(rest.substr(0, end)).row);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return rows;
}

}  // namespace

std::span<const ArgumentRow> arguments_of(LossKind kind) {
  static const std::map<LossKind, std::vector<ArgumentRow>> all = [] {
    std::map<LossKind, std::vector<ArgumentRow>> made;
    for (const LossRow& row : loss_rows()) made.emplace(row.kind, rows_of(row));
    return made;
  }();
  return all.at(kind);
}

LossSpec loss_from(std::string_view name, const Arguments& given) {
  LossSpec spec;
  spec.kind = loss_named(name).kind;
  for (const auto& [argument, value] : checked(arguments_of(spec.kind), given))
    argument_named(argument).set(spec, value);
  return spec;
}

Arguments arguments_of(const LossSpec& spec) {
  Arguments given;
  const std::span<const ArgumentRow> rows = arguments_of(spec.kind);
  for (const ArgumentRow& row : rows) given.emplace(row.name, argument_named(row.name).get(spec));
  return checked(rows, given);
}

std::string text_of(const LossSpec& spec) {
  std::string text(row_of(spec.kind).name);
  for (const auto& [name, value] : arguments_of(spec)) text += " " + name + "=" + text_of(value);
  return text;
}

}  // namespace halfmark::models
