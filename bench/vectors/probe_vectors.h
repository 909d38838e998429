// halfmark probe --vectors: runs test vectors that distinguish hypotheses on the matrix instructions of a device.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"
#include "reports/text/table.h"

namespace halfmark::bench {

// Reads a file with the columns probe, instruction, fmt_a, fmt_b, fmt_c, k, a, b, c, predictions. Runs the rows whose
// instruction the device has, and reports for each group of rows the hypotheses that predict all its answers. Throws
// Error with file, line and the reason.
std::string probe_vectors(Device& device, const std::string& path, const TextOptions& options);

}  // namespace halfmark::bench
