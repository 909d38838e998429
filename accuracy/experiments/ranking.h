// Rank correlation, and means with their standard errors.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "accuracy/namespaces.h"

namespace halfmark::accuracy {

// Kendall's tau-b: (pairs in the same order - pairs in the other order) / sqrt(pairs that differ in a * pairs that differ
// in b). NaN if one of the lists has no two different values, or a value that is NaN. Throws Error for lists of different
// lengths. Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945.
double kendall_tau(std::span<const double> a, std::span<const double> b);

// Kendall's tau-b of each pair of rankings of the same things: mean and least, NaN if one is; the standard error of the mean by
// leaving out one ranking at a time (the jackknife: Efron and Stein, "The jackknife estimate of variance", Annals of Statistics
// 9, 1981), because pairs that share a ranking are not independent; none for two rankings or a NaN. Throws Error for fewer.
struct TauOfPairs {
  double mean = 0, least = 0;
  std::optional<double> error{};
};
TauOfPairs kendall_tau_of_pairs(std::span<const std::vector<double>> rankings);

// The place of the smallest value, the first of equal ones. A NaN is larger than all numbers.
size_t place_of_least(std::span<const double> values);

struct SampleMean {
  double mean = 0, deviation = 0;  // of one value, estimated from all; 0 for a single one
  double error = 0;                // standard error of the mean: deviation / sqrt(count)
};
SampleMean sample_mean(std::span<const double> values);  // throws Error if there are none

// The standard error of the share right / count, from q = (right + 1) / (count + 2), so that it is not 0 when the share is 0
// or 1 (as Evaluation::accuracy_error).
double share_error(double right, double count);

}  // namespace halfmark::accuracy
