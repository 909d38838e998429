// Tests the decision on simulated process runs: its false alarms, its detection of planted effects, and that wrong
// decision procedures would fail here. Expected numbers come from an independent simulation of the same model, with
// tolerances for chance. The seed changes every day; HALFMARK_SEED=N repeats a run.
#include "reports/statistics/decision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <utility>

#include "reports/record/error.h"

namespace halfmark::reports {
namespace {

constexpr size_t kCases = 300, kPlanted = 10;

int runs(int usual) { return std::getenv("HALFMARK_LONG") ? 10 * usual : usual; }

// Tolerance for a share counted in `runs` runs: three standard deviations.
double by_chance(double share, int runs) { return 3 * std::sqrt(share * (1 - share) / runs); }

uint64_t seed_of_today() {
  if (const char* given = std::getenv("HALFMARK_SEED")) return std::strtoull(given, nullptr, 10);
  return static_cast<uint64_t>(
      std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now()).time_since_epoch().count());
}

// The simulated effects in addition to noise, as factors of the time.
struct SimulatedEffects {
  size_t cases = kCases, planted = 0, controls = 0;  // the first cases are planted, the last are controls
  double factor = 1;                                 // of planted cases in build b
  double control_factor = 1;                         // of controls in build b
  double drift_step = 0.003;                         // of a random walk shared by all cases, one step per process run
  double bad_runs = 0;                               // share of process runs that take 1.3 times as long
  double lottery = 0;  // standard deviation of a random offset per case and build (memory placement)
  double ramp = 0;     // extra time of the first process run; decays over 40 runs
  bool noise = true;
};

// Simulated process runs: each case has its own noise, some are bimodal, and all share a drift.
class Machine final : public PairSource {
 public:
  Machine(const SimulatedEffects& effects, uint64_t seed) : effects_(effects), random_(seed) {
    for (size_t i = 0; i < effects.cases; ++i) {
      Noise noise;
      noise.process = std::clamp(std::exp(normal(std::log(0.006), 0.6)), 0.001, 0.03);
      noise.iteration = std::clamp(std::exp(normal(std::log(0.010), 0.5)), 0.002, 0.06) / std::sqrt(50.0);
      noise.two_modes = uniform() < 0.15;
      noise.build = effects.lottery > 0 ? normal(0, effects.lottery) : 0;
      noise_.push_back(noise);
    }
  }

  std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) override {
    std::vector<std::vector<Pair>> found(cases.size(), std::vector<Pair>(static_cast<size_t>(pairs)));
    const std::vector<bool> a_first = balanced_order(pairs, random_());
    for (size_t pair = 0; pair < a_first.size(); ++pair)
      for (const bool first : {true, false}) {
        const bool is_b = a_first[pair] != first;
        drift_ += effects_.noise ? normal(0, effects_.drift_step) : 0;
        const double shared = drift_ + effects_.ramp * std::exp(-runs_++ / 40);
        for (size_t k = 0; k < cases.size(); ++k)
          (is_b ? found[k][pair].b : found[k][pair].a) = scale * std::exp(shared + one_run(cases[k], is_b));
      }
    return found;
  }

  double scale = 1;

 private:
  struct Noise {
    double process, iteration, build;
    bool two_modes;
  };

  double normal(double mean, double deviation) { return mean + deviation * normal_(random_); }
  double uniform() { return std::uniform_real_distribution<>()(random_); }

  double one_run(size_t i, bool is_b) {
    double log_time = 0;
    if (is_b) {
      if (i < effects_.planted) log_time += std::log(effects_.factor);
      if (i >= effects_.cases - effects_.controls) log_time += std::log(effects_.control_factor);
      log_time += noise_[i].build;
    }
    if (!effects_.noise) return log_time;
    log_time += normal(0, noise_[i].process) + normal(0, noise_[i].iteration);
    if (noise_[i].two_modes && uniform() < 0.2) log_time += std::log(1.06);
    if (effects_.bad_runs > 0 && uniform() < effects_.bad_runs) log_time += std::log(1.3);
    return log_time;
  }

