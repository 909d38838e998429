#include "bench/run/hot_steps.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "bench/run/contention.h"
#include "bench/run/device_meter.h"
#include "bench/run/operation_seconds.h"
#include "bench/run/planted_slow_down.h"
#include "bench/run/step_energy.h"
#include "bench/run/time_in_turn.h"
#include "bench/run/timed_step.h"
#include "bench/run/written_times.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops/kernel.h"
#include "reports/statistics/statistics.h"
#include "reports/text/summary.h"

namespace halfmark::bench {
namespace {

// Sizes of the blocks between tensors: multiples of a cache line, up to four pages.
std::vector<int64_t> random_pads(std::mt19937_64& random) {
  std::uniform_int_distribution<int64_t> lines(1, 256);
  std::vector<int64_t> pads(3);
  for (int64_t& pad : pads) pad = 64 * lines(random);
  return pads;
}

void write_operands(const KernelLog& log, FindingsWriter& out) {
  double bytes = 0;
  std::map<std::string, double> flops;
  for (const LoggedKernel& one : log.entries()) {
    bytes += static_cast<double>(one.read + one.written);
    for (const auto& [type, count] : one.flops) flops[type] += count;
  }
  out.number("roofline.bytes", "hot", bytes);
  for (const auto& [type, count] : flops)
    if (count > 0) out.number("roofline.flops", type, count);
}

double host_seconds(TimedStep& step, Device& device) {
  device.synchronize();
  const auto start = std::chrono::steady_clock::now();
  step.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The step without gaps for launches: the device pauses for twice as long as the host needs to enqueue it, or longer, a
// second at most. No time if no pause covers all launches: the host waits for a result within the step, or the queue of the
// device is too short for it.
void write_time_of_device(TimedStep& step, Device& device, FindingsWriter& out) {
  constexpr int kHostTimes = 3;
  constexpr double kLong = 0.1, kLongestPause = 1;  // seconds
  if (!can_pause(device)) return;                   // a CPU
  std::vector<double> host{host_seconds(step, device)};
  while (host.size() < kHostTimes && host[0] < kLong) host.push_back(host_seconds(step, device));
  double pause = 2 * median(host);
  bool covers = true;
  const auto take = [&] {
    for (int i = 0; covers && i < 4; ++i, pause *= 2) {
      if (const std::optional<double> seconds = step.seconds_after_pause(pause)) return *seconds;
      if (pause >= kLongestPause) break;
    }
    covers = false;
    return std::numeric_limits<double>::infinity();
  };
  take();
  const StoppingRule rule;
  DeviceMeter meter(device);
  Sampled found;
  if (covers) found = sample_until(rule, take, [&](bool is_needed) { return meter.judge(is_needed); });
  out.number("timing.device_covered", "hot", covers ? 1 : 0);
  if (!covers) return;
  meter.write(out, "hot/device", found.discarded, found.slowed);
  write_stop(out, "hot/device", found, rule.target);
  write_samples(out, "time.device", "hot", found.samples);
}

}  // namespace

void write_operands_of_step(Trial& trial, FindingsWriter& out) {
  const KernelLog log;
  launch_step(trial);
  write_operands(log, out);
}

std::vector<double> time_hot_steps(Trial& trial, FindingsWriter& out) {
  const TrialSpec& spec = trial.spec();
  const double slow_down = planted_slow_down(spec);
  const bool is_baseline = spec.policy->name == kBaseline;
  const KernelLog own;
  launch_step(trial);
  write_operands(own, out);
  const LogPause pause;  // the kernels below are not those of this policy, or are logged already
  Trial again(spec);
  std::optional<Trial> baseline;
  again.load_batch(0);
  if (!is_baseline) {
    baseline.emplace(spec.under(policy_named(kBaseline))).load_batch(0);
    launch_step(*baseline);
    const KernelLog of_baseline;
    launch_step(*baseline);
    out.number("speedup.same_kernels", "hot", own.has_same_calls(of_baseline) ? 1 : 0);
    if (of_baseline.any_emulated()) baseline.reset();  // its time is no reference
  }

  const bool graph = is_timed_as_graph(spec);
  std::optional<Trial> launched;  // the same step, which the graph is timed against
  std::optional<Trial> separate;  // which the step of fused operations is timed against
  if (spec.settings.fused) {
    TrialSpec unfused = spec;
    unfused.settings.fused = false;
    separate.emplace(unfused).load_batch(0);
    launch_step(*separate);
    const KernelLog of_separate;
    launch_step(*separate);
    if (of_separate.any_emulated()) separate.reset();  // its time is no reference
  }
  std::deque<TimedStep> steps;
  steps.emplace_back(trial, graph, slow_down), steps.emplace_back(again, graph, slow_down);
  if (baseline) steps.emplace_back(*baseline, graph, 0);
  if (graph) launched.emplace(spec).load_batch(0), steps.emplace_back(*launched, false, slow_down);
  const size_t one_by_one = steps.size() - 1;  // of a graph
  if (separate) steps.emplace_back(*separate, graph, slow_down);
  std::mt19937_64 random(spec.seed);
  std::vector<Timed> kinds;
  for (TimedStep& step : steps)
    kinds.push_back({[&step] { return step.seconds(); }, [&step, &random] { step.move_memory(random_pads(random)); }});
  const ContentionMeter meter;
  const auto is_busy = [&] { return contention_reason(meter.read(), cores_of_machine(), host_threads()).has_value(); };
  TurnRule rule;
  if (!baseline) rule.target = 0.025, rule.widest = 0.1, rule.patience = 2;  // no ratio but the control
  DeviceMeter device_meter(trial.device());
  const InTurn found = time_in_turn(rule, kinds, spec.seed, is_busy, [&] { return device_meter.counts(); });
  write_contention(out, meter.read());
  device_meter.write_all(out, "hot/step", found.discarded, found.slowed);
  if (const auto energy = step_energy(trial.device(), [&] { steps[0].run(); })) {
    out.number("device.energy", "hot", energy->joules / static_cast<double>(energy->steps));
    out.number("device.power", "hot", energy->joules / energy->seconds);
  }
  if (!graph) write_time_of_device(steps[0], trial.device(), out), write_operation_seconds(trial, out);
  if (baseline) write_ratio(out, "speedup.step", found.log_ratios(2, 0), 0.95);
  write_ratio(out, "speedup.control", found.log_ratios(1, 0), 0.99);
  if (separate) write_ratio(out, "speedup.fused", found.log_ratios(kinds.size() - 1, 0), 0.95);
  if (const auto counts = steps[0].counts()) {
    out.number("graph.kernels", "", static_cast<double>(counts->kernels));
    out.number("graph.copies", "", static_cast<double>(counts->copies));
    out.number("graph.fills", "", static_cast<double>(counts->fills));
  }
  if (graph) {
    write_ratio(out, "speedup.launch", found.log_ratios(one_by_one, 0), 0.95);
    std::vector<double> gaps = found.medians_of(one_by_one);
    const std::vector<double> of_graph = found.medians_of(0);
    for (size_t round = 0; round < gaps.size(); ++round) gaps[round] -= of_graph[round];
    write_samples(out, "time.launch_gap", "hot", gaps);
  }
  const std::vector<double> medians = found.medians_of(0);
  write_stop(out, "hot/step",
             {.samples = {},
              .stopped_by = found.stopped_by,
              .half_width = median_interval(medians).half_width() / median(medians)},
             rule.target);
  return found.slices_of(0);
}

}  // namespace halfmark::bench
