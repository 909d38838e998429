// Arguments of the layers of a network: a table row says what a kind of layer accepts, and values are read by it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/namespaces.h"
#include "models/sizes.h"

namespace halfmark::models {

// A whole number, a pair of height and width, a number, yes or no, a word, or a list of numbers. A pair of equal numbers
// is an Extent too.
using Value = std::variant<int64_t, Extent, double, bool, std::string, std::vector<double>>;
using Arguments = std::map<std::string, Value, std::less<>>;

enum class ArgumentType : uint8_t {
  count,   // a whole number
  extent,  // height and width: one whole number, or two
  number,
  flag,
  word,
  numbers,  // a list
};
std::string_view name_of(ArgumentType type);  // "a whole number", as in a message

struct ArgumentCondition {
  std::string_view name;  // of another argument
  Value value;
};

struct ArgumentRow {
  std::string_view name, about;
  ArgumentType type = ArgumentType::count;
  std::optional<Value> usual = {};  // empty: must be given, unless `is_optional`
  bool is_optional = false;         // absent: a setting of the trial decides, or something else that `about` says
  double least = 1, most = 0x1p24;  // of counts, extents and numbers
  std::optional<ArgumentCondition> only_with = {};  // it has an effect only if another argument has this value
};

// "out (outputs: a whole number), bias (usually true)"
std::string arguments_text(std::span<const ArgumentRow> rows);
std::string text_of(const Value& value);  // as JSON: 3, [3,1], 0.1, true, "same"

// The value as this row takes it: a whole number where a pair or any number is wanted is converted. Throws Error
// "kernel is 0, not in 1 ... 1024".
Value checked(const ArgumentRow& row, const Value& value);

// The given arguments, each checked. Throws Error for unknown and missing ones, and for those without effect. Arguments with their usual value are
// left out, so that equal layers have equal arguments.
Arguments checked(std::span<const ArgumentRow> rows, const Arguments& given);

// Checked arguments of one layer, read by name: the given value, or the usual one of the row.
struct GivenArguments {
  std::span<const ArgumentRow> rows = {};
  const Arguments* values = nullptr;

  bool has(std::string_view argument) const { return values->contains(argument); }
  int64_t count(std::string_view argument) const;
  Extent extent(std::string_view argument) const;
  double number(std::string_view argument) const;
  bool flag(std::string_view argument) const;
  const std::string& word(std::string_view argument) const;
  const std::vector<double>& numbers(std::string_view argument) const;
  const Value& value(std::string_view argument) const;
};

}  // namespace halfmark::models
