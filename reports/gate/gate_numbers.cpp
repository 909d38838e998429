#include "reports/gate/gate_numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "reports/statistics/statistics.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr double kFewestForBits = 50;  // with fewer values, an error may double by chance
constexpr double kWideRatio = 10;      // from this limit on, a verdict says how wide it is

double quantile_for(double count, double chance) {
  thread_local std::map<std::pair<double, double>, double> known;
  const auto [place, is_new] = known.try_emplace({count, chance}, 0.0);
  if (is_new) place->second = rms_ratio_quantile(count, chance);
  return place->second;
}

// How much worse `found` is than `base`, in the unit of the number; positive is worse.
double worsening(const NumberRule& rule, Better better, double base, double found) {
  if (rule.magnitude) return std::fabs(found) - std::fabs(base);
  if (better == Better::lower) return found - base;
  if (better == Better::higher) return base - found;
  return std::fabs(found - base);
}

// The absolute slack for this base.
double absolute_slack(const NumberRule& rule, double base) {
  return std::isinf(rule.absolute_share) ? rule.absolute
                                         : std::min(rule.absolute, rule.absolute_share * std::fabs(base));
}

// Of the difference of two values from different samples.
double error_of_difference(const Measurement& a, const Measurement& b) {
  return std::hypot(a.standard_error.value_or(0), b.standard_error.value_or(0));
}

double allowed_slack(const NumberRule& rule, const Measurement& base, const Measurement& found) {
  return std::max({absolute_slack(rule, base.value), rule.share > 0 ? rule.share * std::fabs(base.value) : 0,
                   rule.standard_errors > 0 ? rule.standard_errors * error_of_difference(base, found) : 0});
}

// A NaN is worse than any number: comparisons test whether the limit holds, which is false for NaN.
bool breaks_slack(const NumberRule& rule, Better better, const Measurement& base, const Measurement& found) {
  if (base.value == found.value) return false;  // infinities too
  return !(worsening(rule, better, base.value, found.value) <= allowed_slack(rule, base, found));
}

// "the greater of 0.05 and 30%", or nothing if the rule has one limit only.
std::string limits_of(const NumberRule& rule, const Measurement& base, const Measurement& found) {
  std::vector<std::string> limits;
  if (const double absolute = absolute_slack(rule, base.value); absolute > 0)
    limits.push_back(human(absolute, found.unit));
  if (rule.share > 0) limits.push_back(human_share(rule.share));
  if (rule.standard_errors > 0)
    limits.push_back(fmt::format("{:g} standard errors of the difference", rule.standard_errors));
  if (limits.empty() || (limits.size() == 1 && rule.standard_errors == 0 && rule.share == 0)) return "";
  if (limits.size() == 1) return fmt::format(", {}", limits[0]);
  return fmt::format(", the {} of {}", limits.size() == 2 ? "greater" : "greatest", fmt::join(limits, " and "));
}

// The number of values in the histogram of the rule at the place of the measurement; 0: there is none.
double histogram_total(const NumberRule& rule, const Measurement& measurement, const Record& record) {
  if (rule.elements_in.empty()) return 0;
  for (const Series& series : record.series)
    if (series.metric == rule.elements_in && series.at == measurement.at)
      return std::accumulate(series.y.begin(), series.y.end(), 0.0);
  return 0;
}

struct RatioLimit {
  double ratio = 1;     // of root mean squares
  double elements = 1;  // number of independent values
  bool by_bits = false;
};

// The larger number of values counts, because it gives the smaller limit.
RatioLimit ratio_limit(const NumberRule& rule, const Measurement& one, const RecordPair& records) {
  RatioLimit limit;
  limit.elements = std::max(elements_of(rule, one, records.base), elements_of(rule, one, records.found));
  const double counted = std::min(limit.elements, rule.most_elements);
  limit.ratio =
      std::max(quantile_for(counted, rule.chance), records.proved ? rule.least_ratio : rule.least_ratio_unproved);
  if (const double most = std::exp2(rule.bits_fail); limit.elements >= kFewestForBits && most < limit.ratio)
    limit.ratio = most, limit.by_bits = true;
  return limit;
}

double rms_of(const NumberRule& rule, double value) { return rule.squared ? std::sqrt(value) : value; }

double limit_value(const NumberRule& rule, double base, double ratio) {
  const double rms = ratio * rms_of(rule, base) + rule.tiny;
  return rule.squared ? rms * rms : rms;
}

std::string all_digits(const Measurement& one) {
  return one.unit == "1" ? fmt::format("{}", one.value) : fmt::format("{} {}", one.value, one.unit);
}

std::string was_and_is(const Measurement& base, const Measurement& found) {
  std::string now = human(found.value, found.unit), then = human(base.value, base.unit);
  if (now == then && base.value != found.value)  // equal only because of rounding: shows all digits
    now = all_digits(found), then = all_digits(base);
  return fmt::format("{} is {}, was {}{}", place_of(found), now, then,
                     std::isnan(found.value) && !std::isnan(base.value) ? " (a NaN breaks every limit)" : "");
}

