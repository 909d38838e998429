#include "reports/text/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "reports/record/glob.h"

namespace halfmark::reports {

namespace {

// Words that match the same part are alternatives. Each axis is a part.
struct Part {
  enum class Kind { subject, sizes, device, policy, harness, axis } kind;
  std::string axis{};
  auto operator<=>(const Part&) const = default;
};
using Parts = std::vector<std::pair<Part, std::string>>;

Parts parts_of(const Record& record, const std::set<std::string>& named_axes, const DefaultSettings& defaults) {
  const size_t slash = record.subject.find('/');
  Parts parts = {{{Part::Kind::subject}, record.subject.substr(0, slash)},
                 {{Part::Kind::subject}, record.subject},
                 {{Part::Kind::device}, record.device},
                 {{Part::Kind::policy}, record.policy},
                 {{Part::Kind::harness}, record.harness}};
  if (slash != std::string::npos) parts.push_back({{Part::Kind::sizes}, record.subject.substr(slash + 1)});
  const auto add = [&](const std::string& axis, const std::string& value) {
    parts.push_back({{Part::Kind::axis, axis}, axis + "=" + value});
  };
  for (const auto& [axis, value] : record.axes) add(axis, value);
  for (const std::string& axis : named_axes)
    if (!record.axes.contains(axis)) add(axis, "default");
  if (const auto of_harness = defaults.find(record.harness); of_harness != defaults.end())
    for (const auto& [axis, value] : of_harness->second)
      if (!record.axes.contains(axis)) add(axis, value);
  return parts;
}

const Part* matched(const Parts& parts, const std::string& word) {
  for (const auto& [part, text] : parts)
    if (glob_matches(word, text)) return &part;
  return nullptr;
}

// Names that a word may have meant: of the axis that it sets, of all axes if it sets an unknown one, else of the other parts.
std::string known_words(const std::vector<Parts>& all, const std::string& word) {
  const size_t equals = word.find('=');
  const bool is_setting = equals < word.find('+');  // policies have a '=' behind a '+' only
  std::set<std::string> of_axis, axes, others;
  for (const Parts& parts : all)
    for (const auto& [part, text] : parts)
      if (part.kind == Part::Kind::axis) {
        axes.insert(text);
        if (is_setting && part.axis == word.substr(0, equals)) of_axis.insert(text);
      } else if (part.kind != Part::Kind::subject || text.find('/') != std::string::npos) {
        if (part.kind != Part::Kind::sizes && part.kind != Part::Kind::device) others.insert(text);
      }
  const auto listed = [](const char* what, const std::set<std::string>& names) {
    return fmt::format("{}: {}", what, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  };
  if (is_setting) return listed("axes", of_axis.empty() ? axes : of_axis);
  return listed("subjects, policies and harnesses", others);
}

}  // namespace

void select_records(NamedReport& named, const std::vector<std::string>& words, const DefaultSettings& defaults) {
  if (words.empty()) return;
  std::vector<Record>& records = named.report.records;
  const size_t before = records.size();
  std::map<std::string, std::set<std::string>> named_axes;  // [harness]
  for (const Record& record : records)
    for (const auto& [axis, value] : record.axes) named_axes[record.harness].insert(axis);
  std::vector<Parts> all;
  for (const Record& record : records) all.push_back(parts_of(record, named_axes[record.harness], defaults));

  std::map<Part, std::vector<std::string>> asked;
  for (const std::string& word : words) {
    std::set<Part> found;
    for (const Parts& parts : all)
      if (const Part* part = matched(parts, word)) found.insert(*part);
    if (found.empty())
      throw ReportError(fmt::format("{}: no record matches '{}'; its {}", named.name, word, known_words(all, word)));
    asked[*found.begin()].push_back(word);
  }
  std::vector<Record> kept;
  for (size_t i = 0; i < before; ++i)
    if (std::all_of(asked.begin(), asked.end(), [&](const auto& part) {
          return std::any_of(part.second.begin(), part.second.end(),
                             [&](const std::string& word) { return matched(all[i], word) != nullptr; });
        }))
      kept.push_back(std::move(records[i]));
  if (kept.empty())
    throw ReportError(fmt::format("{}: no record matches {} together", named.name, fmt::join(words, " ")));
  records = std::move(kept);
  if (named.report.run.complete && named.report.run.planned == before) named.report.run.planned = records.size();
}

}  // namespace halfmark::reports
