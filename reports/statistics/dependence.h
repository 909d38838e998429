// Runs that remember: estimates how much each run of a series depends on the run before it, and how many independent
// runs the series is worth. Clock speeds, temperature and other work on the machine persist from run to run, so that
// 24 runs may carry the information of one.
//
// Model: AR(1), the autocorrelation between runs k apart is rho^k. A drift within the series also raises rho.
// Sources: Marriott and Pope, Biometrika 41, 1954, and Kendall, Biometrika 41, 1954 (bias of the lag-1 autocorrelation:
// -(1 + 4 rho) / n); Bartlett, J. R. Statist. Soc. Suppl. 8, 1946 (its variance: (1 - rho^2) / n); Bayley and Hammersley,
// J. R. Statist. Soc. Suppl. 8, 1946 (effective number of observations).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace halfmark::reports {

// The lag-1 autocorrelation of one or more series of a case, corrected for its bias; in [-1, 0.99].
struct Dependence {
  double lag_one = 0, error = 1;                // estimate and its standard error for independent runs
  double upper(double chance = 0.01) const;     // one-sided bound that the true value exceeds with this probability
  bool is_evident(double chance = 0.01) const;  // lag_one is too large for independent runs
};

// Series of fewer than 8 values give no estimate (lag_one 0, error 1). Rare outliers are drawn in first.
Dependence dependence_of(std::span<const std::vector<double>> series);

// The common dependence of many cases of one machine: the median of theirs.
Dependence common_dependence(std::span<const Dependence> cases);

// How many independent runs `runs` runs are worth; at least 1.
double effective_runs(size_t runs, double lag_one);

// Mean and spread of one series, if each run depends on the one before it.
struct DependentMean {
  double error = 0;    // standard error of the mean; infinite if the runs are worth less than 1.5 independent runs
  double freedom = 0;  // degrees of freedom of the error
};
DependentMean dependent_mean(std::span<const double> series, double lag_one);

// The shift of one series against another, if the runs of each depend on each other.
struct DependentShift {
  double error = 0, freedom = 0;  // of the difference of the means; the error is infinite if it cannot be told
  double worth = 0;               // independent runs that the shorter side is worth

  // One-sided p value of `shift` under the hypothesis that it is `centre` plus a normal value of standard deviation
  // `spread` (known, for example that between days). 1 if the error cannot be told.
  double p(double shift, double centre, double spread) const;
  // Half width of the two-sided interval, with a spread as above.
  double reach(double confidence, double spread) const;
  // The largest true shift that `shift` allows with this one-sided confidence; infinite if it cannot be told.
  double upper(double shift, double confidence = 0.95) const;
};
DependentShift dependent_shift(std::span<const double> a, std::span<const double> b, double lag_one);

// The values, with those that lie further than three standard deviations from the median moved to this distance. The
// standard deviation is estimated by quantiles, which a second mode of up to a fifth of the values widens.
std::vector<double> without_outliers(std::span<const double> series);

}  // namespace halfmark::reports
