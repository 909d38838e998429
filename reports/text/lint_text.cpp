#include "reports/text/lint_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "reports/record/printable.h"

namespace halfmark::reports {

namespace {

constexpr size_t kCasesShown = 3;  // of one rule

struct LintCase {
  const Record* record;
  const LintFinding* finding;
};

struct FoundRule {
  std::string_view id;
  std::vector<LintCase> cases;
};

std::string numbers_of(const LintFinding& finding) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : finding.evidence) texts.push_back(fmt::format("{} {}", name, human(value, "1")));
  return fmt::format("{}", fmt::join(texts, "; "));
}

bool is_examined(const Record& record) { return find(record, "lint.findings") != nullptr; }

// A mistake was planted that a rule must find.
bool has_plant(const Record& record) {
  return is_examined(record) && record.expectation && record.expectation->metric == "lint.finding";
}

void add_to(std::vector<FoundRule>& rules, const Record& record) {
  for (const LintFinding& finding : record.lint) {
    auto rule = std::ranges::find(rules, std::string_view(finding.rule), &FoundRule::id);
    if (rule == rules.end()) rule = rules.insert(rules.end(), FoundRule{finding.rule, {}});
    rule->cases.push_back({&record, &finding});
  }
}

std::string rules_text(const std::vector<FoundRule>& rules, const TextOptions& options) {
  std::string text;
  for (const FoundRule& rule : rules) {
    text += wrapped(fmt::format("- {}: ", printable(rule.id)), printable(rule.cases.front().finding->remedy),
                    options.width);
    const size_t shown = options.all ? rule.cases.size() : std::min(rule.cases.size(), kCasesShown);
    for (size_t i = 0; i < shown; ++i)
      text += wrapped("    ",
                      printable(fmt::format("{}: {}", rule.cases[i].record->id, numbers_of(*rule.cases[i].finding))),
                      options.width, true);
    if (shown < rule.cases.size()) text += fmt::format("    and {} more\n", counted(rule.cases.size() - shown, "case"));
    if (const std::string& from = rule.cases.front().finding->reference; !from.empty())
      text += wrapped("    see ", printable(from), options.width);
  }
  return text;
}

}  // namespace

std::string lint_text(const Report& report, const TextOptions& options) {
  std::vector<FoundRule> rules, planted;
  std::vector<const Record*> with_plants, missed;
  size_t examined = 0;
  for (const Record& record : report.records) {
    if (record.expectation) {
      if (has_plant(record)) with_plants.push_back(&record);
      if (has_plant(record) && !record.expectation->met) missed.push_back(&record);
      add_to(planted, record);
      continue;
    }
    examined += is_examined(record);
    add_to(rules, record);
  }
  const auto heading = [&](std::string_view name) { return "\n" + toned(name, Tone::strong, options.colour) + "\n"; };
  std::string text;
  if (examined > 0 || !rules.empty()) {
    text += heading("mistakes of mixed-precision training");
    if (rules.empty()) text += fmt::format("none found in {}\n", counted(examined, "case"));
    text += rules_text(rules, options);
  }
  if (!planted.empty() || !with_plants.empty()) {
    text += heading("mistakes of mixed-precision training that were planted or expected");
    if (!with_plants.empty())
      text +=
          fmt::format("planted in {}, found by the rule that must find it in {}\n", counted(with_plants.size(), "case"),
                      missed.empty() ? "all" : std::to_string(with_plants.size() - missed.size()));
    for (const Record* record : missed)
      text += wrapped("    ", printable(fmt::format("{}: not found by {}", record->id, record->expectation->at)),
                      options.width, true);
    text += rules_text(planted, options);
  }
  return text;
}

}  // namespace halfmark::reports
