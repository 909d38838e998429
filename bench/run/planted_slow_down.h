// Planted slow-downs for tests: steps of chosen cases are made longer inside the timed region.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "bench/namespaces.h"
#include "models/trial.h"

namespace halfmark::bench {

// The id of a throughput case -> the share by which each of its steps is made longer. Set once, before any case runs.
void plant_slow_downs(std::map<std::string, double> shares);

// The share of this trial; 0 if none is planted.
double planted_slow_down(const TrialSpec& spec);

// Waits until `share` more than the time since `start` has passed.
void linger(std::chrono::steady_clock::time_point start, double share);

}  // namespace halfmark::bench