  SimulatedEffects effects_;
  std::mt19937_64 random_;
  std::normal_distribution<> normal_;
  std::vector<Noise> noise_;
  double drift_ = 0, runs_ = 0;
};

std::vector<JudgedCase> cases_of(const SimulatedEffects& effects) {
  std::vector<JudgedCase> cases(effects.cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    cases[i].name = "case" + std::to_string(i);
    cases[i].control = i >= effects.cases - effects.controls;
  }
  return cases;
}

struct Tally {
  int runs = 0, alarmed = 0;  // runs of the decision; runs in which a case without a change was reported
  double reported = 0;        // reported share of the planted cases
  double routed = 0;          // routed cases per run
};

Tally tally(const SimulatedEffects& effects, int runs, uint64_t seed, const DecisionRules& rules = {}) {
  Tally sum;
  const std::vector<JudgedCase> cases = cases_of(effects);
  for (sum.runs = 0; sum.runs < runs; ++sum.runs) {
    Machine machine(effects, seed * 1'000'003 + static_cast<uint64_t>(sum.runs));
    const Decision decision = decide(cases, rules, machine, seed);
    bool alarm = false;
    for (size_t i = 0; i < cases.size(); ++i) {
      const bool reported = decision.cases[i].verdict == Verdict::regression;
      if (i < effects.planted)
        sum.reported += reported;
      else
        alarm = alarm || reported;
    }
    sum.alarmed += alarm;
    sum.routed += static_cast<double>(decision.routed);
  }
  sum.routed /= runs;
  if (effects.planted) sum.reported /= runs * static_cast<double>(effects.planted);
  return sum;
}

// False alarms in runs without a change, or without a further change:
// none of 300. The long form runs thousands and allows a few.
constexpr double kFalse = 0.001;

class SlowDecision : public testing::TestWithParam<int> {
 protected:
  uint64_t seed() const { return 3 * seed_of_today() + static_cast<uint64_t>(GetParam()); }
};

TEST_P(SlowDecision, RaisesNoFalseAlarmIfNothingChanged) {
  const int count = runs(2000);
  const Tally found = tally({}, count, seed());
  EXPECT_LE(found.alarmed, 0.004 * count);  // 8 of 2000: a true rate of 1 % has more with a chance of 0.998
  EXPECT_GT(found.routed, 8);
  EXPECT_LT(found.routed, 11.5);
}

TEST_P(SlowDecision, ReportsPlantedEffectsAccordingToTheirSize) {
  const struct {
    double factor, least, most;
  } rows[] = {{1.01, 0, 0.002}, {1.02, 0, 0.015}, {1.03, 0.60, 0.74}, {1.04, 0.95, 1},
              {1.05, 0.965, 1}, {1.07, 0.985, 1}, {1.10, 0.995, 1}};
  for (const auto& row : rows) {
    const Tally found = tally({.planted = kPlanted, .factor = row.factor}, runs(200), seed());
    EXPECT_GE(found.reported, row.least) << row.factor;
    EXPECT_LE(found.reported, row.most) << row.factor;
    EXPECT_LE(found.alarmed, kFalse * runs(200)) << row.factor;
  }
}

TEST_P(SlowDecision, WithoutAMinimumEffectReportsTwoPercent) {  // with it, the reported share is below 0.015
  DecisionRules rules;
  rules.minimum_effect = 0;
  // The independent simulation gives 0.34. 0.2 is thirteen times the limit of the test with a minimum effect.
  EXPECT_GT(tally({.planted = kPlanted, .factor = 1.02}, runs(200), seed(), rules).reported, 0.2);
}

TEST_P(SlowDecision, IsRobustAgainstDisturbedRuns) {
  for (const auto& [share, least] : {std::pair{0.02, 0.95}, {0.05, 0.92}}) {
    const Tally found = tally({.planted = kPlanted, .factor = 1.05, .bad_runs = share}, runs(200), seed());
    EXPECT_GE(found.reported, least) << share;
    EXPECT_LE(tally({.bad_runs = share}, runs(300), seed()).alarmed, kFalse * runs(300)) << share;
  }
}

