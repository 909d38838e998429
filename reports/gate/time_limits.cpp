#include "reports/gate/time_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "reports/gate/gate_numbers.h"
#include "reports/record/shell.h"
#include "reports/statistics/statistics.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr size_t kFewestSamples = 6;  // of an order-statistic interval of 95 %: 1 - 2^-5 covers with fewer
constexpr std::string_view kAb = "halfmark ab BASE_BUILD NEW_BUILD";

bool is_time(double value) { return std::isfinite(value) && value > 0; }

// ln of the largest ratio of two of these times; nullopt if there are too few for an interval, or one is invalid.
std::optional<double> range_of(const Measurement* times) {
  if (!times || times->samples.size() < kFewestSamples) return {};
  const auto [least, most] = std::minmax_element(times->samples.begin(), times->samples.end());
  if (!is_time(*least) || !is_time(*most)) return {};
  return std::log(*most / *least);
}

// Half of the 95 % interval of the median, as a logarithm.
double half_interval(const Measurement& one, double widest) {
  const MedianInterval interval = median_interval(one.samples);
  const double half = std::log1p(interval.half_width() / median(one.samples));
  return interval.lower_rank > 0 && std::isfinite(half) && half >= 0 ? half : widest;
}

// ln of found / base, positive if it became slower. The value and the median of the samples should be the same number;
// the one that moved further counts.
double slow_down(const Measurement& base, const Measurement& found) {
  double ln = std::log(found.value / base.value);
  if (!base.samples.empty() && !found.samples.empty())
    if (const double other = std::log(median(found.samples) / median(base.samples));
        std::isfinite(other) && std::fabs(other) > std::fabs(ln))
      ln = other;
  return base.unit == "s" ? ln : -ln;
}

std::string times_as_long(double ln) {
  return ln >= 0 ? fmt::format("{} slower", human_ratio(std::exp(ln)))
                 : fmt::format("{} faster", human_ratio(std::exp(-ln)));
}

std::string percent_more(double ln) { return fmt::format("{:.0f} %", 100 * std::expm1(ln)); }

struct Moved {
  const Record* record = nullptr;
  const Measurement *base = nullptr, *found = nullptr;
  double ln = 0, limit = 0;  // limit 0: nothing was compared
  double shown = 0;          // ln of the slow-down that --time has shown for the same step; `ln` is without it
  double share() const { return limit > 0 ? std::fabs(ln) / limit : 0; }
};

class StoredTimesComparison {
 public:
  StoredTimesComparison(const StoredTimeRule& rule, const GateRules& rules, const TimeHistory& history,
                        const std::set<std::string>& tested, EnvironmentDifference& environment, Judgement& judgement)
      : rule_(rule),
        rules_(rules),
        history_(history),
        tested_(tested),
        environment_(environment),
        judgement_(judgement) {}

  void run(const std::vector<MeasuredPair>& pairs) {
    for (const auto& [base, found] : pairs) take(*base, *found);
    find_common_shift();
    remark();
  }

