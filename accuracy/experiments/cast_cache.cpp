// The cast_cache experiment: what autocast's cache of cast weights saves in a training step, in casts and in bytes, and whether
// it changes any bit. The harness `throughput` has the times, with cast_cache=off.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/trial_values.h"
#include "kernels/devices.h"

namespace halfmark::accuracy {
namespace {

constexpr int64_t kCacheSteps = 3;  // the update of the first one makes a kept cast of the second one stale

const std::vector<MetricRow>& cast_cache_table() {
  static const std::vector<MetricRow> rows = {
      {"cast_cache.casts", "1", Better::lower, Kind::exact,
       "casts in the forward pass of a training step, of weights and of activations; at: on, off"},
      {"cast_cache.saved_casts", "1", Better::neither, Kind::exact,
       "off - on: each is a cast of a weight that has been cast before in this pass"},
      {"cast_cache.bytes", "B", Better::lower, Kind::exact,
       "of cast weights that are alive after the forward pass; at: on, off"},
      {"cast_cache.peak_bytes", "B", Better::lower, Kind::exact,
       "most bytes of tensors at one instant of the step, without scratch and padding; at: on, off"},
      {"cast_cache.different", "1", Better::lower, Kind::exact,
       "share of the numbers that differ between on and off: at gradient, of parameters in the last of three steps; at "
       "parameter, after it, with running statistics"},
      {"cast_cache.compared", "1", Better::neither, Kind::exact, "numbers compared, likewise"},
  };
  return rows;
}

struct StepWithCache {
  double casts = 0, bytes = 0, peak = 0;
  std::vector<double> gradients, parameters;
};

StepWithCache steps_with(const TrialSpec& given, bool cached) {
  TrialSpec spec = given;
  spec.settings.cast_cache = cached;
  // A device of its own, because what other cases left there must not be counted.
  spec.device = open_device(given.device->name());
  MemoryLedger& ledger = spec.device->memory();
  Trial trial(spec);
  StepWithCache found;
  for (int64_t step = 0; step < kCacheSteps; ++step) {
    trial.load_batch(step);
    ledger.reset_peak();
    {
      const KernelLog log;
      trial.forward();
      found.casts = 0;
      for (const LoggedKernel& one : log.entries())
        if (one.operation == Cast::name) found.casts += static_cast<double>(one.calls);
    }
    found.bytes = static_cast<double>(ledger.live().by_purpose[static_cast<size_t>(Purpose::casts)]);
    trial.backward();
    found.peak = static_cast<double>(ledger.tensor_peak().total);
    found.gradients.clear();
    for (const Param* param : trial.params()) {
      const std::vector<double> own = param->grad.values();
      found.gradients.insert(found.gradients.end(), own.begin(), own.end());
    }
    trial.update();
  }
  found.parameters = all_values(values_of(trial));
  return found;
}

Findings measure_cast_cache(const TrialSpec& spec) {
  const StepWithCache on = steps_with(spec, true), off = steps_with(spec, false);
  FindingsWriter out(cast_cache_table());
  for (const auto& [at, found] : {std::pair{"on", &on}, {"off", &off}}) {
    out.number("cast_cache.casts", at, found->casts);
    out.number("cast_cache.bytes", at, found->bytes);
    out.number("cast_cache.peak_bytes", at, found->peak);
  }
  out.number("cast_cache.saved_casts", "", off.casts - on.casts);
  const auto compare = [&](const char* at, const std::vector<double>& a, const std::vector<double>& b) {
    out.number("cast_cache.different", at, 1 - share_of_equal_values(a, b));
    out.number("cast_cache.compared", at, static_cast<double>(a.size()));
  };
  compare("gradient", on.gradients, off.gradients), compare("parameter", on.parameters, off.parameters);
  return out.take();
}

std::optional<std::string> refuses_cast_cache(const TrialSpec& spec) {
  if (spec.policy->rules) return {};
  return "policy " + std::string(spec.policy->name) + " has no cast rules, so it casts no weights";
}

// A cast is a function of its operand alone.
std::optional<Expect> expects_cast_cache(const TrialSpec&) {
  return Expect{"cast_cache.different", "parameter", "==", 0};
}

}  // namespace

Harness cast_cache_harness() {
  return {.name = "cast_cache",
          .about = "what autocast's cache of cast weights saves in casts and bytes, and whether it changes a bit",
          .axes = {},
          .metrics = cast_cache_table(),
          .refuses = refuses_cast_cache,
          .measure = measure_cast_cache,
          .expects = expects_cast_cache};
}

}  // namespace halfmark::accuracy
