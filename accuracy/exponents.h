// Histogram of the binary exponents of a tensor. It suffices to tell what another format would lose.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/number/format.h"

namespace halfmark::accuracy {

struct Exponents {
  std::map<int, double> counts;  // floor(log2 |x|) of finite numbers other than zero -> how many
  double total = 0, zero = 0, nonfinite = 0;
  double largest = 0;  // |x| among finite numbers

  void add(std::span<const double> values);
  void add(const Exponents& other);
  bool empty() const { return counts.empty(); }
  int lowest_exponent() const { return counts.begin()->first; }  // not when empty()
  int highest_exponent() const { return counts.rbegin()->first; }

  // Share of all elements that are not zero and smaller than 2^exponent. Elements more than 52 binades below the
  // largest are rounding noise of an fp64 run and are not counted.
  double share_below(int exponent) const;
};

// Bits between the largest number and the overflow of the
// format: log2(max finite / largest). Infinite when largest = 0.
double headroom(const Format& format, double largest);

}  // namespace halfmark::accuracy
