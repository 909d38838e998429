// Times several kinds of work against each other: short slices in turn on the same cores, in rounds with newly
// allocated memory. The speed of a core changes within milliseconds and from one place in memory to another; slices
// that are neighbours in time share the first, and rounds sample the second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/namespaces.h"
#include "bench/run/timing.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

// Something that is timed. `step` runs once and returns its seconds. `fresh` moves its memory; called before each round.
struct Timed {
  std::function<double()> step;
  std::function<void()> fresh = [] {};
};

struct TurnRule {
  double slice = 0.1e-3;       // seconds: steps of one kind are repeated for so long, then the next kind has its turn
  double of_round = 0.01;      // timed seconds of each kind in a round
  int fewest = 8;              // rounds; with fewer there is no 99 % interval
  int rounds = 12;             // rounds that are taken in any case within the budget
  int most = 60;               // rounds, with those that do not count
  double target = 0.01;        // half-width of the intervals of the ratios at which it ends after `rounds`
  double budget = 0.8;         // seconds, after which these half-widths are enough:
  double widest = 0.025;       // of the ratios
  double widest_median = 0.1;  // of the medians of each kind
  double patience = 3;         // seconds, after which it ends in any case
};

// Slices of a step longer than this do not begin with an untimed step: what other kinds have left in the caches costs
// at most a few tenths of a millisecond (2 MiB at 10 GB/s).
inline constexpr double kLongStep = 2e-3;

struct InTurn {
  std::vector<std::vector<std::vector<double>>> seconds;  // [round][kind][slice]: of a step
  StoppedBy stopped_by = StoppedBy::budget;
  size_t discarded = 0;  // rounds that did not count
  double slowed = 0;     // share of the rounds that did not count either, but without which there were too few

  std::vector<double> slices_of(size_t kind) const;   // seconds of a step, of all rounds
  std::vector<double> medians_of(size_t kind) const;  // of each round
  // Of each round: log(lower quartile of the seconds of `base` / that of `kind`). What disturbs a step makes it longer,
  // so the lower quartile depends on disturbances less than the median does.
  std::vector<double> log_ratios(size_t base, size_t kind) const;
};

// `give_up` is asked after each round beyond rule.fewest: true ends it, because the machine is busy. `counts` is asked after
// each round: a round that does not count is discarded for all kinds. If in the end fewer than rule.fewest are left, all
// are kept.
// Throws Interrupted when a signal ends the run. The order of the kinds is random, from `seed`.
InTurn time_in_turn(
    const TurnRule& rule, std::span<const Timed> kinds, uint64_t seed,
    const std::function<bool()>& give_up = [] { return false; },
    const std::function<bool()>& counts = [] { return true; });

// Two trials of equal work differ a little for as long as a process lives: their objects, plans and scratch memory stay
// where they are. Without this allowance the 95 % intervals held 1 in 190 of 200 pairs of equal work, with it in 197
// (reports/ledgers/ratio_ledger.csv).
inline constexpr double kOffsetOfTrials = 0.01;

// seconds of one kind / seconds of the other: how many times faster the other is, with its interval.
struct SpeedRatio {
  double value = 1, lower = 0, upper = 0;
  bool holds_one() const { return lower <= 1 && 1 <= upper; }
  SpeedRatio with_offset(double share) const { return {value, lower / (1 + share), upper * (1 + share)}; }
};

// The Hodges-Lehmann estimate of the log ratios of the rounds, with the signed-rank interval: exact for differences that
// are symmetric about their centre. Infinite bounds: too few rounds for this confidence.
SpeedRatio speed_ratio(std::span<const double> log_ratios, double confidence = 0.95);

}  // namespace halfmark::bench
