// A hash of the findings of a case, which shows at a glance whether two runs agree in every bit.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "reports/record/measurement.h"

namespace halfmark::bench {

// Hashes every number and curve except sampled ones (times), the layout of the batch, and those of the fp64 reference, which is
// no result of the case. All NaNs are equal; -0 and +0 differ.
std::string fingerprint_of(const Findings& findings);

}  // namespace halfmark::bench