 private:
  void take(const Record& base, const Record& found) {
    std::vector<std::string> missing, useless, useless_in_both;
    bool had_process_times = false, is_timed = false;
    const bool other_machine = !environment_.in(rules_.time_keys, found.device).empty();
    const bool was_suspect = base.status == Status::suspect;
    Moved worst, step;
    size_t compared = 0;
    for (const Measurement& before : base.measurements) {
      if (!is_stored_time(before)) continue;
      is_timed = true;
      const Measurement* after = find(found, before.metric, before.at);
      if (!after && before.metric == kProcessTime) {
        had_process_times = true;
        continue;
      }
      if (!after || after->unit != before.unit || after->better != before.better || !is_stored_time(*after)) {
        missing.push_back(after ? place_of(before) + " (another unit, direction or kind)" : place_of(before));
        continue;
      }
      if (is_time(before.value) && !is_time(after->value)) {
        missing.push_back(fmt::format("{} ({} is not a time)", place_of(before), human(after->value, after->unit)));
        continue;
      }
      const auto are_times = [](const std::vector<double>& all) {
        return std::all_of(all.begin(), all.end(), is_time);
      };
      if (are_times(before.samples) && !are_times(after->samples)) {
        missing.push_back(place_of(before) + " (a sample is not a time)");
        continue;
      }
      if (!is_time(before.value)) (is_time(after->value) ? useless : useless_in_both).push_back(place_of(before));
      if (!is_time(before.value) || is_tested(found, before)) continue;
      if (other_machine || was_suspect) {
        Moved& furthest = was_suspect ? furthest_suspect_ : furthest_incomparable_;
        const Moved one{&found, &before, after, slow_down(before, *after)};
        if (!furthest.record || std::fabs(one.ln) > std::fabs(furthest.ln)) furthest = one;
        continue;
      }
      ++compared;
      const double shown = shown_by_test(base, found, before);
      const Moved one{&found,
                      &before,
                      after,
                      slow_down(before, *after) - shown,
                      noise_limit(rule_, base, found, before, *after, history_),
                      shown};
      if (one.share() > worst.share() || !worst.record) worst = one;
      if (before.metric == kProcessTime || (before.metric == "time.step" && !step.record)) step = one;
    }
    if (!is_timed) return;
    if (!missing.empty()) lose(found, missing);
    if (!useless_in_both.empty()) {
      JudgedLine line = line_of(found, Outcome::information);
      line.words = printable(
          fmt::format("{} is not a time in either report, so nothing was compared", some_of(useless_in_both)));
      judgement_.lines.push_back(std::move(line));
    }
    if (!useless.empty()) {
      JudgedLine line = line_of(found, Outcome::inconclusive);
      line.words = printable(
          fmt::format("{} of the base is not a time, so nothing was compared; make a new base", some_of(useless)));
      judgement_.lines.push_back(std::move(line));
    }
    if (had_process_times && !tested_.contains(found.id)) without_process_times(base, found);
    if (was_suspect) return ++suspect_, void();
    if (other_machine) return ++incomparable_, void();
    if (compared == 0) return;
    if (became_emulated(base, found)) emulated(base, found);
    if (found.status == Status::ok && step.record) steps_.push_back(step);
    if (worst.share() > 1)
      suspect(worst);
    else
      undecided_.push_back(worst);
  }

  // How much slower --time has shown the step of this case to be, for the numbers of the same step: ln of the ratio.
  double shown_by_test(const Record& base, const Record& found, const Measurement& one) const {
    const bool same_step = one.at == rules_.time.at && (one.metric == "time.step" || one.unit != "s");
    if (!same_step || !tested_.contains(found.id)) return 0;
    return slow_down(*find(base, kProcessTime, one.at), *find(found, kProcessTime, one.at));
  }

  // --time has judged this number. The other times of the case are of one process and were not in its test.
  bool is_tested(const Record& found, const Measurement& one) const {
    return tested_.contains(found.id) && one.at == rules_.time.at && one.metric == kProcessTime;
  }

  JudgedLine line_of(const Record& found, Outcome outcome) const {
    JudgedLine line;
    line.id = found.id, line.question = Question::time, line.outcome = outcome, line.rerun = found.repro;
    return line;
  }

  void lose(const Record& found, const std::vector<std::string>& missing) {
    JudgedLine line = line_of(found, Outcome::lost);
    line.words = printable("times of the base that are not measured any more: " + some_of(missing));
    judgement_.lines.push_back(std::move(line));
  }

  void without_process_times(const Record& base, const Record& found) {
    JudgedLine line = line_of(found, Outcome::suspected);
    line.metric = kProcessTime, line.unit = "s";
    line.words = fmt::format("{} is missing, the base has it of {} processes; measure with halfmark run --processes {}",
                             kProcessTime, base.determinism.processes, base.determinism.processes);
    judgement_.lines.push_back(std::move(line));
  }

  // The machine and its libraries are the same, so that a kernel that emulates now is a change of the code.
  static bool became_emulated(const Record& base, const Record& found) {
    const auto emulates = [](const Record& record) {
      return std::any_of(record.kernels.begin(), record.kernels.end(),
                         [](const KernelUse& use) { return use.speed == "emulated"; });
    };
    return !base.kernels.empty() && !emulates(base) && emulates(found);
  }

