// Every kernel row of every device, for every stored type it takes: op/dtypes/size/device/row. A row of real speed
// shows FLOP/s where its operation has them; an emulated one is labelled so and shows its time alone.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/micro/micro.h"
#include "bench/micro/operands.h"

namespace halfmark::bench::micro {
namespace {

template <class Op>
void measure(benchmark::State& state, const Kernel<Op>& kernel, const Request& request) {
  with_operation<Op>(request, [&](const Op& op, const std::string&, double flops) {
    run_with(kernel, op);  // primitives and plans are made
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