// With the mean of 24 log ratios instead of the Hodges-Lehmann estimate, disturbed runs would report effects of 2 %.
TEST_P(SlowDecision, WouldReportTooMuchByTheMean) {
  const SimulatedEffects effects{.planted = kPlanted, .factor = 1.02, .bad_runs = 0.05};
  EXPECT_LE(tally(effects, runs(200), seed()).reported, 0.015);
  double by_mean = 0, tested = 0;
  for (uint64_t run = 0; run < 200; ++run) {
    Machine machine(effects, seed() * 1'000'003 + run);
    std::vector<size_t> planted(kPlanted);
    std::iota(planted.begin(), planted.end(), size_t{0});
    for (const std::vector<Pair>& pairs : machine.measure(planted, 24)) {
      double sum = 0;
      for (const Pair& pair : pairs) sum += std::log(pair.b / pair.a);
      by_mean += sum / 24 >= std::log(1.03), ++tested;
    }
  }
  EXPECT_GT(by_mean / tested, 0.05);  // 0.10 in the independent simulation
}

TEST_P(SlowDecision, IsRobustAgainstDrift) {
  EXPECT_LE(tally({.drift_step = 0.012}, runs(300), seed()).alarmed, kFalse * runs(300));
  const SimulatedEffects ramp{.cases = 1, .ramp = 0.03, .noise = false};
  for (uint64_t run = 0; run < 100; ++run) {
    Machine machine(ramp, seed() + run);
    const size_t only = 0;
    std::vector<double> ratios;
    const std::vector<std::vector<Pair>> found = machine.measure({&only, 1}, 24);
    for (const Pair& pair : found.front()) ratios.push_back(std::log(pair.b / pair.a));
    EXPECT_LE(std::fabs(hodges_lehmann(ratios)), 1e-4);
  }
}

TEST_P(SlowDecision, HasAKnownErrorRateForRandomOffsetsPerBuild) {
  const auto share = [](const Tally& found) { return static_cast<double>(found.alarmed) / found.runs; };
  const int count = runs(500);
  EXPECT_LE(share(tally({.lottery = 0.005}, count, seed())), 0.01 + by_chance(0.01, count));
  const double wide = share(tally({.lottery = 0.01}, count, seed()));
  EXPECT_GE(wide, 0.35 - by_chance(0.35, count));
  EXPECT_LE(wide, 0.52 + by_chance(0.52, count));
  DecisionRules rules;
  rules.minimum_effect = 0.05, rules.margin = 0.02, rules.route = 0.03;
  EXPECT_LE(share(tally({.lottery = 0.01}, count, seed(), rules)), 0.01 + by_chance(0.01, count));
}

// All cases tested at 0.05 without margin and minimum effect: the probability of any false regression is calibrated;
// without Holm's correction it would be near 1.
TEST_P(SlowDecision, HasItsNominalLevel) {
  const int count = runs(1000);
  int corrected = 0, uncorrected = 0;
  std::vector<size_t> all(kCases);
  std::iota(all.begin(), all.end(), size_t{0});
  for (uint64_t run = 0; run < static_cast<uint64_t>(count); ++run) {
    Machine machine({}, seed() * 1'000'003 + run);
    std::vector<double> p;
    for (const std::vector<Pair>& pairs : machine.measure(all, 24)) {
      std::vector<double> ratios;
      for (const Pair& pair : pairs) ratios.push_back(std::log(pair.b / pair.a));
      p.push_back(signed_rank_p(ratios));
    }
    const std::vector<double> adjusted = holm(p);
    corrected += *std::min_element(adjusted.begin(), adjusted.end()) <= 0.05;
    uncorrected += *std::min_element(p.begin(), p.end()) <= 0.05;
  }
  EXPECT_GE(corrected, (0.035 - by_chance(0.035, count)) * count);
  EXPECT_LE(corrected, (0.06 + by_chance(0.06, count)) * count);
  EXPECT_GT(uncorrected, 0.95 * count);
}