  void emulated(const Record& base, const Record& found) {
    JudgedLine line = line_of(found, Outcome::suspected);
    std::vector<std::string> rows;
    for (const KernelUse& use : found.kernels)
      if (use.speed == "emulated") rows.push_back(fmt::format("{} {} by {}", use.operation, use.dtypes, use.row));
    line.words = printable(fmt::format("kernels emulate now ({}); in the base all {} computed in their own format",
                                       some_of(rows), base.kernels.size()));
    judgement_.lines.push_back(std::move(line));
  }

  void suspect(const Moved& one) {
    JudgedLine line = line_of(*one.record, Outcome::suspected);
    line.metric = one.base->metric, line.at = one.base->at, line.unit = one.base->unit;
    line.base = one.base->value, line.found = one.found->value;
    const double sign = one.base->unit == "s" ? 1 : -1;
    line.limit = one.base->value * std::exp(std::copysign(one.limit, one.ln) * sign);
    const std::string status =
        one.record->status == Status::suspect ? fmt::format("; its time is suspect now: {}", one.record->reason) : "";
    const std::string beside =
        one.shown == 0 ? ""
                       : fmt::format(" than expected from {}, which is {}", kProcessTime, times_as_long(one.shown));
    line.words = printable(fmt::format(
        "{} is {}, was {}: {}{}, and noise of stored times explains at most {}{}; the command below decides",
        place_of(*one.base), human(one.found->value, line.unit), human(one.base->value, line.unit),
        times_as_long(one.ln), beside, human_ratio(std::exp(one.limit)), status));
    line.rerun = deciding_command(*one.record);
    judgement_.lines.push_back(std::move(line));
  }

  // A shift of the machine moves every case alike, so that the median over many cases shows a small one.
  void find_common_shift() {
    if (steps_.size() < rule_.common_cases) return;
    std::vector<double> lns, distances;
    for (const Moved& one : steps_) lns.push_back(one.ln);
    const double middle = median(lns);
    for (const double ln : lns) distances.push_back(std::fabs(ln - middle));
    // The standard error of the median of normal values, their deviation estimated by the median distance.
    const double error = std::sqrt(M_PI / 2) * 1.4826 * median(distances) / std::sqrt(static_cast<double>(lns.size()));
    const double limit = rule_.run_shift + rule_.common_deviations * error;
    if (!(std::fabs(middle) > limit)) return;
    const auto same_side =
        std::count_if(lns.begin(), lns.end(), [&](double ln) { return (ln > 0) == (middle > 0) && ln != 0; });
    JudgedLine line;
    line.id = "all times", line.question = Question::time, line.outcome = Outcome::suspected;
    line.words = fmt::format(
        "all times moved together: {} of {} cases are {}, the median is {}, and a run shifts by at most {}; the "
        "machine "
        "changed, or something slowed down or sped up everywhere; the command below decides",
        same_side, lns.size(), middle > 0 ? "slower" : "faster", times_as_long(middle), human_ratio(std::exp(limit)));
    line.rerun = kAb;
    judgement_.lines.push_back(std::move(line));
  }

  void remark() {
    std::vector<std::string>& remarks = judgement_.remarks;
    if (!undecided_.empty()) {
      const auto by_limit = [](const Moved& a, const Moved& b) { return a.limit < b.limit; };
      const auto by_share = [](const Moved& a, const Moved& b) { return a.share() < b.share(); };
      const auto [least, most] = std::minmax_element(undecided_.begin(), undecided_.end(), by_limit);
      const Moved& furthest = *std::max_element(undecided_.begin(), undecided_.end(), by_share);
      const std::string low = percent_more(least->limit), high = percent_more(most->limit);
      std::string words =
          fmt::format("times not judged (stored times of two runs cannot tell less than {}): {}; {} {}",
                      low == high ? low : fmt::format("{} to {}", low, high), counted(undecided_.size(), "case"), kAb,
                      undecided_.size() == 1 ? "judges it" : "judges them");
      remarks.push_back(printable(words + largest_of(furthest)));
    }
    if (history_.given())
      remarks.push_back(
          fmt::format("the limits of stored times come from {} of this machine and software, where a time has {} or "
                      "more; the others "
                      "are the general ones",
                      counted(history_.runs(), "earlier run"), TimeHistory::kFewestRuns));
    if (suspect_ > 0)
      remarks.push_back(printable(fmt::format("times not judged, because they are suspect in the base: {}{}",
                                              counted(suspect_, "case"), largest_of(furthest_suspect_))));
    if (incomparable_ > 0)
      remarks.push_back(printable(fmt::format("times not judged, because the machines or their software differ: {}{}",
                                              counted(incomparable_, "case"), largest_of(furthest_incomparable_))));
  }

