// One case measured in this process.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/namespaces.h"
#include "bench/run/case.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// Throws only Interrupted, and DataError where the data of the case cannot be read: errors become the reason of the record. Emulated arithmetic in a timed region, or an
// uncertain median, make the record suspect.
Record run_case(const Case& one, const std::shared_ptr<Device>& device, uint64_t seed);

// A record before its measurement: its identification, and the command that measures only this case.
Record blank_record(const Case& one, uint64_t seed);

}  // namespace halfmark::bench
