// The axes that the records of a table were measured with. A record names only those that are not at their default.
#pragma once

#include <map>
#include <set>
#include <string>

#include "reports/record/record.h"
#include "reports/text/table.h"

namespace halfmark::reports {

class AxisSettings {
 public:
  void add(const Record& record);

  // Axes whose value differs between records of the same policy and harness: best or worst is taken over them.
  std::set<std::string> varied() const;

  std::set<std::string> varied(const std::string& policy, const std::string& harness) const;

  // "fused=on (error; throughput: amp-fp16 bf16), steps=100 (memory)": the axes that all records of a harness have at one
  // value, in brackets the harnesses, each with the policies if not all have it. Empty if there are none.
  std::string common_text() const;

  bool has(const std::string& policy) const;  // whether there are records of it

  // Of one policy, the axes that vary too: "fused=on (error; throughput), steps=100|default (memory)". Equal texts: the same
  // values of each axis, though not always the same combinations. Empty: all are at their defaults.
  // With the values of `defaults` in place of "default".
  std::string text_of(const std::string& policy, const DefaultSettings* defaults = nullptr) const;
  std::string text_of(const std::string& policy, const std::string& harness) const;

 private:
  struct Counts {
    size_t records = 0;
    std::map<std::string, std::map<std::string, size_t>> values;  // [axis][value]: records that name it
  };
  static bool is_common(const Counts& counts, const std::string& axis);
  // "on", "100|default": the values of an axis; `of_others`: that of records that do not name it.
  static std::string values_text(const Counts& counts, const std::string& axis, const std::string& of_others);
  std::string text_of(const std::string& policy, const std::string& harness, const DefaultSettings* defaults) const;

  std::map<std::string, std::map<std::string, Counts>> counts_;  // [harness][policy]
};

}  // namespace halfmark::reports
