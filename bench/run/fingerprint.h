// A hash of what a case found, for telling at a glance whether two runs agree in every bit.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "reports/record/measurement.h"

namespace halfmark::bench {

// Of every number and curve but sampled ones (times). NaNs count as one, -0 and +0 as two.
std::string fingerprint_of(const Findings& findings);

}  // namespace halfmark::bench
