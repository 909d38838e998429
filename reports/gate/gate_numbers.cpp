#include "reports/gate/gate_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "reports/statistics/statistics.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

constexpr double kFewestForBits = 50;  // with fewer values an error doubles by chance

std::string place_of(const Measurement& one) {
  return one.at.empty() ? one.metric : fmt::format("{} at {}", one.metric, one.at);
}

double quantile_for(double count, double chance) {
  thread_local std::map<std::pair<double, double>, double> known;
  const auto [place, is_new] = known.try_emplace({count, chance}, 0.0);
  if (is_new) place->second = rms_ratio_quantile(count, chance);
  return place->second;
}

// How much worse `found` is than `base`, in the unit: above zero is worse.
double worsening(const NumberRule& rule, Better better, double base, double found) {
  if (rule.magnitude) return std::fabs(found) - std::fabs(base);
  if (better == Better::lower) return found - base;
  if (better == Better::higher) return base - found;
  return std::fabs(found - base);
}

double allowed_slack(const NumberRule& rule, double base) {
  return std::max(rule.absolute, rule.share > 0 ? rule.share * std::fabs(base) : 0);
}

// A NaN is worse than anything: every comparison asks whether the limit holds.
bool breaks_slack(const NumberRule& rule, Better better, double base, double found) {
  if (base == found) return false;  // infinities too
  return !(worsening(rule, better, base, found) <= allowed_slack(rule, base));
}

struct RatioLimit {
  double ratio = 1;     // of root mean squares
  double elements = 1;  // behind it
  bool by_bits = false;
};

RatioLimit ratio_limit(const NumberRule& rule, const Measurement& one, const NumberPlace& place, const Record& record) {
  RatioLimit limit;
  limit.elements = elements_of(rule, one, record);
  const double counted = std::min(limit.elements, rule.most_elements);
  limit.ratio =
      std::max(quantile_for(counted, rule.chance), place.proved ? rule.least_ratio : rule.least_ratio_unproved);
  if (const double most = std::exp2(rule.bits_fail); limit.elements >= kFewestForBits && most < limit.ratio)
    limit.ratio = most, limit.by_bits = true;
  return limit;
}

double rms_of(const NumberRule& rule, double value) { return rule.squared ? std::sqrt(value) : value; }

double limit_value(const NumberRule& rule, double base, double ratio) {
  const double rms = ratio * rms_of(rule, base) + rule.tiny;
  return rule.squared ? rms * rms : rms;
}

std::string beside(const Measurement& base, const Measurement& found) {
  std::string now = human(found.value, found.unit), then = human(base.value, base.unit);
  if (now == then && base.value != found.value)  // a byte of megabytes
    now = fmt::format("{} {}", found.value, found.unit), then = fmt::format("{} {}", base.value, base.unit);
  return fmt::format("{} is {}, was {}{}", place_of(found), now, then,
                     std::isnan(found.value) && !std::isnan(base.value) ? " (a NaN breaks every limit)" : "");
}

std::string because(const NumberRule& rule) { return rule.why.empty() ? "" : fmt::format(" ({})", rule.why); }

NumberFinding with_slack(const NumberRule& rule, const Measurement& base, const Measurement& found) {
  NumberFinding finding;
  const double slack = allowed_slack(rule, base.value);
  const double worse = worsening(rule, found.better, base.value, found.value);
  if (rule.magnitude)
    finding.limit = std::fabs(base.value) + slack;
  else
    finding.limit = found.better == Better::higher ? base.value - slack : base.value + slack;
  if (breaks_slack(rule, found.better, base.value, found.value)) {
    finding.outcome = Outcome::breach;
    finding.times_limit = std::isnan(worse) ? HUGE_VAL : slack > 0 ? worse / slack : worse;
    std::string allowed = "nothing worse than the base";
    if (slack > 0)
      allowed = fmt::format("{} worse than the base{}", human(slack, found.unit),
                            rule.share > 0 ? fmt::format(", the greater of {} and {}", human(rule.absolute, found.unit),
                                                         human_share(rule.share))
                                           : "");
    if (!rule.magnitude && found.better == Better::neither)
      allowed = slack > 0 ? fmt::format("{} on either side", human(slack, found.unit)) : "no change at all";
    const bool has_worse_side = rule.magnitude || found.better != Better::neither;
    const double share = has_worse_side ? worse / std::fabs(base.value) : 0;
    finding.words = fmt::format("{}{}; the rule allows {}{}", beside(base, found),
                                std::isfinite(share) && share > 0 ? fmt::format(" ({} worse)", human_share(share)) : "",
                                allowed, because(rule));
  } else if ((rule.magnitude || found.better != Better::neither) &&
             breaks_slack(rule, found.better, found.value, base.value)) {
    finding.outcome = Outcome::improved;
    finding.words = beside(base, found);
  } else if (rule.changed && base.value != found.value) {
    finding.outcome = Outcome::changed;
    finding.words = fmt::format("{}: other, within what the rule allows", beside(base, found));
  }
  return finding;
}

