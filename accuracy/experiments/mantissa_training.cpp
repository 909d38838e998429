#include "accuracy/experiments/mantissa_training.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/convergence.h"
#include "accuracy/experiments/ranking.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

constexpr int64_t kTrainedSamples = 1024;  // held out, as in the harness convergence

// In place: copies of a tensor share its memory.
void round_tensor(Tensor tensor, const Format& format) {
  if (tensor.dtype() != DType::f32) return;  // labels and indices
  if (tensor.layout() == Layout::opaque)
    throw Unsupported("a kernel keeps a tensor in a layout that cannot be rounded");
  const std::vector<unsigned char> codes = tensor.codes();
  std::vector<float> values(codes.size() / sizeof(float));
  std::memcpy(values.data(), codes.data(), codes.size());
  round_array(format, values.data(), values.size());
  if (tensor.layout() == Layout::plain)
    tensor.set_codes({reinterpret_cast<const unsigned char*>(values.data()), codes.size()});
  else
    tensor.set_values(std::vector<double>(values.begin(), values.end()));
}

// One step of Trial::train_step with roundings between its parts.
void rounded_step(Trial& trial, int64_t step, TrainedBits mode, const Format& format) {
  const std::vector<Param*> params = trial.params();
  std::vector<std::vector<double>> wide;
  for (const Param* param : params) wide.push_back(param->value.values());
  for (const Param* param : params) round_tensor(param->value, format);
  trial.load_batch(step);
  round_tensor(trial.input(), format);
  trial.forward();
  trial.backward();
  for (size_t i = 0; i < params.size(); ++i) params[i]->value.set_values(wide[i]);
  trial.update();
  if (mode == TrainedBits::weights)
    for (const Param* param : params) round_tensor(param->value, format);
}

}  // namespace

std::string_view name_of(TrainedBits mode) {
  switch (mode) {
    case TrainedBits::passes:
      return "passes";
    case TrainedBits::weights:
      return "weights";
  }
  return "";
}

double loss_with_bits(const TrialSpec& given, TrainedBits mode, const Format* format, int64_t steps, int64_t samples) {
  TrialSpec spec = given.under(policy_named("fp32"));
  spec.settings.scaler.reset();
  Trial trial(spec);
  if (format) trial.set_tap([format](const std::string&, const Tensor& tensor) { round_tensor(tensor, *format); });
  for (int64_t step = 0; step < steps; ++step)
    if (format)
      rounded_step(trial, step, mode, *format);
    else
      trial.train_step(step);
  return trial.evaluate(samples, &policy_named("fp32")).loss;
}

void measure_trained_bits(const TrialSpec& spec, std::span<const Format> formats, int64_t seeds, int64_t steps,
                          FindingsWriter& out) {
  const auto losses_of = [&](TrainedBits mode, const Format* format) {
    std::vector<double> losses;
    for (int64_t seed = 0; seed < seeds; ++seed) {
      TrialSpec own = spec;
      own.seed = spec.seed + static_cast<uint64_t>(seed);
      losses.push_back(loss_with_bits(own, mode, format, steps, kTrainedSamples));
    }
    return losses;
  };
  const std::vector<double> fp32 = losses_of(TrainedBits::passes, nullptr);
  Measurement& reference = out.number("mantissa.trained_fp32_loss", "", sample_mean(fp32).mean);
  reference.samples = fp32, reference.standard_error = sample_mean(fp32).error;
  bool is_equal = true;
  double spread = 0;
  for (const TrainedBits mode : {TrainedBits::passes, TrainedBits::weights}) {
    std::vector<double> bits, losses, gaps, errors, as_fp32;
    double least = HUGE_VAL;
    bool all_so_far = true;
    for (const Format& format : formats) {
      const std::vector<double> own = losses_of(mode, &format);
      const FindingsOfSeeds found = compare_seeds(own, fp32);
      spread = found.spread;
      if (bits.empty()) is_equal = is_equal && own == fp32;
      bits.push_back(format.fraction_bits), losses.push_back(sample_mean(own).mean);
      gaps.push_back(found.gap), errors.push_back(sample_mean(found.gaps).error);
      as_fp32.push_back(found.as_fp32);
      all_so_far = all_so_far && found.as_fp32 == 1;
      if (all_so_far) least = format.fraction_bits;
    }
    const std::string at(name_of(mode));
    out.curve("mantissa.trained_loss", at, bits, losses);
    out.curve("mantissa.trained_gap", at, bits, gaps);
    out.curve("mantissa.trained_gap_error", at, bits, errors);
    out.curve("mantissa.trained_as_fp32", at, bits, as_fp32);
    out.number("mantissa.trained_least_bits", at, least);
  }
  out.number("mantissa.trained_spread", "", spread);
  out.number("mantissa.trained_control", "", is_equal);
}

}  // namespace halfmark::accuracy
