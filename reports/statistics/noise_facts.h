// How much times vary although no code changed: the constants that every decision about times shares, with sources.
//
// All numbers are standard deviations of ln(time) of one case. The shift between two days has the deviation of one day
// times sqrt(2), and so has the offset between two builds: spread_between_two().
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>

#include "reports/statistics/statistics.h"

namespace halfmark::reports {

// Shift of a case that lasts for one session or day: frequency and temperature of the machine, physical pages,
// neighbours on a shared host. A design value, for machines whose own history is unknown. With this spread a floor of
// 10 % raises a false alarm in 84 % of the comparisons of 200 cases. Kalibera and Jones, ISMM 2013, give the reason to
// treat it as a level of its own: repetitions below that level do not reduce it.
inline constexpr double kDaySpread = 0.03;

// Offset of a case that a build keeps in all its processes, from the accidental placement of its code (link order,
// padding, alignment). A design value at the lower end of what was measured: Mytkowicz et al., ASPLOS 2009, found that
// link order alone can hide or invent the effect of -O3; Curtsinger and Berger, ASPLOS 2013, found up to 57 % from link
// order, and a normal distribution over random layouts; an inert reordering of two functions was reported as 2 to 11 %
// (github.com/megaeth-labs/mega-evm/pull/335).
inline constexpr double kLayoutSpread = 0.02;

// Spread between the processes of one build within minutes: of the typical case, and the largest one seen
// among cases with quiet timing. From the model of 300 cases by which the decision is tested (decision_test.cpp).
inline constexpr double kProcessSpread = 0.006, kLargestProcessSpread = 0.03;

// Largest lag-1 autocorrelation between the runs of one report for which the error rates are promised.
inline constexpr double kLargestDependence = 0.9;

inline double spread_between_two(double spread_of_one) { return std::numbers::sqrt2 * spread_of_one; }

// The amount that the largest of `cases` normal values of this spread exceeds only with probability `chance`
// (Bonferroni): noise alone explains every smaller one. In the unit of the spread; std::expm1 of it is a ratio minus 1.
inline double largest_by_chance(double spread, size_t cases, double chance = 0.01) {
  return spread * normal_quantile_above(chance / static_cast<double>(cases > 0 ? cases : 1));
}

}  // namespace halfmark::reports