// Returns the pairs of the screen again, together with the requested ones.
class Reusing final : public PairSource {
 public:
  explicit Reusing(Machine& machine) : machine_(machine) {}
  std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) override {
    std::vector<std::vector<Pair>> found = machine_.measure(cases, pairs);
    if (screened_.empty()) return screened_ = found;
    for (size_t k = 0; k < cases.size(); ++k)
      found[k].insert(found[k].end(), screened_[cases[k]].begin(), screened_[cases[k]].end());
    return found;
  }

 private:
  Machine& machine_;
  std::vector<std::vector<Pair>> screened_;
};

TEST_P(SlowDecision, TestsOnFreshPairs) {
  DecisionRules rules;
  rules.margin = 0, rules.minimum_effect = 0, rules.alpha_confirm = 0.05, rules.extend_from = 1;
  const int count = runs(1000);
  int fresh = 0, reused = 0;
  const std::vector<JudgedCase> cases = cases_of({});
  const auto any = [](const Decision& decision) {
    return std::any_of(decision.cases.begin(), decision.cases.end(),
                       [](const CaseDecision& one) { return one.verdict == Verdict::regression; });
  };
  for (uint64_t run = 0; run < static_cast<uint64_t>(count); ++run) {
    Machine machine({}, seed() * 1'000'003 + run), again({}, seed() * 1'000'003 + run);
    Reusing reusing(again);
    fresh += any(decide(cases, rules, machine, 1));
    reused += any(decide(cases, rules, reusing, 1));
  }
  EXPECT_LE(fresh, (0.065 + by_chance(0.065, count)) * count);
  EXPECT_GT(reused, (0.065 + by_chance(0.065, count)) * count);  // the test above would therefore detect it
}

INSTANTIATE_TEST_SUITE_P(OfToday, SlowDecision, testing::Values(0, 1, 2));

// Deterministic tests.

TEST(Decision, DetectsASlowDownOfAllCasesFromASample) {
  const SimulatedEffects effects{.planted = kCases, .factor = 1.05};
  Machine machine(effects, 1);
  const Decision decision = decide(cases_of(effects), {}, machine, 1);
  EXPECT_EQ(decision.verdict, Verdict::regression);
  EXPECT_TRUE(decision.widespread);
  EXPECT_TRUE(decision.global_shift_is_large);
  EXPECT_LE(static_cast<double>(decision.process_runs) / kCases, 20);
  const auto reported = std::count_if(decision.cases.begin(), decision.cases.end(),
                                      [](const CaseDecision& one) { return one.verdict == Verdict::regression; });
  EXPECT_GE(reported, 280);  // cases that were not measured are judged by the sample
}

TEST(Decision, PassesASpeedUpOfAllCases) {
  const SimulatedEffects effects{.planted = kCases, .factor = 0.95};
  Machine machine(effects, 1);
  const Decision decision = decide(cases_of(effects), {}, machine, 1);
  EXPECT_EQ(decision.verdict, Verdict::pass);
  EXPECT_EQ(decision.routed, 0u);
}

TEST(Decision, ReportsASuspectMachineIfControlsChange) {
  const SimulatedEffects effects{.planted = kCases - 5, .controls = 5, .factor = 1 / 0.97, .control_factor = 1 / 0.97};
  Machine machine(effects, 1);
  const Decision decision = decide(cases_of(effects), {}, machine, 1);
  EXPECT_EQ(decision.verdict, Verdict::environment_suspect);
  EXPECT_EQ(exit_code_of(decision.verdict), 3);
}

class FixedPairs final : public PairSource {
 public:
  explicit FixedPairs(Pair pair) : pair_(pair) {}
  std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) override {
    return std::vector(cases.size(), std::vector(static_cast<size_t>(pairs), pair_));
  }

 private:
  Pair pair_;
};

