#include "reports/history/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include "reports/record/glob.h"
#include "reports/record/provenance.h"
#include "reports/statistics/changes_in_noise.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr int64_t kSecondsOfADay = 86400;  // of UTC

using Json = nlohmann::ordered_json;

}  // namespace

bool HistorySeries::worse(const ChangePoint& change) const {
  return better == Better::higher ? change.change() < 0 : change.change() > 0;
}

std::string HistoryStore::anchor_of(const HistoryRules& rules) const {
  // The build of a judgement is its base. If a judgement and a report have the same time, the judgement is used.
  std::string oldest;
  int64_t when = INT64_MAX;
  std::set<std::string> known;
  const auto see = [&](const std::string& build, int64_t made) {
    known.insert(build);
    if (made < when) when = made, oldest = build;
  };
  for (const StoredJudgement& one : judgements_) see(one.base, one.when);
  for (const StoredReport& one : reports_) see(one.build, one.when);
  if (rules.anchor.empty()) return oldest;
  std::vector<std::string> called;
  for (const std::string& build : known)
    if (build.starts_with(rules.anchor)) called.push_back(build);
  if (called.size() == 1) return called[0];
  throw ReportError(
      fmt::format("--anchor {}: {}; known builds: {}", rules.anchor,
                  called.empty() ? "no build in the folder starts with this" : "several builds start with this",
                  fmt::join(known, ", ")));
}

void HistoryStore::require_metrics(const HistoryRules& rules) const {
  std::set<std::string> known;
  for (const StoredJudgement& one : judgements_)
    for (const auto& [key, ratio] : one.ratios) known.insert(key.metric);
  for (const StoredReport& one : reports_)
    for (const auto& [key, value] : one.values) known.insert(key.metric);
  for (const std::string& glob : rules.metrics)
    if (std::none_of(known.begin(), known.end(), [&](const std::string& name) { return glob_matches(glob, name); }))
      throw ReportError(
          fmt::format("--metric {}: the folder holds no such number with a direction of improvement; it holds: {}",
                      glob, fmt::join(known, ", ")));
}

// Collects the points of all series.
class HistoryStore::Collector {
 public:
  Collector(const HistoryStore& store, const HistoryRules& rules, std::string anchor)
      : store_(store), rules_(rules), anchor_(std::move(anchor)) {}

  History history() {
    for (const StoredJudgement& one : store_.judgements_) add(one);
    for (const StoredReport& one : store_.reports_)
      if (one.build != anchor_) add(one);
    History history{anchor_, store_.reports_.size(), store_.judgements_.size()};
    for (auto& [key, series] : series_) {
      std::stable_sort(series.points.begin(), series.points.end(),
                       [](const HistoryPoint& a, const HistoryPoint& b) { return a.when < b.when; });
      std::vector<double> logarithms;
      std::vector<int64_t> days;
      for (const HistoryPoint& point : series.points)
        logarithms.push_back(std::log(point.ratio)), days.push_back(point.when / kSecondsOfADay);
      series.changes = series.exact ? exact_changes(logarithms) : changes_in_noise(logarithms, days, rules_.change);
      for (const ChangePoint& change : series.changes)
        series.beside.push_back(facts_between(series.points[change.at - 1], series.points[change.at]));
      if (!series.exact) note_far_points(series, logarithms);
      history.series.push_back(std::move(series));
    }
    const auto largest = [](const HistorySeries& one) {
      double most = 0;
      for (const ChangePoint& change : one.changes) most = std::max(most, std::abs(change.change()));
      return most;
    };
    std::stable_sort(history.series.begin(), history.series.end(),
                     [&](const HistorySeries& a, const HistorySeries& b) { return largest(a) > largest(b); });
    history.remarks = remarks();
    for (const auto& more : {shortened(far_points_, "further series with far points"), without_ratio(),
                             ended(history.series), disagreements()})
      history.remarks.insert(history.remarks.end(), more.begin(), more.end());
    return history;
  }

 private:
  bool is_wanted(const std::string& metric) const {
    return std::any_of(rules_.metrics.begin(), rules_.metrics.end(),
                       [&](const std::string& glob) { return glob_matches(glob, metric); });
  }

  void add_point(const Key& key, const std::string& machine, Better better, bool exact, HistoryPoint point) {
    HistorySeries& series = series_[{key, machine}];
    if (series.points.empty())
      series = {.id = key.id, .metric = key.metric, .at = key.at, .machine = machine, .better = better, .exact = exact};
    series.points.push_back(std::move(point));
  }

