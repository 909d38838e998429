// Tests of timing in turn, with made-up clocks: what a disturbed machine does to the ratio, and when it stops.
#include "bench/run/time_in_turn.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace halfmark::bench {
namespace {

// A machine whose speed changes while it works: by up to a factor of two within milliseconds, slowly over the whole
// measurement, and with the place of the memory in each round.
class Machine {
 public:
  explicit Machine(uint64_t seed) : random_(seed) {}
  double seconds(double work, double place) {
    if (now_ >= until_) {  // the next state of the clock, for 2 ms on average
      until_ = now_ + std::exponential_distribution<double>(500)(random_);
      speed_ = std::bernoulli_distribution(0.3)(random_) ? 0.5 : 1;
    }
    const double noise = std::lognormal_distribution<double>(0, 0.02)(random_);
    const double taken = work * place * noise * (1 + now_) / speed_;
    now_ += taken;
    return taken;
  }
  double place() { return std::lognormal_distribution<double>(0, 0.03)(random_); }

 private:
  std::mt19937_64 random_;
  double now_ = 0, until_ = 0, speed_ = 1;
};

struct Worker {
  Machine& machine;
  double work, place = 1;
  Timed timed() {
    return {[this] { return machine.seconds(work, place); }, [this] { place = machine.place(); }};
  }
};

// Simulated seconds cost no time, so the number of rounds decides.
TurnRule simulated() { return {.rounds = 16, .most = 16, .target = 0, .budget = 1e9, .patience = 1e9}; }

SpeedRatio ratio_of_works(double first, double second, uint64_t seed) {
  Machine machine(seed);
  Worker a{machine, first}, b{machine, second};
  const std::vector<Timed> kinds = {a.timed(), b.timed()};
  return speed_ratio(time_in_turn(simulated(), kinds, seed).log_ratios(0, 1));
}

// 2 of 40 are 5 %; the chance of more than 6 of 40 with a coverage of 95 % is below 0.5 % (binomial).
constexpr int kTrials = 40, kMostMissed = 6;

TEST(TimesInTurn, OfEqualWorkHaveARatioWhoseIntervalHolds1) {
  int missed = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) missed += !ratio_of_works(3e-4, 3e-4, seed).holds_one();
  EXPECT_LE(missed, kMostMissed);
}

TEST(TimesInTurn, FindASmallDifferenceThatTimesTakenOneAfterTheOtherCannotShow) {
  int missed = 0, found = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    const SpeedRatio ratio = ratio_of_works(3.3e-4, 3e-4, seed);
    missed += !(ratio.lower <= 1.1 && 1.1 <= ratio.upper);
    found += ratio.lower > 1;
  }
  EXPECT_LE(missed, kMostMissed);
  EXPECT_GE(found, kTrials * 9 / 10);
}

TEST(TimesInTurn, AreNotChangedByWhichKindIsFirst) {
  const SpeedRatio there = ratio_of_works(1.5e-3, 1e-3, 3), back = ratio_of_works(1e-3, 1.5e-3, 3);
  EXPECT_NEAR(there.value, 1.5, 0.1);
  EXPECT_NEAR(back.value, 1 / 1.5, 0.1);
}

TEST(TimesInTurn, MoveTheMemoryOnceInEachRound) {
  Machine machine(1);
  int moves = 0;
  Worker worker{machine, 1e-4};
  const std::vector<Timed> kinds = {{worker.timed().step, [&] { ++moves; }}};
  const InTurn found = time_in_turn(simulated(), kinds, 1);
  EXPECT_EQ(found.seconds.size(), 16u);
  EXPECT_EQ(moves, 16);
}

TEST(TimesInTurn, RepeatAShortStepUntilASliceIsFullAndLeaveTheFirstOut) {
  int calls = 0;
  // The first step of a slice is slow: another kind has evicted its data.
  // The first move is followed by two steps that are not timed, the others by one. A slice is one such step and five
  // timed ones.
  bool first = true;
  const auto step = [&] { return ++calls % 6 == (first ? 3 : 2) ? 5e-4 : 1e-4; };
  TurnRule rule = simulated();
  rule.most = rule.rounds = rule.fewest = 8, rule.slice = 5e-4, rule.of_round = 1e-3;
  int moves = 0;
  const std::vector<Timed> kinds = {{step, [&] { calls = 0, first = ++moves == 1; }}};
  for (const double seconds : time_in_turn(rule, kinds, 1).slices_of(0)) EXPECT_NEAR(seconds, 1e-4, 1e-12);
}

TEST(TimesInTurn, StopAtTheTargetAfterTheWantedRounds) {
  const std::vector<Timed> kinds = {{[] { return 1e-3; }}, {[] { return 2e-3; }}};
  const InTurn found = time_in_turn({.rounds = 12, .budget = 1e9, .patience = 1e9}, kinds, 1);
  EXPECT_EQ(found.seconds.size(), 12u);
  EXPECT_EQ(found.stopped_by, StoppedBy::target);
  const SpeedRatio ratio = speed_ratio(found.log_ratios(0, 1));
  EXPECT_DOUBLE_EQ(ratio.value, 0.5);
  EXPECT_DOUBLE_EQ(ratio.lower, 0.5);
}

