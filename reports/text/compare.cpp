#include "reports/text/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "reports/record/printable.h"
#include "reports/record/provenance.h"
#include "reports/record/subject_facts.h"
#include "reports/text/settings_text.h"
#include "reports/text/summary.h"

namespace halfmark::reports {

namespace {

// A subject in one column; a column is a device of a report.
struct Entry {
  size_t column;
  const Group* group;
};

// What a table has that needs words.
struct Explained {
  bool ratios = false, bits = false;
};

std::string with_ratio(const Figure& figure, const Value* value, const Value* base, Explained& explained) {
  std::string text = cell_of(figure, value).text;
  if (value && base && value->unit != base->unit) return text;
  const auto ratio = value == base ? std::nullopt : ratio_of(figure, value, base);
  explained.ratios = explained.ratios || ratio;
  return ratio ? fmt::format("{} ({})", text, human_ratio(*ratio)) : text;
}

std::string legend_within(const TextOptions& options) {
  return wrapped(
      "",
      fmt::format("In brackets, relative to {}: how many times as much. Times were not taken in turn and have no "
                  "ratio: see the speed-up.",
                  kBaseline),
      options.width);
}

std::string legend_between(const Explained& explained, const TextOptions& options) {
  std::string text;
  if (explained.ratios)
    text =
        "In brackets, relative to the first column: for a time the speed-up (more is faster), for other figures how "
        "many "
        "times as much; none if best or worst are over other values of an axis. Times of two runs were not taken in "
        "turn: "
        "on one machine they differ by 10 % and more without a cause, and `ab` decides.";
  if (explained.bits)
    text += fmt::format("{}Equal bits: of how many cases the fingerprint is that of the first column.",
                        text.empty() ? "" : " ");
  return text.empty() ? "" : wrapped("", text, options.width);
}

std::string precisions_text(const Group& group, const std::vector<Figure>& figures, const TextOptions& options,
                            Explained& explained) {
  std::vector<std::string> policies;
  for (const std::string& policy : group.policies) {
    const auto values = group.values.find(policy);
    if (values != group.values.end() && !values->second.empty()) policies.push_back(policy);
  }
  std::string text = toned(printable(group.title()), Tone::strong, options.colour) + "\n";
  if (policies.empty()) return text + "nothing was measured\n";
  std::stable_partition(policies.begin(), policies.end(), [](const std::string& name) { return name == kBaseline; });

  std::vector<std::string> titles = {""};
  titles.insert(titles.end(), policies.begin(), policies.end());
  Table table(titles);
  for (const size_t place : group.figures) {
    const Figure& figure = figures[place];
    const Value* base = group.value(std::string(kBaseline), figure);
    std::vector<Cell> row = {{figure.title}};
    for (const std::string& policy : policies) {
      const Value* value = group.value(policy, figure);
      row.push_back({with_ratio(figure, value, has_ratio_within(figure) ? base : nullptr, explained),
                     cell_of(figure, value).tone});
    }
    table.add(std::move(row));
  }
  std::vector<Figure> shown;
  for (const size_t place : group.figures) shown.push_back(figures[place]);
  return text + table.text(options) + settings_text(group, shown, policies, options);
}

std::string one_report(const NamedReport& named, const TextOptions& options) {
  const std::vector<Figure> figures = figures_of({&named.report}, options.all);
  std::string text = toned(printable(named.name), Tone::strong, options.colour) + "\n";
  if (const std::string partial = partial_text(named.report); !partial.empty())
    text += wrapped("note: ", "partial, " + partial, options.width);
  for (const std::string& line : substitutes(named.report)) text += wrapped("note: ", printable(line), options.width);
  Explained explained;
  std::string tables;
  for (const Group& group : groups_of(named.report, figures))
    (tables += '\n') += precisions_text(group, figures, options, explained);
  if (explained.ratios) text += legend_within(options);
  return text + tables;
}

// The subjects that are not the same in all reports, with the first difference.
std::map<std::string, std::string> other_subjects(const std::vector<NamedReport>& reports) {
  std::map<std::string, SubjectFacts> known;
  std::map<std::string, std::string> others;
  for (const NamedReport& named : reports)
    for (const Record& record : named.report.records) {
      SubjectFacts facts = subject_facts(record);
      if (facts.empty()) continue;
      const auto [place, is_first] = known.try_emplace(record.subject, facts);
      if (is_first) continue;
      SubjectFacts& first = place->second;
      if (std::string difference = difference_of(first, facts); !difference.empty())
        others.try_emplace(record.subject, std::move(difference));
      first.merge(facts);
    }
  return others;
}

// Reasons why the numbers of these reports may not be comparable.
std::vector<std::string> doubts(const std::vector<NamedReport>& reports,
                                const std::map<std::string, std::string>& others) {
  std::vector<std::string> lines;
  for (const NamedReport& other : reports) {
    if (const std::string partial = partial_text(other.report); !partial.empty())
      lines.push_back(fmt::format("{} is partial, {}", other.name, partial));
    for (const std::string& line : substitutes(other.report))
      lines.push_back(fmt::format("{}: {}", other.name, printable(line)));
    const auto is_failed = [](const Record& record) { return record.status == Status::failed; };
    const auto& records = other.report.records;
    if (const auto failed = std::count_if(records.begin(), records.end(), is_failed); failed > 0) {
      const Record& first = *std::find_if(records.begin(), records.end(), is_failed);
      lines.push_back(fmt::format("{} of {} failed: {}: {}", counted(static_cast<size_t>(failed), "case"), other.name,
                                  printable(first.id), printable(first.reason)));
    }
    for (const char* path : {"/halfmark/build_type", "/compiler/flags"}) {
      const std::string here = fact(reports[0].report.environment, path), there = fact(other.report.environment, path);
      if (here != there)
        lines.push_back(fmt::format("{} was built with {} '{}', {} with '{}': this alone changes times", other.name,
                                    std::string_view(path).substr(std::string_view(path).rfind('/') + 1),
                                    printable(there), reports[0].name, printable(here)));
    }
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
  for (const auto& [subject, difference] : others)
    lines.push_back(fmt::format("{} is not the same subject in these reports ({}): no ratios", subject, difference));
  return lines;
}

// Of the cases of a policy on a subject, by column: the fingerprints by harness and axes.
using Fingerprints =
    std::map<std::pair<std::string, std::string>, std::map<size_t, std::map<std::string, std::string>>>;

void add_fingerprints(const Report& report, const std::map<std::string, size_t>& column_of, Fingerprints& all) {
  for (const Record& record : report.records) {
    const auto column = column_of.find(record.device);
    if (column == column_of.end() || record.fingerprint.empty() || record.fingerprint == kOfNothing) continue;
    std::string key = record.harness;
    for (const auto& [axis, setting] : record.axes) key += fmt::format("/{}={}", axis, setting);
    all[{record.subject, record.policy}][column->second].emplace(std::move(key), record.fingerprint);
  }
}

// "3 of 4": cases with the bits of the first column, of those that both have. Empty if there are none.
std::vector<std::string> equal_cases(const Fingerprints& all, const std::string& subject, const std::string& policy,
                                     const std::vector<Entry>& entries) {
  const auto found = all.find({subject, policy});
  if (found == all.end()) return {};
  const auto base = found->second.find(entries[0].column);
  if (base == found->second.end()) return {};
  std::vector<std::string> cells = {counted(base->second.size(), "case")};
  bool any = false;
  for (size_t i = 1; i < entries.size(); ++i) {
    size_t equal = 0, common = 0;
    if (const auto other = found->second.find(entries[i].column); other != found->second.end())
      for (const auto& [key, fingerprint] : other->second)
        if (const auto same = base->second.find(key); same != base->second.end())
          ++common, equal += same->second == fingerprint ? 1 : 0;
    any = any || common > 0;
    cells.push_back(common > 0 ? fmt::format("{} of {}", equal, common) : "-");
  }
  return any ? cells : std::vector<std::string>();
}

// "settings of fp16 bf16: old.json cpu: default; new.json cpu: fused=on (error)", a line for policies with the same settings,
// which are named once if all columns have them. None for a policy of which all are at their defaults.
std::string settings_between(const std::vector<std::string>& policies, const std::vector<Entry>& entries,
                             const std::vector<std::string>& columns, const TextOptions& options) {
  std::vector<std::string> lines;
  std::map<std::string, std::vector<std::string>> policies_of;  // [line]
  for (const std::string& policy : policies) {
    std::vector<std::string> parts;
    std::set<std::string> texts;
    for (const Entry& entry : entries) {
      const AxisSettings& settings = entry.group->settings;
      if (!settings.has(policy)) continue;
      const std::string text = settings.text_of(policy, options.defaults);
      texts.insert(text);
      parts.push_back(fmt::format("{}: {}", columns[entry.column], text.empty() ? "default" : text));
    }
    if (texts.empty() || (texts.size() == 1 && texts.begin()->empty())) continue;
    const std::string line = texts.size() == 1 ? *texts.begin() : fmt::format("{}", fmt::join(parts, "; "));
    if (policies_of[line].empty()) lines.push_back(line);
    policies_of[line].push_back(policy);
  }
  std::string text;
  for (const std::string& line : lines)
    text += wrapped("settings of ", fmt::format("{}: {}", fmt::join(policies_of[line], " "), line), options.width);
  return text;
}

// What the devices are and how their matmuls add, by the hashes of what `run` probed.
std::string devices_text(const std::vector<std::string>& columns,
                         const std::vector<const nlohmann::ordered_json*>& facts, const TextOptions& options) {
  std::vector<std::string> titles = {""};
  titles.insert(titles.end(), columns.begin(), columns.end());
  std::map<std::string, std::vector<std::string>> rows;  // by title
  const auto add = [&](const std::string& title, size_t column, const nlohmann::ordered_json& value) {
    if (!value.is_string()) return;
    std::vector<std::string>& cells = rows.try_emplace(title, columns.size(), "-").first->second;
    cells[column] = value.get<std::string>();
  };
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!facts[i]) continue;
    for (const char* key : {"numerics", "processor", "name"})            // of a simulated device, a CPU, a GPU
      if (facts[i]->contains(key)) add(" device", i, (*facts[i])[key]);  // " ": before the others
    const auto probed = facts[i]->find("probed");
    if (probed == facts[i]->end() || !probed->is_object()) continue;
    for (const auto& [key, value] : probed->items()) {
      if (!key.starts_with("probe.") || !value.is_string()) continue;
      const std::string text = value.get<std::string>();
      add("sums " + key.substr(6), i, text.substr(0, text.find(':')));
    }
  }
  if (rows.empty()) return {};
  Table table(titles);
  for (const auto& [title, cells] : rows) {
    std::vector<Cell> row = {{title.substr(title.find_first_not_of(' '))}};
    for (const std::string& cell : cells) row.push_back({cell, cell == "-" ? Tone::dim : Tone::plain});
    table.add(std::move(row));
  }
  std::string text = "\n" + table.text(options);
  if (std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.first.starts_with("sums "); }))
    text += wrapped("", "sums: the hash of how a matmul of these types adds. Equal hashes add alike.", options.width);
  return text;
}

