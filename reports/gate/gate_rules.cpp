#include "reports/gate/gate_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gate_shipped.h"  // written by CMake from reports/gate/rules/*.json
#include "reports/record/file.h"
#include "reports/record/glob.h"
#include "reports/record/json_parser.h"
#include "reports/record/json_reader.h"

namespace halfmark::reports {

namespace {

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string_view>;

constexpr std::string_view kRulesKind = "file of gate rules";
constexpr std::string_view kJudgingNames[] = {"information", "bound", "slack", "ratio"};
constexpr std::string_view kKindNames[] = {"exact", "bounded", "sampled", "information"};

// Fields that every rule for numbers may have, and those of the judging modes.
const Names kAnyRule = {"metric", "case", "at", "kind", "judge", "why", "untrusted_above", "untrusted_below"};
const Names kSlackRule = {"absolute",  "absolute_share", "share",    "standard_errors", "undecided_across",
                          "magnitude", "changed",        "together", "absent"};
const Names kRatioRule = {"undecided_across",     "squared", "elements", "most_elements", "least_ratio",
                          "least_ratio_unproved", "chance",  "tiny",     "bits_warn",     "bits_fail"};

Names fields_of(Judging judge) {
  Names names = kAnyRule;
  const Names& more = judge == Judging::slack ? kSlackRule : kRatioRule;
  if (judge == Judging::slack || judge == Judging::ratio) names.insert(names.end(), more.begin(), more.end());
  return names;
}

struct AllowedNumbers {
  double low, high;
  bool low_too = true;  // low itself is allowed
};
constexpr double kNoEnd = std::numeric_limits<double>::infinity();

void read(const JsonReader& json, const char* key, const AllowedNumbers& range, double& value) {
  const auto member = json.optional(key);
  if (!member) return;
  value = member->number();
  const bool above = range.low_too ? value >= range.low : value > range.low;
  if (above && value <= range.high) return;
  const std::string low = fmt::format("{} {}", range.low_too ? "at least" : "more than", range.low);
  member->fail(fmt::format("{} is out of range, it must be {}{}", value, low,
                           range.high == kNoEnd ? "" : fmt::format(" and at most {}", range.high)));
}

void read(const JsonReader& json, const char* key, bool& value) {
  if (const auto member = json.optional(key)) value = member->boolean();
}

// An empty pattern would match empty names only, which is never intended.
void read_pattern(const JsonReader& json, const char* key, std::string& pattern) {
  const auto member = json.optional(key);
  if (!member) return;
  pattern = member->text();
  if (pattern.empty() && std::string_view(key) != "at") member->fail("is empty; \"*\" matches everything");
}

std::vector<std::string> texts(const JsonReader& json, const char* key) {
  std::vector<std::string> all;
  json.each(key, [&](const JsonReader& one) { all.push_back(one.text()); });
  return all;
}

NumberRule read_number_rule(const JsonReader& json, const GateRules& rules) {
  json.expect_object();
  NumberRule rule;
  rule.judge = json.required("judge").one_of<Judging>(kJudgingNames);
  json.expect_only(fields_of(rule.judge));
  rule.metric = json.required("metric").text();
  read_pattern(json, "metric", rule.metric);
  read_pattern(json, "case", rule.cases);
  read_pattern(json, "at", rule.at);
  if (const auto kind = json.optional("kind")) rule.kind = kind->one_of<Kind>(kKindNames);
  rule.why = json.text("why");
  read(json, "untrusted_above", {-kNoEnd, kNoEnd}, rule.untrusted_above);
  read(json, "untrusted_below", {-kNoEnd, kNoEnd}, rule.untrusted_below);
  read(json, "absolute", {0, kNoEnd}, rule.absolute);
  read(json, "absolute_share", {0, kNoEnd}, rule.absolute_share);
  read(json, "share", {0, kNoEnd}, rule.share);
  read(json, "standard_errors", {0, kNoEnd}, rule.standard_errors);
  read(json, "magnitude", rule.magnitude);
  read(json, "changed", rule.changed);
  read(json, "together", rule.together);
  if (double absent = 0; json.optional("absent")) read(json, "absent", {-kNoEnd, kNoEnd}, absent), rule.absent = absent;
  if (const auto name = json.optional("undecided_across")) {
    static constexpr std::string_view kNames[] = {"bits", "processor", "time"};
    const Keys* const lists[] = {&rules.bits_keys, &rules.processor_keys, &rules.time_keys};
    rule.undecided_across = *lists[name->one_of<size_t>(kNames)];
  }
  read(json, "squared", rule.squared);
  if (const auto elements = json.optional("elements")) {
    if (elements->value().is_string())
      rule.elements_in = elements->text();
    else
      read(json, "elements", {1, kNoEnd}, rule.elements);
  }
  read(json, "most_elements", {1, kNoEnd}, rule.most_elements);
  read(json, "least_ratio", {1, kNoEnd}, rule.least_ratio);
  read(json, "least_ratio_unproved", {1, kNoEnd}, rule.least_ratio_unproved);
  read(json, "chance", {0, 0.5, false}, rule.chance);
  read(json, "tiny", {0, kNoEnd}, rule.tiny);
  read(json, "bits_warn", {0, kNoEnd}, rule.bits_warn);
  read(json, "bits_fail", {0, kNoEnd, false}, rule.bits_fail);
  return rule;
}

TimeRule read_time_rule(const JsonReader& json) {
  static const Names kFields = {"at", "processes", "margin", "floor", "alpha", "day_spread"};
  json.expect_only(kFields);
  TimeRule rule;
  rule.at = json.text("at", rule.at);
  if (const auto processes = json.optional("processes")) {
    rule.processes = processes->integer();
    if (rule.processes < 24 || rule.processes > 100000)
      processes->fail(
          fmt::format("{} is out of range, it must be at least 24 and at most 100000: fewer process runs "
                      "are not enough for a correction over hundreds of cases",
                      rule.processes));
  }
  // Two builds measured on different days differ by more than their code.
  read(json, "floor", {0.1, 10}, rule.minimum_effect);
  read(json, "margin", {0, rule.minimum_effect}, rule.margin);
  read(json, "alpha", {0, 0.1, false}, rule.alpha);
  read(json, "day_spread", {0, 1}, rule.day_spread);
  return rule;
}

}  // namespace

bool is_key(const Keys& keys, std::string_view fact) {
  bool counts = false;
  for (const std::string_view key : keys) {
    const bool takes_away = key.starts_with('!');
    if (glob_matches(key.substr(takes_away ? 1 : 0), fact)) counts = !takes_away;
  }
  return counts;
}

const NumberRule* GateRules::rule_for(const Record& record, const Measurement& measurement) const {
  const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const NumberRule& rule) {
    return glob_matches(rule.metric, measurement.metric) && glob_matches(rule.at, measurement.at) &&
           (!rule.kind || *rule.kind == measurement.kind) && glob_matches(rule.cases, record.id);
  });
  return found == numbers.end() ? nullptr : &*found;
}