  // "; the largest difference: time.step at hot of mlp/... is 1.09x slower"
  static std::string largest_of(const Moved& one) {
    if (!one.record || one.ln == 0) return "";
    return fmt::format("; the largest difference: {} of {} is {}{}", place_of(*one.base), one.record->id,
                       times_as_long(one.ln), one.shown == 0 ? "" : fmt::format(" beside {}", kProcessTime));
  }

  const StoredTimeRule& rule_;
  const GateRules& rules_;
  const TimeHistory& history_;
  const std::set<std::string>& tested_;
  EnvironmentDifference& environment_;
  Judgement& judgement_;
  std::vector<Moved> steps_, undecided_;
  Moved furthest_suspect_, furthest_incomparable_;
  size_t suspect_ = 0, incomparable_ = 0;
};

}  // namespace

namespace {

double limit_of_two_runs(const StoredTimeRule& rule, const Record& base, const Record& found, const Measurement& before,
                         const Measurement& after) {
  double limit = rule.run_shift;
  if (before.metric == kProcessTime) {
    const bool few = std::min(before.samples.size(), after.samples.size()) < kFewestSamples;
    limit += few ? rule.process_spread : half_interval(before, 0) + half_interval(after, 0);
    return std::max(limit, rule.least);
  }
  const auto spread = [](const Record& record) {
    for (const Measurement& one : record.measurements)
      if (one.metric == kProcessTime) return range_of(&one);
    return std::optional<double>{};
  };
  const std::optional<double> one = spread(base), other = spread(found);
  // The new report cannot make its own limit much wider.
  limit += one && other ? std::max(*one, std::min(*other, rule.widening * *one)) : rule.process_spread;
  // A record that is suspect because its times scatter does not widen its own limit.
  const double scatter = half_interval(after, rule.widest_interval);
  limit += half_interval(before, rule.widest_interval) +
           (found.status == Status::suspect ? std::min(scatter, rule.widest_interval) : scatter);
  return std::max(limit, rule.least);
}

}  // namespace

double noise_limit(const StoredTimeRule& rule, const Record& base, const Record& found, const Measurement& before,
                   const Measurement& after, const TimeHistory& history) {
  const double limit = limit_of_two_runs(rule, base, found, before, after);
  const std::optional<double> step = history.largest_step(found.id, before);
  if (!step) return limit;
  // A change of the code in the history must not excuse every later one.
  return std::clamp(TimeHistory::kMargin * *step, rule.run_shift, rule.widening * limit);
}

void compare_stored_times(const std::vector<MeasuredPair>& pairs, const StoredTimeRule& rule, const GateRules& rules,
                          const TimeHistory& history, const std::set<std::string>& tested,
                          EnvironmentDifference& environment, Judgement& judgement) {
  StoredTimesComparison(rule, rules, history, tested, environment, judgement).run(pairs);
}

namespace {

// " --data PATH" as the record's own command has it, before the seed; empty: drawn data.
std::string data_option(const Record& record) {
  const size_t begin = record.data ? record.repro.rfind(" --data ") : std::string::npos;
  if (begin == std::string::npos) return "";
  return record.repro.substr(begin, record.repro.rfind(" --seed ") - begin);
}

}  // namespace

std::string deciding_command(const Record& record) {
  std::string command = std::string(kAb);
  if (!record.subject.empty()) command += " " + shell_word(record.subject);
  if (!record.policy.empty()) command += " --policy " + shell_word(record.policy);
  if (!record.device.empty()) command += " --device " + shell_word(record.device);
  return command + data_option(record);
}

}  // namespace halfmark::reports
