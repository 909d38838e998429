#include "accuracy/lint_gradients.h"

#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace halfmark::accuracy {
namespace {

double inner(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

// Normal equations by elimination with pivots: a few parts, whose gradients differ.
WeightedSum fit_sum(std::span<const std::vector<double>> parts, std::span<const double> sum) {
  const size_t n = parts.size();
  std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) rows[i][j] = inner(parts[i], parts[j]);
    rows[i][n] = inner(parts[i], sum);
  }
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i)
      if (std::fabs(rows[i][k]) > std::fabs(rows[pivot][k])) pivot = i;
    std::swap(rows[k], rows[pivot]);
    for (size_t i = 0; i < n; ++i) {
      if (i == k || rows[k][k] == 0) continue;
      const double factor = rows[i][k] / rows[k][k];
      for (size_t j = k; j <= n; ++j) rows[i][j] -= factor * rows[k][j];
    }
  }
  WeightedSum found;
  for (size_t k = 0; k < n; ++k) found.weights.push_back(rows[k][k] == 0 ? 0 : rows[k][n] / rows[k][k]);
  double rest = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    double left = sum[i];
    for (size_t k = 0; k < n; ++k) left -= found.weights[k] * parts[k][i];
    rest += left * left;
  }
  const double all = inner(sum, sum);
  found.unexplained = all > 0 ? std::sqrt(rest / all) : 0;
  return found;
}

}  // namespace halfmark::accuracy
