// Reads a JSON tree and keeps the path of each value, so that every error names its field.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "reports/record/error.h"
#include "reports/record/json_parser.h"

namespace halfmark::reports {

// A view: the tree and the parent readers must outlive it. Every method throws ReportError.
class JsonReader {
 public:
  // `where` (a file name) is the prefix of every error. `kind` is what the file should be.
  JsonReader(const nlohmann::ordered_json& json, std::string_view where, std::string_view kind = kReportKind)
      : json_(&json), where_(where), kind_(kind) {}

  // For an element of a list that is not in the tree.
  JsonReader element(const nlohmann::ordered_json& json, size_t index) const { return {json, this, {}, index}; }

  const nlohmann::ordered_json& value() const { return *json_; }
  void expect_object() const;
  void expect_only(std::span<const std::string_view> known) const;  // a misspelt name is an error

  JsonReader required(const char* key) const;
  std::optional<JsonReader> optional(const char* key) const;  // nullopt if absent or null

  std::string text() const;
  double number() const;  // numbers, and "NaN" "Infinity" "-Infinity"
  int integer() const;
  bool boolean() const;
  void each(const std::function<void(const JsonReader&)>& visit) const;
  template <class Enum>
  Enum one_of(std::span<const std::string_view> names) const {
    return static_cast<Enum>(index_of(names));
  }

  // Members that may be absent.
  std::string text(const char* key, std::string fallback = {}) const;
  double number(const char* key, double fallback = 0) const;
  int integer(const char* key, int fallback) const;
  uint64_t unsigned_integer(const char* key) const;
  std::vector<double> numbers(const char* key) const;
  void each(const char* key, const std::function<void(const JsonReader&)>& visit) const;
  void each_member(const char* key, const std::function<void(const std::string&, const JsonReader&)>& visit) const;

  [[noreturn]] void fail(std::string_view what) const;

 private:
  JsonReader(const nlohmann::ordered_json& json, const JsonReader* parent, std::string_view key, size_t index)
      : json_(&json), where_(parent->where_), kind_(parent->kind_), parent_(parent), key_(key), index_(index) {}

  size_t index_of(std::span<const std::string_view> names) const;
  [[noreturn]] void expected(std::string_view what) const;
  std::string path() const;  // "records[3].measurements[0].value"

  const nlohmann::ordered_json* json_;
  std::string_view where_, kind_;
  const JsonReader* parent_ = nullptr;
  std::string_view key_;  // empty: index_ counts
  size_t index_ = 0;
};

}  // namespace halfmark::reports
