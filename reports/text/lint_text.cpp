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

}  // namespace

std::string lint_text(const Report& report, const TextOptions& options) {
  std::vector<FoundRule> rules;
  size_t examined = 0, controls = 0;
  for (const Record& record : report.records) {
    if (record.expectation) {
      controls += !record.lint.empty();
      continue;
    }
    examined += is_examined(record);
    for (const LintFinding& finding : record.lint) {
      auto rule = std::ranges::find(rules, std::string_view(finding.rule), &FoundRule::id);
      if (rule == rules.end()) rule = rules.insert(rules.end(), FoundRule{finding.rule, {}});
      rule->cases.push_back({&record, &finding});
    }
  }
  if (examined == 0 && rules.empty() && controls == 0) return {};
  std::string text = "\n" + toned("mistakes of mixed-precision training", Tone::strong, options.colour) + "\n";
  if (rules.empty() && examined > 0) text += fmt::format("none found in {}\n", counted(examined, "case"));
  for (const FoundRule& rule : rules) {
    text += wrapped(fmt::format("- {}: ", printable(rule.id)), printable(rule.cases.front().finding->remedy),
                    options.width);
    const size_t shown = options.all ? rule.cases.size() : std::min(rule.cases.size(), kCasesShown);
    for (size_t i = 0; i < shown; ++i)
      text += wrapped("    ",
                      printable(fmt::format("{}: {}", rule.cases[i].record->id, numbers_of(*rule.cases[i].finding))),
                      options.width);
    if (shown < rule.cases.size()) text += fmt::format("    and {} more\n", counted(rule.cases.size() - shown, "case"));
    if (const std::string& from = rule.cases.front().finding->reference; !from.empty())
      text += wrapped("    see ", printable(from), options.width);
  }
  if (controls > 0)
    text += wrapped(
        "",
        fmt::format("{} that planted a mistake or expected one: see the negative controls", counted(controls, "case")),
        options.width);
  return text;
}

}  // namespace halfmark::reports