  // A judgement against a different anchor is used if a judgement of that anchor against ours gives the factor between
  // them: the latest one before it, otherwise the first one after it.
  const StoredJudgement* link_to(const StoredJudgement& judgement) const {
    const StoredJudgement* best = nullptr;
    for (const StoredJudgement& one : store_.judgements_) {
      if (one.base != anchor_ || one.candidate != judgement.base || one.machine != judgement.machine) continue;
      const auto distance = [&](const StoredJudgement& link) {
        return std::pair(link.when > judgement.when, std::abs(link.when - judgement.when));
      };
      if (!best || distance(one) < distance(*best)) best = &one;
    }
    return best;
  }

  void add(const StoredJudgement& judgement) {
    const StoredJudgement* link = judgement.base == anchor_ ? nullptr : link_to(judgement);
    if (judgement.base != anchor_ && !link) {
      ++unlinked_[judgement.base];
      return;
    }
    for (const auto& [key, ratio] : judgement.ratios) {
      if (!is_wanted(key.metric)) continue;
      double factor = 1;
      if (link) {
        const auto found = link->ratios.find(key);
        if (found == link->ratios.end()) continue;
        factor = found->second;
      }
      add_point(key, judgement.machine, Better::lower, false,
                {judgement.when, judgement.started, judgement.candidate, judgement.file, ratio * factor});
    }
  }

  // The anchor's reports from the same machine and libraries, nearest in time first.
  std::vector<const StoredReport*> anchors_of(const StoredReport& report) const {
    std::vector<const StoredReport*> found;
    for (const StoredReport& one : store_.reports_)
      if (&one != &report && one.build == anchor_ && one.machine == report.machine && one.seed == report.seed &&
          !difference_of(one.environment, report.environment))
        found.push_back(&one);
    std::stable_sort(found.begin(), found.end(), [&](const StoredReport* a, const StoredReport* b) {
      return std::abs(a->when - report.when) < std::abs(b->when - report.when);
    });
    return found;
  }

  // Whether the case is another subject of the same name in the anchor's report.
  static bool is_other_subject(const StoredReport& anchor, const StoredReport& report, const std::string& id) {
    const auto before = anchor.subjects.find(id), now = report.subjects.find(id);
    return before != anchor.subjects.end() && now != report.subjects.end() &&
           !difference_of(before->second, now->second).empty();
  }

  void add(const StoredReport& report) {
    const std::vector<const StoredReport*> anchors = anchors_of(report);
    std::set<std::string> omitted;
    size_t added = 0, too_far = 0;
    for (const auto& [of, value] : report.values) {
      const Key& key = of;  // a lambda below uses it
      if (!is_wanted(key.metric)) continue;
      const auto nearest = std::find_if(anchors.begin(), anchors.end(),
                                        [&](const StoredReport* one) { return one->values.contains(key); });
      if (nearest == anchors.end()) continue;
      if (is_other_subject(**nearest, report, key.id)) {
        omitted.insert(key.id);
        continue;
      }
      const double hours = static_cast<double>(std::abs((*nearest)->when - report.when)) / 3600;
      if (value.timed && hours > rules_.hours) {
        ++too_far;
        continue;
      }
      const Value& of_anchor = (*nearest)->values.at(key);
      if (value.unit != of_anchor.unit || value.better != of_anchor.better) {
        redefined_.insert(key.metric);
        continue;
      }
      const double ratio = value.value / of_anchor.value;
      if (!std::isfinite(ratio) || ratio <= 0) {
        // Two zeros are no change. 0 beside something has no ratio and is told as it is.
        if (value.value != of_anchor.value) no_ratio_[{key, report.machine}].push_back({&report, value, of_anchor});
        continue;
      }
      add_point(key, report.machine, value.better, value.exact,
                {report.when, report.started, report.build, report.file, ratio});
      ++added;
    }
    if (!omitted.empty()) other_subjects_.emplace_back(report.file, omitted.size());
    if (anchors.empty())
      alone_.push_back(report.file);
    else if (too_far > 0)
      far_.push_back(report.file);
    else if (added == 0 && omitted.empty())
      ++nothing_common_;
  }

  // " (failed: crash)", if the report says why a case has no numbers.
  std::string reason_in(const std::string& file, const HistorySeries& series) const {
    const StoredReport* report = report_in(file);
    if (!report) return "";
    if (const auto found = report->absent.find(series.id); found != report->absent.end())
      return fmt::format(" ({})", found->second);
    const StoredReport* last = report_in(series.points.back().file);
    const auto now = report->versions.find(series.id);
    if (last && now != report->versions.end() && last->versions.at(series.id) != now->second)
      return fmt::format(" (version {})", now->second);
    return "";
  }

