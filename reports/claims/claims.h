// Claims of articles about mixed precision, each with the cases that decide it and the rule of its verdict as data
// (claims.json). A verdict follows from numbers of a report alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/claims/expression.h"
#include "reports/record/report.h"

namespace halfmark::reports {

enum class ClaimOutcome : uint8_t { confirmed, refuted, conditional, inconclusive, not_testable };
std::string_view name_of(ClaimOutcome outcome);  // "CONFIRMED", ..., "NOT-TESTABLE-HERE"

// Where a number of a rule comes from.
struct NumberSource {
  std::vector<std::string> cases;  // ids
  std::string metric, at;          // `at` may be a pattern if several numbers are taken
  enum class Take : uint8_t { only, max, min, mean, sum } take = Take::only;
  // Of a curve: its y at `x`, or the first x at which it reaches or falls below a limit (infinity: at none), or all of it.
  bool is_curve = false;
  std::optional<double> x, reaches, falls_below;
  bool is_estimate = false;  // of a mean or share of a sample: without its standard error it decides nothing
};

struct Claim {
  std::string id;       // "S1-4"
  std::string article;  // "overview"
  std::string text;     // the claim, in one sentence
  std::string rule;     // the verdict's rule in words
  std::string note;     // what should be known beside the verdict
  std::vector<std::string> cases;
  std::map<std::string, NumberSource> numbers;
  // All must hold. If neither all of one list nor all of the other hold, the verdict is CONDITIONAL.
  std::vector<Expression> confirmed, refuted;
  std::string needs;          // "cuda": a device whose name starts so
  std::string not_testable;   // why; then there are no cases
  bool is_shortened = false;  // a quick run measures other cases for it, with fewer seeds or steps
};

// What the articles answer differently.
struct ClaimQuestion {
  std::string text;
  std::vector<std::string> claims;  // ids, two or more
};

struct ClaimList {
  std::map<std::string, std::string> articles;  // name of each, by its short name
  std::vector<Claim> claims;
  std::vector<ClaimQuestion> questions;
  bool is_quick = false;
};

// The list that is built into the program, for a device; `quick`: with fewer seeds and steps. Throws ReportError.
ClaimList shipped_claims(std::string_view device, bool quick);
ClaimList claims_from(const nlohmann::ordered_json& json, std::string_view where, std::string_view device, bool quick);

struct Evidence {
  std::string name;  // in the rule
  UncertainNumber number;
  std::vector<std::string> cases;
  std::string metric, at;
  std::string unit = "1";
};

struct ClaimVerdict {
  const Claim* claim;
  ClaimOutcome outcome;
  std::string reason;  // of INCONCLUSIVE and NOT-TESTABLE-HERE
  std::vector<Evidence> evidence;
};

// Records that are not used, by id, with the reason.
using RefusedCases = std::map<std::string, std::string, std::less<>>;

// The verdicts in the order of the list, which must outlive them. A claim is INCONCLUSIVE if a case of it is missing, is of
// another version than those of this program, was measured on files, or is refused. The cases of a partial report are whole,
// so that they decide.
std::vector<ClaimVerdict> judge_claims(const ClaimList& list, const Report& report, std::string_view device,
                                       const RefusedCases& refused = {});

}  // namespace halfmark::reports
