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
      throw ReportError(fmt::format("--metric {}: the folder holds no such number with a better side; it holds: {}",
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
    for (std::string& remark : ended(history.series)) history.remarks.push_back(std::move(remark));
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
      if (one.build == anchor_ && one.machine == report.machine && !difference_of(one.environment, report.environment))
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
        ++no_ratio_;
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
        names[most].push_back(fmt::format("{}{}{} of {}", one.metric, one.at.empty() ? "" : " at ", one.at, one.id));
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
    if (series_.empty() && unlinked_.empty() && alone_.empty())
      all.push_back(fmt::format("the anchor {} is the only build: there is nothing to compare with it", anchor_));
    if (!alone_.empty())
      all.push_back(fmt::format("{} omitted ({}): the anchor {} has no report from the same machine and libraries",
                                counted(alone_.size(), "report"), alone_[0], anchor_));
    if (!far_.empty())
      all.push_back(fmt::format("times of {} omitted ({}): the anchor was not run within {:g} hours",
                                counted(far_.size(), "report"), far_[0], rules_.hours));
    for (const auto& [file, cases] : other_subjects_)
      all.push_back(fmt::format("{} of {} omitted: another subject of the same name in the anchor's report",
                                counted(cases, "case"), file));
    if (nothing_common_ > 0)
      all.push_back(
          fmt::format("{} no number in common with the anchor's reports",
                      nothing_common_ == 1 ? "1 report has" : fmt::format("{} reports have", nothing_common_)));
    if (!redefined_.empty())
      all.push_back(fmt::format("{} omitted: another unit or better side than in the anchor's report",
                                fmt::join(redefined_, ", ")));
    if (const auto& copies = store_.copies_; !copies.empty())
      all.push_back(fmt::format("{} omitted ({} holds the numbers of {})",
                                copies.size() == 1 ? "1 copy" : fmt::format("{} copies", copies.size()),
                                copies[0].first, copies[0].second));
    if (no_ratio_ > 0)
      all.push_back(
          fmt::format("{} omitted: zero or not finite, here or in the anchor's report", counted(no_ratio_, "number")));
    return all;
  }

  const HistoryStore& store_;
  const HistoryRules& rules_;
  std::string anchor_;
  std::map<std::pair<Key, std::string>, HistorySeries> series_;
  std::map<std::string, size_t> unlinked_;
  std::vector<std::string> alone_, far_;
  std::vector<std::pair<std::string, size_t>> other_subjects_;  // file, number of cases
  std::set<std::string> redefined_;                             // metrics
  size_t nothing_common_ = 0, no_ratio_ = 0;
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
                                   {"undecided", change.undecided}});
    json["series"].push_back(std::move(series));
  }
  return json;
}

}  // namespace halfmark::reports
