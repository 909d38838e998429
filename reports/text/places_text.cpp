#include "reports/text/places_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/text/summary.h"

namespace halfmark::reports {

namespace {

constexpr size_t kPlacesShown = 12;

// cast_lists has a table of its own (experiments_text.cpp).
constexpr std::array<std::string_view, 10> kByPlace = {
    "all_reduce", "batchnorm_statistics", "cast_cache",  "evaluation", "mantissa", "mask",
    "reduction",  "row_statistics",       "sensitivity", "underflow"};

// Of a record: what it counts for other tables is not repeated.
bool is_of_the_experiment(const Measurement& one) {
  constexpr std::array<std::string_view, 3> kOthers = {"work", "reference", "lint"};
  return std::ranges::find(kOthers, family_of(one.metric)) == kOthers.end();
}

// Metrics that have numbers at these places, or at several of them.
struct PlaceTable {
  std::vector<std::string> places, metrics;
};

std::vector<PlaceTable> tables_of(const Record& record) {
  std::vector<std::pair<std::string, std::vector<std::string>>> places_of;  // of each metric, in order
  for (const Measurement& one : record.measurements) {
    if (!is_of_the_experiment(one)) continue;
    auto known = std::ranges::find(places_of, one.metric, [](const auto& entry) { return entry.first; });
    if (known == places_of.end()) known = places_of.insert(places_of.end(), {one.metric, {}});
    known->second.push_back(one.at);
  }
  std::vector<PlaceTable> tables;
  for (auto& [metric, places] : places_of) {
    const auto takes = [&places = places](const PlaceTable& table) {
      if (places.size() == 1) return table.places == places;
      return std::ranges::all_of(places, [&](const std::string& place) {
        return std::ranges::find(table.places, place) != table.places.end();
      });
    };
    auto taking = std::ranges::find_if(tables, takes);
    if (taking == tables.end()) taking = tables.insert(tables.end(), PlaceTable{places, {}});
    taking->metrics.push_back(metric);
  }
  return tables;
}

std::string number_at(const Record& record, const std::string& metric, const std::string& at) {
  const Measurement* const found = find(record, metric, at);
  if (!found) return "";
  if (misleads(record, *found)) return "suspect";
  return human(found->value, found->unit) +
         (found->standard_error ? " +-" + human(*found->standard_error, found->unit) : "");
}

// "peak_bytes" of "evaluation.peak_bytes" in the harness evaluation.
std::string name_in(const Record& record, const std::string& metric) {
  const std::string family = record.harness + ".";
  return metric.starts_with(family) ? metric.substr(family.size()) : metric;
}

std::string table_text(const Record& record, const PlaceTable& part, const TextOptions& options) {
  if (part.places.size() == 1) {
    std::vector<std::string> texts;
    for (const std::string& metric : part.metrics)
      texts.push_back(fmt::format("{} {}", name_in(record, metric), number_at(record, metric, part.places[0])));
    const std::string lead = part.places[0].empty() ? "" : part.places[0] + ": ";
    return wrapped("", lead + fmt::format("{}", fmt::join(texts, ", ")), options.width);
  }
  std::vector<std::string> titles = {"at"};
  for (const std::string& metric : part.metrics) titles.push_back(name_in(record, metric));
  Table table(titles);
  const size_t shown = options.all ? part.places.size() : std::min(part.places.size(), kPlacesShown);
  for (size_t i = 0; i < shown; ++i) {
    std::vector<Cell> cells = {{part.places[i].empty() ? "all" : part.places[i]}};
    for (const std::string& metric : part.metrics) cells.push_back({number_at(record, metric, part.places[i])});
    table.add(std::move(cells));
  }
  std::string text = table.text(options);
  if (shown < part.places.size())
    text += fmt::format("and {} more (--all)\n", counted(part.places.size() - shown, "place"));
  return text;
}

}  // namespace

bool is_shown_by_place(std::string_view harness) { return std::ranges::find(kByPlace, harness) != kByPlace.end(); }

std::string places_text(const Report& report, const TextOptions& options) {
  std::string text;
  for (const Record& record : report.records) {
    if (!is_shown_by_place(record.harness)) continue;
    const std::vector<PlaceTable> tables = tables_of(record);
    if (tables.empty()) continue;
    std::string heading = wrapped("", record.id, options.width, true);
    heading.pop_back();
    text += "\n" + toned(heading, Tone::strong, options.colour) + "\n";
    for (const PlaceTable& part : tables) text += table_text(record, part, options);
  }
  return text;
}

}  // namespace halfmark::reports
