#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/record/printable.h"
#include "reports/record/provenance.h"
#include "reports/text/compare.h"
#include "reports/text/experiments_text.h"
#include "reports/text/layers.h"
#include "reports/text/lint_text.h"
#include "reports/text/places_text.h"
#include "reports/text/settings_text.h"
#include "reports/text/summary.h"

namespace halfmark::reports {

namespace {

constexpr size_t kHelpWidth = 80;     // width of the text for --help
constexpr size_t kReasons = 8;        // reasons listed for a status
constexpr size_t kNotices = 20;       // lines under "worth noticing"
constexpr double kWorthColour = 1.1;  // a larger ratio is coloured

std::string title(std::string_view text, const TextOptions& options) {
  return toned(printable(text), Tone::strong, options.colour) + "\n";
}

// Libraries that a report may name even if none of their kernels ran, and the kernel rows that call them.
struct Library {
  std::string_view name;
  std::vector<std::string_view> rows;
};

bool has_run(std::string_view name, const Report& report) {
  static const Library kLibraries[] = {
      {"onednn", {"onednn", "upcast"}}, {"cudnn", {"cudnn"}}, {"cublaslt", {"cublaslt"}}};
  const auto library =
      std::find_if(std::begin(kLibraries), std::end(kLibraries), [&](const Library& one) { return one.name == name; });
  if (library == std::end(kLibraries)) return true;
  for (const Record& record : report.records)
    for (const KernelUse& use : record.kernels)
      if (std::find(library->rows.begin(), library->rows.end(), use.row) != library->rows.end()) return true;
  return false;
}

std::string environment_text(const Report& report, const TextOptions& options) {
  const auto leaves = environment_facts(report.environment);
  if (options.all) {
    std::string text;
    for (const auto& [key, value] : leaves) text += wrapped("  ", key + ": " + value, options.width);
    return text;
  }
  // The short form: facts that identify the machine and its libraries, at any place in the tree.
  static constexpr std::string_view kTelling[] = {"machine",  "host",   "hostname", "name",  "model",    "cpu",
                                                  "gpu",      "driver", "cuda",     "cudnn", "cublaslt", "onednn",
                                                  "compiler", "git",    "version",  "commit"};
  std::vector<std::string> told;
  for (const auto& [key, value] : leaves) {
    const std::string_view last = std::string_view(key).substr(key.rfind('.') + 1);
    if (std::find(std::begin(kTelling), std::end(kTelling), last) != std::end(kTelling) && value.size() <= 80 &&
        has_run(last, report)) {
      told.push_back(key + " " + value);
    }
  }
  return told.empty() ? "" : wrapped("machine   ", fmt::format("{}", fmt::join(told, ", ")), options.width);
}

// Reasons of suspect records name their kernels after the colon; the short form is the common part.
std::string reason_of(const Record& record, const TextOptions& options) {
  if (record.status != Status::suspect || options.all) return record.reason;
  return record.reason.substr(0, record.reason.find(": "));
}

std::string counts_text(const Report& report, const TextOptions& options) {
  std::map<Status, std::map<std::string, size_t>> reasons;
  std::map<Status, size_t> counts;
  for (const Record& record : report.records) {
    ++counts[record.status];
    if (record.status != Status::ok) ++reasons[record.status][reason_of(record, options)];
  }
  std::vector<std::string> words;
  for (const auto& [status, count] : counts) words.push_back(fmt::format("{} {}", count, name_of(status)));
  std::string text = fmt::format("records   {}: {}\n", report.records.size(), fmt::join(words, ", "));
  for (const auto& [status, why] : reasons) {
    std::vector<std::pair<size_t, std::string>> sorted;
    for (const auto& [reason, count] : why) sorted.emplace_back(count, reason);
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    const size_t shown = options.all ? sorted.size() : std::min(sorted.size(), kReasons);
    for (size_t i = 0; i < shown; ++i) {
      text += wrapped(fmt::format("  {:>5} {:<8}", sorted[i].first, name_of(status)),
                      sorted[i].second.empty() ? "no reason given" : sorted[i].second, options.width);
    }
    if (shown < sorted.size()) text += fmt::format("        and {} more reasons\n", sorted.size() - shown);
    if (status == Status::suspect)
      text += wrapped("        ",
                      "suspect: measured, but its time would mislead and is not shown; errors, ranges and memory come "
                      "from other records and are valid (--all names the kernels)",
                      options.width);
  }
  return text;
}

// Whether the processes of a run with --processes had the same bits. Empty without such a run.
std::string bits_text(const Report& report, const TextOptions& options) {
  size_t cases = 0, differing = 0;
  std::set<int> processes;
  for (const Record& record : report.records) {
    if (record.determinism.processes < 2 || record.fingerprint == kOfNothing) continue;
    ++cases, differing += record.determinism.differing > 0 ? 1 : 0;
    processes.insert(record.determinism.processes);
  }
  if (cases == 0) return {};
  std::string text = fmt::format("of {} in {} processes: ", counted(cases, "case"), fmt::join(processes, " or "));
  text +=
      differing == 0 ? "the same every time" : fmt::format("{} {}", differing, differing == 1 ? "differs" : "differ");
  return wrapped("bits      ", text, options.width);
}

// Sorts the best policy of a table first: by time, then by error, then by the first figure of the table. Missing and
// suspect values count as the worst. A policy whose optimizer has skipped more than a tenth of the steps comes after the
// others, and one with a value that is NaN or infinite after those.
using SortKey = std::tuple<int, double, double, double>;  // 1, 2 for these; then three numbers, smaller is better

constexpr double kManySkipped = 0.1;  // of the steps: a scaler that starts too high skips a few until it fits

bool skips_many(const Value* value) {
  if (!value || !value->record) return false;
  for (const Series& series : value->record->series)
    if (series.metric == "training.loss" && series.at.empty())
      return value->number > kManySkipped * static_cast<double>(series.x.size());
  return false;
}

SortKey sort_key(const Group& group, const std::string& policy, std::span<const Figure> figures) {
  SortKey result{};
  for (const Figure& figure : figures) {
    const Value* value = group.value(policy, figure);
    const int rank = value && !value->suspect && !std::isfinite(value->number)        ? 2
                     : figure.metric == "training.skipped_steps" && skips_many(value) ? 1
                                                                                      : 0;
    std::get<0>(result) = std::max(std::get<0>(result), rank);
  }
  // The value with a sign such that smaller is better; infinite if there is none.
  const auto key = [&](const Figure& figure) {
    const Value* value = group.value(policy, figure);
    if (!value || value->suspect || std::isnan(value->number)) return std::numeric_limits<double>::infinity();
    return figure.better == Better::lower    ? value->number
           : figure.better == Better::higher ? -value->number
                                             : std::fabs(value->number);
  };
  const auto first_of = [&](std::string_view metric) {
    for (const Figure& figure : figures)
      if (figure.metric == metric && group.has(figure)) return key(figure);
    return 0.0;
  };
  std::get<1>(result) = first_of("time.step");
  std::get<2>(result) = first_of("error.nmse");
  for (const Figure& figure : figures)
    if (group.has(figure)) {
      std::get<3>(result) = key(figure);
      break;
    }
  return result;
}

// Fewer bytes are good. Ratios of errors are not coloured.
Cell ratio_cell(const Figure& figure, const Value* value, const Value* base) {
  const auto ratio = ratio_of(figure, value, base);
  if (!ratio) return {};
  const bool coloured = *ratio != 1 && !figure.metric.starts_with("error.");
  if (coloured && *ratio < 1 / kWorthColour) return {human_ratio(*ratio), Tone::good};
  if (coloured && *ratio > kWorthColour) return {human_ratio(*ratio), Tone::bad};
  return {human_ratio(*ratio)};
}

// What is below the title of a group; nothing if its records have no figure.
std::string group_text(const Group& group, std::span<const Figure> figures, const TextOptions& options) {
  std::vector<Figure> columns;
  std::set<std::string_view> told;
  for (const Figure& figure : figures) {
    if (figure.brief && group.has(figure)) told.insert(family_of(figure.metric));
  }
  // A family without its usual figure (a layer has no training step) shows its other figures.
  for (const Figure& figure : figures) {
    if (group.has(figure) && (figure.brief || !told.contains(family_of(figure.metric)))) columns.push_back(figure);
  }
  const auto has_ratio = [](const Figure& figure) {
    return has_ratio_within(figure) && !figure.metric.starts_with("error.");
  };
  std::vector<std::string> titles = {"policy"};
  for (const Figure& figure : columns) {
    titles.push_back(figure.title);
    if (has_ratio(figure)) titles.push_back(fmt::format("vs {}", kBaseline));
  }

  std::vector<std::string> policies, absent;
  for (const std::string& policy : group.policies) {
    const auto values = group.values.find(policy);
    (values != group.values.end() && !values->second.empty() ? policies : absent).push_back(policy);
  }
  std::stable_sort(policies.begin(), policies.end(), [&](const std::string& a, const std::string& b) {
    return sort_key(group, a, columns) < sort_key(group, b, columns);
  });

  Table table(titles);
  for (const std::string& policy : policies) {
    std::vector<Cell> row = {{policy, policy == kBaseline ? Tone::strong : Tone::plain}};
    for (const Figure& figure : columns) {
      const Value* value = group.value(policy, figure);
      row.push_back(cell_of(figure, value));
      if (figure.metric == "training.skipped_steps" && skips_many(value))
        row.back() = {row.back().text + " !", Tone::bad};
      if (has_ratio(figure)) row.push_back(ratio_cell(figure, value, group.value(std::string(kBaseline), figure)));
    }
    table.add(std::move(row));
  }

  std::string text;
  if (!table.empty()) text += table.text(options);
  for (const std::string& policy : absent) {
    const auto found = group.without.find(policy);
    if (found == group.without.end()) continue;
    for (const auto& [status, reasons] : found->second) {
      text += wrapped(fmt::format("{} {}: ", printable(policy), name_of(status)),
                      fmt::format("{}", fmt::join(reasons, "; ")), options.width);
    }
  }
  return text + settings_text(group, columns, policies, options);
}

// The expected outcome of each case that has one, and whether it was observed.
std::string controls_text(const Report& report, const TextOptions& options) {
  Table table({"subject", "policy", "case", "expected", "found", ""}, 6);
  for (const Record& record : report.records) {
    if (!is_control(record)) continue;
    const Expectation& expected = *record.expectation;
    std::vector<std::string> axes;
    for (const auto& [axis, setting] : record.axes) axes.push_back(axis + "=" + setting);
    table.add({{record.subject},
               {record.policy},
               {axes.empty() ? record.harness : fmt::format("{}", fmt::join(axes, " "))},
               {fmt::format("{}{}{} {} {:.3g}", expected.metric, expected.at.empty() ? "" : " at ", expected.at,
                            expected.relation, expected.limit)},
               {human(expected.found, "1")},
               {expected.met ? "as expected" : "NOT MET", expected.met ? Tone::good : Tone::bad}});
  }
  if (table.empty()) return {};
  return "\n" + title("cases with a known outcome", options) +
         wrapped(
             "",
             "what the measurement must find in them, good or bad: a result that theory gives, or a planted fault. The "
             "tables of the subjects leave them out",
             options.width) +
         table.text(options);
}

std::string series_line(const Series& series) {
  const auto range = [](const std::vector<double>& values, const std::string& unit) {
    if (values.empty()) return std::string("empty");
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return human(*low, unit) + " .. " + human(*high, unit);
  };
  return fmt::format("{}{}{}: {} points, x {}, y {}", series.metric, series.at.empty() ? "" : " @ ", series.at,
                     series.x.size(), range(series.x, series.x_unit), range(series.y, series.y_unit));
}

std::string record_text(const Record& record, const TextOptions& options) {
  std::string text = title(record.id, options);
  const std::string status(name_of(record.status));
  text += wrapped("  status  ", record.reason.empty() ? status : status + ": " + record.reason, options.width);
  if (!record.numerics.empty()) text += wrapped("  numbers ", record.numerics, options.width);
  if (!record.repro.empty()) text += wrapped("  again   ", record.repro, options.width);
  for (const KernelUse& use : record.kernels) {
    text += wrapped("  kernel  ",
                    fmt::format("{} {} {}: {}, {}, {}", use.phase, use.operation, use.dtypes, use.row, use.speed,
                                counted(use.calls, "call")),
                    options.width);
    for (const std::string& choice : use.choices) text += wrapped("          chosen ", choice, options.width);
    for (const std::string& refusal : use.refusals) text += wrapped("          refused by ", refusal, options.width);
  }
  if (record.expectation) {
    const Expectation& expected = *record.expectation;
    text += wrapped("  expects ",
                    fmt::format("{} {} {:.3g}, found {:.3g}: {}", expected.metric, expected.relation, expected.limit,
                                expected.found, expected.met ? "met" : "not met"),
                    options.width);
  }
  if (!record.measurements.empty()) {
    Table table({"  metric", "at", "value", "interval", "bound", "samples", "kind"}, 2);
    for (const Measurement& one : record.measurements) {
      table.add(
          {{fmt::format("  {}", one.metric)},
           {one.at},
           {human(one.value, one.unit) + (one.standard_error ? " +-" + human(*one.standard_error, one.unit) : ""),
            std::isfinite(one.value) ? Tone::plain : Tone::bad},
           {one.interval ? human(one.interval->lower, one.unit) + " .. " + human(one.interval->upper, one.unit) : ""},
           {one.bound ? human(*one.bound, one.unit) : ""},
           {one.samples.empty() ? "" : fmt::format("{}", one.samples.size())},
           {std::string(name_of(one.kind))}});
    }
    text += table.text(options);
  }
  for (const Series& series : record.series) text += wrapped("  curve   ", series_line(series), options.width);
  return text;
}

}  // namespace

std::string partial_text(const Report& report) {
  if (report.run.complete) {
    if (report.run.planned == 0 || report.run.planned == report.records.size()) return {};
    return fmt::format("holds {}, its run had {}: was it edited?", counted(report.records.size(), "case"),
                       report.run.planned);
  }
  if (report.run.planned == report.records.size())
    return fmt::format("is marked as partial, though it holds all {}", counted(report.records.size(), "case"));
  return fmt::format("holds {} of {} cases: the run was cut short, or shards of it are missing", report.records.size(),
                     report.run.planned > 0 ? std::to_string(report.run.planned) : "an unknown number of");
}

std::string columns_text() {
  size_t longest = 0;
  for (const Figure& figure : known_figures()) longest = std::max(longest, figure.title.size());
  std::string text = "Columns (figures of a kind that a report lacks are left out):\n";
  for (const Figure& figure : known_figures())
    text += wrapped(fmt::format("  {:<{}}  ", figure.title, longest), figure.about, kHelpWidth);
  return text;
}

std::string show(const NamedReport& named, const TextOptions& options) {
  const Report& report = named.report;
  std::string run = fmt::format("seed {}, {}", report.run.seed, human(report.run.seconds, "s"));
  if (!report.run.suite.empty()) run.insert(0, fmt::format("suite {}, ", report.run.suite));
  if (!report.run.started.empty()) run += ", started " + report.run.started;
  std::string text = title(named.name, options);
  if (!report.run.shard.empty()) run += ", shard " + report.run.shard;
  text += wrapped("run       ", run, options.width);
  if (const std::string partial = partial_text(report); !partial.empty())
    text += toned(wrapped("partial   ", partial, options.width), Tone::bad, options.colour);
  if (const std::string changed = changed_text(report); !changed.empty())
    text += toned(wrapped("changed   ", changed, options.width), Tone::bad, options.colour);
  for (const std::string& line : substitutes(report))
    text += toned(wrapped("device    ", printable(line), options.width), Tone::bad, options.colour);
  text += environment_text(report, options) + counts_text(report, options) + bits_text(report, options);

  const std::vector<Figure> figures = figures_of({&report}, false);
  const auto layers = worst_layers(named, options);
  for (const Group& group : groups_of(report, figures)) {
    std::string body = group_text(group, figures, options);
    if (const auto found = layers.find({group.subject, group.device}); found != layers.end()) body += found->second;
    if (!body.empty()) text += "\n" + title(group.title(), options) + body;
  }
  text += places_text(report, options) + experiments_text(report, options);
  text += controls_text(report, options);
  text += lint_text(report, options);

  const std::vector<std::string> notices = worth_noticing(report);
  if (!notices.empty()) {
    (text += '\n') += title("worth noticing", options);
    const size_t shown = options.all ? notices.size() : std::min(notices.size(), kNotices);
    for (size_t i = 0; i < shown; ++i) text += wrapped("- ", notices[i], options.width);
    if (shown < notices.size()) text += fmt::format("  and {} more\n", notices.size() - shown);
  }
  if (options.all) {
    for (const Record& record : report.records) (text += '\n') += record_text(record, options);
  }
  return text + "\n" +
         wrapped("",
                 "show --help explains the columns, show --layers lists the tensors that lose values, --all shows "
                 "everything",
                 options.width);
}

}  // namespace halfmark::reports
