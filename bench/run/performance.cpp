// The throughput harness.
#include "bench/run/performance.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/run/attainable.h"
#include "bench/run/contention.h"
#include "bench/run/planted_slow_down.h"
#include "bench/run/time_in_turn.h"
#include "bench/run/timing.h"
#include "bench/run/warm_up.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "models/index_storage.h"
#include "models/recorded_step.h"
#include "reports/statistics/statistics.h"
#include "reports/text/summary.h"

namespace halfmark::bench {

namespace {

std::vector<MetricRow> with_roofline(std::vector<MetricRow> rows) {
  rows.insert(rows.end(), roofline_table().begin(), roofline_table().end());
  return rows;
}

const std::vector<MetricRow>& throughput_table() {
  static const std::vector<MetricRow> rows = with_roofline({
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
      {"speedup.launch", "1", Better::higher, Kind::sampled,
       "seconds of a step launched kernel by kernel / seconds of its graph, timed in turn; as speedup.step"},
      {"time.launch_gap", "s", Better::lower, Kind::sampled,
       "median of the rounds: seconds of a step launched kernel by kernel - seconds of its graph"},
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

// The step of a trial that is timed: its kernels launched one by one, or as a graph.
class TimedStep {
 public:
  TimedStep(Trial& trial, bool as_graph, double slow_down) : trial_(trial), slow_down_(slow_down) {
    if (as_graph) graph_.emplace(trial);
  }
  double seconds() {
    return trial_.device().time([&] {
      const auto start = std::chrono::steady_clock::now();
      graph_ ? void(graph_->run()) : run_step(trial_);
      if (slow_down_ > 0) linger(start, slow_down_);
    });
  }
  void move_memory(const std::vector<int64_t>& pads) {
    const bool as_graph = graph_.has_value();
    graph_.reset();
    trial_.move_memory(pads);
    if (as_graph) graph_.emplace(trial_);
  }

 private:
  Trial& trial_;
  double slow_down_;
  std::optional<models::RecordedStep> graph_;
};

bool as_graph(const TrialSpec& spec) {
  const auto launch = spec.axes.find(std::string(kLaunchAxis));
  return launch != spec.axes.end() && launch->second == "graph";
}

struct Loops {
  Sampled evaluation, phases;
  std::vector<double> forward, backward, optimizer;  // of the samples of `phases`
};

// Cold: the caches are evicted before each step, so forward starts with cold caches and backward with those that
// forward leaves. Eviction takes much longer than most steps (a server's last-level cache has hundreds of MiB).
// Therefore a cold step is the sum of its phases and is not timed separately. A hot step is timed in turn, below.
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

  const bool graph = as_graph(spec);
  std::optional<Trial> launched;  // the same step, which the graph is timed against
  std::deque<TimedStep> steps;
  steps.emplace_back(trial, graph, slow_down), steps.emplace_back(again, graph, slow_down);
  if (baseline) steps.emplace_back(*baseline, graph, 0);
  if (graph) launched.emplace(spec).load_batch(0), steps.emplace_back(*launched, false, slow_down);
  std::mt19937_64 random(spec.seed);
  std::vector<Timed> kinds;
  for (TimedStep& step : steps)
    kinds.push_back({[&step] { return step.seconds(); }, [&step, &random] { step.move_memory(random_pads(random)); }});
  const ContentionMeter meter;
  const auto is_busy = [&] { return contention_reason(meter.read(), cores_of_machine(), host_threads()).has_value(); };
  TurnRule rule;
  if (!baseline) rule.target = 0.025, rule.widest = 0.1, rule.patience = 2;  // no ratio but the control
  const InTurn found = time_in_turn(rule, kinds, spec.seed, is_busy);
  write_contention(out, meter.read());
  if (baseline) write_ratio(out, "speedup.step", found.log_ratios(2, 0), 0.95);
  write_ratio(out, "speedup.control", found.log_ratios(1, 0), 0.99);
  if (graph) {
    const size_t one_by_one = kinds.size() - 1;
    write_ratio(out, "speedup.launch", found.log_ratios(one_by_one, 0), 0.95);
    std::vector<double> gaps = found.medians_of(one_by_one);
    const std::vector<double> of_graph = found.medians_of(0);
    for (size_t round = 0; round < gaps.size(); ++round) gaps[round] -= of_graph[round];
    write(out, "time.launch_gap", "hot", gaps);
  }
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
  const bool graph = as_graph(spec);
  if (graph && emulated) throw Unsupported("launch=graph: a step with emulated kernels is not timed as a graph");
  for (const bool cold : {false, true}) {
    if (cold && emulated) break;
    if (cold && graph) break;  // a cold step is the sum of its phases, and a graph has none
    const std::string at = cold ? "cold" : "hot";
    Loops loops;
    if (!graph) {
      loops = run_loops(trial, cold, rule);
      write(out, "time.evaluation", at, loops.evaluation.samples);
      write(out, "time.forward", at, loops.forward);
      write(out, "time.backward", at, loops.backward);
      write(out, "time.optimizer", at, loops.optimizer);
      write_stop(out, at + "/evaluation", loops.evaluation, rule.target);
      write_stop(out, at + "/phases", loops.phases, rule.target);
    }
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
  if (as_graph(spec)) try {
      spec.device->record([] {});
    } catch (const Unsupported& reason) {
      return "launch=graph: " + std::string(reason.what());
    }
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
      .axes = {{.name = kLabelsAxis, .values = {"i32", "i64"}},
               {.name = kCastCacheAxis, .values = {"on", "off"}},
               {.name = kLaunchAxis, .values = {"kernels", "graph"}}},
      .metrics = throughput_table(),
      .refuses = refuses_throughput,
      .measure = measure_throughput};
}

}  // namespace halfmark::bench
