#include "reports/gate/gate_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "reports/statistics/statistics.h"
#include "reports/statistics/stored_times.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kNotJudged = "not judged: ", kInvalid = "its timing is not valid";

bool is_timed(const Record& record) {
  return std::any_of(record.measurements.begin(), record.measurements.end(),
                     [](const Measurement& one) { return one.metric.starts_with("time."); });
}

std::vector<double> logarithms(const std::vector<double>& seconds) {
  std::vector<double> all;
  for (const double s : seconds) all.push_back(std::log(s));
  return all;
}

// The reason why these times cannot be judged; empty if they can.
std::string reason_against(const Record& base, const Record& found, const TimeRule& rule,
                           const std::vector<std::string>& differing) {
  for (const Record* record : {&base, &found})
    if (record->status == Status::suspect)
      return fmt::format("{} {}: {}", kInvalid, record == &base ? "in the base" : "here", record->reason);
  if (!differing.empty()) return fmt::format("the machines differ in {}", some_of(differing));
  size_t runs[2] = {};
  for (const Record* record : {&base, &found}) {
    const Measurement* times = find(*record, kProcessTime, rule.at);
    const size_t count = times ? times->samples.size() : 0;
    if (count > static_cast<size_t>(std::max(record->determinism.processes, 0)))
      return fmt::format("{} samples of {} processes are not replicates", count, record->determinism.processes);
    runs[record == &base ? 0 : 1] = count;
  }
  if (std::min(runs[0], runs[1]) < static_cast<size_t>(rule.processes))
    return fmt::format(
        "{} process runs in the base and {} here, {} are needed on each side: halfmark run "
        "--processes {}",
        runs[0], runs[1], rule.processes, rule.processes);
  return {};
}

struct Timed {
  JudgedLine line;
  StoredTimes times;
  CaseDecision decision;
};

std::string percent(double ln_ratio) { return fmt::format("{:+.1f} %", 100 * std::expm1(ln_ratio)); }

// Why an effect as large as the minimum is no regression, or why its absence is not shown.
std::string doubt_of(const StoredFinding& finding) {
  const std::string worth = fmt::format(
      "each run depends on the run before it (correlation up to {:.2f}): this many runs are worth {:.1f} independent "
      "ones",
      finding.lag_one, finding.worth);
  switch (finding.verdict) {
    case StoredVerdict::slower:
    case StoredVerdict::faster:
    case StoredVerdict::no_effect:
      return "";
    case StoredVerdict::noise:
      return "; undecided, because the runs vary too much";
    case StoredVerdict::dependence:
      return "; undecided, because " + worth;
    case StoredVerdict::days:
      return fmt::format(
          "; undecided, because it could be the shift of a case between two days ({:.3g} % on each, p {:.2g} after the "
          "correction); decide with halfmark ab",
          100 * finding.day_spread, finding.corrected_day_p);
    case StoredVerdict::unknown:
      return "; an effect of the minimum cannot be excluded, because " + worth;
  }
  return "";
}

void add(Timed& one, const StoredFinding& finding, size_t family, const TimeRule& rule) {
  CaseDecision& decision = one.decision;
  decision.p = finding.p, decision.corrected_p = finding.corrected_p;
  decision.ratio = std::exp(finding.shift);
  decision.interval = {std::exp(finding.interval.lower), std::exp(finding.interval.upper)};
  switch (finding.verdict) {
    case StoredVerdict::slower:
      decision.verdict = Verdict::regression;
      one.line.outcome = Outcome::breach;
      break;
    case StoredVerdict::faster:
      decision.improved = true;
      one.line.outcome = Outcome::improved;
      break;
    case StoredVerdict::no_effect:
      break;
    case StoredVerdict::noise:
    case StoredVerdict::dependence:
    case StoredVerdict::days:
      if (finding.shift < 0) break;  // a speed-up that is not certain is no reason to stop
      [[fallthrough]];
    case StoredVerdict::unknown:
      decision.verdict = Verdict::inconclusive;
      one.line.outcome = Outcome::inconclusive;
      break;
  }
  one.line.words = fmt::format(
      "{} at {}: {} (95 %, with the shift between days: {} ... {}), {} and {} process runs, p {:.2g} after Holm's "
      "correction for {} cases; the rule allows {}{}",
      kProcessTime, rule.at, percent(finding.shift), percent(finding.interval.lower), percent(finding.interval.upper),
      one.times.base.size(), one.times.found.size(), finding.corrected_p, family,
      percent(std::log1p(rule.minimum_effect)), doubt_of(finding));
}

// The reason without what differs between cases: which of their kernels emulate.
std::string kind_of(const std::string& words) {
  const std::string reason = words.substr(kNotJudged.size());
  return reason.starts_with(kInvalid) ? reason.substr(0, reason.find(": ")) : reason;
}

}  // namespace