TEST(Decision, RefusesInvalidTimes) {
  const std::vector<JudgedCase> cases = cases_of({.cases = 3});
  for (const double seconds : {std::nan(""), 0.0, -1.0, HUGE_VAL})
    for (const Pair pair : {Pair{seconds, 1}, Pair{1, seconds}}) {
      FixedPairs told(pair);
      try {
        decide(cases, {}, told, 1);
        ADD_FAILURE() << seconds << " was accepted as a time";
      } catch (const ReportError& error) {
        EXPECT_NE(std::string(error.what()).find("case0"), std::string::npos) << error.what();
      }
    }
}

TEST(Decision, RefusesRulesThatCouldFindNothing) {
  DecisionRules rules;
  rules.confirm_pairs = 3;
  FixedPairs told({1, 2});
  EXPECT_THROW(decide(cases_of({.cases = 3}), rules, told, 1), ReportError);
  rules.confirm_pairs = 13;  // 2^-13 is 1.2e-4, and 0.007 / 40 cases is 1.75e-4: just enough
  EXPECT_NO_THROW(check(rules));
  rules.confirm_pairs = 12;
  EXPECT_THROW(check(rules), ReportError);
}

TEST(Decision, HasExitCode1ForAnyNumberOfRegressions) {
  FixedPairs told({1, 1.2});
  const Decision decision = decide(cases_of({.cases = 256}), {}, told, 1);
  EXPECT_EQ(exit_code_of(decision.verdict), 1);
}

// The same pairs with the builds swapped.
class Swapped final : public PairSource {
 public:
  explicit Swapped(Machine& machine) : machine_(machine) {}
  std::vector<std::vector<Pair>> measure(std::span<const size_t> cases, int pairs) override {
    std::vector<std::vector<Pair>> found = machine_.measure(cases, pairs);
    for (std::vector<Pair>& one : found)
      for (Pair& pair : one) std::swap(pair.a, pair.b);
    return found;
  }

 private:
  Machine& machine_;
};

TEST(Decision, TurnsARegressionIntoAnImprovementWhenTheBuildsAreSwapped) {
  const SimulatedEffects effects{.cases = 4, .planted = 4, .factor = 1.1};
  DecisionRules rules;
  rules.improvements = true;
  Machine machine(effects, 7), same(effects, 7);
  Swapped swapped(same);
  const Decision slower = decide(cases_of(effects), rules, machine, 1),
                 faster = decide(cases_of(effects), rules, swapped, 1);
  EXPECT_EQ(slower.verdict, Verdict::regression);
  EXPECT_EQ(faster.verdict, Verdict::pass);
  for (size_t i = 0; i < effects.cases; ++i) {
    EXPECT_EQ(slower.cases[i].verdict, Verdict::regression);
    EXPECT_TRUE(faster.cases[i].improved);
    EXPECT_EQ(slower.cases[i].p, faster.cases[i].p);
    EXPECT_NEAR(slower.cases[i].ratio * faster.cases[i].ratio, 1, 1e-15);
    EXPECT_NEAR(slower.cases[i].interval.lower * faster.cases[i].interval.upper, 1, 1e-15);
  }
}

TEST(Decision, DoesNotDependOnTheUnitOfTime) {
  const SimulatedEffects effects{.planted = kPlanted, .factor = 1.05};
  Machine seconds(effects, 3), milliseconds(effects, 3);
  milliseconds.scale = 1000;
  const Decision one = decide(cases_of(effects), {}, seconds, 1),
                 other = decide(cases_of(effects), {}, milliseconds, 1);
  for (size_t i = 0; i < kCases; ++i) EXPECT_EQ(one.cases[i].verdict, other.cases[i].verdict) << i;
}

TEST(Decision, RunsEachBuildFirstInEveryBlockOfTwoPairs) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<bool> first = balanced_order(24, seed);
    for (size_t i = 0; i < first.size(); i += 2) EXPECT_NE(first[i], first[i + 1]);
  }
  EXPECT_NE(balanced_order(24, 1), balanced_order(24, 2));
}

}  // namespace
}  // namespace halfmark::reports
