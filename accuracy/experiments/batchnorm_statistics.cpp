// The batchnorm_statistics harness: what a batch norm's statistics lose to the storage of the input, to the accumulation of the sums
// and to one pass instead of two; the range of a stored running variance; an infinite activation in one batch; both
// layouts. How running statistics in half stall over many steps is measured by batchnorm_drift.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/experiments/batchnorm_layouts.h"
#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

constexpr double kMean = 4;  // squares of it add up to less than 65504 for 4,000 values: here nothing overflows
constexpr std::array kRatios = {0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0};  // mean / standard deviation
constexpr std::array kDeviations = {1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 200.0, 300.0, 1000.0};
constexpr double kTooWide = 300;  // its variance, 90,000, is above 65504
constexpr int kLaterSteps = 10;   // after the infinite activation

const std::vector<MetricRow>& statistics_table() {
  static const std::vector<MetricRow> rows = {
      {"batchnorm_statistics.variance_error", "1", Better::lower, Kind::bounded,
       "over mean / standard deviation, and at the largest: rms over channels of |variance - exact| / exact, infinite "
       "if one is "
       "not finite; exact: fp64 of the values as stored. At PASSES/SUM/x=DTYPE. PASSES: two_pass, the batch norm of "
       "the "
       "device; one_pass, E[x^2] - E[x]^2. SUM: low_sum, added and stored in the low format; low_result, added in fp32 "
       "and "
       "moments stored in the low format; fp32; kernel, as the device adds"},
      {"batchnorm_statistics.collapsed", "1", Better::lower, Kind::bounded,
       "at the same places: share of the channels and ratios whose variance is 0 or negative"},
      {"batchnorm_statistics.storage_error", "1", Better::lower, Kind::bounded,
       "over the ratio at x=low: rms over channels of the fp64 variance of the stored values relative to that of the "
       "drawn ones"},
      {"batchnorm_statistics.running_variance_error", "1", Better::lower, Kind::bounded,
       "over the standard deviation: rms over channels of the running variance after one batch with momentum 1, as the "
       "policy "
       "stores it, relative to fp64 of the values as stored; infinite if it is not finite"},
      {"batchnorm_statistics.running_nonfinite", "1", Better::lower, Kind::bounded,
       "at std=300, whose variance is above 65504: share of the running variances that are infinite"},
      {"batchnorm_statistics.silent", "1", Better::lower, Kind::bounded,
       "at std=300: share of the outputs in evaluation that are exactly the shift"},
      {"batchnorm_statistics.poisoned", "1", Better::lower, Kind::bounded,
       "share of the running statistics that are infinite or NaN, at \"before\" a batch with an infinite activation, "
       "\"after\" "
       "it, and \"later\": after ten more clean batches"},
      {"batchnorm_statistics.step_skipped", "1", Better::neither, Kind::information,
       "1 if the loss scaler skipped the step of the infinite activation"},
      {"batchnorm_statistics.parameters_nonfinite", "1", Better::lower, Kind::bounded,
       "share of the parameters that are infinite or NaN ten steps later"},
      {"batchnorm_statistics.output_nonfinite", "1", Better::lower, Kind::bounded,
       "share of the outputs that are infinite or NaN ten steps later, in \"training\" and in \"evaluation\""},
      {"batchnorm_statistics.output_error", "1", Better::lower, Kind::bounded,
       "at nchw and nhwc: root of the nmse of the output against fp64 loops over the operands as stored"},
      {"batchnorm_statistics.gradient_error", "1", Better::lower, Kind::bounded,
       "at nchw and nhwc: likewise of the gradients of input, scale and shift"},
      {"batchnorm_statistics.layout_nonfinite", "1", Better::lower, Kind::bounded,
       "at nchw and nhwc: share of outputs and gradients that are infinite or NaN"},
      {"batchnorm_statistics.channels", "1", Better::neither, Kind::information, "channels of the batch"},
      {"batchnorm_statistics.values", "1", Better::neither, Kind::information, "values of a channel"},
      {"batchnorm_statistics.unsupported", "1", Better::lower, Kind::information,
       "1: the device has no row for the operation"},
  };
  return rows;
}