  // A series without a point in the latest file of its machine: the case was lost, renamed or is not run any more.
  // Judgements and reports are made at different times and have different cases.
  std::vector<std::string> ended(const std::vector<HistorySeries>& all) const {
    std::set<std::string> judgements;
    for (const StoredJudgement& one : store_.judgements_) judgements.insert(one.file);
    const auto source = [&](const HistorySeries& one) {
      return std::pair(one.machine, judgements.contains(one.points.back().file));
    };
    std::map<std::pair<std::string, bool>, const HistoryPoint*> latest;
    for (const HistorySeries& one : all)
      if (const HistoryPoint*& most = latest[source(one)]; !most || one.points.back().when > most->when)
        most = &one.points.back();
    std::map<const HistoryPoint*, std::vector<std::string>> names;
    for (const HistorySeries& one : all)
      if (const HistoryPoint* most = latest.at(source(one)); one.points.back().when < most->when)
        names[most].push_back(fmt::format("{}{}{} of {}{}", one.metric, one.at.empty() ? "" : " at ", one.at, one.id,
                                          reason_in(most->file, one)));
    std::vector<std::string> remarks;
    for (auto& [most, series] : names)
      remarks.push_back(fmt::format("{} no point in {}, the latest: {}",
                                    series.size() == 1 ? "1 series has" : fmt::format("{} series have", series.size()),
                                    most->file, some_of(series)));
    return remarks;
  }

  std::vector<std::string> remarks() const {
    std::vector<std::string> all;
    for (const auto& [base, count] : unlinked_)
      all.push_back(fmt::format("{} against {} omitted: no judgement of {} against the anchor {} links them",
                                counted(count, "judgement"), base, base, anchor_));
    const auto is_other = [&](const StoredReport& one) { return one.build != anchor_; };
    if (store_.judgements_.empty() && std::none_of(store_.reports_.begin(), store_.reports_.end(), is_other))
      all.push_back(fmt::format("the anchor {} is the only build: there is nothing to compare with it", anchor_));
    if (!alone_.empty())
      all.push_back(
          fmt::format("{} omitted ({}): the anchor {} has no report from the same machine, libraries and seed",
                      counted(alone_.size(), "report"), alone_[0], anchor_));
    if (!far_.empty())
      all.push_back(fmt::format("times of {} omitted ({}): the anchor was not run within {:g} hours",
                                counted(far_.size(), "report"), far_[0], rules_.hours));
    for (const auto& [file, cases] : other_subjects_)
      all.push_back(fmt::format("{} of {} omitted: another subject of the same name in the anchor's report",
                                counted(cases, "case"), file));
    if (nothing_common_ > 0)
      all.push_back(
          fmt::format("{} no positive number of {} in common with the anchor's reports; --metric names other metrics",
                      nothing_common_ == 1 ? "1 report has" : fmt::format("{} reports have", nothing_common_),
                      fmt::join(rules_.metrics, ", ")));
    if (!redefined_.empty())
      all.push_back(fmt::format("{} omitted: another unit or direction of improvement than in the anchor's report",
                                fmt::join(redefined_, ", ")));
    if (const auto& copies = store_.copies_; !copies.empty())
      all.push_back(fmt::format("{} omitted ({} holds the numbers of {})",
                                copies.size() == 1 ? "1 copy" : fmt::format("{} copies", copies.size()),
                                copies[0].first, copies[0].second));
    return all;
  }

  static std::string name_of_series(const Key& key) {
    return fmt::format("{}{}{} of {}", key.metric, key.at.empty() ? "" : " at ", key.at, key.id);
  }

  // Each series with numbers whose ratio to the anchor's is not a positive number, with its first one.
  std::vector<std::string> without_ratio() const {
    std::vector<std::string> all;
    for (const auto& [series, numbers] : no_ratio_) {
      const auto earlier = [](const NoRatio& a, const NoRatio& b) { return a.report->when < b.report->when; };
      const NoRatio& first = *std::min_element(numbers.begin(), numbers.end(), earlier);
      all.push_back(fmt::format("{}: {}, {} in the anchor's report: no ratio ({}, the first {})",
                                name_of_series(series.first), human(first.value.value, first.value.unit),
                                human(first.anchor.value, first.anchor.unit), counted(numbers.size(), "report"),
                                first.report->file));
    }
    return shortened(std::move(all), "further series whose numbers have no ratio to the anchor's");
  }

  // The first few, and how many more there are.
  static std::vector<std::string> shortened(std::vector<std::string> all, std::string_view what) {
    constexpr size_t kMost = 10;
    if (all.size() <= kMost) return all;
    const size_t more = all.size() - kMost;
    all.resize(kMost);
    all.push_back(fmt::format("{} {}", more, what));
    return all;
  }

