// Times as findings of the throughput harness.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"
#include "bench/run/contention.h"
#include "bench/run/timing.h"

namespace halfmark::bench {

void write_samples(FindingsWriter& out, std::string_view metric, const std::string& at,
                   const std::vector<double>& samples);  // their median, and all of them
// timing.target, timing.half_width and timing.stopped_by.
void write_stop(FindingsWriter& out, const std::string& at, const Sampled& sampled, double target);
void write_contention(FindingsWriter& out, const Contention& found);  // at hot/step
// The ratio of two kinds of steps at "hot", from the logarithms of the rounds, with its interval.
void write_ratio(FindingsWriter& out, std::string_view metric, const std::vector<double>& log_ratios,
                 double confidence);

}  // namespace halfmark::bench
