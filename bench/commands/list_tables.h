// Rows of a JSON list as a table, and those of them that a user's words name, for `halfmark list`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/json_parser.h"
#include "reports/text/table.h"

namespace halfmark::bench {

// A column of a table: the JSON key and the heading.
struct ListColumn {
  const char* key;
  const char* title;
};

std::string text_of(const nlohmann::ordered_json& value);  // without quotes; yes and no; - for null

// The first `text_columns` columns are text, the others numbers.
std::string table_of(const nlohmann::ordered_json& list, const std::vector<ListColumn>& columns, size_t text_columns,
                     const TextOptions& options);

// The rows whose strings at `keys` the words name, * as a glob: words that name values of one key are alternatives, and
// every key that a word names must match. No words: all rows. Throws Error if no row is left, and for a word that
// names nothing, calling it a `what`; `shown_by` is the command that lists them all.
nlohmann::ordered_json named_rows(const nlohmann::ordered_json& list, const std::vector<std::string_view>& keys,
                                  const std::vector<std::string>& words, std::string_view what,
                                  std::string_view shown_by);

// Whether a row of the list has this string at the key.
bool has_row(const nlohmann::ordered_json& list, std::string_view key, std::string_view value);

}  // namespace halfmark::bench
