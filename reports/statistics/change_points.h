// Change points of a series of measurements: finds the best split of each window, then tests each split against its
// neighbours, until every remaining split is both significant and larger than the minimum effect.
//
// Sources: Matteson and James, J. Am. Stat. Assoc. 109, 2014 (the energy statistic of a split); Daly et al., ICPE 2020,
// and Fleming et al., ICPE 2023 (its use on benchmarks: windows, a t-test, the weakest split is dropped first).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reports/statistics/statistics.h"

namespace halfmark::reports {

struct ChangePointRules {
  double p = 1e-4;           // maximum p value of a split; and
  double least = 0.02;       // the levels must differ by more than this, in the unit of the series; and
  double errors = 3;         // by more than this number of standard errors
  size_t fewest_points = 3;  // minimum on either side
};

struct ChangePoint {
  size_t at = 0;                 // index of the first point of the new level
  double before = 0, after = 0;  // medians of the points up to the neighbouring changes
  double p = 1;
  bool undecided = false;  // drift may explain it as well (changes_in_noise.h)
  double change() const { return after - before; }
};

// The change points of a series without gaps, in its order. The points should be independent of each other: ratios to a
// build measured at the same time are, times are not, because they drift with the machine: see changes_in_noise.h. Throws
// ReportError for values that are not finite.
std::vector<ChangePoint> change_points(std::span<const double> series, const ChangePointRules& rules = {});

}  // namespace halfmark::reports
