// Updates that change nothing, for the harnesses that train.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace halfmark::accuracy {

// Elements of parameters over the steps of a training. One that is not finite before a step is not counted there: no rounding
// keeps it as it is.
struct UpdateCount {
  double unchanged = 0, all = 0;

  void add(const std::vector<double>& before, const std::vector<double>& after) {
    for (size_t i = 0; i < after.size(); ++i)
      if (std::isfinite(before[i])) unchanged += after[i] == before[i], all += 1;
  }
  void add(const UpdateCount& other) { unchanged += other.unchanged, all += other.all; }
};

}  // namespace halfmark::accuracy
