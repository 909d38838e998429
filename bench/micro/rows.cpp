// Every kernel row of every device, for every dtype it accepts: op/dtypes/size/device/row. A row of real speed shows
// FLOP/s if its operation counts them; an emulated row is labelled and shows its time only.
#include <benchmark/benchmark.h>

#include <string>

#include "bench/micro/micro.h"
#include "bench/micro/operands.h"

namespace halfmark::bench::micro {
namespace {

template <class Op>
void measure(benchmark::State& state, const Kernel<Op>& kernel, const Request& request) {
  with_operation<Op>(request, [&](const Op& op, const std::string&, double flops) {
    run_with(kernel, op);  // creates primitives and plans
    for (auto _ : state) state.SetIterationTime(request.device.time([&] { run_with(kernel, op); }));
    if (kernel.speed == Speed::emulated) return state.SetLabel("emulated");
    if (flops > 0) state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
  });
}

template <class Op>
void register_row(const std::shared_ptr<Device>& device, const Kernel<Op>& kernel) {
  for (const DType dtype : dtypes()) {
    if (!is_floating(dtype)) continue;
    const Request request{*device, dtype, kernel.speed == Speed::real, false};
    with_operation<Op>(request, [&](const Op& op, const std::string& size, double) {
      if (kernel.refuses(*device, op)) return;
      std::string name(Op::name);
      for (const std::string& part : {dtypes_of(op), size, device->name(), std::string(kernel.name)})
        name.append("/").append(part);
      benchmark::RegisterBenchmark(name.c_str(), [device, &kernel, dtype](benchmark::State& state) {
        measure(state, kernel, {*device, dtype, kernel.speed == Speed::real, true});
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
