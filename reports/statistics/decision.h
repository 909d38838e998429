// Whether one build is slower than another: the decision over pairs of process runs, for many cases at once.
//
// A screen of a few pairs routes suspicious cases to a confirmation on fresh pairs, with an exact test corrected for
// all that were routed; what stays open is extended once, on fresh pairs again. A finding needs significance beyond a
// margin and an effect above a floor. Cases whose code is the same in both builds (controls) watch the machine: where
// they move, no verdict on the builds is given.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reports/statistics/statistics.h"

namespace halfmark::reports {

// Ratios are given less 1: 0.03 is 3 % slower.
struct DecisionRules {
  int screen_pairs = 4, confirm_pairs = 24, extend_pairs = 48;
  double route = 0.02;           // a screened case that seems slower than this is confirmed
  double margin = 0.01;          // the tests ask whether the ratio lies above this
  double floor = 0.03;           // and the estimate must lie above this
  double extend_from = 0.02;     // an open case whose estimate lies above this is measured again
  double alpha_confirm = 0.007;  // chance of any false finding among all routed cases, in each of the two tests
  double alpha_extend = 0.003;
  size_t most_routed = 40;       // with more, a sample of them is confirmed first
  double control_limit = 0.005;  // a control that moves more, either way, makes the machine suspect,
  double alpha_control = 0.001;  // where that is no accident: chance of it among all controls of a quiet machine
  double global_limit = 0.01;    // a median over all cases that moves more is remarked on
  bool improvements = false;     // confirm what seems faster too; never a reason to fail
};

// Throws ReportError about rules that could not find anything: 2^-pairs must not exceed the corrected level.
void check(const DecisionRules& rules);

// Seconds of one process run of either build, the two measured one after the other.
struct Pair {
  double a, b;
};

struct JudgedCase {
  std::string name;
  bool control = false;  // same machine code in both builds
  double floor = 0;      // instead of the rules', where it is higher: of a case known to be noisy
};

// For each pair, whether build a runs first: each block of two pairs has both orders, by chance in this order or the
// other, so that a drift of the machine cancels.
std::vector<bool> balanced_order(int pairs, uint64_t seed);

// Measures pairs of the named cases, fresh ones at every call: [case][pair].
class PairSource {
 public:
  virtual ~PairSource() = default;
  virtual std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) = 0;
};

enum class Verdict : uint8_t { pass, regression, inconclusive, environment_suspect };
std::string_view name_of(Verdict verdict);  // "PASS", "REGRESSION", "INCONCLUSIVE", "ENV_SUSPECT"
int exit_code_of(Verdict verdict);          // 0, 1, 3, 3

enum class Stage : uint8_t {
  screened,
  routed,
  confirmed,
  extended
};  // how far a case went; routed: not measured again
std::string_view name_of(Stage stage);

struct CaseDecision {
  Verdict verdict = Verdict::pass;
  bool improved = false;
  bool moved = false;  // of a control: beyond the limit, and not by accident
  Stage stage = Stage::screened;
  double screened = 0;  // ln of the ratio that the screen saw
  int pairs = 0;        // of the last stage, on which the rest of this rests
  double ratio = 1;     // t_b / t_a: Hodges and Lehmann's estimate, after the screen alone that of the medians
  Interval interval{0, INFINITY};  // 95 %, of the ratio; the screen gives none
  double p = 1, corrected_p = 1;
  double p_moved = 1;  // that the ratio is 1, either way
  double floor = 0;
};

struct Decision {
  Verdict verdict = Verdict::pass;
  std::vector<CaseDecision> cases;  // in the order given
  size_t routed = 0, seem_faster = 0;
  bool widespread = false;  // so many were routed that the sample confirmed stands for all
  double global_shift = 0;  // ln of the median ratio of all cases in the screen
  bool global_shift_is_large = false;
  double largest_control = 0;  // |ln ratio|
  int64_t process_runs = 0;    // of either build, over all cases
};

// `seed` chooses the sample where too many cases are routed. Throws ReportError about a time that is none.
Decision decide(std::span<const JudgedCase> cases, const DecisionRules& rules, PairSource& source, uint64_t seed);

}  // namespace halfmark::reports
