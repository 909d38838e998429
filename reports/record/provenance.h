// Whether records belong together: shards of one plan, and what a build and a machine must have in common.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/report.h"

namespace halfmark::reports {

// "2/8": the second of eight parts of a plan. Cases are distributed in turn, so that the parts take about equal time.
struct Shard {
  uint64_t part = 1, parts = 1;

  uint64_t size(uint64_t cases) const;  // the number of its cases, of the given total
  uint64_t place(uint64_t index) const { return part - 1 + index * parts; }  // position in the plan of its case `index`
};

// nullopt if the text is not I/N with I from 1 to N.
std::optional<Shard> shard_named(std::string_view text);

// A case as part of a plan: the same id with another network or on other data is another case. `data`: the hash of its
// files; empty: drawn.
std::string planned_case(const std::string& id, const std::string& definition, const std::string& data);
Plan plan_of(const std::vector<std::string>& cases);

// The value at a path of the environment ("/halfmark/git") as text; empty if it is absent. The layout of the
// environment is not fixed.
std::string fact(const nlohmann::ordered_json& environment, const char* pointer);

// Devices that are not what their names say, as the software GPU of the tests, which is cuda:0 there: "cuda:0 is not a
// GPU: software GPU: ...". From the records and from the environment; simulated devices have names of their own.
std::vector<std::string> substitutes(const Report& report);

// The first fact about build, libraries, processor, variables or devices that two environments both have and that
// differs. Records with such a difference are not from one run; machine names, memory sizes and dates may differ.
struct Difference {
  std::string key, here, there;
};
std::optional<Difference> difference_of(const nlohmann::ordered_json& here, const nlohmann::ordered_json& there);

}  // namespace halfmark::reports
