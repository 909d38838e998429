// The limits of claims.json against claim_examples.json, which has numbers on either side of each and the verdict that the
// protocol of the claims demands. An edit of a limit must change a verdict; the words of a rule and its conditions must have
// the same numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/record/file.h"
#include "reports/record/json_parser.h"
#include "reports/record/paths_testing.h"

namespace halfmark::reports {
namespace {

using nlohmann::ordered_json;

ordered_json json_of_claims(const std::string& file) {
  return parse_json(read_file(test_folders::source() + "/reports/claims/" + file), file);
}

// By name, the values of its sources in their order.
using ExampleValues = std::map<std::string, std::vector<double>>;

void add_values(const std::string& text, ExampleValues& values) {
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equal = word.find('=');
    ASSERT_NE(equal, word.npos) << word;
    std::vector<double>& of_name = values[word.substr(0, equal)];
    of_name.clear();
    std::istringstream numbers(word.substr(equal + 1));
    for (std::string number; std::getline(numbers, number, ',');)
      of_name.push_back(std::strtod(number.c_str(), nullptr));
  }
}

Record& example_record(Report& report, const std::string& id) {
  return *std::ranges::find(report.records, id, &Record::id);
}

void put_number(Record& record, const NumberSource& source, const std::string& at, double value) {
  for (const Measurement& one : record.measurements)
    if (one.metric == source.metric && one.at == at) {
      EXPECT_TRUE(one.value == value) << record.id << " " << source.metric << " is given twice";
      return;
    }
  record.measurements.push_back({.metric = source.metric, .at = at, .value = value});
  if (source.is_estimate) record.measurements.back().standard_error = 0;
}

void put_point(Record& record, const NumberSource& source, double value) {
  const auto put = [&](const std::string& metric, double y) {
    auto curve = std::ranges::find_if(record.series,
                                      [&](const Series& one) { return one.metric == metric && one.at == source.at; });
    if (curve == record.series.end())
      curve = record.series.insert(curve, {.metric = metric, .at = source.at, .x = {}, .y = {}});
    curve->x.push_back(*source.x), curve->y.push_back(y);
  };
  put(source.metric, value);
  if (source.is_estimate) put(source.metric + "_standard_error", 0);
}

// A report that has these numbers where the claim takes them from.
Report report_with(const Claim& claim, const ExampleValues& values) {
  Report report;
  for (const std::string& id : claim.cases) report.records.emplace_back().id = id;
  size_t used = 0;
  for (const auto& [name, source] : claim.numbers) {
    if (source.reaches || source.falls_below) continue;  // shown beside the verdict, not judged
    const auto given = values.find(name);
    if (given == values.end()) {
      ADD_FAILURE() << claim.id << ": an example has no " << name;
      continue;
    }
    ++used;
    const size_t star = source.at.find('*');
    EXPECT_TRUE(star != std::string::npos || given->second.size() == source.cases.size()) << claim.id << " " << name;
    for (size_t i = 0; i < given->second.size(); ++i) {
      std::string at = source.at;
      if (star != std::string::npos) at.replace(star, 1, std::to_string(i));
      Record& record = example_record(report, source.cases[star == std::string::npos ? i : 0]);
      if (source.is_curve)
        put_point(record, source, given->second[i]);
      else
        put_number(record, source, at, given->second[i]);
    }
  }
  EXPECT_EQ(used, values.size()) << claim.id << ": an example has a number that the claim has not";
  return report;
}

struct ClaimExample {
  std::string verdict, text;
  Report report;
};

ClaimList list_with(const ordered_json& entry) {
  const std::string id = entry["id"];
  const ordered_json list = {{"claims", 1},
                             {"articles", {{id.substr(0, id.find('-')), "an article"}}},
                             {"entries", ordered_json::array({entry})}};
  return claims_from(list, "claims.json", "cpu", false);
}

std::vector<ClaimExample> examples_of(const ordered_json& entry, const ordered_json& examples) {
  const ClaimList list = list_with(entry);
  std::vector<ClaimExample> all;
  for (const char* verdict : {"CONFIRMED", "REFUTED", "CONDITIONAL"}) {
    if (!examples.contains(verdict)) continue;
    for (const std::string text : examples[verdict]) {
      ExampleValues values;
      add_values(examples.value("base", ""), values), add_values(text, values);
      all.push_back({verdict, text, report_with(list.claims[0], values)});
    }
  }
  return all;
}

bool has_conditions(const ordered_json& entry) {
  return std::ranges::any_of(std::array{"confirmed", "refuted"},
                             [&](const char* list) { return entry.contains(list) && !entry[list].empty(); });
}

// The verdict, or BOTH if all conditions of CONFIRMED and all of REFUTED hold.
std::string verdict_of(const ordered_json& entry, const Report& report) {
  std::string verdict;
  for (const auto& [other, wanted] : {std::pair{"refuted", "CONFIRMED"}, {"confirmed", "REFUTED"}}) {
    ordered_json alone = entry;
    alone.erase(other);
    if (!has_conditions(alone)) continue;
    if (name_of(judge_claims(list_with(alone), report, "cpu")[0].outcome) == wanted)
      verdict = verdict.empty() ? wanted : "BOTH";
  }
  if (!verdict.empty()) return verdict;
  return std::string(name_of(judge_claims(list_with(entry), report, "cpu")[0].outcome));
}

bool is_noticed(const ordered_json& edited, const std::vector<ClaimExample>& examples) {
  return std::ranges::any_of(examples,
                             [&](const ClaimExample& one) { return verdict_of(edited, one.report) != one.verdict; });
}

void for_each_testable(auto&& with) {
  const ordered_json claims = json_of_claims("claims.json"), examples = json_of_claims("claim_examples.json");
  size_t testable = 0;
  for (const ordered_json& entry : claims["entries"]) {
    if (entry.contains("not_testable")) continue;
    ++testable;
    const std::string id = entry["id"];
    if (examples["claims"].contains(id))
      with(entry, examples["claims"][id]);
    else
      ADD_FAILURE() << id << " has no examples in claim_examples.json";
  }
  EXPECT_EQ(testable, examples["claims"].size()) << "claim_examples.json has examples of a claim that is not there";
}

// A part of a condition: a number, a name, an operation or a bracket.
struct Token {
  size_t at, size;
  std::string text;
  bool is_number() const { return std::isdigit(static_cast<unsigned char>(text[0])); }
  double number() const { return std::strtod(text.c_str(), nullptr); }
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::vector<Token> tokens_of(const std::string& condition) {
  std::vector<Token> all;
  for (size_t at = 0; at < condition.size();) {
    size_t end = at + 1;
    if (std::isdigit(static_cast<unsigned char>(condition[at])))
      end = static_cast<size_t>(condition.find_first_not_of("0123456789.", at));
    else if (is_word(condition[at]))
      while (end < condition.size() && is_word(condition[end])) ++end;
    else if (end < condition.size() && condition[end] == '=')
      ++end;
    end = std::min(end, condition.size());
    if (condition[at] != ' ') all.push_back({at, end - at, condition.substr(at, end - at)});
    at = end;
  }
  return all;
}

std::string number_text(double value) {
  std::ostringstream text;
  text.precision(17);
  text << (value < 0 ? "(" : "") << value << (value < 0 ? ")" : "");
  return text.str();
}

// One more and less of a count, 5 % of other numbers.
std::vector<std::string> other_numbers(double value) {
  if (value == std::floor(value) && value < 100) return {number_text(value + 1), number_text(value - 1)};
  return {number_text(1.05 * value), number_text(0.95 * value)};
}

std::vector<std::string> others_of(const Token& token, const std::string& condition) {
  // No double is exactly 1.01 - 1 = 0.01, so there is no example at this limit.
  const bool has_exact_limit = condition.find("abs(ratio") == condition.npos;
  const std::map<std::string, std::vector<std::string>> table = {
      {"<", {">", ">=", "<="}}, {"<=", {">", ">=", "<"}}, {">", {"<", "<=", ">="}}, {">=", {"<", "<=", ">"}},
      {"==", {"!="}},           {"!=", {"=="}},           {"and", {"or"}},          {"or", {"and"}},
      {"min", {"max"}},         {"max", {"min"}}};
  if (token.is_number()) return other_numbers(token.number());
  const auto row = table.find(token.text);
  if (row == table.end()) return {};
  std::vector<std::string> all = row->second;
  if (!has_exact_limit) std::erase_if(all, [&](const std::string& other) { return other[0] == token.text[0]; });
  return all;
}

struct Edited {
  std::string what;
  ordered_json entry;
};

// The claim with one edit each.
std::vector<Edited> edits_of(const ordered_json& entry) {
  std::vector<Edited> all;
  for (const char* list : {"confirmed", "refuted"}) {
    if (!entry.contains(list)) continue;
    for (size_t i = 0; i < entry[list].size(); ++i) {
      const std::string condition = entry[list][i];
      for (const Token& token : tokens_of(condition))
        for (const std::string& other : others_of(token, condition)) {
          Edited& edited = all.emplace_back(Edited{condition + " with " + other + " for " + token.text, entry});
          edited.entry[list][i] = std::string(condition).replace(token.at, token.size, other);
        }
      all.push_back({std::string(list) + " without " + condition, entry});
      all.back().entry[list].erase(i);
      if (!has_conditions(all.back().entry)) all.pop_back();  // refused
    }
  }
  const std::map<std::string, std::string> takes = {{"min", "max"}, {"max", "min"}, {"sum", "min"}};
  std::string conditions;
  for (const char* list : {"confirmed", "refuted"})
    for (const std::string condition : entry.value(list, ordered_json::array())) conditions += " " + condition;
  for (const auto& [name, source] : entry["numbers"].items()) {
    const auto take = takes.find(source.value("take", ""));
    const auto tokens = tokens_of(conditions);
    if (take == takes.end() || std::ranges::find(tokens, name, &Token::text) == tokens.end()) continue;
    Edited& edited = all.emplace_back(Edited{name + " with the " + take->second + " for the " + take->first, entry});
    edited.entry["numbers"][name]["take"] = take->second;
  }
  return all;
}

TEST(ClaimLimits, GiveTheVerdictsOfTheProtocolOnBothSides) {
  for_each_testable([](const ordered_json& entry, const ordered_json& examples) {
    for (const ClaimExample& one : examples_of(entry, examples))
      EXPECT_EQ(verdict_of(entry, one.report), one.verdict)
          << entry["id"] << " with '" << one.text << "'; the protocol: " << examples["protocol"];
  });
}

TEST(ClaimLimits, CannotBeEditedWithoutAnExampleThatNotices) {
  size_t edits = 0;
  for_each_testable([&](const ordered_json& entry, const ordered_json& examples) {
    const std::vector<ClaimExample> all = examples_of(entry, examples);
    for (const Edited& edited : edits_of(entry)) {
      ++edits;
      EXPECT_TRUE(is_noticed(edited.entry, all)) << entry["id"] << ": no example notices " << edited.what;
    }
  });
  EXPECT_GT(edits, 800u);
}

// A number in the words of a rule, and what it may be in the conditions: 45 % is 0.45 or, as a saving, 0.55.
struct SaidNumber {
  std::string text;
  std::vector<double> may_be;
};

bool is_among(double value, const std::vector<double>& all) {
  return std::ranges::any_of(all, [&](double one) { return std::fabs(one - value) <= 1e-9 * std::fabs(value); });
}

const std::map<std::string, std::vector<double>, std::less<>>& number_words() {
  static const std::map<std::string, std::vector<double>, std::less<>> table = {
      {"tenth", {0.1, 10}}, {"half", {0.5}},  {"twice", {2}},  {"two", {2}},       {"three", {3}},
      {"four", {4}},        {"five", {5}},    {"eight", {8}},  {"ten", {10}},      {"twelve", {12}},
      {"fifteen", {15}},    {"twenty", {20}}, {"fifty", {50}}, {"hundred", {100}}, {"thousand", {1000}}};
  return table;
}

// Reads the number at `at` and moves behind it.
SaidNumber said_number(const std::string& text, size_t& at) {
  const auto is_digit = [&](size_t i) { return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])); };
  std::string digits;
  const size_t begin = at;
  while (is_digit(at) || (is_digit(at + 1) && (text[at] == '.' || (text[at] == ',' && is_digit(at + 3))))) {
    if (text[at] != ',') digits += text[at];
    ++at;
  }
  if (at < text.size() && text[at] == 'e' && (is_digit(at + 1) || (text[at + 1] == '-' && is_digit(at + 2))))
    for (digits += text[at++]; is_digit(at) || text[at] == '-'; ++at) digits += text[at];
  double value = std::strtod(digits.c_str(), nullptr);
  std::vector<double> may_be = {value};
  if (at < text.size() && text[at] == '^') {
    char* end = nullptr;
    const double power = std::strtod(text.c_str() + at + 1, &end);
    at = static_cast<size_t>(end - text.c_str());
    may_be = {std::pow(value, power), std::pow(value, -power)};
  }
  const std::string_view rest = std::string_view(text).substr(at);
  bool is_percent = rest.starts_with(" %");
  if (rest.starts_with(" to ")) {
    const size_t after = text.find_first_not_of("0123456789.", at + 4);
    is_percent = after != text.npos && text.compare(after, 2, " %") == 0;
  }
  if (is_percent) may_be = {value / 100, 1 - value / 100};
  if (at < text.size() && std::isalpha(static_cast<unsigned char>(text[at]))) {  // 2d
    while (at < text.size() && is_word(text[at])) ++at;
    may_be.clear();
  }
  return {text.substr(begin, at - begin), may_be};
}

