// The drift harness: deviation of running statistics from their fp64 reference over many training steps. Statistics
// stored in half precision stop short of their target: an update, momentum * |batch - running|, below half an ulp of the
// running value is lost.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/reference.h"
#include "accuracy/stats.h"

namespace halfmark::accuracy {

namespace {

const std::vector<MetricRow>& drift_table() {
  static const std::vector<MetricRow> rows = with_reference_rows({
      {"batchnorm.running_mean_error", "1", Better::lower, Kind::bounded,
       "over steps: rms over channels of (mean - fp64 mean) / sqrt(fp64 variance)"},
      {"batchnorm.running_var_error", "1", Better::lower, Kind::bounded,
       "over steps: rms over channels of (variance - fp64 variance) / fp64 variance"},
      {"batchnorm.running_mean_drift", "1", Better::neither, Kind::bounded,
       "after the last step: mean over channels of (|mean| - |fp64 mean|) / sqrt(fp64 variance); negative = stopped "
       "short"},
      {"batchnorm.running_var_drift", "1", Better::neither, Kind::bounded,
       "after the last step: mean over channels of (variance - fp64 variance) / fp64 variance; negative = stopped "
       "short"},
      {"batchnorm.nonfinite_statistics", "1", Better::lower, Kind::bounded,
       "after the last step: share of running means and variances that are infinite or NaN"},
      {"batchnorm.evaluation_error", "1", Better::lower, Kind::bounded,
       "nmse of the output in evaluation mode against the fp64 reference, with the final running statistics"},
  });
  return rows;
}

// The input is scale z + 3, so that the statistics are far from their initial values 0 and 1.
constexpr double kInputOffset = 3;
// Enough steps for (1 - momentum)^steps = e^-8 = 3e-4 of the initial distance, far less than a stall leaves.
constexpr double kTimeConstants = 8;
constexpr int kCurvePoints = 64;

struct Statistics {
  std::vector<double> mean, variance;  // all channels of all layers, in order
};

Statistics statistics_of(Trial& trial) {
  Statistics all;
  for (const State* state : trial.states()) {
    const std::vector<double> values = state->value.values();
    const bool is_mean = state->name.ends_with("mean");
    std::vector<double>& into = is_mean ? all.mean : all.variance;
    into.insert(into.end(), values.begin(), values.end());
  }
  HM_CHECK(!all.mean.empty() && all.mean.size() == all.variance.size(),
           "batchnorm_drift: running means and variances do not pair");
  return all;
}

struct Trajectory {
  std::vector<double> steps;
  std::vector<Statistics> points;
  std::vector<double> evaluation;
};

// Multiplies the loaded batch by 1 + noise N(0, 1): one factor per step, equal in every trial of the seed.
void make_noise(Trial& trial, double noise, int step) {
  const double factor = 1 + noise * RandomKey(trial.spec().seed).child("noise").normal(static_cast<uint64_t>(step));
  Tensor x = trial.input();
  std::vector<double> values = x.values();
  for (double& value : values) value *= factor;
  x.set_values(values);
}

Trajectory train_and_record(const TrialSpec& spec, int steps, double noise) {
  Trial trial(spec);
  Trajectory trajectory;
  trial.load_batch(0);
  for (int step = 0; step < steps; ++step) {
    if (noise > 0) trial.load_batch(step), make_noise(trial, noise, step);
    trial.forward();
    if ((step + 1) % std::max(1, steps / kCurvePoints) == 0 || step + 1 == steps) {
      trajectory.steps.push_back(step + 1);
      trajectory.points.push_back(statistics_of(trial));
    }
  }
  trial.load_batch(0);
  trajectory.evaluation = trial.infer().values();
  return trajectory;
}

struct Drift {
  double mean_error = 0, variance_error = 0;  // rms over channels
  double mean_drift = 0, variance_drift = 0;  // signed mean over channels
};

Drift drift(const Statistics& seen, const Statistics& reference) {
  Drift result;
  const double channels = static_cast<double>(seen.mean.size());
  for (size_t c = 0; c < seen.mean.size(); ++c) {
    const double deviation = std::sqrt(reference.variance[c]);
    const double mean_error = (seen.mean[c] - reference.mean[c]) / deviation;
    const double variance_error = (seen.variance[c] - reference.variance[c]) / reference.variance[c];
    result.mean_error += mean_error * mean_error / channels;
    result.variance_error += variance_error * variance_error / channels;
    result.mean_drift += (std::fabs(seen.mean[c]) - std::fabs(reference.mean[c])) / deviation / channels;
    result.variance_drift += variance_error / channels;
  }
  result.mean_error = std::sqrt(result.mean_error);
  result.variance_error = std::sqrt(result.variance_error);
  return result;
}

Findings measure_drift(const TrialSpec& given) {
  const Harness self = batchnorm_drift_harness();
  TrialSpec spec = given;
  const double momentum = std::stod(axis_value(self, spec, "momentum"));
  const double noise = std::stod(axis_value(self, spec, "noise"));
  spec.settings.batchnorm_momentum = momentum;
  spec.settings.input_scale = std::stod(axis_value(self, spec, "scale"));
  spec.settings.input_offset = kInputOffset;
  TrialSpec exact_spec = spec.oracle(Inputs::drawn);
  exact_spec.settings.batchnorm_state.reset();
  if (const std::string storage = axis_value(self, spec, "storage"); storage != "policy")
    spec.settings.batchnorm_state = dtype_named(storage);
  if (const std::string accumulate = axis_value(self, spec, "accumulate"); accumulate != "kernel")
    spec.settings.batchnorm_accumulate = dtype_named(accumulate);

  const int steps = static_cast<int>(kTimeConstants / momentum);
  const Trajectory seen = train_and_record(spec, steps, noise);
  const Trajectory exact = [&] {
    const LogPause pause;
    return train_and_record(exact_spec, steps, noise);
  }();

  FindingsWriter out(drift_table());
  std::vector<double> mean_error, variance_error;
  Drift last;
  for (size_t i = 0; i < seen.points.size(); ++i) {
    last = drift(seen.points[i], exact.points[i]);
    mean_error.push_back(last.mean_error), variance_error.push_back(last.variance_error);
  }
  out.curve("batchnorm.running_mean_error", "", seen.steps, mean_error);
  out.curve("batchnorm.running_var_error", "", seen.steps, variance_error);
  out.number("batchnorm.running_mean_drift", "", last.mean_drift);
  out.number("batchnorm.running_var_drift", "", last.variance_drift);
  double nonfinite = 0;
  const Statistics& final_statistics = seen.points.back();
  for (const std::vector<double>* values : {&final_statistics.mean, &final_statistics.variance})
    for (const double value : *values) nonfinite += !std::isfinite(value);
  out.number("batchnorm.nonfinite_statistics", "", nonfinite / (2 * static_cast<double>(final_statistics.mean.size())));
  out.number("batchnorm.evaluation_error", "", error_stats(seen.evaluation, exact.evaluation, kFp32).nmse);
  ReferenceNumbers numbers;
  numbers.add("states", "mean", exact.points.back().mean);
  numbers.add("states", "variance", exact.points.back().variance);
  numbers.add("evaluation", "", exact.evaluation);
  numbers.add_to(out);
  return out.take();
}

std::optional<std::string> refuses_drift(const TrialSpec& spec) {
  const LogPause pause;
  if (Trial(spec).states().empty()) return spec.subject->id() + " has no running statistics";
  return {};
}

// Of scale 512, (x - mean)^2 is about 2^18: a sum of it in fp16 is infinite from the first large term on (65504 is the
// largest number), and so is the variance, while a sum in fp32 or bf16 is not. Only a wide running variance holds 2^18.
std::optional<Expect> expected_drift(const TrialSpec& spec) {
  const Harness self = batchnorm_drift_harness();
  const std::string storage = axis_value(self, spec, "storage"), accumulate = axis_value(self, spec, "accumulate");
  const DType state = storage == "policy" ? spec.policy->state : dtype_named(storage);
  if (axis_value(self, spec, "scale") != "512" || state != DType::f32 || accumulate == "kernel") return {};
  // Half of the statistics are variances.
  if (accumulate == "f16") return Expect{"batchnorm.nonfinite_statistics", "", ">=", 0.5};
  return Expect{"batchnorm.nonfinite_statistics", "", "==", 0};
}

}  // namespace

Harness batchnorm_drift_harness() {
  return {.name = "batchnorm_drift",
          .about =
              "running mean and variance against an fp64 reference over many steps, by momentum, batch noise, storage, "
              "and the "
              "format of the sums of a batch",
          .axes = {{"momentum",
                    {"0.1", "0.01"},
                    AxisNumbers{1e-4, 1, false},
                    "of the running statistics; steps grow as 1 / momentum"},
                   {"noise", {"0", "0.1"}, AxisNumbers{0, 1e6, false}, "standard deviation of the factor of a batch"},
                   {"storage", {"policy", "f32", "f16", "bf16"}, {}, "of the running statistics"},
                   {"accumulate",
                    {"kernel", "f64", "f32", "f16", "bf16"},
                    {},
                    "format of the sums of a batch; kernel: as the kernel adds"},
                   {"scale", {"2", "512"}, AxisNumbers{1e-30, 1e30, false}, "factor of the input"}},
          .metrics = drift_table(),
          .refuses = refuses_drift,
          .measure = measure_drift,
          .expects = expected_drift};
}

}  // namespace halfmark::accuracy
