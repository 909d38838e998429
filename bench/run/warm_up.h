// Steps before the measured ones: they pack weights, fill memory pools and raise clocks.
#pragma once

#include <functional>

namespace halfmark::bench {

struct WarmUp {
  double least, most;  // seconds
};
// A GPU raises the clock of its memory within some tenths of a second of work, a processor its own within milliseconds.
inline constexpr WarmUp kHostWarmUp{0.02, 1}, kGpuWarmUp{0.5, 3};

// Runs steps for `least` seconds and until those of 20 ms are not 2 % faster than the fastest before, for at most `most`
// seconds and at least two steps. `step` returns when its work is done; `now`: seconds.
void warm_up(const WarmUp& how, const std::function<void()>& step, const std::function<double()>& now);

}  // namespace halfmark::bench
