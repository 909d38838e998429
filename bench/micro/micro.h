// The families of micro benchmarks; each registers its benchmarks at run time.
#pragma once

#include <memory>
#include <vector>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench::micro {

void register_rows(const std::vector<std::shared_ptr<Device>>& devices);  // every listed kernel row of every device
void register_large(
    const std::vector<std::shared_ptr<Device>>& devices);  // rows of GPUs, on operands beyond the caches
void register_peers();         // halfmark compared with direct calls of oneDNN; none without oneDNN
void register_rounding();      // rounding and conversion of arrays, compared with memcpy
void register_tensor_cores();  // simulated tensor cores by code path, compared with an sgemm
void register_steps();         // training steps in emulated fp16, compared with fp32

}  // namespace halfmark::bench::micro
