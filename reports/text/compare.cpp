#include "reports/text/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "reports/text/summary.h"

namespace halfmark::reports {

namespace {

// One column: a device of a report.
struct Column {
  std::string name;
  const NamedReport* report = nullptr;
  std::map<std::string, const Group*> groups;  // by subject
};

std::string with_ratio(const Figure& figure, const Value* value, const Value* base) {
  const std::string text = cell_of(figure, value).text;
  const auto ratio = value == base ? std::nullopt : ratio_of(figure, value, base);
  return ratio ? fmt::format("{} ({})", text, human_ratio(*ratio)) : text;
}

bool any_ratio(const std::vector<Figure>& figures) {
  return std::any_of(figures.begin(), figures.end(), [](const Figure& figure) { return figure.ratio != Ratio::none; });
}

std::string legend(std::string_view base, const TextOptions& options) {
  return wrapped(
      "",
      fmt::format("In brackets, relative to {}: for a time the speed-up (more is faster), for other figures how many "
                  "times as much.",
                  base),
      options.width);
}

std::string precisions_text(const Group& group, const std::vector<Figure>& figures, const TextOptions& options) {
  std::vector<std::string> policies;
  for (const std::string& policy : group.policies) {
    const auto values = group.values.find(policy);
    if (values != group.values.end() && !values->second.empty()) policies.push_back(policy);
  }
  std::string text = toned(printable(group.subject + " on " + group.device), Tone::strong, options.colour) + "\n";
  if (policies.empty()) return text + "nothing was measured\n";
  std::stable_partition(policies.begin(), policies.end(), [](const std::string& name) { return name == kBaseline; });

  std::vector<std::string> titles = {""};
  titles.insert(titles.end(), policies.begin(), policies.end());
  Table table(titles);
  for (const Figure& figure : figures) {
    if (!group.has(figure)) continue;
    const Value* base = group.value(std::string(kBaseline), figure);
    std::vector<Cell> row = {{figure.title}};
    for (const std::string& policy : policies) {
      const Value* value = group.value(policy, figure);
      row.push_back({with_ratio(figure, value, base), cell_of(figure, value).tone});
    }
    table.add(std::move(row));
  }
  return text + table.text(options);
}

std::string one_report(const NamedReport& named, const TextOptions& options) {
  const std::vector<Figure> figures = figures_of({&named.report}, options.all);
  std::string text = toned(printable(named.name), Tone::strong, options.colour) + "\n";
  if (const std::string partial = partial_text(named.report); !partial.empty())
    text += wrapped("note: ", "partial, " + partial, options.width);
  if (any_ratio(figures)) text += legend(kBaseline, options);
  for (const Group& group : groups_of(named.report, figures)) {
    (text += '\n') += precisions_text(group, figures, options);
  }
  return text;
}

// Reasons why the numbers of these reports may not be comparable.
std::vector<std::string> doubts(const std::vector<NamedReport>& reports) {
  std::vector<std::string> lines;
  for (const NamedReport& other : reports) {
    if (const std::string partial = partial_text(other.report); !partial.empty())
      lines.push_back(fmt::format("{} is partial, {}", other.name, partial));
    if (other.report.run.seed != reports[0].report.run.seed) {
      lines.push_back(fmt::format("{} ran with seed {}, {} with {}: this alone changes errors and losses", other.name,
                                  other.report.run.seed, reports[0].name, reports[0].report.run.seed));
    }
  }
  std::map<std::string, int> versions;  // of a case, on every device
  std::set<std::string> changed;
  for (const NamedReport& named : reports) {
    for (const Record& record : named.report.records) {
      std::string key = record.subject + "/" + record.harness;
      const auto [known, is_new] = versions.try_emplace(key, record.case_version);
      if (!is_new && known->second != record.case_version) changed.insert(key);
    }
  }
  for (const std::string& key : changed) {
    lines.push_back(key + " changed its meaning between these reports (case_version): do not compare it");
  }
  return lines;
}

std::string subject_text(const std::string& subject, const std::vector<Column>& columns,
                         const std::vector<Figure>& figures, const TextOptions& options) {
  std::vector<const Column*> present;
  std::vector<std::string> policies, titles = {"policy", ""};
  for (const Column& column : columns) {
    const auto group = column.groups.find(subject);
    if (group == column.groups.end() || group->second->values.empty()) continue;
    present.push_back(&column);
    titles.push_back(column.name);
    for (const std::string& policy : group->second->policies) {
      if (std::find(policies.begin(), policies.end(), policy) == policies.end()) policies.push_back(policy);
    }
  }
  if (present.empty()) return {};

  Table table(titles, 2);
  std::string named;  // the policy's name is on its first line only
  for (const std::string& policy : policies) {
    for (const Figure& figure : figures) {
      if (!figure.brief && !options.all) continue;
      std::vector<const Value*> values;
      for (const Column* column : present) values.push_back(column->groups.at(subject)->value(policy, figure));
      if (std::all_of(values.begin(), values.end(), [](const Value* value) { return value == nullptr; })) continue;
      std::vector<Cell> row = {{named == policy ? "" : policy, Tone::strong}, {figure.title}};
      for (const Value* value : values) {
        row.push_back({with_ratio(figure, value, values[0]), cell_of(figure, value).tone});
      }
      table.add(std::move(row));
      named = policy;
    }
  }
  return fmt::format("\n{}\n{}", toned(printable(subject), Tone::strong, options.colour), table.text(options));
}

std::string several_reports(const std::vector<NamedReport>& reports, const TextOptions& options) {
  std::vector<const Report*> contents;
  for (const NamedReport& named : reports) contents.push_back(&named.report);
  const std::vector<Figure> figures = figures_of(contents, options.all);

  std::vector<std::vector<Group>> groups;
  std::vector<Column> columns;
  std::vector<std::string> subjects;
  for (const NamedReport& named : reports) groups.push_back(groups_of(named.report, figures));
  std::map<std::string, size_t> names;
  for (size_t i = 0; i < reports.size(); ++i) {
    const size_t before = columns.size();
    const size_t times = ++names[reports[i].name];
    const std::string name = times == 1 ? reports[i].name : fmt::format("{} #{}", reports[i].name, times);
    for (const Group& group : groups[i]) {
      const std::string title = name + " " + group.device;
      auto column = std::find_if(columns.begin() + static_cast<std::ptrdiff_t>(before), columns.end(),
                                 [&](const Column& one) { return one.name == title; });
      if (column == columns.end()) {
        columns.push_back({title, &reports[i], {}});
        column = columns.end() - 1;
      }
      column->groups[group.subject] = &group;
      if (std::find(subjects.begin(), subjects.end(), group.subject) == subjects.end())
        subjects.push_back(group.subject);
    }
  }

  std::string text = legend("the first column", options);
  for (const std::string& doubt : doubts(reports)) text += wrapped("note: ", doubt, options.width);
  for (const std::string& subject : subjects) text += subject_text(subject, columns, figures, options);
  return text;
}

}  // namespace

std::string compare(const std::vector<NamedReport>& reports, const TextOptions& options) {
  if (reports.empty()) return "nothing to compare\n";
  return reports.size() == 1 ? one_report(reports[0], options) : several_reports(reports, options);
}

}  // namespace halfmark::reports
