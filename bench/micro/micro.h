// The families of micro benchmarks; each registers its own at run time.
#pragma once

#include <memory>
#include <vector>

#include "bench/namespaces.h"
#include "kernels/tensor/device.h"

namespace halfmark::bench::micro {

void register_rows(
    const std::vector<std::shared_ptr<Device>>& devices);  // every kernel row of every device, by being listed
void register_peers();                                     // ours beside oneDNN used directly; nothing without oneDNN
void register_rounding();                                  // arrays rounded and converted, beside memcpy
void register_tensor_cores();                              // simulated tensor cores by path, beside an sgemm

}  // namespace halfmark::bench::micro
