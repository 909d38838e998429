// The device of a command: which one where none is named, and what must be said beside its results.
#pragma once

#include <string>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench {

// The best device present. If that is the CPU because a GPU cannot be opened, says so in one line, once.
std::string default_device();
// If default_device() gave the CPU because no GPU can be used, the line that says so and why; else empty.
std::string no_gpu_text();

// "not hardware: software GPU: ..." of a device that is not what its name says; else empty.
std::string substitute_text(const Device& device);

}  // namespace halfmark::bench