  // Exact numbers of one build on one machine are the same in every report.
  std::vector<std::string> disagreements() const {
    std::map<std::string, std::string> all;  // by series, so that each is named once
    for (const StoredReport& one : store_.reports_) {
      if (one.build != anchor_) continue;
      for (const StoredReport* other : anchors_of(one))
        for (const auto& [key, value] : one.values) {
          const auto found = other->values.find(key);
          if (!value.exact || !is_wanted(key.metric) || found == other->values.end()) continue;
          if (found->second.value == value.value || (std::isnan(value.value) && std::isnan(found->second.value)))
            continue;
          all.emplace(name_of_series(key), fmt::format("the anchor's own reports disagree: {} is {} in {} and {} in {}",
                                                       name_of_series(key), human(value.value, value.unit), one.file,
                                                       human(found->second.value, value.unit), other->file));
        }
    }
    std::vector<std::string> remarks;
    for (const auto& [series, words] : all) remarks.push_back(words);
    return shortened(std::move(remarks), "further numbers in which the anchor's own reports disagree");
  }

  const StoredReport* report_in(const std::string& file) const {
    for (const StoredReport& one : store_.reports_)
      if (one.file == file) return &one;
    return nullptr;
  }

  // "run.seed 0 -> 7, compiler.flags -O3 -> -O0": what differs between the reports of two points.
  std::string facts_between(const HistoryPoint& a, const HistoryPoint& b) const {
    const StoredReport *before = report_in(a.file), *after = report_in(b.file);
    if (!before || !after) return "";
    std::vector<std::string> changes;
    for (const auto& [path, value] : after->facts.items()) {
      const auto was = before->facts.find(path);
      if (was != before->facts.end() && *was == value) continue;
      std::string name = path.substr(1);
      std::replace(name.begin(), name.end(), '/', '.');
      changes.push_back(fmt::format("{} {} -> {}", name, was == before->facts.end() ? "nothing" : text_of_fact(*was),
                                    text_of_fact(value)));
    }
    return some_of(changes);
  }

  static std::string text_of_fact(const Json& value) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    return text.size() <= 40 ? text : text.substr(0, 37) + "...";
  }

  // Points that are no level: a few nights that ended, or the last night.
  void note_far_points(const HistorySeries& series, const std::vector<double>& logarithms) {
    const std::vector<size_t> far = far_points(logarithms, series.changes);
    if (far.empty()) return;
    const size_t first = far.front(), last = far.back();
    far_points_.push_back(fmt::format(
        "{}{}{} of {}: {} far from the others, too few to be a change ({}{})", series.metric,
        series.at.empty() ? "" : " at ", series.at, series.id,
        far.size() == 1 ? "1 point is" : fmt::format("{} points are", far.size()), series.points[first].file,
        first == last ? fmt::format(", {} to the anchor", human_ratio(series.points[first].ratio))
                      : fmt::format(" to {}", series.points[last].file)));
  }

  const HistoryStore& store_;
  const HistoryRules& rules_;
  std::string anchor_;
  std::map<std::pair<Key, std::string>, HistorySeries> series_;
  std::map<std::string, size_t> unlinked_;
  std::vector<std::string> alone_, far_;
  std::vector<std::pair<std::string, size_t>> other_subjects_;  // file, number of cases
  std::set<std::string> redefined_;                             // metrics
  size_t nothing_common_ = 0;
  struct NoRatio {
    const StoredReport* report;
    Value value, anchor;
  };
  std::map<std::pair<Key, std::string>, std::vector<NoRatio>> no_ratio_;
  std::vector<std::string> far_points_;
};

History HistoryStore::history(const HistoryRules& rules) const {
  if (reports_.empty() && judgements_.empty()) throw ReportError("there is no report and no judgement to compare");
  if (rules.metrics_are_given) require_metrics(rules);
  return Collector(*this, rules, anchor_of(rules)).history();
}

Json to_json(const History& history) {
  Json json{{"history", 1},
            {"anchor", history.anchor},
            {"reports", history.reports},
            {"judgements", history.judgements},
            {"remarks", history.remarks},
            {"series", Json::array()}};
  for (const HistorySeries& one : history.series) {
    Json series{{"case", one.id},          {"metric", one.metric},          {"at", one.at},
                {"machine", one.machine},  {"better", name_of(one.better)}, {"exact", one.exact},
                {"points", Json::array()}, {"changes", Json::array()}};
    for (const HistoryPoint& point : one.points)
      series["points"].push_back(
          {{"started", point.started}, {"build", point.build}, {"file", point.file}, {"ratio", point.ratio}});
    for (const ChangePoint& change : one.changes)
      series["changes"].push_back({{"at", change.at},
                                   {"before", std::exp(change.before)},
                                   {"after", std::exp(change.after)},
                                   {"p", change.p},
                                   {"worse", one.worse(change)},
                                   {"undecided", change.undecided},
                                   {"environment", one.beside[series["changes"].size()]}});
    json["series"].push_back(std::move(series));
  }
  return json;
}

}  // namespace halfmark::reports