std::string because(const NumberRule& rule) { return rule.why.empty() ? "" : fmt::format(" ({})", rule.why); }

NumberVerdict with_slack(const NumberRule& rule, const Measurement& base, const Measurement& found) {
  NumberVerdict verdict;
  const bool became_infinite = !std::isfinite(found.value) && std::isfinite(base.value);  // needs no standard error
  if (rule.standard_errors > 0 && !(base.standard_error && found.standard_error) && !became_infinite) {
    verdict.outcome = base.value == found.value ? Outcome::untrusted : Outcome::inconclusive;
    verdict.words = fmt::format("{}: {} has no standard error, so its sample is unknown and it is not compared",
                                was_and_is(base, found), found.standard_error ? "the base" : "the new report");
    return verdict;
  }
  const double slack = allowed_slack(rule, base, found);
  const double worse = worsening(rule, found.better, base.value, found.value);
  if (rule.magnitude)
    verdict.limit = std::fabs(base.value) + slack;
  else
    verdict.limit = found.better == Better::higher ? base.value - slack : base.value + slack;
  if (breaks_slack(rule, found.better, base, found)) {
    verdict.outcome = Outcome::breach;
    verdict.times_limit = std::isnan(worse) ? HUGE_VAL : slack > 0 ? worse / slack : worse;
    std::string allowed = "nothing worse than the base";
    if (slack > 0)
      allowed = fmt::format("{} worse than the base{}", human(slack, found.unit), limits_of(rule, base, found));
    if (!rule.magnitude && found.better == Better::neither)
      allowed = slack > 0 ? fmt::format("{} on either side", human(slack, found.unit)) : "no change at all";
    const bool has_worse_side = rule.magnitude || found.better != Better::neither;
    const double share = has_worse_side ? worse / std::fabs(base.value) : 0;
    verdict.words = fmt::format("{}{}; the rule allows {}{}", was_and_is(base, found),
                                std::isfinite(share) && share > 0 ? fmt::format(" ({} worse)", human_share(share)) : "",
                                allowed, because(rule));
  } else if ((std::isinf(found.value) && std::isfinite(base.value)) ||
             ((rule.magnitude || found.better != Better::neither) && breaks_slack(rule, found.better, found, base))) {
    const bool crossed = !rule.magnitude && found.better == Better::lower && base.value >= 0 && found.value < 0;
    verdict.outcome = crossed ? Outcome::untrusted : Outcome::improved;
    verdict.words = was_and_is(base, found) + (crossed ? ": below zero, which few numbers can be" : "");
  } else if (rule.changed && base.value != found.value) {
    verdict.outcome = Outcome::changed;
    verdict.words = fmt::format("{}: different, within the limit of the rule", was_and_is(base, found));
  }
  return verdict;
}

NumberVerdict with_ratio(const NumberRule& rule, const Measurement& base, const Measurement& found,
                         const RecordPair& records) {
  NumberVerdict verdict;
  const RatioLimit limit = ratio_limit(rule, found, records);
  verdict.limit = limit_value(rule, base.value, limit.ratio);
  const double ratio = rms_of(rule, found.value) / rms_of(rule, base.value);
  const double bits = std::log2(ratio);
  if (found.value < 0) {
    verdict.outcome = Outcome::breach;
    verdict.times_limit = std::numeric_limits<double>::infinity();
    verdict.words = fmt::format("{}: an error is never negative", was_and_is(base, found));
    return verdict;
  }
  if (found.value == 0 && base.value > 0) {
    verdict.outcome = Outcome::untrusted;
    verdict.words = fmt::format("{}: {:.0f} value{} without any error; check that they were computed",
                                was_and_is(base, found), limit.elements, limit.elements == 1 ? "" : "s");
    return verdict;
  }
  if (base.value != found.value && !(found.value <= verdict.limit)) {
    verdict.outcome = Outcome::breach;
    verdict.times_limit = std::isnan(found.value) ? std::numeric_limits<double>::infinity()
                                                  : rms_of(rule, found.value) / rms_of(rule, verdict.limit);
    verdict.words = fmt::format("{}{}{}; the rule allows {} for {:.0f} value{}{}", was_and_is(base, found),
                                std::isnan(ratio) ? "" : fmt::format(", {} the error", human_ratio(ratio)),
                                std::isfinite(bits) ? fmt::format(", {:.2g} bits lost", bits) : "",
                                limit.by_bits ? fmt::format("{:.2g} bits", rule.bits_fail) : human_ratio(limit.ratio),
                                limit.elements, limit.elements == 1 ? "" : "s", because(rule));
    return verdict;
  }
  if (limit.ratio >= kWideRatio && base.value > 0) verdict.wide_ratio = limit.ratio;
  if (base.value != found.value && !(base.value <= limit_value(rule, found.value, limit.ratio))) {
    verdict.outcome = Outcome::improved;
    verdict.words = was_and_is(base, found);
  } else if (limit.elements >= kFewestForBits && bits >= rule.bits_warn &&
             rms_of(rule, found.value) > rms_of(rule, base.value) + rule.tiny) {
    verdict.remark = fmt::format("{}: {:.2g} bits lost", was_and_is(base, found), bits);
  }
  return verdict;
}

}  // namespace

