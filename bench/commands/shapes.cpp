#include "bench/commands/shapes.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/namespaces.h"
#include "bench/run/name_match.h"
#include "kernels/number/error.h"
#include "models/families.h"
#include "models/zoo.h"
#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

namespace {

using Json = nlohmann::ordered_json;

class List {
 public:
  // `sizes`: letters with values, as "b8"; joined to the subject.
  void add(std::string subject, const std::vector<std::string>& sizes, const std::string& where) {
    for (const std::string& size : sizes) {
      const bool is_first = subject.find('/') == std::string::npos;
      subject += (is_first ? "/" : "_") + size;
    }
    try {
      std::string id = subject_named(subject).id();
      if (known_.insert(id).second) ids_.push_back(std::move(id));
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", where, reports::printable(error.what())));
    }
  }

  std::vector<std::string> take(const std::string& where) {
    HM_CHECK(!ids_.empty(), where + ": names no subject; a line is a family and its sizes, or an id");
    return std::move(ids_);
  }

 private:
  std::vector<std::string> ids_;
  std::set<std::string> known_;
};

std::string without_spaces_around(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields = split(line, ',');
  for (std::string& field : fields) field = without_spaces_around(field);
  return fields;
}

std::vector<std::string> subjects_in_csv(std::string_view text, const std::string& where) {
  List list;
  std::vector<std::string> columns;
  size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::string place = fmt::format("{}:{}", where, number);
    if (without_spaces_around(line).empty() || line.starts_with('#')) continue;
    const std::vector<std::string> fields = fields_of(line);
    if (columns.empty()) {
      columns = fields;
      HM_CHECK(
          columns[0] == "subject",
          fmt::format("{}: the header begins with '{}', not with 'subject'; fields are separated by commas and have "
                      "no quotes, a JSON list begins with [",
                      place, reports::printable(columns[0].substr(0, 40))));
      std::set<std::string> seen;
      for (size_t i = 0; i < columns.size(); ++i) {
        const std::string column = reports::printable(columns[i].substr(0, 40));
        HM_CHECK(i == 0 || columns[i].size() == 1,
                 fmt::format("{}: column '{}' is not a letter of sizes", place, column));
        HM_CHECK(seen.insert(columns[i]).second, fmt::format("{}: two columns '{}'", place, column));
      }
      continue;
    }
    HM_CHECK(fields.size() == columns.size(),
             fmt::format("{}: {} fields, the header has {}; leave a field empty for the usual value", place,
                         fields.size(), columns.size()));
    std::vector<std::string> sizes;
    for (size_t i = 1; i < fields.size(); ++i)
      if (!fields[i].empty()) sizes.push_back(columns[i] + fields[i]);
    list.add(fields[0], sizes, place);
  }
  return list.take(where);
}

std::vector<std::string> subjects_in_json(std::string_view text, const std::string& where) {
  List list;
  const Json json = reports::parse_json(text, where, "list of subjects");
  size_t number = 0;
  for (const Json& entry : json) {
    const std::string place = fmt::format("{}: entry {}", where, ++number);
    if (entry.is_string()) {
      list.add(entry.get<std::string>(), {}, place);
      continue;
    }
    HM_CHECK(entry.is_object() && entry.contains("subject") && entry["subject"].is_string(),
             place + ": neither an id nor an object with a \"subject\"");
    std::vector<std::string> sizes;
    for (const auto& [key, value] : entry.items()) {
      if (key == "subject") continue;
      const std::string letter = reports::printable(key.substr(0, 40));
      HM_CHECK(key.size() == 1, fmt::format("{}: '{}' is not a letter of sizes", place, letter));
      HM_CHECK(value.is_number_unsigned() || value.is_string(),
               fmt::format("{}: {} is neither a whole number nor text as \"3x1\"", place, letter));
      sizes.push_back(key + (value.is_string() ? value.get<std::string>() : std::to_string(value.get<uint64_t>())));
    }
    list.add(entry["subject"].get<std::string>(), sizes, place);
  }
  return list.take(where);
}

}  // namespace

std::vector<std::string> subjects_in(std::string_view text, const std::string& where) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // the byte order mark of spreadsheets
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text[first] == '[' ? subjects_in_json(text, where) : subjects_in_csv(text, where);
}

std::vector<std::string> subjects_in_file(const std::string& file) {
  return subjects_in(reports::read_file(file), file);
}

}  // namespace halfmark::bench
