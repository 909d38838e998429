// The memory harness.
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run/performance.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::bench {

namespace {

const std::vector<MetricRow>& memory_table() {
  static const std::vector<MetricRow> rows = [] {
    std::vector<MetricRow> all = {
        {"memory.peak", "B", Better::lower, Kind::exact, "maximum of the allocated bytes; at train: over a whole step"},
        {"memory.tensors", "B", Better::lower, Kind::exact,
         "maximum of the allocated bytes without workspace and emulation, over a whole step: what does not depend on "
         "the "
         "kernels"},
        {"memory.slope", "B", Better::lower, Kind::exact,
         "growth of the allocated bytes per step, measured after each step; more than 0 is a leak"},
    };
    // Bytes by purpose at the moment of the peak of a training step; they sum to memory.peak.
    static const std::array<std::string, kPurposes> names = [] {
      std::array<std::string, kPurposes> text;
      for (size_t i = 0; i < kPurposes; ++i) text[i] = "memory.peak." + std::string(name_of(static_cast<Purpose>(i)));
      return text;
    }();
    for (const std::string& name : names)
      all.push_back({name, "B", Better::lower, Kind::exact, "part of memory.peak at train with this purpose"});
    return all;
  }();
  return rows;
}

Findings measure_memory(const TrialSpec& given) {
  // A separate device if possible: packed weights and plans of earlier cases must not be counted.
  TrialSpec spec = given;
  spec.device = open_device(given.device->name());
  MemoryLedger& ledger = spec.device->memory();
  Trial trial(spec);
  FindingsWriter out(memory_table());
  const auto step = [&] {
    trial.forward();
    trial.backward();
    trial.update();
  };
  trial.load_batch(0);
  step();  // allocates gradients and optimizer state, and kernels make their plans

  ledger.reset_peak();
  trial.load_batch(1);
  step();
  const MemoryUse train = ledger.peak();
  out.number("memory.tensors", "train", static_cast<double>(ledger.tensor_peak().total));
  out.number("memory.peak", "train", static_cast<double>(train.total));
  size_t sum = 0;
  for (size_t i = 0; i < kPurposes; ++i) {
    out.number("memory.peak." + std::string(name_of(static_cast<Purpose>(i))), "train",
               static_cast<double>(train.by_purpose[i]));
    sum += train.by_purpose[i];
  }
  HM_CHECK(sum == train.total, "memory: the bytes by purpose sum to " + std::to_string(sum) + " bytes, the peak is " +
                                   std::to_string(train.total));

  const auto phase = [&](const std::string& at, const std::function<void()>& work) {
    ledger.reset_peak();
    work();
    out.number("memory.peak", at, static_cast<double>(ledger.peak().total));
    out.number("memory.tensors", at, static_cast<double>(ledger.tensor_peak().total));
  };
  phase("forward", [&] { trial.forward(); });
  phase("backward", [&] { trial.backward(); });
  phase("optimizer", [&] { trial.update(); });
  phase("evaluate", [&] { trial.infer(); });

  step();
  const double before = static_cast<double>(ledger.live().total);
  constexpr int kSteps = 4;
  for (int i = 0; i < kSteps; ++i) step();
  out.number("memory.slope", "", (static_cast<double>(ledger.live().total) - before) / kSteps);
  return out.take();
}

}  // namespace

Harness memory_harness() {
  return {.name = "memory",
          .about = "peak bytes of each phase, split by purpose at the peak of a training step",
          .axes = {},
          .metrics = memory_table(),
          .measure = measure_memory};
}

}  // namespace halfmark::bench
