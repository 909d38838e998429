// Where a report was made: machine, libraries, compiler, switches. Behaviour that can be tested is tested, not read
// from a setting.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench {

// With probes: also how the matmuls of each device add, which takes most of a second.
nlohmann::ordered_json environment_of(const std::vector<Device*>& devices, bool probes);

std::string machine_name();

// True when this process turns subnormal numbers into zeros, as any library linked with -ffast-math may have asked the
// CPU to.
bool flushes_subnormals();

// True when matmul on f32 tensors under fp32 math rounds its operands to fewer bits.
bool rounds_fp32_operands(Device& device);

}  // namespace halfmark::bench
