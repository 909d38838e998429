// The throughput harness.
#include "bench/run/performance.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/images.h"
#include "bench/run/attainable.h"
#include "bench/run/device_meter.h"
#include "bench/run/hot_steps.h"
#include "bench/run/operation_seconds.h"
#include "bench/run/timed_step.h"
#include "bench/run/timing.h"
#include "bench/run/warm_up.h"
#include "bench/run/written_times.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "models/index_storage.h"
#include "reports/statistics/statistics.h"
#include "reports/text/summary.h"

namespace halfmark::bench {

namespace {

std::vector<MetricRow> with_others(std::vector<MetricRow> rows) {
  rows.insert(rows.end(), operation_table().begin(), operation_table().end());
  rows.insert(rows.end(), roofline_table().begin(), roofline_table().end());
  rows.insert(rows.end(), device_table().begin(), device_table().end());
  rows.push_back(accuracy::images_row());
  return rows;
}

const std::vector<MetricRow>& throughput_table() {
  static const std::vector<MetricRow> rows = with_others({
      {"time.evaluation", "s", Better::lower, Kind::sampled, "median seconds of one batch in evaluation mode"},
      {"time.forward", "s", Better::lower, Kind::sampled, "median seconds of forward and loss, training mode"},
      {"time.backward", "s", Better::lower, Kind::sampled, "median seconds of backward"},
      {"time.optimizer", "s", Better::lower, Kind::sampled,
       "median seconds of unscale, check and optimizer step; a dynamic loss scale is updated in the next backward"},
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
      {"speedup.fused", "1", Better::higher, Kind::sampled,
       "seconds of a step with separate operations for product, bias and their gradients, for batch norm, sum and "
       "ReLU, "
       "for norms of rows and casts / seconds with one for each product or norm, timed in turn; as speedup.step"},
      {"speedup.launch", "1", Better::higher, Kind::sampled,
       "seconds of a step launched kernel by kernel / seconds of its graph, timed in turn; as speedup.step"},
      {"time.launch_gap", "s", Better::lower, Kind::sampled,
       "median of the rounds: seconds of a step launched kernel by kernel - seconds of its graph; under a dynamic loss "
       "scale the launched step also copies the overflow flag to the host"},
      {"graph.kernels", "1", Better::lower, Kind::information,
       "kernels in the CUDA graph of a step; those of libraries included"},
      {"graph.copies", "1", Better::lower, Kind::information, "copies in this graph"},
      {"graph.fills", "1", Better::lower, Kind::information, "fills of memory (memset) in this graph"},
      {"time.device", "s", Better::lower, Kind::information,
       "median seconds of a hot step whose launches the host all enqueued while the device paused, so that no kernel "
       "waited for its launch; of steps launched kernel by kernel on a GPU"},
      {"timing.device_covered", "1", Better::neither, Kind::information,
       "1: a pause covered all launches of the step; 0: none did, so there is no time.device: the host waits for a "
       "result within the step, or enqueues for longer than a second, or the device's queue is too short"},
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
    optimizer.push_back(device.time([&] { trial.enqueue_update(); }));
    return forward.back() + backward.back() + optimizer.back();
  });
  for (const size_t one : loops.phases.taken) {
    loops.forward.push_back(forward[one]), loops.backward.push_back(backward[one]);
    loops.optimizer.push_back(optimizer[one]);
  }
  return loops;
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
    launch_step(trial);
    trial.infer();
  };
  {
    // The first step compiles, plans and fills caches. Emulated arithmetic gets few samples: its timing is not valid.
    const KernelLog log;
    step();
    emulated = log.any_emulated();
    accuracy::expect_fused(spec, log);
    if (emulated) rule = {.target = rule.target, .min_samples = 1, .max_samples = 6, .budget = 0.02, .patience = 0.02};
  }
  if (!emulated) warm_up_device(trial.device(), step);

  FindingsWriter out(throughput_table());
  accuracy::write_images(out, trial);
  const double batch = static_cast<double>(spec.subject->input[0]);
  const bool graph = is_timed_as_graph(spec);
  if (graph && emulated) throw Unsupported("launch=graph: a step with emulated kernels is not timed as a graph");
  for (const bool cold : {false, true}) {
    if (cold && emulated) break;
    if (cold && graph) break;  // a cold step is the sum of its phases, and a graph has none
    const std::string at = cold ? "cold" : "hot";
    Loops loops;
    if (!graph) {
      loops = run_loops(trial, cold, rule, at, out);
      write_samples(out, "time.evaluation", at, loops.evaluation.samples);
      write_samples(out, "time.forward", at, loops.forward);
      write_samples(out, "time.backward", at, loops.backward);
      write_samples(out, "time.optimizer", at, loops.optimizer);
      write_stop(out, at + "/evaluation", loops.evaluation, rule.target);
      write_stop(out, at + "/phases", loops.phases, rule.target);
    }
    if (emulated) write_operands_of_step(trial, out);
    const std::vector<double> steps = cold || emulated ? loops.phases.samples : time_hot_steps(trial, out);
    write_samples(out, "time.step", at, steps);
    write_samples(out, "throughput.step", at, rates(batch, steps));
    if (trial.step_flops() > 0)  // batch norm and pooling have no counted operations
      write_samples(out, "throughput.flops", at, rates(trial.step_flops(), steps));
  }
  return out.take();
}

std::optional<std::string> refuses_throughput(const TrialSpec& spec) {
  if (!spec.device->numerics().empty())
    return "timings of simulated arithmetic are not valid (" + spec.device->name() + ")";
  if (!spec.settings.cast_cache && !spec.policy->rules)
    return "cast_cache=off: policy " + std::string(spec.policy->name) + " has no cast rules, so it casts no weights";
  if (is_timed_as_graph(spec)) try {
      spec.device->record([] {});
    } catch (const Unsupported& reason) {
      return "launch=graph: " + std::string(reason.what());
    }
  if (auto reason = accuracy::refuses_images(spec)) return reason;
  return refuses_labels(spec);
}

}  // namespace

accuracy::Axis labels_axis() {
  return {.name = kLabelsAxis, .values = {"i32", "i64"}, .about = "dtype of labels and indices"};
}

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
      .axes = {labels_axis(),
               {.name = kCastCacheAxis,
                .values = {"on", "off"},
                .about = "autocast casts a parameter once for each pass"},
               accuracy::fused_axis(),
               accuracy::images_axis(),
               {.name = kLaunchAxis,
                .values = {"kernels", "graph"},
                .about = "kernels one by one, or a step as one CUDA graph"}},
      .metrics = throughput_table(),
      .refuses = refuses_throughput,
      .measure = measure_throughput};
}

}  // namespace halfmark::bench
