// Whether the tensors of a case can be in the memory of a host, asked before it starts: the kernel lends more memory than
// there is, and would end the process when the tensors are written.
#pragma once

#include <optional>
#include <string>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"

namespace halfmark::bench {

// Bytes that this process can have at most: available memory and swap, and what it has already; or the limits of its
// address space and its control groups if they are less. Never too few. `root` is put before the paths of /proc and /sys.
double memory_available(const std::string& root = "");

// Predicted bytes of the tensors that a case has at the same moment, or fewer (models/memory_prediction.h); nothing: they
// are not known, or the harness runs no training step.
std::optional<double> bytes_needed(const Harness& harness, const TrialSpec& spec);

// Why a case cannot start: "needs 112 GiB (predicted), this machine has 23.5 GiB free". Nothing: it can, or nobody knows.
std::optional<std::string> lacks_memory(const Harness& harness, const TrialSpec& spec, double available);

}  // namespace halfmark::bench
