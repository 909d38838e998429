// The cast_lists experiment: is each entry of the policy's cast rules justified, idle or missing? Every operation that the
// tables of cast_list_operations.h know is computed in the low format and in fp32 from the same numbers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/cast_list_operations.h"

namespace halfmark::accuracy {
namespace {

constexpr OperandSize kOperandSizes[] = {OperandSize::ordinary, OperandSize::large, OperandSize::small};

const std::vector<MetricRow>& cast_lists_table() {
  static const std::vector<MetricRow> rows = {
      {"cast_lists.excess", "1", Better::lower, Kind::bounded,
       "at OPERATION and OPERATION/backward, over the sizes: largest |low - exact| / bound of the results that are "
       "finite "
       "in the low format and in fp32. The bound of k roundings, where nothing cancels, is k u / (1 - k u) |exact| + k "
       "times half the least subnormal; above 1: differences lose more. exact: the same operands in fp64; results "
       "whose "
       "fp32 error is beyond the bound too are left out"},
      {"cast_lists.overflow", "1", Better::lower, Kind::bounded,
       "likewise: largest share of the results that are infinite or NaN in the low format, and finite in fp32"},
      {"cast_lists.zeroed", "1", Better::lower, Kind::bounded,
       "likewise: largest share that is 0 in the low format and not in fp32; the bound allows it"},
      {"cast_lists.fails", "1", Better::neither, Kind::bounded,
       "at OPERATION/SIZE and OPERATION/SIZE/backward: 1 if a result is beyond its bound or overflows. SIZE: ordinary, "
       "numbers around 1; large, small: 16 rows of them times 2^0 .. 2^15, or 2^0 .. 2^-15"},
      {"cast_lists.verdict", "1", Better::neither, Kind::bounded,
       "at OPERATION: of one that the rules keep in fp32, 1, justified: it fails at some size, forward or backward; 0, "
       "idle: at none. Of others -1, missing: it fails at ordinary numbers; 2, fitting: it does not"},
      {"cast_lists.justified", "1", Better::neither, Kind::bounded, "how many are that"},
      {"cast_lists.idle", "1", Better::lower, Kind::bounded, "likewise"},
      {"cast_lists.missing", "1", Better::lower, Kind::bounded, "likewise"},
      {"cast_lists.fitting", "1", Better::neither, Kind::bounded, "likewise"},
      {"cast_lists.unjudged", "1", Better::neither, Kind::exact,
       "operations that the rules keep in fp32 and that the tables of this harness do not know"},
  };
  return rows;
}

struct Judgement {
  double excess = 0, overflow = 0, zeroed = 0;
  bool fails() const { return excess > 1 || overflow > 0; }
};

// k roundings to a format: the relative part of Higham (Accuracy and Stability of Numerical Algorithms, lemma 3.1), and half
// the least subnormal for each.
double bound_of(const Format& format, int roundings, double exact) {
  const double k = roundings, u = format.unit_roundoff();
  return k * u / (1 - k * u) * std::fabs(exact) + k * power_of_two(format.min_subnormal_exponent() - 1);
}

using RunRow = NumberRow (*)(const Stored&, std::span<const NumberRow>);

Judgement judged(const ListedOperation& operation, RunRow run, int roundings, OperandSize size, const Format& low,
                 const RandomKey& key) {
  std::vector<NumberRows> operands;
  for (size_t i = 0; i < operation.operands.size(); ++i)
    operands.push_back(operand_rows(operation.operands[i], size, operation.width, low, key.child(i)));
  Judgement found;
  double results = 0;
  for (size_t r = 0; r < static_cast<size_t>(kOperandRows); ++r) {
    std::vector<NumberRow> row;
    for (const NumberRows& one : operands) row.push_back(one[r]);
    const NumberRow narrow = run({&low}, row), wide = run({&kFp32}, row), exact = run({}, row);
    results += static_cast<double>(exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      if (!std::isfinite(wide[i])) continue;
      if (!std::isfinite(narrow[i])) {
        ++found.overflow;
        continue;
      }
      const double bound = bound_of(low, roundings, exact[i]);
      found.zeroed += narrow[i] == 0 && wide[i] != 0;
      if (std::fabs(wide[i] - exact[i]) <= bound)
        found.excess = std::max(found.excess, std::fabs(narrow[i] - exact[i]) / bound);
    }
  }
  found.overflow /= results, found.zeroed /= results;
  return found;
}

bool in_fp32(CastRule rule) {
  switch (rule) {
    case CastRule::fp32:
    case CastRule::fp32_out:
    case CastRule::refused:  // because of its range in half
      return true;
    case CastRule::lower:
    case CastRule::widest:
    case CastRule::as_is:
      return false;
  }
  return false;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

Findings measure_cast_lists(const TrialSpec& spec) {
  FindingsWriter out(cast_lists_table());
  const Format& low = format_of(spec.policy->low);
  std::vector<ListedOperation> all = listed_operations();
  for (ListedOperation& one : listed_losses()) all.push_back(std::move(one));
  std::set<std::string> known;
  std::map<std::string_view, double> counts = {{"justified", 0}, {"idle", 0}, {"missing", 0}, {"fitting", 0}};
  for (const ListedOperation& operation : all) {
    const std::vector<std::string> names = words_of(operation.names);
    const RandomKey key = RandomKey(spec.seed).child("cast_lists").child(names.front());
    bool fails = false, fails_ordinary = false;
    const auto judge = [&](RunRow run, int roundings, const std::string& suffix) {
      Judgement worst;
      for (const OperandSize size : kOperandSizes) {
        const Judgement found = judged(operation, run, roundings, size, low, key.child(name_of(size)));
        out.number("cast_lists.fails", names.front() + "/" + std::string(name_of(size)) + suffix, found.fails());
        fails = fails || found.fails();
        fails_ordinary = fails_ordinary || (size == OperandSize::ordinary && found.fails());
        worst.excess = std::max(worst.excess, found.excess), worst.zeroed = std::max(worst.zeroed, found.zeroed);
        worst.overflow = std::max(worst.overflow, found.overflow);
      }
      const std::string at = names.front() + suffix;
      out.number("cast_lists.excess", at, worst.excess), out.number("cast_lists.overflow", at, worst.overflow);
      out.number("cast_lists.zeroed", at, worst.zeroed);
    };
    judge(operation.run, operation.stores, "");
    if (operation.backward) judge(operation.backward, operation.backward_stores, "/backward");
    for (const std::string& name : names) {
      known.insert(name);
      const bool kept_wide = in_fp32(spec.policy->rules->of(name));
      const char* verdict = kept_wide ? (fails ? "justified" : "idle") : (fails_ordinary ? "missing" : "fitting");
      out.number("cast_lists.verdict", name, kept_wide ? fails : fails_ordinary ? -1 : 2);
      ++counts[verdict];
    }
  }
  for (const auto& [verdict, count] : counts) out.number("cast_lists." + std::string(verdict), "", count);
  double unjudged = 0;
  for (const CastRules::Group& group : spec.policy->rules->groups)
    for (const std::string& name : words_of(group.operations)) unjudged += in_fp32(group.rule) && !known.contains(name);
  out.number("cast_lists.unjudged", "", unjudged);
  return out.take();
}

std::optional<std::string> refuses_cast_lists(const TrialSpec& spec) {
  const std::string policy(spec.policy->name);
  if (!spec.policy->rules) return "policy " + policy + " has no cast rules";
  if (bits_of(spec.policy->low) == 16) return {};
  return "policy " + policy + " has no low dtype of 16 bits";
}

// exp(x) is beyond fp16 from x = 11.1 on, and not beyond bf16 where fp32 is finite; ReLU returns one of its operands or 0.
std::optional<Expect> expected_cast_lists(const TrialSpec& spec) {
  if (spec.policy->low == DType::f16) return Expect{"cast_lists.fails", "exp/large", "==", 1};
  return Expect{"cast_lists.fails", "relu/large", "==", 0};
}

}  // namespace

Harness cast_lists_harness() {
  return {.name = "cast_lists",
          .about = "each entry of the policy's cast rules: justified, idle or missing, by error and range in half",
          .axes = {},
          .metrics = cast_lists_table(),
          .refuses = refuses_cast_lists,
          .measure = measure_cast_lists,
          .expects = expected_cast_lists};
}

}  // namespace halfmark::accuracy
