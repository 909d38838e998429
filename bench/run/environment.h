// The environment of a report: machine, libraries, compiler, settings. Behaviour that can be tested is tested instead
// of read from a setting.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench {

// What a device fails to answer is left out, with the error in its facts ("failed") and in a line on standard error.
// With probes, also how the matmuls of each device add; this takes almost a second per device.
nlohmann::ordered_json environment_of(const std::vector<Device*>& devices, bool probes);

std::string machine_name();

// True when this process flushes subnormal numbers to zero. Any library linked with -ffast-math may have set this mode.
bool flushes_subnormals();

// True when matmul on f32 tensors under fp32 math rounds its operands to fewer bits.
bool rounds_fp32_operands(Device& device);

}  // namespace halfmark::bench
