#include "bench/run/time_in_turn.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "bench/run/interruption.h"

namespace halfmark::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFewestTurns = 3, kMostTurns = 100;  // of a round
constexpr double kVeryLongStep = 0.02;             // seconds; one turn in a round is enough then

// Seconds of a step in one slice: the median, so that an interruption of one step does not count. Steps shorter than a
// slice are repeated, and the first one is not timed, because it reads what the other kinds have evicted from the
// caches.
double slice_of(const Timed& kind, const TurnRule& rule, double step) {
  if (step < kLongStep) kind.step();
  std::vector<double> steps;
  double sum = 0;
  do steps.push_back(kind.step()), sum += steps.back();
  while (sum + sum / (2 * static_cast<double>(steps.size())) < rule.slice);
  return reports::median(std::move(steps));
}

// One turn: every kind once in random order and once in the reverse order, so that a drift cancels.
void add_turn(std::vector<std::vector<double>>& seconds, std::span<const Timed> kinds, const TurnRule& rule,
              const std::vector<double>& steps, std::mt19937_64& random) {
  std::vector<size_t> order(kinds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t kind : order) seconds[kind].push_back(slice_of(kinds[kind], rule, steps[kind]));
  std::reverse(order.begin(), order.end());
  for (const size_t kind : order) seconds[kind].push_back(slice_of(kinds[kind], rule, steps[kind]));
}

// `steps`: seconds of a step of each kind; those of this round on return.
void add_round(InTurn& result, std::span<const Timed> kinds, const TurnRule& rule, std::vector<double>& steps,
               std::mt19937_64& random) {
  for (const Timed& kind : kinds) {
    kind.fresh();
    kind.step();  // plans and packed weights for the new place
    if (steps.size() < kinds.size()) steps.push_back(kind.step());
  }
  const double shortest = *std::min_element(steps.begin(), steps.end());
  const double turn = 2 * std::max(rule.slice, shortest);
  const int turns = std::clamp(static_cast<int>(std::ceil(rule.of_round / turn)),
                               shortest > kVeryLongStep ? 1 : kFewestTurns, kMostTurns);
  auto& seconds = result.seconds.emplace_back(kinds.size());
  for (int i = 0; i < turns; ++i) add_turn(seconds, kinds, rule, steps, random);
  for (size_t kind = 0; kind < kinds.size(); ++kind) steps[kind] = reports::median(seconds[kind]);
}

// The widest relative half-width: of the ratios to kind 0, and of the median of each kind.
double widest_ratio(const InTurn& so_far, size_t kinds) {
  double widest = 0;
  for (size_t kind = 1; kind < kinds; ++kind) {
    const SpeedRatio ratio = speed_ratio(so_far.log_ratios(0, kind));
    widest = std::max(widest, (ratio.upper - ratio.lower) / 2 / ratio.value);
  }
  return widest;
}

double widest_median(const InTurn& so_far, size_t kinds) {
  double widest = 0;
  for (size_t kind = 0; kind < kinds; ++kind) {
    const std::vector<double> medians = so_far.medians_of(kind);
    widest = std::max(widest, reports::median_interval(medians).half_width() / reports::median(medians));
  }
  return widest;
}

}  // namespace

std::vector<double> InTurn::slices_of(size_t kind) const {
  std::vector<double> all;
  for (const auto& round : seconds) all.insert(all.end(), round[kind].begin(), round[kind].end());
  return all;
}

std::vector<double> InTurn::medians_of(size_t kind) const {
  std::vector<double> medians;
  for (const auto& round : seconds) medians.push_back(reports::median(round[kind]));
  return medians;
}

std::vector<double> InTurn::log_ratios(size_t base, size_t kind) const {
  std::vector<double> ratios;
  for (const auto& round : seconds)
    ratios.push_back(std::log(reports::quantile(round[base], 0.25) / reports::quantile(round[kind], 0.25)));
  return ratios;
}

InTurn time_in_turn(const TurnRule& rule, std::span<const Timed> kinds, uint64_t seed,
                    const std::function<bool()>& give_up, const std::function<bool()>& counts) {
  std::mt19937_64 random(seed);
  InTurn all, result;
  std::vector<double> steps;
  const auto start = Clock::now();
  for (int done = 1; done <= rule.most; ++done) {
    stop_if_interrupted();
    add_round(all, kinds, rule, steps, random);
    if (counts()) result.seconds.push_back(all.seconds.back());
    if (done < rule.fewest) continue;
    const double used = std::chrono::duration<double>(Clock::now() - start).count();
    const auto left = static_cast<int>(result.seconds.size());
    const bool enough = left >= rule.fewest;
    const double ratios = enough ? widest_ratio(result, kinds.size()) : HUGE_VAL;
    const double medians = enough ? widest_median(result, kinds.size()) : HUGE_VAL;
    if (left >= rule.rounds && ratios <= rule.target && medians <= rule.widest_median) {
      result.stopped_by = StoppedBy::target;
      break;
    }
    if (done == rule.most) result.stopped_by = StoppedBy::samples;
    if (used >= rule.patience || give_up()) break;
    if (used >= rule.budget && ratios <= rule.widest && medians <= rule.widest_median) break;
  }
  result.discarded = all.seconds.size() - result.seconds.size();
  if (static_cast<int>(result.seconds.size()) < rule.fewest && result.discarded > 0) {
    result.slowed = static_cast<double>(result.discarded) / static_cast<double>(all.seconds.size());
    result.discarded = 0;
    result.seconds = std::move(all.seconds);
  }
  return result;
}

SpeedRatio speed_ratio(std::span<const double> log_ratios, double confidence) {
  const reports::Interval interval = reports::hodges_lehmann_interval(log_ratios, confidence);
  return {std::exp(reports::hodges_lehmann(log_ratios)), std::exp(interval.lower), std::exp(interval.upper)};
}

}  // namespace halfmark::bench