struct SaidNumbers {
  std::vector<SaidNumber> all;
  std::vector<double> bits;  // of the formats named
};

SaidNumbers numbers_said(const std::string& text) {
  SaidNumbers said;
  for (size_t at = 0; at < text.size();) {
    if (std::isdigit(static_cast<unsigned char>(text[at]))) {
      SaidNumber one = said_number(text, at);
      if (!one.may_be.empty()) said.all.push_back(std::move(one));
    } else if (is_word(text[at])) {
      const size_t begin = at;
      while (at < text.size() && (is_word(text[at]) || text[at] == '-')) ++at;
      const std::string word = text.substr(begin, at - begin);
      if (const auto row = number_words().find(word); row != number_words().end())
        said.all.push_back({word, row->second});
      if (word.find("fp16") != word.npos) said.bits.push_back(16);
      if (word.find("fp32") != word.npos) said.bits.push_back(32);
    } else {
      ++at;
    }
  }
  return said;
}

std::vector<double> limits_of(const ordered_json& entry) {
  std::vector<double> limits;
  for (const char* list : {"confirmed", "refuted"})
    for (const std::string condition : entry.value(list, ordered_json::array()))
      for (const Token& token : tokens_of(condition))
        if (token.is_number()) limits.push_back(token.number());
  for (const auto& [name, source] : entry["numbers"].items())
    for (const char* key : {"reaches", "falls_below"})
      if (source.contains(key)) limits.push_back(source[key].get<double>());
  return limits;
}

