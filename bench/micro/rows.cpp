// Every kernel row of every device, for every dtype it accepts: op/dtypes/size/device/row. A row of real speed shows
// FLOP/s if its operation counts them; an emulated row is labelled and shows its time only.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/micro/measured.h"
#include "bench/micro/micro.h"

namespace halfmark::bench::micro {
namespace {

// Smaller for slow rows.
MeasuredSizes sizes_for(Speed speed) {
  const bool large = speed == Speed::real;
  const int64_t n = large ? 8 : 1, c = large ? 32 : 4, side = large ? 28 : 6, matrix = large ? 256 : 24;
  return {.image = {n, c, side, side},
          .loss = {n * 16, 100},
          .quantized = {matrix, matrix},
          .matrix = matrix,
          .block_scaled = large ? 256 : 32,
          .dots = n * 16};
}

// Calls f(op) with the case of an operation for this row.
template <class Op, class F>
void with_operation(Device& device, const Kernel<Op>& kernel, DType dtype, bool filled, F f) {
  with_case<Op>(device, measured_axes(dtype, sizes_for(kernel.speed)), filled, f);
}

template <class Op>
void measure(benchmark::State& state, Device& device, const Kernel<Op>& kernel, DType dtype) {
  with_operation(device, kernel, dtype, true, [&](const Op& op) {
    run_with(kernel, op);  // creates primitives and plans
    for (auto _ : state) state.SetIterationTime(device.time([&] { run_with(kernel, op); }));
    if (kernel.speed == Speed::emulated) return state.SetLabel("emulated");
    const double flops = flops_of(op);
    if (flops > 0) state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
  });
}

template <class Op>
void register_row(const std::shared_ptr<Device>& device, const Kernel<Op>& kernel) {
  for (const DType dtype : dtypes()) {
    if (!is_floating(dtype)) continue;
    with_operation(*device, kernel, dtype, false, [&](const Op& op) {
      if (kernel.refuses(*device, op)) return;
      const std::string name = name_of_case(op, "", device->name(), kernel.name);
      benchmark::RegisterBenchmark(name.c_str(), [device, &kernel, dtype](benchmark::State& state) {
        measure(state, *device, kernel, dtype);
      })->UseManualTime();
    });
  }
}

template <class Op>
void register_list(const std::shared_ptr<Device>& device, const KernelList<Op>& list) {
  for (const Kernel<Op>& kernel : list) register_row(device, kernel);
}

}  // namespace

void register_rows(const std::vector<std::shared_ptr<Device>>& devices) {
  for (const auto& device : devices) device->kernels().each([&](const auto& list) { register_list(device, list); });
}

}  // namespace halfmark::bench::micro