std::string place_of(const Measurement& one) {
  return one.at.empty() ? one.metric : fmt::format("{} at {}", one.metric, one.at);
}

double elements_of(const NumberRule& rule, const Measurement& measurement, const Record& record) {
  if (rule.elements_in.empty()) return rule.elements;
  return std::max(1.0, histogram_total(rule, measurement, record));
}

bool has_histogram(const NumberRule& rule, const Measurement& measurement, const Record& record) {
  return histogram_total(rule, measurement, record) > 0;
}

std::optional<NumberVerdict> judge_own_bound(const Measurement& found) {
  if (!found.bound) return {};
  const bool is_least = found.better == Better::higher;
  const double value = found.better == Better::neither ? std::fabs(found.value) : found.value;
  if (is_least ? value >= *found.bound : value <= *found.bound) return {};
  NumberVerdict verdict;
  verdict.outcome = Outcome::breach;
  verdict.found = found.value, verdict.limit = *found.bound;
  verdict.times_limit = std::numeric_limits<double>::infinity();
  verdict.own_bound = true;
  verdict.words = fmt::format(
      "{} is {}, {} its own bound {}, which holds for every rounding and every order of summation", place_of(found),
      human(found.value, found.unit), is_least ? "below" : "above", human(*found.bound, found.unit));
  return verdict;
}

std::optional<NumberVerdict> judge_spread(const Measurement& base, const Measurement& found) {
  constexpr size_t kFewestProcesses = 5;
  constexpr double kTimesAsFar = 2;
  if (found.kind == Kind::sampled || std::min(base.samples.size(), found.samples.size()) < kFewestProcesses) return {};
  // The ratio of the largest to the smallest value. With a NaN there is no ratio; a NaN is judged elsewhere.
  const auto spread = [](const Measurement& one) {
    double least = HUGE_VAL, most = 0;
    for (const double value : one.samples)
      least = std::min(least, std::fabs(value)), most = std::max(most, std::fabs(value));
    return most == least ? 1 : most / least;
  };
  const double before = spread(base), after = spread(found);
  if (!(after > kTimesAsFar * before)) return {};
  NumberVerdict verdict;
  verdict.outcome = Outcome::changed;
  verdict.base = base.value, verdict.found = found.value;
  verdict.times_limit = after / (kTimesAsFar * before);
  verdict.words = fmt::format("{}: the values of {} processes differ by up to {}, before {}: less reproducible",
                              place_of(found), found.samples.size(), human_ratio(after), human_ratio(before));
  return verdict;
}

NumberVerdict judge_number(const NumberRule& rule, const Measurement& base, const Measurement& found,
                           const RecordPair& records) {
  NumberVerdict verdict;
  if (rule.judge == Judging::information) {
    verdict.outcome = Outcome::information;
  } else if (auto broken = judge_own_bound(found)) {
    verdict = std::move(*broken);
  } else if (rule.judge != Judging::bound && std::isnan(base.value)) {
    // A NaN in the base gives no limit. A number is an improvement; another NaN proves nothing.
    verdict.outcome = std::isnan(found.value) ? Outcome::untrusted : Outcome::improved;
    verdict.words = std::isnan(found.value)
                        ? fmt::format("{} is NaN in both reports: no comparison is possible", place_of(found))
                        : was_and_is(base, found);
  } else if (rule.judge == Judging::slack) {
    verdict = with_slack(rule, base, found);
  } else if (rule.judge == Judging::ratio) {
    verdict = with_ratio(rule, base, found, records);
  }
  verdict.base = base.value, verdict.found = found.value;
  const bool passes = verdict.outcome == Outcome::pass || verdict.outcome == Outcome::information ||
                      verdict.outcome == Outcome::improved;
  const bool is_above = found.value > rule.untrusted_above;
  if (passes && (is_above || found.value < rule.untrusted_below)) {
    verdict.outcome = Outcome::untrusted;
    verdict.limit = is_above ? rule.untrusted_above : rule.untrusted_below;
    verdict.words = fmt::format("{} is {}, {} {}{}", place_of(found), human(found.value, found.unit),
                                is_above ? "above" : "below", human(verdict.limit, found.unit), because(rule));
  }
  return verdict;
}

}  // namespace halfmark::reports