// [n, c, h, w]: mean + deviation z.
std::vector<double> draw_images(const TrialSpec& spec, const Shape& image, double mean, double deviation) {
  const RandomKey key = RandomKey(spec.seed).child("batchnorm_statistics");
  std::vector<double> all(static_cast<size_t>(image.elements()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = mean + deviation * key.normal(i);
  return all;
}

std::vector<double> draw_with_ratio(const TrialSpec& spec, const Shape& image, double ratio) {
  return ratio == 0 ? draw_images(spec, image, 0, 1) : draw_images(spec, image, kMean, kMean / ratio);
}

std::vector<std::vector<double>> by_channel(const Shape& image, const std::vector<double>& x) {
  const auto channels = static_cast<size_t>(image[1]), pixels = static_cast<size_t>(image[2] * image[3]);
  std::vector<std::vector<double>> all(channels);
  for (size_t i = 0; i < x.size(); ++i) all[i / pixels % channels].push_back(x[i]);
  return all;
}

std::vector<double> exact_variances(const Shape& image, const std::vector<double>& x, double divisor_less = 0) {
  std::vector<double> variances;
  for (const std::vector<double>& channel : by_channel(image, x)) {
    const auto count = static_cast<double>(channel.size());
    const double mean = std::accumulate(channel.begin(), channel.end(), 0.0) / count;
    double sum = 0;
    for (const double value : channel) sum += (value - mean) * (value - mean);
    variances.push_back(sum / (count - divisor_less));
  }
  return variances;
}

double rms_relative(const std::vector<double>& found, const std::vector<double>& exact) {
  double sum = 0;
  for (size_t c = 0; c < found.size(); ++c) {
    const double error = relative_error(found[c], exact[c]);
    sum += error * error / static_cast<double>(found.size());
  }
  return std::sqrt(sum);
}

struct BatchStatistics {
  std::vector<double> variance, running_variance, evaluated;
};

// The device's batch norm, with momentum 1 so that the running statistics are those of this batch.
BatchStatistics statistics_by_device(const TrialSpec& spec, const Shape& image, DType stored,
                                     const std::vector<double>& x, const Format* accumulate) {
  Device& device = *spec.device;
  const Shape channels{image[1]};
  const std::vector<double> ones(static_cast<size_t>(image[1]), 1);
  const Tensor given = Tensor::from(device, image, stored, x), scale = Tensor::from(device, channels, DType::f32, ones),
               shift = Tensor::zeros(device, channels, DType::f32);
  Tensor out(device, image, stored), mean(device, channels, DType::f32), variance(device, channels, DType::f32);
  Tensor running_mean = Tensor::zeros(device, channels, spec.policy->state),
         running_variance = Tensor::from(device, channels, spec.policy->state, ones);
  run(BatchNorm{.x = given,
                .scale = scale,
                .shift = shift,
                .out = out,
                .mean = mean,
                .variance = variance,
                .running_mean = running_mean,
                .running_variance = running_variance,
                .momentum = 1,
                .accumulate = accumulate});
  run(BatchNormInference{.x = given,
                         .scale = scale,
                         .shift = shift,
                         .running_mean = running_mean,
                         .running_variance = running_variance,
                         .out = out});
  return {variance.values(), running_variance.values(), out.values()};
}

// E[x^2] - E[x]^2 of each channel, with both moments and their difference stored as the kind says. Sums that are not added
// in the low format are fp32.
std::vector<double> one_pass_variances(const TrialSpec& spec, const Shape& image, DType stored,
                                       const std::vector<double>& x, const SumKind& kind) {
  Device& device = *spec.device;
  const DType low = spec.policy->low, result = kind.stores_low ? low : DType::f32;
  const SumKind& sum = kind.adds_low ? kLowSum : kWideSum;
  std::vector<double> variances;
  for (const std::vector<double>& channel : by_channel(image, x)) {
    const std::vector<double> ones(channel.size(), 1);
    const auto count = static_cast<double>(channel.size());
    const double mean = stored_as(device, result, sum_of_products(device, stored, low, sum, channel, ones) / count);
    const double square =
        stored_as(device, result, sum_of_products(device, stored, low, sum, channel, channel) / count);
    variances.push_back(stored_as(device, result, square - stored_as(device, result, mean * mean)));
  }
  return variances;
}

// One way to compute a variance, over the ratios of mean and standard deviation.
void measure_variances(const TrialSpec& spec, const Shape& image, const std::string& at, DType stored,
                       FindingsWriter& out, auto&& variances_of) {
  std::vector<double> ratios, errors;
  double collapsed = 0;
  for (const double ratio : kRatios) {
    const std::vector<double> x = stored_as(*spec.device, stored, draw_with_ratio(spec, image, ratio));
    const std::vector<double> found = variances_of(x);
    for (const double variance : found) collapsed += variance <= 0;
    ratios.push_back(ratio), errors.push_back(rms_relative(found, exact_variances(image, x)));
  }
  out.curve("batchnorm_statistics.variance_error", at, ratios, errors);
  out.number("batchnorm_statistics.variance_error", at, errors.back());
  out.number("batchnorm_statistics.collapsed", at,
             collapsed / static_cast<double>(kRatios.size()) / static_cast<double>(image[1]));
}

void measure_accumulation_of_statistics(const TrialSpec& spec, const Shape& image, FindingsWriter& out) {
  const DType low = spec.policy->low;
  std::vector<DType> storage = {low};
  if (low != DType::f32) storage.push_back(DType::f32);
  for (const DType stored : storage) {
    const std::string x_stored = stored == low ? "/x=low" : "/x=f32";
    const auto two_pass = [&](const std::string& sum, const Format* accumulate) {
      const std::string at = "two_pass/" + sum + x_stored;
      where_supported(out, "batchnorm_statistics.unsupported", at, [&] {
        measure_variances(spec, image, at, stored, out, [&](const std::vector<double>& x) {
          return statistics_by_device(spec, image, stored, x, accumulate).variance;
        });
      });
    };
    two_pass("kernel", nullptr), two_pass("fp32", &kFp32);
    if (low != DType::f32) two_pass("low_sum", &format_of(low));
    for (const SumKind& kind : kSumKinds) {
      const std::string at = "one_pass/" + std::string(kind.name) + x_stored;
      where_supported(out, "batchnorm_statistics.unsupported", at, [&] {
        measure_variances(spec, image, at, stored, out, [&](const std::vector<double>& x) {
          return one_pass_variances(spec, image, stored, x, kind);
        });
      });
    }
  }
  std::vector<double> ratios, errors;
  for (const double ratio : kRatios) {
    const std::vector<double> drawn = draw_with_ratio(spec, image, ratio);
    ratios.push_back(ratio);
    errors.push_back(
        rms_relative(exact_variances(image, stored_as(*spec.device, low, drawn)), exact_variances(image, drawn)));
  }
  out.curve("batchnorm_statistics.storage_error", "x=low", ratios, errors);
}

void measure_range_of_statistics(const TrialSpec& spec, const Shape& image, FindingsWriter& out) {
  const DType low = spec.policy->low;
  std::vector<double> deviations, errors;
  for (const double deviation : kDeviations) {
    const std::vector<double> x = stored_as(*spec.device, low, draw_images(spec, image, 0, deviation));
    const BatchStatistics found = statistics_by_device(spec, image, low, x, nullptr);
    deviations.push_back(deviation),
        errors.push_back(rms_relative(found.running_variance, exact_variances(image, x, 1)));
    if (deviation != kTooWide) continue;
    double nonfinite = 0, silent = 0;
    for (const double variance : found.running_variance) nonfinite += !std::isfinite(variance);
    for (const double value : found.evaluated) silent += value == 0;
    out.number("batchnorm_statistics.running_nonfinite", "std=300", nonfinite / static_cast<double>(image[1]));
    out.number("batchnorm_statistics.silent", "std=300", silent / static_cast<double>(found.evaluated.size()));
  }
  out.curve("batchnorm_statistics.running_variance_error", "", deviations, errors);
}

double nonfinite_share_of(const std::vector<Tensor>& tensors) {
  double nonfinite = 0, values = 0;
  for (const Tensor& tensor : tensors)
    for (const double value : tensor.values()) nonfinite += !std::isfinite(value), values += 1;
  return values == 0 ? 0 : nonfinite / values;
}

// A training of the layer in which one batch has an infinite activation.
void measure_poison(const TrialSpec& spec, FindingsWriter& out) {
  Trial trial(spec);
  const auto statistics = [&] {
    std::vector<Tensor> all;
    for (const State* state : trial.states()) all.push_back(state->value);
    return nonfinite_share_of(all);
  };
  trial.train_step(0);
  out.number("batchnorm_statistics.poisoned", "before", statistics());
  trial.load_batch(1);
  Tensor x = trial.input();
  std::vector<double> values = x.values();
  values[0] = HUGE_VAL;
  x.set_values(values);
  trial.forward(), trial.backward();
  out.number("batchnorm_statistics.step_skipped", "", !trial.update());
  out.number("batchnorm_statistics.poisoned", "after", statistics());
  for (int step = 2; step < 2 + kLaterSteps; ++step) trial.train_step(step);
  out.number("batchnorm_statistics.poisoned", "later", statistics());
  std::vector<Tensor> parameters;
  for (const Param* param : trial.params()) parameters.push_back(param->value);
  out.number("batchnorm_statistics.parameters_nonfinite", "", nonfinite_share_of(parameters));
  trial.load_batch(0);
  out.number("batchnorm_statistics.output_nonfinite", "training", nonfinite_share_of({trial.forward()}));
  out.number("batchnorm_statistics.output_nonfinite", "evaluation", nonfinite_share_of({trial.infer()}));
}

Findings measure_batchnorm_statistics(const TrialSpec& spec) {
  const Shape image = batchnorm_image(spec.subject->input);
  FindingsWriter out(statistics_table());
  out.number("batchnorm_statistics.channels", "", static_cast<double>(image[1]));
  const int64_t values = image.elements() / image[1];
  out.number("batchnorm_statistics.values", "", static_cast<double>(values));
  measure_batchnorm_layouts(spec, out);
  measure_poison(spec, out);
  if (is_frozen_batchnorm(*spec.subject)) return out.take();  // it computes no statistics
  measure_accumulation_of_statistics(spec, image, out);
  measure_range_of_statistics(spec, image, out);
  return out.take();
}

std::optional<std::string> refuses_batchnorm_statistics(const TrialSpec& spec) {
  if (!spec.subject->name.starts_with("batchnorm"))
    return "measures a batch norm, which " + spec.subject->id() + " is not";
  return refusal_of_fp64(spec);
}

// The variance of numbers with a standard deviation of 300 is 90,000, and fp16 ends at 65504.
std::optional<Expect> expected_batchnorm_statistics(const TrialSpec& spec) {
  if (is_frozen_batchnorm(*spec.subject)) return Expect{"batchnorm_statistics.poisoned", "later", "==", 0};
  const bool overflows = spec.policy->state == DType::f16;
  return Expect{"batchnorm_statistics.running_nonfinite", "std=300", overflows ? ">" : "==", 0};
}

}  // namespace

Harness batchnorm_statistics_harness() {
  return {.name = "batchnorm_statistics",
          .about =
              "variance of a batch by storage, accumulation and passes; range of the running variance; an infinite "
              "activation; "
              "layouts",
          .axes = {},
          .metrics = statistics_table(),
          .refuses = refuses_batchnorm_statistics,
          .measure = measure_batchnorm_statistics,
          .expects = expected_batchnorm_statistics};
}

}  // namespace halfmark::accuracy
