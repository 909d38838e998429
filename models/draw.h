// Random numbers in parallel. A number of a RandomKey depends on its index only, so any number of threads draws the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "models/namespaces.h"

namespace halfmark::models {

inline constexpr int64_t kDrawnAtATime = 4096;  // numbers in a piece of work: some tens of microseconds

// number(i) for each i below count.
template <class Number>
std::vector<double> draw_numbers(int64_t count, const Number& number) {
  std::vector<double> drawn(static_cast<size_t>(count));
  parallel_for(count, kDrawnAtATime, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) drawn[i] = number(i);
  });
  return drawn;
}

}  // namespace halfmark::models
