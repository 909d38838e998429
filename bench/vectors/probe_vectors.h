// halfmark probe --vectors: questions whose answers tell hypotheses apart, put to a device's matrix instructions.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"
#include "reports/text/table.h"

namespace halfmark::bench {

// Reads a file of the columns probe, instruction, fmt_a, fmt_b, fmt_c, k, a, b, c, predictions, runs the rows whose
// instruction the device has, and says for every group of rows which hypotheses give all its answers. Throws Error with
// file, line and what is wrong there.
std::string probe_vectors(Device& device, const std::string& path, const TextOptions& options);

}  // namespace halfmark::bench