// Of a device of a report, what its environment says; null if nothing.
const nlohmann::ordered_json* facts_of(const Report& report, const std::string& device) {
  const auto devices = report.environment.find("devices");
  if (devices == report.environment.end() || !devices->is_object()) return nullptr;
  const auto facts = devices->find(device);
  return facts == devices->end() || !facts->is_object() ? nullptr : &*facts;
}

// Not if one is the best or worst over settings that are not those of the other.
bool are_comparable(const std::string& policy, const Entry& first, const Value* base, const Entry& other,
                    const Value* value) {
  if (!base || !value) return false;
  const std::string &harness = value->record->harness, &base_harness = base->record->harness;
  const AxisSettings &own = other.group->settings, &of_base = first.group->settings;
  const bool vary = !own.varied(policy, harness).empty() || !of_base.varied(policy, base_harness).empty();
  return !vary || own.text_of(policy, harness) == of_base.text_of(policy, base_harness);
}

std::string subject_text(const std::string& subject, std::vector<Entry> entries,
                         const std::vector<std::string>& columns, const std::vector<Figure>& figures,
                         const Fingerprints& fingerprints, bool is_same, const TextOptions& options,
                         Explained& explained) {
  std::erase_if(entries, [](const Entry& entry) { return entry.group->values.empty(); });
  if (entries.empty()) return {};
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.column < b.column; });
  std::vector<std::string> policies, titles = {"policy", ""};
  std::set<std::string> known;
  std::set<size_t> present;
  for (const Entry& entry : entries) {
    titles.push_back(columns[entry.column]);
    present.insert(entry.group->figures.begin(), entry.group->figures.end());
    for (const std::string& policy : entry.group->policies)
      if (known.insert(policy).second) policies.push_back(policy);
  }

  Table table(titles, 2);
  std::string named;  // the policy's name is on its first line only
  for (const std::string& policy : policies) {
    for (const size_t place : present) {
      const Figure& figure = figures[place];
      if (!figure.brief && !figure.compared && !options.all) continue;
      std::vector<const Value*> values;
      for (const Entry& entry : entries) values.push_back(entry.group->value(policy, figure));
      if (std::all_of(values.begin(), values.end(), [](const Value* value) { return value == nullptr; })) continue;
      std::vector<Cell> row = {{named == policy ? "" : policy, Tone::strong}, {figure.title}};
      for (size_t i = 0; i < values.size(); ++i) {
        const bool has_ratio = is_same && are_comparable(policy, entries[0], values[0], entries[i], values[i]);
        row.push_back({with_ratio(figure, values[i], has_ratio ? values[0] : nullptr, explained),
                       cell_of(figure, values[i]).tone});
      }
      table.add(std::move(row));
      named = policy;
    }
    if (const auto cells = equal_cases(fingerprints, subject, policy, entries); is_same && !cells.empty()) {
      std::vector<Cell> row = {{named == policy ? "" : policy, Tone::strong}, {"equal bits"}};
      for (const std::string& cell : cells) row.push_back({cell});
      explained.bits = true;
      table.add(std::move(row));
      named = policy;
    }
  }
  return fmt::format("\n{}\n{}{}", toned(printable(subject), Tone::strong, options.colour), table.text(options),
                     settings_between(policies, entries, columns, options));
}

