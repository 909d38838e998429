#include "reports/gate/rules_review.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "reports/gate/gate_numbers.h"
#include "reports/record/glob.h"
#include "reports/record/json_parser.h"
#include "reports/text/table.h"

namespace halfmark::reports {

namespace {

bool is_built_in(const GateRules& rules) {
  for (const char* name : {"default", "strict"})
    if (rules.source == load_gate_rules(name).source) return true;
  return false;
}

bool is_skipped(const GateRules& rules, const std::string& id) {
  return std::any_of(rules.bits_skip.begin(), rules.bits_skip.end(),
                     [&](const std::string& glob) { return glob_matches(glob, id); });
}

// How much worse this rule lets the number become, in its unit; infinite if the rule has no limit of its own.
double allowance(const NumberRule& rule, const Record& base, const Record& found, const Measurement& before) {
  if (rule.judge == Judging::information || rule.judge == Judging::bound) return HUGE_VAL;
  Measurement plain = before;
  plain.bound.reset();
  NumberRule only_limit = rule;
  only_limit.untrusted_above = HUGE_VAL, only_limit.untrusted_below = -HUGE_VAL;
  const double value = rule.magnitude ? std::fabs(before.value) : before.value;
  return std::fabs(judge_number(only_limit, plain, plain, {base, found, false}).limit - value);
}

std::vector<std::string> counted_metrics(const std::map<std::string, size_t>& metrics) {
  std::vector<std::string> names;
  for (const auto& [metric, count] : metrics) names.push_back(fmt::format("{} ({})", metric, counted(count, "number")));
  return names;
}

constexpr size_t kMostNames = 20;  // a rules file that judges nothing names every metric

}  // namespace

RulesReview::RulesReview(const GateRules& rules) : rules_(rules) {
  if (!is_built_in(rules)) default_ = load_gate_rules("default");
}

void RulesReview::compare(const Record& base, const Record& found, EnvironmentDifference& environment) {
  if (!default_) return;
  if (is_skipped(rules_, found.id) && !is_skipped(*default_, found.id)) bits_off_.insert(found.id);
  const auto excused = [&](const Keys& keys, const Keys& usual, std::set<std::string>& facts) {
    const std::vector<std::string> known = environment.in(usual, found.device);
    for (const std::string& fact : environment.in(keys, found.device))
      if (std::find(known.begin(), known.end(), fact) == known.end()) facts.insert(fact);
  };
  excused(rules_.bits_keys, default_->bits_keys, excused_bits_);
  excused(rules_.time_keys, default_->time_keys, excused_times_);
  for (const Measurement& before : base.measurements) compare(base, found, before, environment);
}

void RulesReview::compare(const Record& base, const Record& found, const Measurement& before,
                          EnvironmentDifference& environment) {
  const NumberRule *own = rules_.rule_for(found, before), *usual = default_->rule_for(found, before);
  if (!usual || usual->judge == Judging::information || std::isnan(before.value)) return;
  if (own && own->absent && !usual->absent) ++may_be_missing_[before.metric];
  if (own && !environment.in(own->undecided_across, found.device).empty() &&
      environment.in(usual->undecided_across, found.device).empty())
    ++undecided_[before.metric];
  const double limit = own ? allowance(*own, base, found, before) : HUGE_VAL;
  constexpr double kRounding = 1e-9;
  const auto is_wider = [&] {
    return limit > allowance(*usual, base, found, before) * (1 + kRounding) + kRounding * std::fabs(before.value);
  };
  const bool judges_another_quantity = own && own->magnitude && !usual->magnitude;
  if (!judges_another_quantity && std::isinf(limit))
    ++off_[before.metric];
  else if (judges_another_quantity || is_wider())
    ++wider_[before.metric];
}

std::vector<std::string> RulesReview::remarks() const {
  std::vector<std::string> remarks;
  const auto say = [&](std::string_view lead, const std::vector<std::string>& names) {
    if (!names.empty()) remarks.push_back(printable(fmt::format("{}: {}", lead, some_of(names, kMostNames))));
  };
  const auto names_in = [](const std::set<std::string>& names) {
    return std::vector<std::string>(names.begin(), names.end());
  };
  say("the rules file switches off what the default rules judge", counted_metrics(off_));
  say("the rules file allows more than the default rules", counted_metrics(wider_));
  say("the rules file lets numbers be missing that the default rules require", counted_metrics(may_be_missing_));
  say("the rules file leaves undecided, because the environments differ, what the default rules decide",
      counted_metrics(undecided_));
  say("the rules file does not compare the bits of", names_in(bits_off_));
  say("the rules file excuses different bits by facts that the default rules do not count", names_in(excused_bits_));
  say("the rules file excludes times by facts that the default rules do not count", names_in(excused_times_));
  if (default_ && rules_.time.minimum_effect > default_->time.minimum_effect)
    remarks.push_back(fmt::format("the rules file lets --time pass effects up to {}, the default rules up to {}",
                                  human_share(rules_.time.minimum_effect), human_share(default_->time.minimum_effect)));
  return remarks;
}

}  // namespace halfmark::reports
