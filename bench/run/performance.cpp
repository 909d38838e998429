// The throughput and memory harnesses.
#include "bench/run/performance.h"

#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/run/timing.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/statistics/statistics.h"

namespace halfmark::bench {

namespace {

const std::vector<MetricRow>& throughput_table() {
  static const std::vector<MetricRow> rows = {
      {"time.evaluation", "s", Better::lower, Kind::sampled, "median seconds of one batch in evaluation mode"},
      {"time.forward", "s", Better::lower, Kind::sampled, "median seconds of forward and loss, training mode"},
      {"time.backward", "s", Better::lower, Kind::sampled, "median seconds of backward"},
      {"time.optimizer", "s", Better::lower, Kind::sampled,
       "median seconds of unscale, check, optimizer step, scaler update"},
      {"time.step", "s", Better::lower, Kind::sampled,
       "median seconds of a whole training step; hot: timed as a whole, cold: the sum of its phases"},
      {"time.process", "s", Better::lower, Kind::sampled,
       "median of the samples, each the time.step (hot) of a separate process; written by run --processes"},
      {"throughput.step", "1/s", Better::higher, Kind::sampled, "samples of the batch / time.step"},
      {"throughput.flops", "FLOP/s", Better::higher, Kind::sampled,
       "forward and backward operations (a multiply-add is two) / time.step"},
      {"timing.half_width", "1", Better::neither, Kind::information,
       "half of the 95 % interval of the median / median; absent with fewer than 6 samples"},
      {"timing.stopped_by", "1", Better::neither, Kind::information,
       "what ended the sampling: 0 half-width below target, 1 maximum number of samples, 2 time budget"},
      {"timing.target", "1", Better::neither, Kind::information, "half-width at which sampling ends"},
  };
  return rows;
}

const std::vector<MetricRow>& memory_table() {
  static const std::vector<MetricRow> rows = [] {
    std::vector<MetricRow> all = {
        {"memory.peak", "B", Better::lower, Kind::exact, "maximum of the allocated bytes; at train: over a whole step"},
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

struct Loops {
  Sampled evaluation, step, phases;
  std::vector<double> forward, backward, optimizer;  // of the samples of `phases`
};

// Cold: the caches are evicted before each step, so forward starts with cold caches and backward with those that
// forward leaves. Eviction takes much longer than most steps (a server's last-level cache has hundreds of MiB).
// Therefore a cold step is the sum of its phases and is not timed separately.
Loops run_loops(Trial& trial, bool cold, const StoppingRule& rule) {
  Device& device = trial.device();
  const auto evict = [&] {
    if (cold) device.evict_caches();
  };
  Loops loops;
  loops.evaluation = sample_until(rule, [&] {
    evict();
    return device.time([&] { trial.infer(); });
  });
  loops.phases = sample_until(rule, [&] {
    evict();
    loops.forward.push_back(device.time([&] { trial.forward(); }));
    loops.backward.push_back(device.time([&] { trial.backward(); }));
    loops.optimizer.push_back(device.time([&] { trial.update(); }));
    return loops.forward.back() + loops.backward.back() + loops.optimizer.back();
  });
  if (cold) return loops.step = loops.phases, loops;
  loops.step = sample_until(rule, [&] {
    return device.time([&] {
      trial.forward();
      trial.backward();
      trial.update();
    });
  });
  return loops;
}

// Warms up packed weights, memory pools and clock speeds: for 20 ms and at least two steps.
void warm_up(const std::function<void()>& step) {
  const auto start = std::chrono::steady_clock::now();
  int done = 0;
  while (done < 2 || std::chrono::steady_clock::now() - start < std::chrono::milliseconds(20)) step(), ++done;
}

std::vector<double> rates(double work, const std::vector<double>& seconds) {
  std::vector<double> result;
  for (const double s : seconds) result.push_back(work / s);
  return result;
}

void write(FindingsWriter& out, std::string_view metric, const std::string& at, const std::vector<double>& samples) {
  out.number(metric, at, median(samples)).samples = samples;
}

void write_stop(FindingsWriter& out, const std::string& at, const Sampled& sampled) {
  if (std::isfinite(sampled.half_width)) out.number("timing.half_width", at, sampled.half_width);
  out.number("timing.stopped_by", at, static_cast<double>(sampled.stopped_by));
}

Findings measure_throughput(const TrialSpec& given) {
  TrialSpec spec = given;
  spec.settings.rate = kStandstillRate;
  Trial trial(spec);
  trial.load_batch(0);
  StoppingRule rule;
  bool emulated = false;
  const auto step = [&] {
    trial.forward();
    trial.backward();
    trial.update();
    trial.infer();
  };
  {
    // The first step compiles, plans and fills caches. Emulated arithmetic gets few samples: its timing is not valid.
    const KernelLog log;
    step();
    emulated = log.any_emulated();
    if (emulated) rule = {.target = rule.target, .min_samples = 1, .max_samples = 6, .budget = 0.02, .patience = 0.02};
  }
  if (!emulated) warm_up(step);

  FindingsWriter out(throughput_table());
  out.number("timing.target", "", rule.target);
  const double batch = static_cast<double>(spec.subject->input[0]);
  for (const bool cold : {false, true}) {
    if (cold && emulated) break;
    const std::string at = cold ? "cold" : "hot";
    const Loops loops = run_loops(trial, cold, rule);
    write(out, "time.evaluation", at, loops.evaluation.samples);
    write(out, "time.forward", at, loops.forward);
    write(out, "time.backward", at, loops.backward);
    write(out, "time.optimizer", at, loops.optimizer);
    write(out, "time.step", at, loops.step.samples);
    write(out, "throughput.step", at, rates(batch, loops.step.samples));
    if (trial.step_flops() > 0)  // batch norm and pooling have no counted operations
      write(out, "throughput.flops", at, rates(trial.step_flops(), loops.step.samples));
    write_stop(out, at + "/evaluation", loops.evaluation);
    write_stop(out, at + "/phases", loops.phases);
    if (!cold) write_stop(out, at + "/step", loops.step);
  }
  return out.take();
}

std::optional<std::string> refuses_throughput(const TrialSpec& spec) {
  if (!spec.device->numerics().empty())
    return "timings of simulated arithmetic are not valid (" + spec.device->name() + ")";
  return {};
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

bool is_timed_phase(std::string_view phase) {
  return phase == "forward" || phase == "backward" || phase == "optimizer" || phase == "evaluation";
}

Harness throughput_harness() {
  return {
      .name = "throughput",
      .about =
          "seconds of evaluation, forward, backward, optimizer and the whole step, with hot caches and with cold ones",
      .axes = {},
      .metrics = throughput_table(),
      .refuses = refuses_throughput,
      .measure = measure_throughput};
}

Harness memory_harness() {
  return {.name = "memory",
          .about = "peak bytes of each phase, split by purpose at the peak of a training step",
          .axes = {},
          .metrics = memory_table(),
          .measure = measure_memory};
}

}  // namespace halfmark::bench
