// The memory harness.
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/performance.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "models/memory_prediction.h"

namespace halfmark::bench {

namespace {

// "memory.peak.weights": the name of a family for each purpose.
const std::vector<std::string>& names_by_purpose(std::string_view family) {
  static std::map<std::string, std::vector<std::string>, std::less<>> all;
  auto found = all.find(family);
  if (found == all.end()) {
    found = all.emplace(family, std::vector<std::string>()).first;
    for (size_t i = 0; i < kPurposes; ++i)
      found->second.push_back(std::string(family) + "." + std::string(name_of(static_cast<Purpose>(i))));
  }
  return found->second;
}

const std::vector<MetricRow>& memory_table() {
  static const std::vector<MetricRow> rows = [] {
    std::vector<MetricRow> all = {
        {"memory.peak", "B", Better::lower, Kind::exact, "maximum of the allocated bytes; at train: over a whole step"},
        {"memory.tensors", "B", Better::lower, Kind::exact,
         "maximum of the allocated bytes without workspace, emulation and padding, over a whole step: what does not "
         "depend on the kernels"},
        {"memory.saved", "B", Better::lower, Kind::exact,
         "bytes of purpose saved after forward and loss: what backward needs"},
        {"memory.slope", "B", Better::lower, Kind::exact,
         "growth of the allocated bytes per step, measured after each step; more than 0 is a leak"},
        {"device.pool", "B", Better::lower, Kind::information,
         "on a GPU, after the last step: bytes of the allocator's blocks, those that it keeps for reuse included"},
        {"device.outside_pool", "B", Better::neither, Kind::information,
         "on a GPU, then: bytes in use since the process opened the GPU that its allocator does not hold: context, "
         "code and "
         "libraries, those of earlier cases of the run included; absent where NVML does not tell or other processes "
         "compute "
         "on the GPU"},
        {"memory.predicted", "B", Better::lower, Kind::information,
         "memory.tensors at train, computed from shapes, dtypes, cast rules, optimizer and batch: the largest sum of "
         "weights, master copies, gradients, optimizer state, running statistics, batch, copies of weights, what the "
         "layers keep for backward, and what an operation needs beside it; absent where layers have policies of their "
         "own"},
        {"memory.predicted_saved", "B", Better::lower, Kind::information,
         "memory.saved, computed likewise: for each layer the inputs or results that its derivative needs, in the "
         "dtype of the operation"},
        {"memory.predicted_ratio", "1", Better::neither, Kind::information,
         "memory.tensors at train / memory.predicted; within 1 % of 1 for all subjects of the list"},
    };
    // Bytes by purpose at the moment of each peak; they sum to it.
    for (const auto& [family, kind] : {std::pair{"memory.peak", Kind::exact},
                                       {"memory.tensors", Kind::exact},
                                       {"memory.predicted", Kind::information}})
      for (size_t i = 0; i < kPurposes; ++i) {
        if (family != std::string_view("memory.peak") && !is_of_tensors(static_cast<Purpose>(i))) continue;
        static const std::map<std::string_view, std::string> formulas = {
            {"memory.peak", "part of memory.peak at train with this purpose"},
            {"memory.tensors", "part of memory.tensors at train with this purpose"},
            {"memory.predicted", "part of memory.predicted with this purpose"}};
        all.push_back({names_by_purpose(family)[i], "B", Better::lower, kind, formulas.at(family)});
      }
    return all;
  }();
  return rows;
}

// The use at the moment of a peak, in all and by purpose.
void write_use(FindingsWriter& out, std::string_view family, const MemoryUse& use) {
  out.number(family, "train", static_cast<double>(use.total));
  size_t sum = 0;
  for (size_t i = 0; i < kPurposes; ++i) {
    sum += use.by_purpose[i];
    if (family == "memory.peak" || is_of_tensors(static_cast<Purpose>(i)))
      out.number(names_by_purpose(family)[i], "train", static_cast<double>(use.by_purpose[i]));
  }
  HM_CHECK(sum == use.total, std::string(family) + ": the bytes by purpose sum to " + std::to_string(sum) +
                                 " bytes, the peak is " + std::to_string(use.total));
}

Findings measure_memory(const TrialSpec& given) {
  // A separate device if possible: packed weights and plans of earlier cases must not be counted.
  TrialSpec spec = given;
  spec.device = open_device(given.device->name());
  spec.device->return_kept_memory();  // blocks of earlier cases are no part of the pool
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
  const MemoryUse tensors = ledger.tensor_peak();
  write_use(out, "memory.peak", ledger.peak());
  write_use(out, "memory.tensors", tensors);
  if (spec.subject->network && spec.policy->layers.empty()) {
    const MemoryPrediction predicted = predict_memory(*spec.subject, *spec.policy, spec.settings);
    write_use(out, "memory.predicted", predicted.peak);
    out.number("memory.predicted_saved", "train", static_cast<double>(predicted.saved));
    out.number("memory.predicted_ratio", "train",
               static_cast<double>(tensors.total) / static_cast<double>(predicted.peak.total));
  }

  const auto phase = [&](const std::string& at, const std::function<void()>& work) {
    ledger.reset_peak();
    work();
    out.number("memory.peak", at, static_cast<double>(ledger.peak().total));
    out.number("memory.tensors", at, static_cast<double>(ledger.tensor_peak().total));
  };
  phase("forward", [&] { trial.forward(); });
  out.number("memory.saved", "train",
             static_cast<double>(ledger.live().by_purpose[static_cast<size_t>(Purpose::saved)]));
  phase("backward", [&] { trial.backward(); });
  phase("optimizer", [&] { trial.update(); });
  phase("evaluate", [&] { trial.infer(); });

  step();
  const double before = static_cast<double>(ledger.live().total);
  const int steps = std::stoi(axis_value(memory_harness(), given, "steps"));
  for (int i = 0; i < steps; ++i) step();
  out.number("memory.slope", "", (static_cast<double>(ledger.live().total) - before) / steps);
  if (const auto process = spec.device->process_memory()) {
    out.number("device.pool", "", process->pool);
    if (!std::isnan(process->outside_pool)) out.number("device.outside_pool", "", process->outside_pool);
  }
  return out.take();
}

}  // namespace

Harness memory_harness() {
  return {
      .name = "memory",
      .about = "peak bytes of each phase, split by purpose at the peak of a training step",
      .axes = {{.name = "steps", .values = {"4", "100"}, .about = "training steps over which memory.slope is measured"},
               labels_axis()},
      .metrics = memory_table(),
      .refuses = refuses_labels,
      .measure = measure_memory};
}

}  // namespace halfmark::bench