// The names of reports for headings of columns: the ends of their paths by which they differ, and
// numbers where those are long. Two reports of one name have different ones.
std::vector<std::string> column_names(const std::vector<NamedReport>& reports) {
  constexpr size_t kLongest = 24, kMostParts = kLongest / 2;
  const auto end_of = [](const std::string& path, size_t parts) {
    size_t begin = path.size();
    while (parts-- > 0 && begin > 0) begin = path.rfind('/', begin - 1) == path.npos ? 0 : path.rfind('/', begin - 1);
    return path.substr(begin > 0 ? begin + 1 : 0);
  };
  const auto are_short = [](const std::vector<std::string>& names) {
    return std::ranges::all_of(names, [](const std::string& name) { return name.size() <= kLongest; });
  };
  for (size_t parts = 1;; ++parts) {
    std::vector<std::string> names;
    for (const NamedReport& named : reports)
      names.push_back(end_of(std::filesystem::path(named.name).lexically_normal().string(), parts));
    if (!are_short(names)) break;
    if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
    if (parts > kMostParts) break;
  }
  std::vector<std::string> numbers;
  for (size_t i = 1; i <= reports.size(); ++i) numbers.push_back(fmt::format("#{}", i));
  return numbers;
}

std::string several_reports(const std::vector<NamedReport>& reports, const TextOptions& options) {
  std::vector<const Report*> contents;
  for (const NamedReport& named : reports) contents.push_back(&named.report);
  const std::vector<Figure> figures = figures_of(contents, options.all);

  std::vector<std::vector<Group>> groups;
  std::vector<std::string> columns, subjects;
  std::map<std::string, std::vector<Entry>> entries;  // by subject
  for (const NamedReport& named : reports) groups.push_back(groups_of(named.report, figures));
  const std::vector<std::string> names = column_names(reports);
  std::vector<const nlohmann::ordered_json*> facts;  // of each column
  Fingerprints fingerprints;
  for (size_t i = 0; i < reports.size(); ++i) {
    std::map<std::string, size_t> devices;
    for (const Group& group : groups[i]) {
      const auto [column, is_new] = devices.try_emplace(group.device, columns.size());
      if (is_new) {
        columns.push_back(printable(names[i]) + " " + group.device);
        facts.push_back(facts_of(reports[i].report, group.device));
      }
      std::vector<Entry>& of_subject = entries[group.subject];
      if (of_subject.empty()) subjects.push_back(group.subject);
      of_subject.push_back({column->second, &group});
    }
    add_fingerprints(reports[i].report, devices, fingerprints);
  }

  const std::map<std::string, std::string> others = other_subjects(reports);
  Explained explained;
  std::string tables, text;
  for (const std::string& subject : subjects)
    tables += subject_text(subject, entries.at(subject), columns, figures, fingerprints, !others.contains(subject),
                           options, explained);
  text = legend_between(explained, options);
  for (size_t i = 0; i < reports.size(); ++i)
    if (names[i] != reports[i].name)
      text += wrapped("", fmt::format("{}: {}", names[i], reports[i].name), options.width);
  for (const std::string& doubt : doubts(reports, others)) text += wrapped("note: ", doubt, options.width);
  return text + devices_text(columns, facts, options) + tables;
}

}  // namespace

std::string compare(const std::vector<NamedReport>& reports, const TextOptions& options) {
  if (reports.empty()) return "nothing to compare\n";
  return reports.size() == 1 ? one_report(reports[0], options) : several_reports(reports, options);
}

}  // namespace halfmark::reports
