#include "bench/commands/list_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "bench/run/name_match.h"
#include "kernels/number/error.h"

namespace halfmark::bench {

std::string text_of(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_null()) return "-";
  return value.dump();
}

std::string table_of(const nlohmann::ordered_json& list, const std::vector<ListColumn>& columns, size_t text_columns,
                     const TextOptions& options) {
  std::vector<std::string> titles;
  for (const ListColumn& column : columns) titles.emplace_back(column.title);
  Table table(titles, text_columns);
  for (const nlohmann::ordered_json& row : list) {
    std::vector<Cell> cells;
    for (const ListColumn& column : columns) cells.push_back({text_of(row.at(column.key)), Tone::plain});
    table.add(std::move(cells));
  }
  return table.text(options);
}

nlohmann::ordered_json named_rows(const nlohmann::ordered_json& list, const std::vector<std::string_view>& keys,
                                  const std::vector<std::string>& words, std::string_view what,
                                  std::string_view shown_by) {
  if (words.empty()) return list;
  std::map<std::string_view, std::vector<std::string>> values;  // of each key, each once
  std::vector<std::string> known;
  for (const std::string_view key : keys)
    for (const nlohmann::ordered_json& row : list) {
      const auto value = row.at(std::string(key)).get<std::string>();
      if (std::ranges::find(values[key], value) == values[key].end()) values[key].push_back(value);
      if (std::ranges::find(known, value) == known.end()) known.push_back(value);
    }
  std::map<std::string_view, std::vector<std::string>> wanted;
  for (const std::string& word : words)
    for (const std::string& name : chosen_names(what, {word}, known, shown_by))
      for (const std::string_view key : keys)
        if (std::ranges::find(values[key], name) != values[key].end()) wanted[key].push_back(name);
  auto rows = nlohmann::ordered_json::array();
  for (const nlohmann::ordered_json& row : list)
    if (std::ranges::all_of(wanted, [&](const auto& names) {
          return std::ranges::find(names.second, row.at(std::string(names.first)).template get<std::string>()) !=
                 names.second.end();
        }))
      rows.push_back(row);
  if (rows.empty()) throw Error(fmt::format("{}: no row has all of: {}", shown_by, fmt::join(words, ", ")));
  return rows;
}

bool has_row(const nlohmann::ordered_json& list, std::string_view key, std::string_view value) {
  return std::ranges::any_of(list,
                             [&](const nlohmann::ordered_json& row) { return row.at(std::string(key)) == value; });
}

}  // namespace halfmark::bench