NumberFinding with_ratio(const NumberRule& rule, const Measurement& base, const Measurement& found,
                         const NumberPlace& place) {
  NumberFinding finding;
  const RatioLimit limit = ratio_limit(rule, found, place, place.found);
  finding.limit = limit_value(rule, base.value, limit.ratio);
  const double ratio = rms_of(rule, found.value) / rms_of(rule, base.value);
  const double bits = std::log2(ratio);
  if (base.value != found.value && !(found.value <= finding.limit)) {
    finding.outcome = Outcome::breach;
    finding.times_limit = std::isnan(found.value) ? std::numeric_limits<double>::infinity()
                                                  : rms_of(rule, found.value) / rms_of(rule, finding.limit);
    finding.words = fmt::format("{}{}{}; the rule allows {} for {:.0f} value{}{}", beside(base, found),
                                std::isnan(ratio) ? "" : fmt::format(", {} the error", human_ratio(ratio)),
                                std::isfinite(bits) ? fmt::format(", {:.2g} bits lost", bits) : "",
                                limit.by_bits ? fmt::format("{:.2g} bits", rule.bits_fail) : human_ratio(limit.ratio),
                                limit.elements, limit.elements == 1 ? "" : "s", because(rule));
    return finding;
  }
  const RatioLimit back = ratio_limit(rule, base, place, place.base);
  if (base.value != found.value && !(base.value <= limit_value(rule, found.value, back.ratio))) {
    finding.outcome = Outcome::improved;
    finding.words = beside(base, found);
  } else if (limit.elements >= kFewestForBits && bits >= rule.bits_warn &&
             rms_of(rule, found.value) > rms_of(rule, base.value) + rule.tiny) {
    finding.remark = fmt::format("{}: {:.2g} bits lost", beside(base, found), bits);
  }
  return finding;
}

}  // namespace

double elements_of(const NumberRule& rule, const Measurement& measurement, const Record& record) {
  if (rule.elements_in.empty()) return rule.elements;
  for (const Series& series : record.series)
    if (series.metric == rule.elements_in && series.at == measurement.at)
      return std::max(1.0, std::accumulate(series.y.begin(), series.y.end(), 0.0));
  return 1;
}

std::optional<NumberFinding> judge_own_bound(const Measurement& found) {
  if (!found.bound) return {};
  const bool is_least = found.better == Better::higher;
  const double value = found.better == Better::neither ? std::fabs(found.value) : found.value;
  if (is_least ? value >= *found.bound : value <= *found.bound) return {};
  NumberFinding finding;
  finding.outcome = Outcome::breach;
  finding.found = found.value, finding.limit = *found.bound;
  finding.times_limit = std::numeric_limits<double>::infinity();
  finding.own_bound = true;
  finding.words = fmt::format("{} is {}, {} its own bound {}: no rounding explains that, whatever the order of adding",
                              place_of(found), human(found.value, found.unit), is_least ? "below" : "above",
                              human(*found.bound, found.unit));
  return finding;
}

std::optional<NumberFinding> judge_spread(const Measurement& base, const Measurement& found) {
  constexpr size_t kFewestProcesses = 5;
  constexpr double kTimesAsFar = 2;
  if (found.kind == Kind::sampled || std::min(base.samples.size(), found.samples.size()) < kFewestProcesses) return {};
  // The largest beside the smallest; a NaN makes it none, and has been judged.
  const auto spread = [](const Measurement& one) {
    double least = HUGE_VAL, most = 0;
    for (const double value : one.samples)
      least = std::min(least, std::fabs(value)), most = std::max(most, std::fabs(value));
    return most == least ? 1 : most / least;
  };
  const double before = spread(base), after = spread(found);
  if (!(after > kTimesAsFar * before)) return {};
  NumberFinding finding;
  finding.outcome = Outcome::changed;
  finding.base = base.value, finding.found = found.value;
  finding.times_limit = after / (kTimesAsFar * before);
  finding.words = fmt::format("{}: the values of {} processes lie {} apart, were {}: it repeats less well",
                              place_of(found), found.samples.size(), human_ratio(after), human_ratio(before));
  return finding;
}

NumberFinding judge_number(const NumberRule& rule, const Measurement& base, const Measurement& found,
                           const NumberPlace& place) {
  NumberFinding finding;
  if (rule.judge == Judging::information) {
    finding.outcome = Outcome::information;
  } else if (auto broken = judge_own_bound(found)) {
    finding = std::move(*broken);
  } else if (rule.judge != Judging::bound && std::isnan(base.value)) {
    // No limit can be drawn from a NaN. A number is better than none, another NaN proves nothing.
    finding.outcome = std::isnan(found.value) ? Outcome::untrusted : Outcome::improved;
    finding.words = std::isnan(found.value)
                        ? fmt::format("{} is NaN in both reports: nothing can be said", place_of(found))
                        : beside(base, found);
  } else if (rule.judge == Judging::slack) {
    finding = with_slack(rule, base, found);
  } else if (rule.judge == Judging::ratio) {
    finding = with_ratio(rule, base, found, place);
  }
  finding.base = base.value, finding.found = found.value;
  const bool passes = finding.outcome == Outcome::pass || finding.outcome == Outcome::information;
  if (passes && found.value > rule.untrusted_above) {
    finding.outcome = Outcome::untrusted;
    finding.limit = rule.untrusted_above;
    finding.words = fmt::format("{} is {}, above {}{}", place_of(found), human(found.value, found.unit),
                                human(rule.untrusted_above, found.unit), because(rule));
  }
  return finding;
}

}  // namespace halfmark::reports
