// The mantissa harness: error of a layer against the number of fraction bits of its operands and results, with the exponent of
// fp32; what is lost to fewer exponent bits; and the loss of a model that is trained with so many fraction bits. Tensors are
// rounded, the device computes in fp32.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/experiments/mantissa_training.h"
#include "accuracy/experiments/sums.h"
#include "accuracy/oracle.h"

namespace halfmark::accuracy {

namespace {

// The exponent of fp32 with fewer fraction bits (S4-2), and the fraction of fp16 with fewer exponent bits.
constexpr std::array<Format, 8> kFractions = {{{"e8m23", 8, 23},
                                               {"e8m15", 8, 15},
                                               {"e8m12", 8, 12},
                                               {"e8m10", 8, 10},
                                               {"e8m8", 8, 8},
                                               {"e8m7", 8, 7},
                                               {"e8m5", 8, 5},
                                               {"e8m3", 8, 3}}};
constexpr std::array<Format, 5> kExponents = {
    {{"e8m10", 8, 10}, {"e7m10", 7, 10}, {"e6m10", 6, 10}, {"e5m10", 5, 10}, {"e4m10", 4, 10}}};
constexpr int kMostFitted = 15;  // fraction bits: beyond, the sums in fp32 add an error of their own
constexpr int64_t kDrawn = 65536;
constexpr double kOctaves = 3;  // standard deviation of log2 |x|
struct Magnitudes {
  std::string_view name;
  double median_exponent;
  bool scaled;  // by the loss scale
};
// Gradients of which some per cent are below 2^-24 (Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.1:
// 5 % in a speech model); activations around 1.
constexpr std::array<Magnitudes, 2> kDrawnMagnitudes = {{{"gradients", -22, true}, {"activations", 0, false}}};

const std::vector<MetricRow>& mantissa_table() {
  static const std::vector<MetricRow> rows = {
      {"mantissa.error", "1", Better::lower, Kind::bounded,
       "over the fraction bits: root of the nmse of output, gradient/input and gradient/WEIGHT against the fp64 "
       "reference with "
       "the numbers as drawn. Input, weights, output gradient and result are rounded to so many bits, with 8 exponent "
       "bits; the "
       "device computes in fp32. At policy/...: under the policy itself"},
      {"mantissa.slope", "1", Better::neither, Kind::bounded,
       "slope of log2 error over the fraction bits from 3 to 15, least squares; -1: the error halves with each bit"},
      {"mantissa.effective_bits", "bit", Better::higher, Kind::bounded,
       "the number of fraction bits at which the fitted line has the error of the policy"},
      {"mantissa.values", "1", Better::neither, Kind::information, "values of the output"},
      {"exponent.zero", "1", Better::lower, Kind::bounded,
       "over the exponent bits, with 10 fraction bits: share that rounds to 0, of log-normal numbers with a standard "
       "deviation of "
       "3 octaves: gradients, with the median 2^-22 and the policy's loss scale, and activations, with the median 1. "
       "At "
       "policy/...: after the device's cast to the low dtype"},
      {"exponent.subnormal", "1", Better::lower, Kind::bounded, "likewise: share that becomes subnormal"},
      {"exponent.infinite", "1", Better::lower, Kind::bounded, "likewise: share that becomes infinite"},
      {"exponent.elements", "1", Better::neither, Kind::information, "numbers drawn"},
      {"mantissa.trained_loss", "1", Better::lower, Kind::bounded,
       "over the fraction bits: loss of 1024 held-out samples, evaluated in fp32, after a training in fp32 in which "
       "inputs, weights, activations and gradients are rounded to so many bits, with 8 exponent bits; mean over the "
       "seeds. At passes: the update reads and writes fp32 weights; at weights: updated weights are rounded too"},
      {"mantissa.trained_gap", "1", Better::neither, Kind::bounded,
       "likewise: mean over the seeds of the difference to fp32 from the same seed"},
      {"mantissa.trained_gap_error", "1", Better::neither, Kind::information, "its standard error"},
      {"mantissa.trained_as_fp32", "1", Better::higher, Kind::bounded,
       "likewise: 1, 0 or -1 as convergence.as_fp32 judges these losses"},
      {"mantissa.trained_least_bits", "bit", Better::lower, Kind::bounded,
       "the fewest fraction bits for which it is 1, as for all that are more; infinite: for none"},
      {"mantissa.trained_fp32_loss", "1", Better::neither, Kind::bounded,
       "the loss of fp32, mean over the seeds (samples)"},
      {"mantissa.trained_spread", "1", Better::neither, Kind::information, "as convergence.fp32_spread"},
      {"mantissa.trained_control", "1", Better::higher, Kind::exact,
       "1: with 23 fraction bits the losses are those of fp32, bit for bit"},
  };
  return rows;
}

struct LayerValues {
  std::vector<std::pair<std::string, std::vector<double>>> places;
};

LayerValues values_under(const TrialSpec& spec) {
  Trial trial(spec);
  trial.load_batch(0);
  LayerValues found;
  found.places.emplace_back("output", trial.forward().values());
  trial.backward();
  found.places.emplace_back("gradient/input", trial.input_gradient());
  for (const Param* param : trial.params())
    if (param->name.ends_with(".weight")) found.places.emplace_back("gradient/" + param->name, trial.gradient(*param));
  return found;
}

const std::vector<double>& at_place(const Reference& reference, const std::string& place) {
  if (place == "output") return reference.output;
  if (place == "gradient/input") return reference.input_gradient;
  return reference.gradients.at(place.substr(std::string_view("gradient/").size()));
}

double root_nmse(const std::vector<double>& found, const std::vector<double>& exact) {
  double off = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i)
    off += (found[i] - exact[i]) * (found[i] - exact[i]), size += exact[i] * exact[i];
  return std::sqrt(off / size);
}

void measure_fractions(const TrialSpec& spec, FindingsWriter& out) {
  TrialSpec in_fp32 = spec.under(policy_named("fp32"));
  const std::shared_ptr<const Reference> reference = reference_of(in_fp32, Inputs::drawn);
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> curves;  // bits and errors by place
  for (const Format& format : kFractions) {
    in_fp32.round_first = &format;
    for (auto& [place, values] : values_under(in_fp32).places) {
      for (double& value : values) value = round_to(format, value);
      curves[place].first.push_back(format.fraction_bits);
      curves[place].second.push_back(root_nmse(values, at_place(*reference, place)));
    }
  }
  std::map<std::string, std::pair<double, double>> lines;  // slope and log2 error at 0 bits
  for (const auto& [place, curve] : curves) {
    const auto& [bits, errors] = curve;
    std::vector<double> x, y;
    for (size_t i = 0; i < bits.size(); ++i)
      if (bits[i] <= kMostFitted) x.push_back(bits[i]), y.push_back(std::log2(errors[i]));
    const double slope = slope_of(x, y);
    double intercept = 0;
    for (size_t i = 0; i < x.size(); ++i) intercept += (y[i] - slope * x[i]) / static_cast<double>(x.size());
    lines[place] = {slope, intercept};
    out.curve("mantissa.error", place, bits, errors);
    out.number("mantissa.slope", place, slope);
  }
  const LayerValues own = values_under(spec);
  out.number("mantissa.values", "output", static_cast<double>(own.places.front().second.size()));
  for (const auto& [place, values] : own.places) {
    const double error = root_nmse(values, at_place(*reference, place));
    const auto& [slope, intercept] = lines.at(place);
    out.number("mantissa.error", "policy/" + place, error);
    out.number("mantissa.effective_bits", "policy/" + place, (std::log2(error) - intercept) / slope);
  }
}

double loss_scale_of(const TrialSpec& spec) {
  const ScalerSpec scaler = spec.settings.scaler.value_or(spec.policy->scaler);
  return scaler.kind == ScalerSpec::Kind::none ? 1 : scaler.initial;
}

struct Lost {
  double zero = 0, subnormal = 0, infinite = 0;
};

Lost lost_in(const Format& format, const std::vector<double>& rounded) {
  Lost lost;
  const double one = 1 / static_cast<double>(rounded.size()), least = power_of_two(format.min_exponent());
  for (const double x : rounded) {
    lost.zero += x == 0 ? one : 0, lost.infinite += std::isinf(x) ? one : 0;
    lost.subnormal += x != 0 && std::fabs(x) < least ? one : 0;
  }
  return lost;
}

void measure_exponents(const TrialSpec& spec, FindingsWriter& out) {
  Device& device = *spec.device;
  out.number("exponent.elements", "", static_cast<double>(kDrawn));
  for (const Magnitudes& drawn : kDrawnMagnitudes) {
    const RandomKey key = RandomKey(spec.seed).child("mantissa").child(drawn.name);
    std::vector<double> x(static_cast<size_t>(kDrawn));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = std::exp2(drawn.median_exponent + kOctaves * key.normal(i)) * (drawn.scaled ? loss_scale_of(spec) : 1);
    std::vector<double> bits, zero, subnormal, infinite;
    for (const Format& format : kExponents) {
      std::vector<double> rounded = x;
      for (double& value : rounded) value = round_to(format, value);
      const Lost lost = lost_in(format, rounded);
      bits.push_back(format.exponent_bits), zero.push_back(lost.zero);
      subnormal.push_back(lost.subnormal), infinite.push_back(lost.infinite);
    }
    const std::string at(drawn.name);
    out.curve("exponent.zero", at, bits, zero), out.curve("exponent.subnormal", at, bits, subnormal);
    out.curve("exponent.infinite", at, bits, infinite);
    const Tensor wide = Tensor::from(device, {kDrawn}, DType::f32, x);
    Tensor narrow(device, {kDrawn}, spec.policy->low);
    run(Cast{.x = wide, .out = narrow});
    const Lost own = lost_in(format_of(spec.policy->low), narrow.values());
    out.number("exponent.zero", "policy/" + at, own.zero);
    out.number("exponent.subnormal", "policy/" + at, own.subnormal);
    out.number("exponent.infinite", "policy/" + at, own.infinite);
  }
}

bool trains(const TrialSpec& spec) { return axis_value(mantissa_harness(), spec, "part") == "training"; }

Findings measure_mantissa(const TrialSpec& spec) {
  FindingsWriter out(mantissa_table());
  if (trains(spec)) {
    const auto number = [&](const char* axis) { return std::stoll(axis_value(mantissa_harness(), spec, axis)); };
    TrialSpec trained = spec;
    if (const std::string rate = axis_value(mantissa_harness(), spec, "rate"); rate != "own")
      trained.settings.rate = std::stod(rate);
    measure_trained_bits(trained, kFractions, number("seeds"), number("steps"), out);
    return out.take();
  }
  measure_fractions(spec, out);
  measure_exponents(spec, out);
  return out.take();
}

std::optional<std::string> refuses_mantissa(const TrialSpec& spec) {
  if (trains(spec)) {
    if (!spec.subject->has_labels()) return spec.subject->id() + " has no labels to learn";
    if (spec.subject->data == DataKind::logits)
      return spec.subject->id() + " has random labels, which cannot be learned";
    if (spec.policy->name != "fp32") return "part training rounds the tensors of fp32; the policy has to be fp32";
    return {};
  }
  for (const char* axis : {"rate", "steps", "seeds"})
    if (spec.axes.contains(axis)) return "part layers has no axis " + std::string(axis);
  if (spec.subject->name == "linear" || spec.subject->name == "conv2d") return refusal_of_fp64(spec);
  return "rounds the operands and results of a linear layer or a convolution, not of " + spec.subject->id();
}

// Phi((-25 + 22) / 3) = 16 % of the gradients are at most half the least number of fp16. The loss scale 2^16 moves them
// 19 octaves above it, 6 standard deviations; 2^7 is enough for 1 in 1000.
std::optional<Expect> expected_mantissa(const TrialSpec& spec) {
  if (trains(spec)) return Expect{"mantissa.trained_control", "", "==", 1};
  if (spec.policy->low == DType::f16 && loss_scale_of(spec) == 1)
    return Expect{"exponent.zero", "policy/gradients", ">", 0.15};
  if (spec.policy->low == DType::f16 && loss_scale_of(spec) < 128) return {};
  return Expect{"exponent.zero", "policy/gradients", "<", 1e-3};
}

}  // namespace

Harness mantissa_harness() {
  return {.name = "mantissa",
          .about =
              "by fraction bits: error of a linear layer or convolution, loss of a trained model; by exponent bits: "
              "values lost",
          .axes = {{"part", {"layers", "training"}, {}, "what is measured"},
                   {"rate", {"own", "0.01"}, AxisNumbers{0, 1e6}, "learning rate; own: that of the subject"},
                   {"steps", {"100", "40", "200"}, AxisNumbers{1, 1e6, true}, "training steps"},
                   {"seeds", {"5", "3"}, AxisNumbers{3, 100, true}, "trainings, with different random seeds"}},
          .metrics = mantissa_table(),
          .refuses = refuses_mantissa,
          .measure = measure_mantissa,
          .expects = expected_mantissa};
}

}  // namespace halfmark::accuracy
