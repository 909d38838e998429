// The axes that the records of a table were measured with. A record names only those that are not at their default.
#pragma once

#include <map>
#include <set>
#include <string>

#include "reports/record/record.h"

namespace halfmark::reports {

class AxisSettings {
 public:
  void add(const Record& record);

  // Axes whose value differs between records of the same policy and harness: best or worst is taken over them.
  std::set<std::string> varied() const;

  // "fused=on (error, throughput of amp-fp16)": the axes that all records of a harness have at one value, in brackets the
  // harnesses, with the policies if not all have it. Empty if there are none.
  std::string common_text() const;

  // Whether there are records of the policy, and whether one of its harnesses has an axis at one value that is not the
  // default.
  bool has(const std::string& policy) const;
  bool has_common(const std::string& policy) const;

  // Of one policy, the axes that vary too: "fused=on (error, throughput); steps=100|default (memory)". Two reports whose texts
  // are equal measured the policy with the same settings.
  std::string text_of(const std::string& policy) const;

 private:
  struct Axes {
    size_t records = 0;
    std::map<std::string, std::map<std::string, size_t>> values;  // [axis][value]: records that name it
  };
  static bool is_common(const Axes& axes, const std::string& axis);
  // "on", "100|default": the values of an axis.
  static std::string values_text(const Axes& axes, const std::string& axis);

  std::map<std::string, std::map<std::string, Axes>> axes_;  // [harness][policy]
};

}  // namespace halfmark::reports
