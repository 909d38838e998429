// Which records of a report `halfmark claims` does not use, because this program would not have written them so.
#pragma once

#include "bench/namespaces.h"
#include "reports/claims/claims.h"

namespace halfmark::bench {

// Of the cases of the claims in a report that was read from a file, by id: why a record does not decide. A record must have the network, axes, units and kinds of
// numbers that this program writes for the case, the seed of the report, and the fingerprint of its own numbers.
reports::RefusedCases refused_cases(const reports::ClaimList& list, const reports::Report& report);

}  // namespace halfmark::bench
