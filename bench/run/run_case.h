// One case measured in this process.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/namespaces.h"
#include "bench/run/case.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// Throws nothing but Interrupted: what goes wrong is the record's reason. Timed but emulated arithmetic, and a time not
// known well enough, make the record suspect.
Record run_case(const Case& one, const std::shared_ptr<Device>& device, uint64_t seed);

// What is known of a record before it is measured: whose it is, and the command that measures it alone.
Record blank_record(const Case& one, uint64_t seed);

}  // namespace halfmark::bench