GateRules gate_rules_from(const Json& json, std::string_view where) {
  static const Names kFields = {"gate_rules", "about", "keys", "bits", "numbers", "time"};
  const JsonReader reader(json, where, kRulesKind);
  reader.expect_object();
  const JsonReader version = reader.required("gate_rules");
  if (version.integer() != GateRules::kVersion)
    version.fail(fmt::format("is version {}, this program reads version {}", version.integer(), GateRules::kVersion));
  reader.expect_only(kFields);
  GateRules rules;
  rules.source = json;
  (void)reader.text("about");
  static const Names kKeysFields = {"bits", "processor", "time"};
  const JsonReader keys = reader.required("keys");
  keys.expect_only(kKeysFields);
  rules.bits_keys = texts(keys, "bits");
  rules.time_keys = texts(keys, "time");
  if (keys.optional("processor")) rules.processor_keys = texts(keys, "processor");
  if (const auto bits = reader.optional("bits")) {
    static const Names kBitsFields = {"skip"};
    bits->expect_only(kBitsFields);
    rules.bits_skip = texts(*bits, "skip");
  }
  reader.required("numbers").each(
      [&](const JsonReader& one) { rules.numbers.push_back(read_number_rule(one, rules)); });
  if (const auto time = reader.optional("time")) rules.time = read_time_rule(*time);
  return rules;
}

std::optional<std::string_view> shipped_gate_rules(std::string_view name) {
  for (const auto& [known, text] : kShippedGateRules)
    if (known == name) return text;
  return std::nullopt;
}

GateRules load_gate_rules(const std::string& name) {
  if (const auto text = shipped_gate_rules(name)) return gate_rules_from(parse_json(*text, name, kRulesKind), name);
  return gate_rules_from(parse_json(read_file(name), name, kRulesKind), name);
}

}  // namespace halfmark::reports
