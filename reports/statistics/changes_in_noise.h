// Change points of a series that has a memory: a series that drifts, or whose points depend on each other, also has
// levels that differ, although nothing was changed. Each change found by change_points() is therefore tested again;
// what drift may explain as well is undecided.
//
// A change is decided if all of these hold. Changes that fail are put back into the noise, the weakest first, and the
// others are tested against what is then left.
// 1. Placebo: the jump between the points next to the change is exceptional among the jumps of the same width elsewhere
//    in the series. Drift, a random walk and dependent points jump everywhere; the placebo needs no model of them.
//    (Idea: placebo tests of Abadie, Diamond and Hainmueller, J. Am. Statist. Assoc. 105, 2010.)
// 2. Dependence: a t-test with as many independent points as the dependence within the levels leaves (dependence.h).
// 3. Shape: a step fits the points better than a straight line, by a likelihood ratio of e^5.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reports/statistics/change_points.h"

namespace halfmark::reports {

// `day` of each point, ascending: a case may shift from day to day (noise_facts.h), so the points of one day count as
// one, by their median. ChangePoint::at is an index into `series`. Throws as change_points().
std::vector<ChangePoint> changes_in_noise(std::span<const double> series, std::span<const int64_t> day,
                                          const ChangePointRules& rules = {});

// Places that lie far from the level of their segment: by more than `least` and by more than five standard deviations of
// the other points (estimated from their median distance). Both limits are chosen, not derived: these points are for a
// remark, never for a verdict.
std::vector<size_t> far_points(std::span<const double> series, std::span<const ChangePoint> changes,
                               double least = 0.1);

// The changes of an exact number, which has no noise: every value that is not the one before it, in any amount.
std::vector<ChangePoint> exact_changes(std::span<const double> series);

}  // namespace halfmark::reports
