#include "models/network/training_arguments.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/number/error.h"
#include "models/optimizer.h"

namespace halfmark::models {
namespace {

struct TrainingArgument {
  ArgumentRow row;
  void (*set)(Settings&, const Value&);
  std::optional<Value> (*get)(const Settings&);
};

template <auto kMember>
TrainingArgument number(std::string_view name, std::string_view about, double least, double most) {
  const Settings usual;
  return {{.name = name,
           .about = about,
           .type = ArgumentType::number,
           .usual = usual.*kMember,
           .least = least,
           .most = most},
          [](Settings& s, const Value& value) { s.*kMember = std::get<double>(value); },
          [](const Settings& s) -> std::optional<Value> { return s.*kMember; }};
}
template <auto kMember>
TrainingArgument number_of_optimizer(std::string_view name, std::string_view about, double least, double most) {
  const OptimizerSpec usual;
  return {{.name = name,
           .about = about,
           .type = ArgumentType::number,
           .usual = usual.*kMember,
           .least = least,
           .most = most},
          [](Settings& s, const Value& value) { s.optimizer.*kMember = std::get<double>(value); },
          [](const Settings& s) -> std::optional<Value> { return s.optimizer.*kMember; }};
}

const std::vector<TrainingArgument>& all() {
  static const std::vector<TrainingArgument> rows = {
      {{.name = "optimizer",
        .about = "sgd, adam, adam_keras or adamw",
        .type = ArgumentType::word,
        .usual = std::string("sgd")},
       [](Settings& s, const Value& value) { s.optimizer.kind = optimizer_named(std::get<std::string>(value)).kind; },
       [](const Settings& s) -> std::optional<Value> { return std::string(row_of(s.optimizer.kind).name); }},
      number<&Settings::rate>("rate", "learning rate", 0, 1e6),
      number<&Settings::momentum>("momentum", "of SGD", 0, 1),
      number<&Settings::weight_decay>("weight_decay", "as the optimizer defines it", 0, 1e6),
      number_of_optimizer<&OptimizerSpec::dampening>("dampening", "of SGD", 0, 1),
      {{.name = "nesterov", .about = "Nesterov's step of SGD", .type = ArgumentType::flag, .usual = false},
       [](Settings& s, const Value& value) { s.optimizer.nesterov = std::get<bool>(value); },
       [](const Settings& s) -> std::optional<Value> { return s.optimizer.nesterov; }},
      number_of_optimizer<&OptimizerSpec::beta1>("beta1", "of Adam", 0, 1),
      number_of_optimizer<&OptimizerSpec::beta2>("beta2", "of Adam", 0, 1),
      {{.name = "epsilon",
        .about = "of Adam; without it, the optimizer's own",
        .type = ArgumentType::number,
        .is_optional = true,
        .least = 0,
        .most = 1},
       [](Settings& s, const Value& value) { s.optimizer.epsilon = std::get<double>(value); },
       [](const Settings& s) -> std::optional<Value> {
         if (s.optimizer.epsilon) return *s.optimizer.epsilon;
         return {};
       }},
      {{.name = "storage",
        .about = "how parameters are rounded: nearest, stochastic or kahan",
        .type = ArgumentType::word,
        .usual = std::string("nearest")},
       [](Settings& s, const Value& value) {
         s.optimizer.storage = storage_named(std::get<std::string>(value)).storage;
       },
       [](const Settings& s) -> std::optional<Value> {
         for (const StorageRow& row : storage_rows())
           if (row.storage == s.optimizer.storage) return std::string(row.name);
         return {};
       }},
      number_of_optimizer<&OptimizerSpec::clip_norm>("clip_norm", "largest norm of all gradients; 0: any", 0, 1e30),
  };
  return rows;
}

// Whether an optimizer has the argument. Those of no optimizer's own are of all of them.
bool reads(const OptimizerRow& optimizer, std::string_view name) {
  if (name == "momentum") return optimizer.kind == OptimizerKind::sgd;  // of Settings, which the rows do not list
  const auto lists = [&](const OptimizerRow& row) {
    return (" " + std::string(row.arguments) + " ").find(" " + std::string(name) + " ") != std::string::npos;
  };
  return lists(optimizer) || std::ranges::none_of(optimizer_rows(), lists);
}

// A value that asks for nothing.
bool is_off(const Value& value) { return value == Value(int64_t{0}) || value == Value(0.0) || value == Value(false); }

const OptimizerRow& optimizer_of(const Arguments& given, const Settings& otherwise) {
  const auto named = given.find("optimizer");
  const auto* name = named == given.end() ? nullptr : std::get_if<std::string>(&named->second);
  return name ? optimizer_named(*name) : row_of(otherwise.optimizer.kind);
}

}  // namespace

std::span<const ArgumentRow> training_arguments() {
  static const std::vector<ArgumentRow> rows = [] {
    std::vector<ArgumentRow> made;
    for (const TrainingArgument& one : all()) made.push_back(one.row);
    return made;
  }();
  return rows;
}

Settings training_from(const Arguments& given) {
  Settings settings;
  const Arguments found = checked(training_arguments(), given);
  const OptimizerRow& optimizer = optimizer_of(found, settings);
  for (const auto& [name, value] : given)
    HM_CHECK(reads(optimizer, name) || is_off(value), std::string(optimizer.name) + " has no " + name);
  for (const TrainingArgument& one : all())
    if (const auto value = found.find(one.row.name); value != found.end()) one.set(settings, value->second);
  const Optimizer valid(settings.optimizer, settings.rate, settings.momentum, settings.weight_decay);
  return settings;
}

Settings training_with(const Settings& before, const Arguments& changed) {
  Arguments given = changed;
  const OptimizerRow& optimizer = optimizer_of(changed, before);
  for (const auto& [name, value] : arguments_of_training(before))
    if (reads(optimizer, name)) given.emplace(name, value);  // does not replace
  return training_from(given);
}

Arguments arguments_of_training(const Settings& settings) {
  Arguments given;
  for (const TrainingArgument& one : all())
    if (const auto value = one.get(settings)) given.emplace(one.row.name, *value);
  return checked(training_arguments(), given);
}

std::string text_of_training(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : arguments_of_training(settings))
    text += (text.empty() ? "" : " ") + name + "=" + text_of(value);
  return text;
}

}  // namespace halfmark::models