// 0 and 1 are the answers of yes and no, or all and none: a rule says them in words.
bool is_answer(double value) { return value == 0 || value == 1; }

TEST(ClaimLimits, AreTheNumbersOfTheRulesInWords) {
  for_each_testable([](const ordered_json& entry, const ordered_json& examples) {
    const std::vector<double> limits = limits_of(entry), settings = examples.value("settings", std::vector<double>());
    const SaidNumbers said = numbers_said(entry["rule"]);
    for (const SaidNumber& one : said.all)
      EXPECT_TRUE(std::ranges::any_of(
          one.may_be,
          [&](double value) { return is_answer(value) || is_among(value, limits) || is_among(value, settings); }))
          << entry["id"] << ": the rule says " << one.text << ", and no condition has it";
    const auto is_said = [&](double value) {
      return std::ranges::any_of(said.all, [&](const SaidNumber& one) { return is_among(value, one.may_be); });
    };
    for (const double limit : limits)
      EXPECT_TRUE(is_answer(limit) || is_said(limit) || is_among(limit, said.bits))
          << entry["id"] << ": a condition has " << limit << ", and the rule does not say it: " << entry["rule"];
    for (const double setting : settings)
      EXPECT_TRUE(is_said(setting)) << entry["id"] << ": claim_examples.json has the setting " << setting
                                    << ", and the rule does not say it";
  });
}

