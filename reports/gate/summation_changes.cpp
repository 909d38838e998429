#include "reports/gate/summation_changes.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

std::optional<double> number_of(const Record& record, std::string_view metric) {
  for (const Measurement& one : record.measurements)
    if (one.metric == metric) return one.value;
  return {};
}

// "linear/b32_i64_o32/cuda:0/fp16": the id without the harness.
std::string place_of_record(const Record& record) {
  return printable(fmt::format("{}/{}/{}", record.subject, record.device, record.policy));
}

std::string text_of_number(std::optional<double> number) {
  return number ? fmt::format("{:g}", *number) : "an unknown number";
}

// What the two records say differently, most telling first; empty: nothing.
std::string change_between(const Record& base, const Record& found) {
  const auto both = [&](std::string_view metric) {
    return std::pair(number_of(base, metric), number_of(found, metric));
  };
  if (const auto [was, is] = both("summation.partial_sums"); was != is)
    return fmt::format("in {} partial sums, not in {}", text_of_number(is), text_of_number(was));
  if (const auto [was, is] = both("summation.products_per_block"); was != is)
    return fmt::format("in blocks of {} products, not of {}", text_of_number(is), text_of_number(was));
  if (const auto [was, is] = both("summation.kept_bits"); was != is)
    return fmt::format("with {} kept bits, not with {}", text_of_number(is), text_of_number(was));
  if (const auto [was, is] = both("summation.fingerprint"); was != is)
    return "in another way: same blocks and partial sums, another fingerprint";
  return {};
}

}  // namespace

std::vector<std::string> summation_changes(const Report& base, const Report& found) {
  std::unordered_map<std::string, const Record*> before;
  for (const Record& record : base.records)
    if (record.harness == "summation") before.emplace(record.id, &record);
  std::map<std::string, std::vector<std::string>> changes;
  for (const Record& record : found.records) {
    const auto other = before.find(record.id);
    if (other == before.end()) continue;
    if (const std::string change = change_between(*other->second, record); !change.empty())
      changes[change].push_back(place_of_record(record));
  }
  std::vector<std::string> remarks;
  for (const auto& [change, places] : changes)
    remarks.push_back(fmt::format("{} now {} {}: {}", counted(places.size(), "size"),
                                  places.size() == 1 ? "adds" : "add", change, some_of(places)));
  return remarks;
}

}  // namespace halfmark::reports