std::set<std::string> judge_times(const std::vector<MeasuredPair>& pairs, const TimeRule& rule, const Keys& keys,
                                  const TimeHistory& history, EnvironmentDifference& environment,
                                  Judgement& judgement) {
  std::vector<Timed> judged;
  for (const auto& [base, found] : pairs) {
    if (!is_timed(*base) && !is_timed(*found)) continue;
    JudgedLine line;
    line.id = found->id, line.question = Question::time, line.rerun = found->repro;
    line.metric = kProcessTime, line.at = rule.at, line.unit = "s";
    const std::string reason = reason_against(*base, *found, rule, environment.in(keys, found->device));
    if (!reason.empty()) {
      line.outcome = base->status == Status::suspect ? Outcome::information : Outcome::inconclusive;
      line.words = std::string(kNotJudged) + reason;
      judgement.lines.push_back(line);
      continue;
    }
    const std::vector<double>& before = find(*base, kProcessTime, rule.at)->samples;
    const std::vector<double>& after = find(*found, kProcessTime, rule.at)->samples;
    line.base = median(before), line.found = median(after), line.limit = line.base * (1 + rule.minimum_effect);
    const std::optional<double> day_spread = history.day_spread(line.id, *find(*base, kProcessTime, rule.at));
    Timed one{line, {logarithms(before), logarithms(after), day_spread}, {}};
    one.decision.stage = Stage::confirmed;
    one.decision.paired = false;
    one.decision.pairs = static_cast<int>(std::min(before.size(), after.size()));
    one.decision.minimum_effect = rule.minimum_effect;
    one.decision.screened = median(one.times.found) - median(one.times.base);
    judgement.timing.process_runs += static_cast<int64_t>(before.size() + after.size());
    judged.push_back(std::move(one));
  }
  if (judged.empty()) {
    // The judgement of times was asked for, so a report whose times cannot be judged does not pass.
    std::map<std::string, size_t> cases_with;  // by reason
    for (JudgedLine& line : judgement.lines)
      if (line.question == Question::time) line.outcome = Outcome::inconclusive, ++cases_with[kind_of(line.words)];
    if (cases_with.empty()) {
      JudgedLine line;
      line.id = "all times", line.question = Question::time, line.outcome = Outcome::inconclusive;
      line.words = "no time could be judged: no record of both reports has a time";
      judgement.lines.push_back(std::move(line));
    }
    for (const auto& [words, cases] : cases_with)
      judgement.remarks.push_back(
          fmt::format("no time could be judged: {} ({} case{})", words, cases, cases == 1 ? "" : "s"));
    return {};
  }
  const double least = least_rank_sum_p(rule.processes, rule.processes) * static_cast<double>(judged.size());
  if (least > rule.alpha)
    throw ReportError(
        fmt::format("time.alpha = {:.2g} can find nothing: the smallest p value of {} process runs, for {} "
                    "cases, is {:.2g}; measure more processes or increase alpha",
                    rule.alpha, rule.processes, judged.size(), least));
  std::vector<StoredTimes> times;
  for (const Timed& one : judged) times.push_back(one.times);
  if (history.given()) {
    const auto known = std::count_if(times.begin(), times.end(), [](const StoredTimes& one) { return one.day_spread; });
    judgement.remarks.push_back(fmt::format(
        "the shift of times between days comes from the history for {} of {} cases ({} days; {} are needed)", known,
        times.size(), history.days(), TimeHistory::kFewestDays));
  }
  const std::vector<StoredFinding> findings =
      judge_stored_times(times, {rule.margin, rule.minimum_effect, rule.alpha, rule.day_spread});
  for (size_t i = 0; i < judged.size(); ++i) {
    add(judged[i], findings[i], judged.size(), rule);
    judgement.timing.cases.push_back(judged[i].decision);
    judgement.timed.push_back(judged[i].line.id);
    judgement.lines.push_back(judged[i].line);
  }
  Verdict& verdict = judgement.timing.verdict;
  for (const CaseDecision& one : judgement.timing.cases)
    if (one.verdict == Verdict::regression || verdict == Verdict::pass) verdict = one.verdict;
  std::set<std::string> ids;
  for (const Timed& one : judged) ids.insert(one.line.id);
  return ids;
}

void check_times(const NamedReport& report) {
  for (const Record& record : report.report.records)
    for (const Measurement& one : record.measurements) {
      if (one.metric != kProcessTime && one.metric != "time.step") continue;
      const auto check = [&](double seconds) {
        if (!(seconds > 0) || !std::isfinite(seconds))
          throw ReportError(fmt::format("{}: {} at {} of {} is {}, which is not a valid time; measure again",
                                        report.name, one.metric, printable(one.at), printable(record.id),
                                        human(seconds, "s")));
      };
      check(one.value);
      for (const double sample : one.samples) check(sample);
    }
}

}  // namespace halfmark::reports
