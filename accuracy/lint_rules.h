// The rules of the linter, as rows of a table. A rule reads an Observation and nothing else.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/lint_observation.h"
#include "accuracy/namespaces.h"
#include "reports/record/measurement.h"

namespace halfmark::accuracy {

// What a rule sees: the number that it judges first.
struct Judged {
  bool is_found = false;
  std::vector<NamedNumber> evidence;
};

struct LintRule {
  std::string_view id;         // "not_unscaled"
  std::string_view looks_at;   // what of the observation
  std::string_view condition;  // of a finding, with `limit`
  double limit;
  std::string_view derivation;  // of the limit
  std::string_view remedy;      // a sentence
  std::string_view reference;
  // Nothing: the training has nothing that the rule looks at.
  std::optional<Judged> (*judge)(const Observation&, double limit);
};

std::span<const LintRule> lint_rules();
const LintRule& lint_rule_named(std::string_view id);  // throws Error naming the known ones

// The findings of all rules, in the order of the table.
std::vector<LintFinding> findings_of(const Observation& observation);

// The metrics of findings, and their values: for each rule that has something to look at, whether it found its mistake and
// the number that it judged.
std::vector<MetricRow> with_lint_rows(std::vector<MetricRow> rows);
void write_lint(const Observation& observation, FindingsWriter& out);

}  // namespace halfmark::accuracy
