// The harness `updates`: how many updates of the parameters change nothing, and what that costs; Adam's epsilon in the dtype
// of the parameters; gradients of micro-batches added in several dtypes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/ranking.h"
#include "accuracy/experiments/sums.h"
#include "accuracy/experiments/trial_values.h"
#include "accuracy/oracle.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/statistics/statistics.h"

namespace halfmark::accuracy {
namespace {

const std::vector<MetricRow>& updates_table() {
  constexpr Kind information = Kind::information;
  static const std::vector<MetricRow> rows = {
      {"updates.noop", "1", Better::lower, information,
       "share of parameter elements, over all steps not skipped, that the update left unchanged (of the master copy if "
       "there is one), of those that are finite before and after it; NaN if none is; mean over the seeds (samples); "
       "at: "
       "the rate, here and below; curve: over the rates"},
      {"updates.noop_fp32", "1", Better::lower, information, "the same, trained under fp32"},
      {"updates.zero_gradients", "1", Better::neither, information,
       "share of the gradients of the fp32 training that are 0 at 16 steps: their updates change nothing in any "
       "precision"},
      {"updates.median_ratio", "1", Better::neither, information,
       "median of |rate gradient / parameter| where neither is 0, over 16 steps of the fp32 training; mean over the "
       "seeds"},
      {"updates.ratio_over_roundoff", "1", Better::neither, information,
       "updates.median_ratio / unit roundoff of the format that is updated (2^-11 for fp16, 2^-8 for bf16, 2^-24 for "
       "fp32): "
       "below 1, half of the updates can be lost"},
      {"updates.distance", "1", Better::lower, information,
       "||parameters - parameters of fp32|| / ||parameters of fp32 - initial parameters||; mean over the seeds"},
      {"updates.loss", "1", Better::lower, information,
       "held-out loss in fp32 after the training; mean over the seeds"},
      {"updates.loss_fp32", "1", Better::lower, information, "the same, trained under fp32"},
      {"updates.loss_gap", "1", Better::neither, information, "mean over the seeds of the difference of the two"},
      {"updates.accuracy", "1", Better::higher, information, "held-out accuracy, likewise"},
      {"updates.accuracy_fp32", "1", Better::higher, information, "the same, trained under fp32"},

      {"updates.epsilon_stored", "1", Better::neither, information,
       "Adam's epsilon rounded to the dtype of the parameters; at: epsilon"},
      {"updates.epsilon_first_nonfinite", "1", Better::higher, information,
       "the first step (from 1) after which a parameter is not finite; infinity: none was; at: epsilon/rounding of the "
       "step"},
      {"updates.epsilon_loss", "1", Better::lower, information,
       "held-out loss in fp32 after the training, likewise; mean over the seeds"},
      {"updates.epsilon_loss_fp32", "1", Better::lower, information, "the same, trained under fp32, by epsilon"},

      {"updates.accumulated_error", "1", Better::lower, information,
       "over the micro-batches: ||their gradients, each divided by the count, added in this dtype - in fp64|| / ||in "
       "fp64||; "
       "the number: of the most"},
      {"updates.micro_batches", "1", Better::neither, information, "the most micro-batches"},
  };
  return rows;
}

constexpr int64_t kHeldOutOfUpdates = 1024;
constexpr int64_t kSampledSteps = 16;
constexpr double kRates[] = {1e-4, 1e-3, 1e-2, 1e-1};
constexpr double kEpsilons[] = {1e-8, 1e-7, 1e-4, 1e-3};

struct UpdatedTraining {
  int64_t taken = 0;                  // steps not skipped
  double unchanged = 0, updated = 0;  // elements that are finite before and after, over these steps
  double first_nonfinite = std::numeric_limits<double>::infinity();
  std::vector<double> ratios;
  double zeros = 0, gradients = 0;  // at the sampled steps
  std::vector<double> start, params;
  Evaluation held_out;
  double noop() const { return taken == 0 ? 1 : unchanged / updated; }  // 0 / 0 is NaN
};

std::vector<double> updated_params(Trial& trial) { return all_params(values_of(trial)); }

UpdatedTraining train_with_counts(const TrialSpec& spec, int64_t steps) {
  Trial trial(spec);
  UpdatedTraining result;
  result.start = updated_params(trial);
  std::vector<double> before = result.start;
  const int64_t every = std::max<int64_t>(1, steps / kSampledSteps);
  for (int64_t step = 0; step < steps; ++step) {
    if (trial.train_step(step).skipped) continue;
    std::vector<double> after = updated_params(trial);
    bool is_finite = true;
    ++result.taken;
    for (size_t i = 0; i < after.size(); ++i) {
      is_finite = is_finite && std::isfinite(after[i]);
      if (!std::isfinite(before[i]) || !std::isfinite(after[i])) continue;
      result.unchanged += after[i] == before[i], ++result.updated;
    }
    if (!is_finite && std::isinf(result.first_nonfinite)) result.first_nonfinite = static_cast<double>(step + 1);
    if (step % every == 0) {
      size_t i = 0;
      for (const Param* param : trial.params())
        for (const double g : trial.gradient(*param)) {
          if (g != 0 && before[i] != 0) result.ratios.push_back(std::fabs(spec.settings.rate * g / before[i]));
          result.zeros += g == 0, ++result.gradients, ++i;
        }
    }
    before = std::move(after);
  }
  result.params = std::move(before);
  result.held_out = trial.evaluate(kHeldOutOfUpdates, &policy_named("fp32"));
  return result;
}

// The fp32 training of the same settings, kept for the other policies of the subject.
std::shared_ptr<const UpdatedTraining> updated_in_fp32(TrialSpec spec, int64_t steps) {
  static std::list<std::pair<std::string, std::shared_ptr<const UpdatedTraining>>> kept;  // latest first
  constexpr size_t kMost = 64;
  spec.policy = &policy_named("fp32");
  spec.settings.scaler.reset();
  spec.settings.optimizer.storage = Storage::nearest, spec.settings.optimizer.rounding = StepRounding::once;
  const std::string key = fmt::format("{} {} {} {} {} {}", spec.subject->id(), spec.device->name(), spec.seed,
                                      text_of_data(spec), steps, text_of(spec.settings));
  for (const auto& [name, training] : kept)
    if (name == key) return training;
  const LogPause pause;
  kept.emplace_front(key, std::make_shared<const UpdatedTraining>(train_with_counts(spec, steps)));
  if (kept.size() > kMost) kept.pop_back();
  return kept.front().second;
}

TrialSpec with_seed(TrialSpec spec, uint64_t more) {
  spec.seed += more;
  return spec;
}

void write_mean(FindingsWriter& out, std::string_view metric, const std::string& at,
                const std::vector<double>& values) {
  const SampleMean mean = sample_mean(values);
  Measurement& number = out.number(metric, at, mean.mean);
  number.samples = values;
  if (values.size() > 1 && std::isfinite(mean.error)) number.standard_error = mean.error;
}

struct UpdateAxes {
  int64_t steps = 0;
  uint64_t seeds = 0;
  std::vector<double> rates;
};

void measure_rates(TrialSpec spec, const UpdateAxes& axes, FindingsWriter& out) {
  const DType updated = spec.policy->master ? DType::f32 : spec.policy->param;
  const double roundoff = format_of(updated).unit_roundoff();
  std::vector<double> noops, distances, gaps;
  for (const double rate : axes.rates) {
    spec.settings.rate = rate;
    std::vector<double> noop, noop_fp32, zeros, ratio, distance, loss, loss_fp32, gap, accuracy, accuracy_fp32;
    for (uint64_t seed = 0; seed < axes.seeds; ++seed) {
      const TrialSpec own = with_seed(spec, seed);
      const auto fp32 = updated_in_fp32(own, axes.steps);
      const UpdatedTraining found = train_with_counts(own, axes.steps);
      noop.push_back(found.noop()), noop_fp32.push_back(fp32->noop());
      ratio.push_back(median(fp32->ratios)), zeros.push_back(fp32->zeros / fp32->gradients);
      std::vector<double> moved(fp32->params.size()), missed(fp32->params.size());
      for (size_t i = 0; i < moved.size(); ++i)
        moved[i] = fp32->params[i] - fp32->start[i], missed[i] = moved[i] + found.params[i] - fp32->params[i];
      distance.push_back(relative_distance(missed, moved));
      loss.push_back(found.held_out.loss), loss_fp32.push_back(fp32->held_out.loss);
      gap.push_back(found.held_out.loss - fp32->held_out.loss);
      accuracy.push_back(found.held_out.accuracy), accuracy_fp32.push_back(fp32->held_out.accuracy);
    }
    const std::string at = fmt::format("{}", rate);
    write_mean(out, "updates.noop", at, noop), write_mean(out, "updates.noop_fp32", at, noop_fp32);
    write_mean(out, "updates.zero_gradients", at, zeros), write_mean(out, "updates.median_ratio", at, ratio);
    out.number("updates.ratio_over_roundoff", at, sample_mean(ratio).mean / roundoff);
    write_mean(out, "updates.distance", at, distance);
    write_mean(out, "updates.loss", at, loss), write_mean(out, "updates.loss_fp32", at, loss_fp32);
    write_mean(out, "updates.loss_gap", at, gap);
    write_mean(out, "updates.accuracy", at, accuracy), write_mean(out, "updates.accuracy_fp32", at, accuracy_fp32);
    noops.push_back(sample_mean(noop).mean), distances.push_back(sample_mean(distance).mean);
    gaps.push_back(sample_mean(gap).mean);
  }
  out.curve("updates.noop", "", axes.rates, noops);
  out.curve("updates.distance", "", axes.rates, distances);
  out.curve("updates.loss_gap", "", axes.rates, gaps);
}

void measure_epsilons(TrialSpec spec, const UpdateAxes& axes, FindingsWriter& out) {
  spec.settings.rate = axes.rates.size() == 1 ? axes.rates.front() : 1e-3;  // the default of torch.optim.Adam
  for (const double epsilon : kEpsilons) {
    spec.settings.optimizer.epsilon = epsilon;
    const std::string at = fmt::format("{}", epsilon);
    out.number("updates.epsilon_stored", at, round_to(format_of(spec.policy->param), epsilon));
    std::vector<double> of_fp32;
    for (uint64_t seed = 0; seed < axes.seeds; ++seed)
      of_fp32.push_back(updated_in_fp32(with_seed(spec, seed), axes.steps)->held_out.loss);
    write_mean(out, "updates.epsilon_loss_fp32", at, of_fp32);
    for (const auto& [name, rounding] :
         {std::pair{"once", StepRounding::once}, {"each_operation", StepRounding::each_operation}}) {
      spec.settings.optimizer.rounding = rounding;
      std::vector<double> losses;
      double first = std::numeric_limits<double>::infinity();
      for (uint64_t seed = 0; seed < axes.seeds; ++seed) {
        const UpdatedTraining found = train_with_counts(with_seed(spec, seed), axes.steps);
        losses.push_back(found.held_out.loss), first = std::min(first, found.first_nonfinite);
      }
      out.number("updates.epsilon_first_nonfinite", at + "/" + name, first);
      write_mean(out, "updates.epsilon_loss", at + "/" + name, losses);
    }
  }
}

// The sum of gradients, each divided by the count, in a dtype: the operation of Pass::gradient.
std::vector<double> added_in(Device& device, DType dtype, const std::vector<std::vector<double>>& gradients,
                             size_t count) {
  const Shape shape{static_cast<int64_t>(gradients.front().size())};
  Tensor sum = Tensor::zeros(device, shape, dtype);
  for (size_t i = 0; i < count; ++i) {
    std::vector<double> share = gradients[i];
    for (double& value : share) value /= static_cast<double>(count);
    const Tensor own = Tensor::from(device, shape, dtype, share);
    run(Add{.a = sum, .b = own, .out = sum});
  }
  return sum.values();
}

void measure_accumulation(const TrialSpec& spec, int64_t most, FindingsWriter& out) {
  Trial trial(spec);
  std::vector<std::vector<double>> gradients;
  for (int64_t step = 0; step < most; ++step) {
    trial.load_batch(step);
    trial.forward();
    trial.backward();
    gradients.emplace_back();
    for (const Param* param : trial.params()) {
      const std::vector<double> own = trial.gradient(*param);
      gradients.back().insert(gradients.back().end(), own.begin(), own.end());
    }
  }
  std::vector<double> counts;
  for (int64_t count = 1; count < most; count *= 2) counts.push_back(static_cast<double>(count));
  counts.push_back(static_cast<double>(most));
  const std::shared_ptr<Device> exact_device = oracle_device(*spec.device);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<double> errors;
    for (const double count : counts) {
      const auto parts = static_cast<size_t>(count);
      errors.push_back(relative_distance(added_in(*spec.device, dtype, gradients, parts),
                                         added_in(*exact_device, DType::f64, gradients, parts)));
    }
    const std::string at(name_of(dtype));
    out.number("updates.accumulated_error", at, errors.back());
    out.curve("updates.accumulated_error", at, counts, std::move(errors));
  }
  out.number("updates.micro_batches", "", static_cast<double>(most));
}

struct PartOfUpdates {
  std::string_view name, axes;
};
constexpr PartOfUpdates kPartsOfUpdates[] = {{"rates", "optimizer momentum rate storage steps seeds"},
                                             {"epsilon", "rate steps seeds"},
                                             {"accumulation", "micro_batches"}};

Findings measure_updates(const TrialSpec& given) {
  const Harness self = updates_harness();
  const auto text = [&](std::string_view axis) { return axis_value(self, given, axis); };
  UpdateAxes axes{.steps = std::stoll(text("steps")), .seeds = std::stoull(text("seeds")), .rates = {}};
  if (text("rate") == "sweep")
    axes.rates.assign(std::begin(kRates), std::end(kRates));
  else
    axes.rates = {std::stod(text("rate"))};
  TrialSpec spec = given;
  const std::string part = text("part");
  FindingsWriter out(updates_table());
  if (part == "accumulation") {
    measure_accumulation(spec, std::stoll(text("micro_batches")), out);
    return out.take();
  }
  spec.settings.optimizer = {.kind = optimizer_named(part == "epsilon" ? "adam" : text("optimizer")).kind};
  if (const std::string name = text("storage"); name != "own")
    spec.settings.optimizer.storage = storage_named(name).storage;
  spec.settings.weight_decay = 0, spec.settings.momentum = 0;
  if (part == "epsilon") {
    measure_epsilons(spec, axes, out);
  } else {
    if (spec.settings.optimizer.kind == OptimizerKind::sgd) spec.settings.momentum = std::stod(text("momentum"));
    measure_rates(spec, axes, out);
  }
  return out.take();
}

std::optional<std::string> refuses_updates(const TrialSpec& spec) {
  if (auto refusal = refusal_of_fp64(spec)) return refusal;
  const Harness self = updates_harness();
  const std::string part = axis_value(self, spec, "part"), storage = axis_value(self, spec, "storage");
  for (const PartOfUpdates& row : kPartsOfUpdates)
    for (const auto& [axis, value] : spec.axes)
      if (row.name == part && axis != "part" &&
          (" " + std::string(row.axes) + " ").find(" " + axis + " ") == std::string::npos)
        return "part " + part + " has no axis " + axis;
  if (part != "accumulation") {
    if (!spec.subject->has_labels()) return spec.subject->id() + " has no labels to learn";
    if (spec.subject->data == DataKind::logits)
      return spec.subject->id() + " has random labels, which cannot be learned";
  }
  if (axis_value(self, spec, "optimizer") != "sgd" && axis_value(self, spec, "momentum") != "0")
    return "only sgd has a momentum";
  const std::string policy(spec.policy->name);
  if (storage != "own" && spec.policy->storage != Storage::nearest)
    return "policy " + policy + " has a storage of its own, so it takes no storage";
  if (part == "epsilon" && spec.policy->storage != Storage::nearest)
    return "part epsilon rounds after each operation, to nearest; policy " + policy + " stores in another way";
  if (storage != "own" && storage != "nearest" && (spec.policy->master || spec.policy->param == DType::f32))
    return "storage " + storage + " is for parameters narrower than fp32, policy " + policy + " updates fp32";
  return {};
}

}  // namespace

