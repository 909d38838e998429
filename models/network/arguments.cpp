#include "models/network/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::models {
namespace {

std::string digits_of(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

void check_range(const ArgumentRow& row, double value) {
  HM_CHECK(row.least <= value && value <= row.most, std::string(row.name) + " is " + digits_of(value) + ", not in " +
                                                        digits_of(row.least) + " ... " + digits_of(row.most));
}

[[noreturn]] void throw_wrong_type(const ArgumentRow& row, const Value& value) {
  throw Error(std::string(row.name) + " is " + text_of(value) + ", not " + std::string(name_of(row.type)));
}

std::string quoted(std::string_view word) {
  std::string text = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

}  // namespace

std::string_view name_of(ArgumentType type) {
  switch (type) {
    case ArgumentType::count:
      return "a whole number";
    case ArgumentType::extent:
      return "a whole number or [height, width]";
    case ArgumentType::number:
      return "a number";
    case ArgumentType::flag:
      return "true or false";
    case ArgumentType::word:
      return "a word";
    case ArgumentType::numbers:
      return "a list of numbers";
  }
  return "";
}

std::string text_of(const Value& value) {
  if (const auto* count = std::get_if<int64_t>(&value)) return std::to_string(*count);
  if (const auto* pair = std::get_if<Extent>(&value))
    return pair->h == pair->w ? std::to_string(pair->h)
                              : "[" + std::to_string(pair->h) + "," + std::to_string(pair->w) + "]";
  if (const auto* number = std::get_if<double>(&value)) return digits_of(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* word = std::get_if<std::string>(&value)) return quoted(*word);
  std::string text;
  for (const double one : std::get<std::vector<double>>(value)) text += (text.empty() ? "" : ",") + digits_of(one);
  return "[" + text + "]";
}

std::string arguments_text(std::span<const ArgumentRow> rows) {
  std::string text;
  for (const ArgumentRow& row : rows) {
    text += (text.empty() ? "" : ", ") + std::string(row.name) + " (" + std::string(row.about);
    if (row.usual)
      text += ", usually " + text_of(*row.usual) + ")";
    else
      text += ": " + std::string(name_of(row.type)) + (row.is_optional ? ", optional)" : ")");
  }
  return text;
}

Value checked(const ArgumentRow& row, const Value& value) {
  const auto* count = std::get_if<int64_t>(&value);
  switch (row.type) {
    case ArgumentType::count:
      if (!count) break;
      check_range(row, static_cast<double>(*count));
      return *count;
    case ArgumentType::extent: {
      const auto* pair = std::get_if<Extent>(&value);
      if (!count && !pair) break;
      const Extent extent = pair ? *pair : Extent{*count, *count};
      check_range(row, static_cast<double>(extent.h)), check_range(row, static_cast<double>(extent.w));
      return extent;
    }
    case ArgumentType::number: {
      const auto* number = std::get_if<double>(&value);
      if (!count && !number) break;
      const double found = number ? *number : static_cast<double>(*count);
      check_range(row, found);
      return found;
    }
    case ArgumentType::flag:
      if (std::holds_alternative<bool>(value)) return value;
      break;
    case ArgumentType::word:
      if (std::holds_alternative<std::string>(value)) return value;
      break;
    case ArgumentType::numbers: {
      std::vector<double> all;
      if (const auto* pair = std::get_if<Extent>(&value))
        all = {static_cast<double>(pair->h), static_cast<double>(pair->w)};
      else if (const auto* list = std::get_if<std::vector<double>>(&value))
        all = *list;
      else
        break;
      for (const double one : all) check_range(row, one);
      return all;
    }
  }
  throw_wrong_type(row, value);
}

Arguments checked(std::span<const ArgumentRow> rows, const Arguments& given) {
  Arguments all;
  for (const auto& [name, value] : given) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&given_name = name](const ArgumentRow& r) { return r.name == given_name; });
    if (row == rows.end()) {
      std::vector<std::string> known;
      for (const ArgumentRow& one : rows) known.emplace_back(one.name);
      const std::string near = kernels::hint(name, known);
      throw Error("unknown argument \"" + name + "\"" + (near.empty() ? ";" : near) + " it has " +
                  (rows.empty() ? std::string("none") : arguments_text(rows)));
    }
    Value one = checked(*row, value);
    if (!row->usual || checked(*row, *row->usual) != one) all.emplace(name, std::move(one));
  }
  for (const ArgumentRow& row : rows)
    HM_CHECK(row.usual || row.is_optional || all.contains(row.name), "needs \"" + std::string(row.name) + "\" (" +
                                                                         std::string(row.about) + ", " +
                                                                         std::string(name_of(row.type)) + ")");
  for (const ArgumentRow& row : rows) {
    if (!row.only_with || !all.contains(row.name)) continue;
    const GivenArguments read{rows, &all};
    const Value& found = read.value(row.only_with->name);
    HM_CHECK(found == row.only_with->value, "\"" + std::string(row.name) + "\" has an effect only with \"" +
                                                std::string(row.only_with->name) +
                                                "\": " + text_of(row.only_with->value) + ", not " + text_of(found));
  }
  return all;
}

const Value& GivenArguments::value(std::string_view argument) const {
  if (const auto given = values->find(argument); given != values->end()) return given->second;
  for (const ArgumentRow& row : rows)
    if (row.name == argument && row.usual) return *row.usual;
  throw Error("there is no argument " + std::string(argument));
}

int64_t GivenArguments::count(std::string_view argument) const { return std::get<int64_t>(value(argument)); }
Extent GivenArguments::extent(std::string_view argument) const {
  const Value& found = value(argument);
  if (const auto* both = std::get_if<int64_t>(&found)) return {*both, *both};
  return std::get<Extent>(found);
}
double GivenArguments::number(std::string_view argument) const { return std::get<double>(value(argument)); }
bool GivenArguments::flag(std::string_view argument) const { return std::get<bool>(value(argument)); }
const std::string& GivenArguments::word(std::string_view argument) const {
  return std::get<std::string>(value(argument));
}
const std::vector<double>& GivenArguments::numbers(std::string_view argument) const {
  return std::get<std::vector<double>>(value(argument));
}

}  // namespace halfmark::models