// A number that is said wrongly must be found: the reader of the words is tried on its own.
TEST(ClaimLimits, AreReadFromWords) {
  const auto first = [](const char* text) {
    const SaidNumbers said = numbers_said(text);
    return said.all.size() == 1 ? said.all[0].may_be : std::vector<double>{};
  };
  EXPECT_EQ(first("at least 45 % saved"), (std::vector<double>{0.45, 0.55}));
  EXPECT_EQ(first("at most 2^-11"), (std::vector<double>{0x1p-11, 0x1p11}));
  EXPECT_EQ(first("all 65,536 halves, then"), (std::vector<double>{65536}));
  EXPECT_EQ(first("a loss of 1e-5, and"), (std::vector<double>{1e-5}));
  EXPECT_EQ(first("a mask of -1e9."), (std::vector<double>{1e9}));
  EXPECT_EQ(first("less than a tenth"), (std::vector<double>{0.1, 10}));
  EXPECT_EQ(first("below 0.95."), (std::vector<double>{0.95}));
  EXPECT_EQ(numbers_said("20 to 30 % are saved").all.size(), 2u);
  EXPECT_TRUE(is_among(0.8, numbers_said("20 to 30 % are saved").all[0].may_be));
  EXPECT_TRUE(numbers_said("fp16-bn32 of S1-8, int8, O2, 1d and mixed_float16").all.empty());
}

}  // namespace
}  // namespace halfmark::reports
