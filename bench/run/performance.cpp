// The throughput harness.
#include "bench/run/performance.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/attainable.h"
#include "bench/run/contention.h"
#include "bench/run/device_meter.h"
#include "bench/run/planted_slow_down.h"
#include "bench/run/step_energy.h"
#include "bench/run/time_in_turn.h"
#include "bench/run/timing.h"
#include "bench/run/warm_up.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "models/index_storage.h"
#include "reports/statistics/statistics.h"
#include "reports/text/summary.h"

namespace halfmark::bench {

namespace {

std::vector<MetricRow> with_others(std::vector<MetricRow> rows) {
  rows.insert(rows.end(), roofline_table().begin(), roofline_table().end());
  rows.insert(rows.end(), device_table().begin(), device_table().end());
  return rows;
}

const std::vector<MetricRow>& throughput_table() {
  static const std::vector<MetricRow> rows = with_others({
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
      {"timing.target", "1", Better::neither, Kind::information,
       "half-width at which sampling ends: of the median; at hot/step, of the ratios"},
      {"speedup.step", "1", Better::higher, Kind::sampled,
       "seconds of a step under fp32 / under this policy, timed in turn with newly allocated memory in each round; "
       "samples: the ratio of the lower quartiles of each round; value: their Hodges-Lehmann estimate; interval: 95 % "
       "signed-rank, and 1 % for the offset that two trials of equal work can have"},
      {"speedup.control", "1", Better::neither, Kind::information,
       "the same ratio for a second trial of this policy in place of fp32; its interval, 99 % and 1 %, must hold 1"},
      {"speedup.same_kernels", "1", Better::neither, Kind::information,
       "1: a step makes the same calls of the same kernels as under fp32, so there is nothing to be faster; 0: it does "
       "not"},
      {"contention.cpu", "1", Better::neither, Kind::information, "cores that this process used while timing in turn"},
      {"contention.others", "1", Better::neither, Kind::information, "cores that other processes used meanwhile"},
      {"contention.stolen", "1", Better::neither, Kind::information,
       "cores that the host of this virtual machine took meanwhile"},
      {"contention.waiting", "1", Better::neither, Kind::information,
       "seconds that this process's threads waited for a core / seconds"},
      {"contention.pressure", "1", Better::neither, Kind::information,
       "share of the seconds in which some process waited for a core"},
  });
  return rows;
}

// A training step. Its first call compiles and plans.
void run_step(Trial& trial) {
  trial.forward();
  trial.backward();
  trial.update();
}

struct Loops {
  Sampled evaluation, phases;
  std::vector<double> forward, backward, optimizer;  // of the samples of `phases`
};

// Cold: the caches are evicted before each step, so forward starts with cold caches and backward with those that
// forward leaves. Eviction takes much longer than most steps (a server's last-level cache has hundreds of MiB).
// Therefore a cold step is the sum of its phases and is not timed separately. A hot step is timed in turn, below.
Loops run_loops(Trial& trial, bool cold, const StoppingRule& rule, const std::string& at, FindingsWriter& out) {
  Device& device = trial.device();
  const auto evict = [&] {
    if (cold) device.evict_caches();
  };
  const auto sampled = [&](const std::string& what, const std::function<double()>& take) {
    DeviceMeter meter(device);
    Sampled found = sample_until(rule, take, [&](bool is_needed) { return meter.judge(is_needed); });
    meter.write(out, at + "/" + what, found.discarded, found.slowed);
    return found;
  };
  Loops loops;
  loops.evaluation = sampled("evaluation", [&] {
    evict();
    return device.time([&] { trial.infer(); });
  });
  std::vector<double> forward, backward, optimizer;  // of all samples
  loops.phases = sampled("phases", [&] {
    evict();
    forward.push_back(device.time([&] { trial.forward(); }));
    backward.push_back(device.time([&] { trial.backward(); }));
    optimizer.push_back(device.time([&] { trial.update(); }));
    return forward.back() + backward.back() + optimizer.back();
  });
  for (const size_t one : loops.phases.taken) {
    loops.forward.push_back(forward[one]), loops.backward.push_back(backward[one]);
    loops.optimizer.push_back(optimizer[one]);
  }
  return loops;
}

void write(FindingsWriter& out, std::string_view metric, const std::string& at, const std::vector<double>& samples) {
  out.number(metric, at, median(samples)).samples = samples;
}

void write_stop(FindingsWriter& out, const std::string& at, const Sampled& sampled, double target) {
  out.number("timing.target", at, target);
  if (std::isfinite(sampled.half_width)) out.number("timing.half_width", at, sampled.half_width);
  out.number("timing.stopped_by", at, static_cast<double>(sampled.stopped_by));
}

double timed_step(Trial& trial, double slow_down) {
  return trial.device().time([&] {
    const auto start = std::chrono::steady_clock::now();
    run_step(trial);
    if (slow_down > 0) linger(start, slow_down);
  });
}

// Sizes of the blocks between tensors: multiples of a cache line, up to four pages.
std::vector<int64_t> random_pads(std::mt19937_64& random) {
  std::uniform_int_distribution<int64_t> lines(1, 256);
  std::vector<int64_t> pads(3);
  for (int64_t& pad : pads) pad = 64 * lines(random);
  return pads;
}

void write_contention(FindingsWriter& out, const Contention& found) {
  const std::pair<std::string_view, double> numbers[] = {{"contention.cpu", found.cpu},
                                                         {"contention.others", found.others},
                                                         {"contention.stolen", found.stolen},
                                                         {"contention.waiting", found.waiting},
                                                         {"contention.pressure", found.pressure}};
  for (const auto& [metric, value] : numbers)
    if (std::isfinite(value)) out.number(metric, "hot/step", value);
}

void write_ratio(FindingsWriter& out, std::string_view metric, const std::vector<double>& log_ratios,
                 double confidence) {
  const SpeedRatio ratio = speed_ratio(log_ratios, confidence).with_offset(kOffsetOfTrials);
  Measurement& written = out.number(metric, "hot", ratio.value);
  if (std::isfinite(ratio.upper) && ratio.lower > 0) written.interval = {ratio.lower, ratio.upper};
  for (const double log_ratio : log_ratios) written.samples.push_back(std::exp(log_ratio));
}

// The hot steps of this policy and of fp32 in turn, and a second trial of this policy as the control. Returns the
// seconds of this policy's steps.
std::vector<double> time_steps(Trial& trial, FindingsWriter& out) {
  const TrialSpec& spec = trial.spec();
  const double slow_down = planted_slow_down(spec);
  const bool is_baseline = spec.policy->name == kBaseline;
  const KernelLog own;
  run_step(trial);
  double bytes = 0;
  for (const LoggedKernel& one : own.entries()) bytes += static_cast<double>(one.read + one.written);
  out.number("roofline.bytes", "hot", bytes);
  const LogPause pause;  // the kernels below are not those of this policy, or are logged already
  Trial again(spec);
  std::optional<Trial> baseline;
  again.load_batch(0);
  if (!is_baseline) {
    baseline.emplace(spec.under(policy_named(kBaseline))).load_batch(0);
    run_step(*baseline);
    const KernelLog of_baseline;
    run_step(*baseline);
    out.number("speedup.same_kernels", "hot", own.has_same_calls(of_baseline) ? 1 : 0);
    if (of_baseline.any_emulated()) baseline.reset();  // its time is no reference
  }

  std::mt19937_64 random(spec.seed);
  const auto timed = [&](Trial& one, double share) {
    return Timed{[&one, share] { return timed_step(one, share); },
                 [&one, &random] { one.move_memory(random_pads(random)); }};
  };
  std::vector<Timed> kinds = {timed(trial, slow_down), timed(again, slow_down)};
  if (baseline) kinds.push_back(timed(*baseline, 0));
  const ContentionMeter meter;
  const auto is_busy = [&] { return contention_reason(meter.read(), cores_of_machine(), host_threads()).has_value(); };
  TurnRule rule;
  if (!baseline) rule.target = 0.025, rule.widest = 0.1, rule.patience = 2;  // no ratio but the control
  DeviceMeter device_meter(trial.device());
  const InTurn found = time_in_turn(rule, kinds, spec.seed, is_busy, [&] { return device_meter.counts(); });
  write_contention(out, meter.read());
  device_meter.write_all(out, "hot/step", found.discarded, found.slowed);
  if (const auto energy = step_energy(trial.device(), [&] { run_step(trial); })) {
    out.number("device.energy", "hot", energy->joules / static_cast<double>(energy->steps));
    out.number("device.power", "hot", energy->joules / energy->seconds);
  }
  if (baseline) write_ratio(out, "speedup.step", found.log_ratios(2, 0), 0.95);
  write_ratio(out, "speedup.control", found.log_ratios(1, 0), 0.99);
  const std::vector<double> medians = found.medians_of(0);
  write_stop(out, "hot/step",
             {.samples = {},
              .stopped_by = found.stopped_by,
              .half_width = median_interval(medians).half_width() / median(medians)},
             rule.target);
  return found.slices_of(0);
}

void warm_up_device(Device& device, const std::function<void()>& step) {
  const bool is_gpu = device.name().starts_with("cuda:") && device.numerics().empty();
  const auto done = [&] { step(), device.synchronize(); };
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  warm_up(is_gpu ? kGpuWarmUp : kHostWarmUp, done, now);
}

std::vector<double> rates(double work, const std::vector<double>& seconds) {
  std::vector<double> result;
  for (const double s : seconds) result.push_back(work / s);
  return result;
}

Findings measure_throughput(const TrialSpec& given) {
  TrialSpec spec = given;
  spec.settings.rate = kStandstillRate;
  Trial trial(spec);
  trial.load_batch(0);
  StoppingRule rule;
  bool emulated = false;
  const auto step = [&] {
    run_step(trial);
    trial.infer();
  };
  {
    // The first step compiles, plans and fills caches. Emulated arithmetic gets few samples: its timing is not valid.
    const KernelLog log;
    step();
    emulated = log.any_emulated();
    if (emulated) rule = {.target = rule.target, .min_samples = 1, .max_samples = 6, .budget = 0.02, .patience = 0.02};
  }
  if (!emulated) warm_up_device(trial.device(), step);

  FindingsWriter out(throughput_table());
  const double batch = static_cast<double>(spec.subject->input[0]);
  for (const bool cold : {false, true}) {
    if (cold && emulated) break;
    const std::string at = cold ? "cold" : "hot";
    const Loops loops = run_loops(trial, cold, rule, at, out);
    write(out, "time.evaluation", at, loops.evaluation.samples);
    write(out, "time.forward", at, loops.forward);
    write(out, "time.backward", at, loops.backward);
    write(out, "time.optimizer", at, loops.optimizer);
    write_stop(out, at + "/evaluation", loops.evaluation, rule.target);
    write_stop(out, at + "/phases", loops.phases, rule.target);
    const std::vector<double> steps = cold || emulated ? loops.phases.samples : time_steps(trial, out);
    write(out, "time.step", at, steps);
    write(out, "throughput.step", at, rates(batch, steps));
    if (trial.step_flops() > 0)  // batch norm and pooling have no counted operations
      write(out, "throughput.flops", at, rates(trial.step_flops(), steps));
  }
  return out.take();
}

std::optional<std::string> refuses_throughput(const TrialSpec& spec) {
  if (!spec.device->numerics().empty())
    return "timings of simulated arithmetic are not valid (" + spec.device->name() + ")";
  if (!spec.settings.cast_cache && !spec.policy->rules)
    return "cast_cache=off: policy " + std::string(spec.policy->name) + " has no cast rules, so it casts no weights";
  return refuses_labels(spec);
}

}  // namespace

std::optional<std::string> refuses_labels(const TrialSpec& spec) {
  if (spec.settings.indices == models::IndexType::i32 || models::has_indices_in_batch(*spec.subject)) return {};
  return "labels=i64: a batch of " + spec.subject->id() + " has no labels or indices that are integers";
}

bool is_timed_phase(std::string_view phase) {
  return phase == "forward" || phase == "backward" || phase == "optimizer" || phase == "evaluation";
}

Harness throughput_harness() {
  return {
      .name = "throughput",
      .about =
          "seconds of evaluation, forward, backward, optimizer and the whole step, with hot caches and with cold ones",
      .axes = {{.name = kLabelsAxis, .values = {"i32", "i64"}}, {.name = kCastCacheAxis, .values = {"on", "off"}}},
      .metrics = throughput_table(),
      .refuses = refuses_throughput,
      .measure = measure_throughput};
}

}  // namespace halfmark::bench