TEST(TimesInTurn, DoNotFeelAFewStepsThatWereInterrupted) {
  std::mt19937_64 random(1);
  const auto step = [&] { return std::bernoulli_distribution(0.2)(random) ? 1e-2 : 1e-4; };  // 100 times longer
  const std::vector<Timed> kinds = {{step}, {step}};
  const SpeedRatio ratio = speed_ratio(time_in_turn(simulated(), kinds, 1).log_ratios(0, 1));
  EXPECT_DOUBLE_EQ(ratio.value, 1);
}

TEST(TimesInTurn, HaveAnIntervalThatAllowsForTheOffsetOfATrial) {
  const std::vector<Timed> kinds = {{[] { return 1e-3; }}, {[] { return 1.008e-3; }}};
  const SpeedRatio exact = speed_ratio(time_in_turn(simulated(), kinds, 1).log_ratios(0, 1));
  EXPECT_FALSE(exact.holds_one());
  const SpeedRatio ratio = exact.with_offset(kOffsetOfTrials);
  EXPECT_TRUE(ratio.holds_one());
  EXPECT_DOUBLE_EQ(ratio.value, exact.value);
}

TEST(TimesInTurn, TakeTheMedianOfASlice) {
  int calls = 0;
  const std::vector<Timed> kinds = {{[&] { return ++calls % 5 == 0 ? 4e-5 : 1e-5; }}};
  for (const double seconds : time_in_turn(simulated(), kinds, 1).slices_of(0)) EXPECT_DOUBLE_EQ(seconds, 1e-5);
}

TEST(TimesInTurn, CompareTheSameQuantileOfBothKinds) {
  std::vector<int> calls(2);
  const auto kind = [&](size_t k) {  // both kinds take 10, 20, ... ms in every round
    return Timed{[&calls, k] { return 0.01 * ++calls[k]; }, [&calls, k] { calls[k] = 0; }};
  };
  const std::vector<Timed> kinds = {kind(0), kind(1)};
  const InTurn found = time_in_turn(simulated(), kinds, 1);
  for (const double ratio : found.log_ratios(0, 1)) EXPECT_NEAR(ratio, 0, 0.3);  // the first round has one more step
  EXPECT_DOUBLE_EQ(found.log_ratios(0, 1)[1], 0);
}

TEST(TimesInTurn, RunEachTurnThereAndBackInRandomOrder) {
  std::vector<char> steps;
  const auto kind = [&](char name) {
    return Timed{[&steps, name] {
                   steps.push_back(name);
                   return 0.01;
                 },
                 [&steps, name] {
                   if (name == 'a') steps.push_back('|');
                 }};
  };
  const std::vector<Timed> kinds = {kind('a'), kind('b'), kind('c')};
  time_in_turn(simulated(), kinds, 1);
  const std::string all(steps.begin(), steps.end());
  std::set<std::string> orders;
  size_t rounds = 0;
  for (size_t at = all.find('|'); at != std::string::npos; at = all.find('|', at + 1)) {
    const std::string round = all.substr(at + 1, all.find('|', at + 1) - at - 1);
    const size_t untimed = rounds++ == 0 ? 6 : 3;  // of this length, steps are long and a round has three turns
    ASSERT_EQ(round.size(), untimed + 18);
    for (size_t turn = untimed; turn < round.size(); turn += 6) {
      const std::string there = round.substr(turn, 3), back = round.substr(turn + 3, 3);
      EXPECT_EQ(there, std::string(back.rbegin(), back.rend()));
      orders.insert(there);
    }
  }
  EXPECT_EQ(rounds, 16u);
  EXPECT_EQ(orders.size(), 6u) << "all orders of three kinds in 48 turns";
}

TEST(TimesInTurn, TakeOneTurnOfVeryLongStepsAndAtLeastThreeOfOthers) {
  const auto slices = [](double seconds) {
    const std::vector<Timed> kinds = {{[seconds] { return seconds; }}};
    return time_in_turn(simulated(), kinds, 1).seconds[0][0].size();
  };
  EXPECT_EQ(slices(0.03), 2u);
  EXPECT_EQ(slices(0.01), 6u);
  EXPECT_EQ(slices(1e-3), 10u);  // 0.01 s of each kind
}

TEST(TimesInTurn, TakeTheLengthOfAStepFromTheRoundBefore) {
  int rounds = 0;
  const std::vector<Timed> kinds = {{[&] { return rounds == 1 ? 0.01 : 1e-3; }, [&] { ++rounds; }}};
  const InTurn found = time_in_turn(simulated(), kinds, 1);
  EXPECT_EQ(found.seconds[0][0].size(), 6u);
  EXPECT_EQ(found.seconds[1][0].size(), 6u);
  EXPECT_EQ(found.seconds[2][0].size(), 10u);
}

