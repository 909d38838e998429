// Decides whether one build is slower than another, from pairs of process runs, for many cases at once.
//
// A screen of a few pairs routes suspicious cases to a confirmation on fresh pairs, with an exact test that is
// corrected for the number of routed cases. Undecided cases are extended once, again on fresh pairs. A regression needs
// significance beyond a margin and an effect of at least the minimum effect. Cases with the same machine code in both
// builds (controls) check the machine: if they change, there is no verdict on the builds.
//
// Terms: a Verdict is the word for a case or for the whole comparison. A CaseDecision is a verdict with its statistics,
// a Decision the result over all cases. The gate's Judgement (gate/judgement.h) is derived from a Decision.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reports/statistics/statistics.h"

namespace halfmark::reports {

// Effects are ratios minus 1: 0.03 means 3 % slower.
struct DecisionRules {
  int screen_pairs = 4, confirm_pairs = 24, extend_pairs = 48;
  double route = 0.02;           // a case whose effect in the screen is larger than this is confirmed
  double margin = 0.01;          // the tests ask whether the effect is larger than this,
  double minimum_effect = 0.03;  // and the estimate must be at least this
  double extend_from = 0.02;     // an undecided case whose estimate is larger than this is measured again
  double alpha_confirm = 0.007;  // probability of any false regression among all routed cases, per test
  double alpha_extend = 0.003;
  size_t most_routed = 40;       // if more cases are routed, a sample of them is confirmed first
  double control_limit = 0.005;  // a control with a larger effect, either way, makes the machine suspect,
  double alpha_control = 0.001;  // if significant: probability of that among all controls of an undisturbed machine
  double global_limit = 0.01;    // a larger effect of the median over all cases gets a remark
  // Standard deviation of ln(time) by which the accidental placement of its code shifts a case of one build, in all its
  // processes (noise_facts.h). 0: both builds have the same placement, or layouts are sampled. A case whose effect the
  // placement of both builds may explain is undecided.
  double layout_spread = 0;
  double alpha_layout = 0.003;  // probability that the placement makes any of all cases a regression
  // Number of layouts of each build, if it was linked several times: pair i runs layout i modulo this number of both
  // builds. The layouts are then the replicates, and the tests are corrected for all cases. 0: one layout.
  int layouts = 0;
  bool improvements = false;  // also confirm cases that seem faster; never a reason to fail
};

// Throws ReportError for rules that could not find anything: 2^-pairs must not exceed the corrected level.
void check(const DecisionRules& rules);

// Seconds of one process run of each build, measured together.
struct Pair {
  double a, b;
};

struct JudgedCase {
  std::string name;
  bool control = false;       // same machine code in both builds
  double minimum_effect = 0;  // replaces that of the rules if larger: for a case known to be noisy
};

// For each pair, whether build a runs first: each block of two pairs has both orders, in random sequence, so that a
// drift of the machine cancels.
std::vector<bool> balanced_order(int pairs, uint64_t seed);

// Measures fresh pairs of the given cases at every call: [case][pair].
class PairSource {
 public:
  virtual ~PairSource() = default;
  virtual std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) = 0;
};

enum class Verdict : uint8_t { pass, regression, inconclusive, environment_suspect };
std::string_view name_of(Verdict verdict);  // "PASS", "REGRESSION", "INCONCLUSIVE", "ENV_SUSPECT"
int exit_code_of(Verdict verdict);          // 0, 1, 3, 3

// The last stage of a case. routed: selected for confirmation but not measured again.
enum class Stage : uint8_t { screened, routed, confirmed, extended };
std::string_view name_of(Stage stage);

struct CaseDecision {
  Verdict verdict = Verdict::pass;
  bool improved = false;
  bool placement = false;  // significantly slower, but the placement of code may explain it; then inconclusive
  bool moved = false;      // for a control: effect beyond the limit, and significant
  Stage stage = Stage::screened;
  double screened = 0;  // ln of the ratio in the screen
  int layouts = 0;      // sampled layouts of each build in the last stage; 0: one layout
  int pairs = 0;        // of the last stage; the following fields are based on them
  bool paired = true;   // false: stored times, `pairs` process runs on each side at least
  double ratio = 1;     // t_b / t_a: Hodges-Lehmann estimate; after the screen only, the ratio of the medians
  Interval interval{0, INFINITY};  // 95 % interval of the ratio; none after the screen only
  double p = 1, corrected_p = 1;
  double p_moved = 1;  // two-sided p value of the hypothesis that the ratio is 1
  double minimum_effect = 0;
};

struct Decision {
  Verdict verdict = Verdict::pass;
  std::vector<CaseDecision> cases;  // in the order given
  size_t routed = 0, seem_faster = 0;
  bool placement = false;   // whether the placement of code was part of the decision, because layouts were not sampled
  bool widespread = false;  // too many were routed, and the confirmed sample decides for all
  double global_shift = 0;  // ln of the median ratio of all cases in the screen
  bool global_shift_is_large = false;
  double largest_control = 0;  // |ln ratio|
  int64_t process_runs = 0;    // of both builds, over all cases
};

// `seed` selects the sample if too many cases are routed. Throws ReportError for an invalid time.
Decision decide(std::span<const JudgedCase> cases, const DecisionRules& rules, PairSource& source, uint64_t seed);

}  // namespace halfmark::reports
