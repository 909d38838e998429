#include "reports/text/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "reports/record/glob.h"

namespace halfmark::reports {

namespace {

// Words that match the same part are alternatives. All axes of a record are one part.
enum class Part { subject, sizes, device, policy, harness, axes };

std::vector<std::pair<Part, std::string>> parts_of(const Record& record) {
  const size_t slash = record.subject.find('/');
  std::vector<std::pair<Part, std::string>> parts = {{Part::subject, record.subject.substr(0, slash)},
                                                     {Part::subject, record.subject},
                                                     {Part::device, record.device},
                                                     {Part::policy, record.policy},
                                                     {Part::harness, record.harness}};
  if (slash != std::string::npos) parts.emplace_back(Part::sizes, record.subject.substr(slash + 1));
  for (const auto& [axis, setting] : record.axes) parts.emplace_back(Part::axes, axis + "=" + setting);
  return parts;
}

std::optional<Part> matched(const Record& record, const std::string& word) {
  for (const auto& [part, text] : parts_of(record))
    if (glob_matches(word, text)) return part;
  return std::nullopt;
}

}  // namespace

void select_records(NamedReport& named, const std::vector<std::string>& words) {
  std::vector<Record>& records = named.report.records;
  const size_t all = records.size();
  std::map<Part, std::vector<std::string>> asked;
  for (const std::string& word : words) {
    std::set<Part> found;
    for (const Record& record : records)
      if (const auto part = matched(record, word)) found.insert(*part);
    if (found.empty()) {
      std::set<std::string> known;
      for (const Record& record : records) known.insert({record.subject, record.policy});
      throw ReportError(fmt::format("{}: no record matches '{}'; its subjects and policies: {}", named.name, word,
                                    fmt::join(known, ", ")));
    }
    asked[*found.begin()].push_back(word);
  }
  std::erase_if(records, [&](const Record& record) {
    return !std::all_of(asked.begin(), asked.end(), [&](const auto& part) {
      return std::any_of(part.second.begin(), part.second.end(),
                         [&](const std::string& word) { return matched(record, word).has_value(); });
    });
  });
  if (named.report.run.complete && named.report.run.planned == all) named.report.run.planned = records.size();
  if (records.empty() && !words.empty())
    throw ReportError(fmt::format("{}: no record matches {} together", named.name, fmt::join(words, " ")));
}

}  // namespace halfmark::reports
