#include "reports/record/json_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;

// A value of unknown origin for a one-line message: short, and without line breaks.
std::string shown(const Json& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

}  // namespace

std::string JsonReader::path() const {
  if (!parent_) return {};
  std::string result = parent_->path();
  if (key_.empty()) return fmt::format("{}[{}]", result, index_);
  return result.empty() ? std::string(key_) : fmt::format("{}.{}", result, key_);
}

void JsonReader::fail(std::string_view what) const {
  std::string place = path();
  std::replace_if(
      place.begin(), place.end(), [](unsigned char c) { return c < ' '; }, '?');  // the message is one line
  throw ReportError(fmt::format("{}: {}{}{}; is this a {}{}?", where_, place, place.empty() ? "" : ": ", what, kind_,
                                kind_ == kReportKind ? ", or was it edited" : ""));
}

void JsonReader::expected(std::string_view what) const {
  fail(fmt::format("expected {}, found {}", what, shown(*json_)));
}

void JsonReader::expect_object() const {
  if (!json_->is_object()) expected("an object");
}

void JsonReader::expect_only(std::span<const std::string_view> known) const {
  expect_object();
  for (const auto& [key, value] : json_->items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    fail(fmt::format("unknown key {}, known are {}", shown(Json(key)), fmt::join(known, ", ")));
  }
}

JsonReader JsonReader::required(const char* key) const {
  expect_object();
  const auto found = json_->find(key);
  if (found == json_->end()) fail(fmt::format("\"{}\" is missing", key));
  return JsonReader(*found, this, key, 0);
}

std::optional<JsonReader> JsonReader::optional(const char* key) const {
  expect_object();
  const auto found = json_->find(key);
  if (found == json_->end() || found->is_null()) return std::nullopt;
  return JsonReader(*found, this, key, 0);
}

std::string JsonReader::text() const {
  if (!json_->is_string()) expected("text");
  return json_->get<std::string>();
}

double JsonReader::number() const {
  if (json_->is_number()) return json_->get<double>();
  if (json_->is_string()) {
    const auto& text = json_->get_ref<const std::string&>();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  }
  expected("a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
}

int JsonReader::integer() const {
  constexpr int kLimit = std::numeric_limits<int>::max();
  if (!json_->is_number_integer()) expected("a whole number");
  if (json_->is_number_unsigned() ? json_->get<uint64_t>() > uint64_t{kLimit} : json_->get<int64_t>() < -kLimit) {
    expected("a small whole number");
  }
  return json_->get<int>();
}

bool JsonReader::boolean() const {
  if (!json_->is_boolean()) expected("true or false");
  return json_->get<bool>();
}

void JsonReader::each(const std::function<void(const JsonReader&)>& visit) const {
  if (!json_->is_array()) expected("a list");
  for (size_t i = 0; i < json_->size(); ++i) visit(JsonReader((*json_)[i], this, {}, i));
}

size_t JsonReader::index_of(std::span<const std::string_view> names) const {
  if (json_->is_string()) {
    const auto found = std::find(names.begin(), names.end(), json_->get_ref<const std::string&>());
    if (found != names.end()) return static_cast<size_t>(found - names.begin());
  }
  expected(fmt::format("one of {}", fmt::join(names, ", ")));
}

std::string JsonReader::text(const char* key, std::string fallback) const {
  const auto member = optional(key);
  return member ? member->text() : std::move(fallback);
}

double JsonReader::number(const char* key, double fallback) const {
  const auto member = optional(key);
  return member ? member->number() : fallback;
}

int JsonReader::integer(const char* key, int fallback) const {
  const auto member = optional(key);
  return member ? member->integer() : fallback;
}

uint64_t JsonReader::unsigned_integer(const char* key) const {
  const auto member = optional(key);
  if (!member) return 0;
  // A tree built in memory stores a positive number as signed.
  if (!member->json_->is_number_integer() ||
      (!member->json_->is_number_unsigned() && member->json_->get<int64_t>() < 0)) {
    member->expected("a whole number, not negative");
  }
  return member->json_->get<uint64_t>();
}

std::vector<double> JsonReader::numbers(const char* key) const {
  std::vector<double> values;
  each(key, [&](const JsonReader& one) { values.push_back(one.number()); });
  return values;
}

void JsonReader::each(const char* key, const std::function<void(const JsonReader&)>& visit) const {
  if (const auto member = optional(key)) member->each(visit);
}

void JsonReader::each_member(const char* key,
                             const std::function<void(const std::string&, const JsonReader&)>& visit) const {
  const auto member = optional(key);
  if (!member) return;
  member->expect_object();
  for (const auto& [name, value] : member->json_->items()) visit(name, JsonReader(value, &*member, name, 0));
}

}  // namespace halfmark::reports