Harness updates_harness() {
  return {.name = "updates",
          .about =
              "updates that change nothing, by rate, optimizer and storage; Adam's epsilon; gradients of micro-batches",
          .axes = {{"part", {"rates", "epsilon", "accumulation"}, {}, "what is measured"},
                   {"optimizer", {"sgd", "adam", "adamw"}, {}, "of part rates; part epsilon uses Adam"},
                   {"momentum", {"0", "0.9"}, AxisNumbers{0, 0.999, false}, "of SGD"},
                   {"rate",
                    {"sweep", "0.0001", "0.001", "0.01", "0.1"},
                    AxisNumbers{1e-9, 1e6, false},
                    "learning rate; sweep: 0.0001 to 0.1, in part epsilon 0.001"},
                   {"storage",
                    {"own", "nearest", "stochastic", "kahan"},
                    {},
                    "how parameters are rounded; own: as the policy says"},
                   {"steps", {"400", "40", "4000"}, AxisNumbers{1, 1e6, true}, "training steps"},
                   {"seeds", {"3", "1", "5"}, AxisNumbers{1, 100, true}, "trainings, with different random seeds"},
                   {"micro_batches",
                    {"256", "16"},
                    AxisNumbers{2, 4096, true},
                    "whose gradients are added in part accumulation"}},
          .metrics = updates_table(),
          .refuses = refuses_updates,
          .measure = measure_updates};
}

}  // namespace halfmark::accuracy