TEST(TimesInTurn, GoOnWhileTheRatioOrAMedianIsUncertain) {
  const TurnRule rule = {.rounds = 12, .most = 20, .target = 0.01, .budget = 1e9, .patience = 1e9};
  int rounds = 0;
  const auto alternating = [&] { return rounds % 2 ? 0.01 : 0.011; };
  const auto count_rounds = [&] { ++rounds; };
  const std::vector<Timed> uncertain = {{[] { return 0.01; }, count_rounds}, {alternating}};
  EXPECT_EQ(time_in_turn(rule, uncertain, 1).seconds.size(), 20u);
  rounds = 0;  // both kinds change alike: the ratio is certain, the time is not
  const auto doubling = [&] { return rounds % 2 ? 0.01 : 0.02; };
  const std::vector<Timed> alike = {{doubling, count_rounds}, {doubling}};
  const InTurn found = time_in_turn(rule, alike, 1);
  EXPECT_EQ(found.seconds.size(), 20u);
  EXPECT_EQ(found.stopped_by, StoppedBy::samples);
}

TEST(TimesInTurn, EndWithTheFewestRoundsWhenTheMachineIsBusy) {
  Machine machine(1);
  Worker worker{machine, 1e-4}, other{machine, 1e-4};
  const std::vector<Timed> kinds = {worker.timed(), other.timed()};
  const InTurn found = time_in_turn(simulated(), kinds, 1, [] { return true; });
  EXPECT_EQ(found.seconds.size(), 8u);
  EXPECT_TRUE(std::isfinite(speed_ratio(found.log_ratios(0, 1), 0.99).upper)) << "enough for the control";
}

// Rounds of two kinds: 10 and 20 ms, in round n (from 1) longer by n us. `slowed`: the rounds that do not count.
struct CountedRounds {
  int asked = 0;
  InTurn found;
};
CountedRounds count_rounds_without(const std::function<bool(int)>& slowed, const TurnRule& rule) {
  CountedRounds result;
  int round = 0;
  const std::vector<Timed> kinds = {{[&] { return 0.01 + 1e-6 * round; }, [&] { ++round; }},
                                    {[&] { return 0.02 + 1e-6 * round; }}};
  result.found = time_in_turn(
      rule, kinds, 1, [] { return false; },
      [&] {
        EXPECT_EQ(++result.asked, round) << "once after each round";
        return !slowed(round);
      });
  return result;
}
std::vector<int> numbers_of(const InTurn& found, size_t kind, double base) {
  std::vector<int> rounds;
  for (const double median : found.medians_of(kind))
    rounds.push_back(static_cast<int>(std::lround((median - base) * 1e6)));
  return rounds;
}
constexpr TurnRule kTwelveRounds = {.rounds = 12, .most = 20, .budget = 1e9, .patience = 1e9};

TEST(RoundsThatDoNotCount, AreDroppedForAllKindsAndReplaced) {
  const CountedRounds some = count_rounds_without([](int round) { return round == 1 || round == 5; }, kTwelveRounds);
  const std::vector<int> left = {2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  EXPECT_EQ(numbers_of(some.found, 0, 0.01), left);
  EXPECT_EQ(numbers_of(some.found, 1, 0.02), left);
  EXPECT_EQ(some.found.log_ratios(0, 1).size(), 12u);
  EXPECT_EQ(some.found.discarded, 2u);
  EXPECT_EQ(some.found.slowed, 0);
  EXPECT_EQ(some.found.stopped_by, StoppedBy::target);
}

TEST(RoundsThatDoNotCount, AreKeptIfTooFewAreLeft) {
  const CountedRounds all = count_rounds_without([](int) { return true; }, kTwelveRounds);
  EXPECT_EQ(all.found.seconds.size(), 20u);
  EXPECT_EQ(all.found.discarded, 0u);
  EXPECT_EQ(all.found.slowed, 1);
  EXPECT_EQ(all.found.stopped_by, StoppedBy::samples);
  const CountedRounds most = count_rounds_without([](int round) { return round > 7; }, kTwelveRounds);
  EXPECT_EQ(most.found.seconds.size(), 20u);
  EXPECT_EQ(most.found.slowed, 13 / 20.0);
  const CountedRounds enough = count_rounds_without([](int round) { return round > 8; }, kTwelveRounds);
  EXPECT_EQ(enough.found.seconds.size(), 8u) << "the fewest";
  EXPECT_EQ(enough.found.discarded, 12u);
  EXPECT_EQ(enough.found.slowed, 0);
}

TEST(RoundsThatDoNotCount, EndWithThePatience) {
  TurnRule impatient = kTwelveRounds;
  impatient.patience = 0;
  const CountedRounds all = count_rounds_without([](int) { return true; }, impatient);
  EXPECT_EQ(all.found.seconds.size(), 8u);
  EXPECT_EQ(all.found.slowed, 1);
  EXPECT_EQ(all.found.stopped_by, StoppedBy::budget);
}

}  // namespace
}  // namespace halfmark::bench
