// Where a series of measurements changes its level: of its windows the split that tells the two sides apart best, then
// a test of each split between its neighbours, until none is left that chance or a trifle explains.
//
// Sources: Matteson and James, J. Am. Stat. Assoc. 109, 2014 (the energy statistic of a split); Daly et al., ICPE 2020,
// and Fleming et al., ICPE 2023 (its use on benchmarks: windows, a t-test, the weakest split dropped first).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reports/statistics/statistics.h"

namespace halfmark::reports {

struct ChangePointRules {
  double p = 1e-4;           // chance that two sides of one level differ as much, at most
  double least = 0.02;       // and the levels must differ by more than this, in the units of the series,
  double errors = 3;         // and by more than so many standard errors
  size_t fewest_points = 3;  // on either side
};

struct ChangePoint {
  size_t at = 0;                 // index of the first point of the new level
  double before = 0, after = 0;  // medians of the points between the neighbouring changes
  double p = 1;
  double change() const { return after - before; }
};

// Of a series without gaps; the points should not depend on each other (a ratio to a build measured beside it does
// not, a time drifts with its machine). In the order of the series. Values that are not finite throw ReportError.
std::vector<ChangePoint> change_points(std::span<const double> series, const ChangePointRules& rules = {});

}  // namespace halfmark::reports
