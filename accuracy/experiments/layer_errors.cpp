#include "accuracy/experiments/layer_errors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::accuracy {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

double error_of_values(const std::vector<double>& values, const std::vector<double>& reference) {
  HM_CHECK(values.size() == reference.size(), "a pass and its fp64 reference have tensors of different sizes");
  double square = 0, all = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return kInfinite;
    const double difference = values[i] - reference[i];
    square += difference * difference, all += reference[i] * reference[i];
  }
  if (square == 0) return 0;
  return all > 0 ? std::sqrt(square / all) : kInfinite;
}

double size_of_values(const std::vector<double>& values) {
  double square = 0;
  for (const double x : values) square += x * x;
  return values.empty() ? 0 : std::sqrt(square / static_cast<double>(values.size()));
}

std::vector<double> compared_values(const std::vector<double>& values) {
  const size_t step = (values.size() + kCompared - 1) / kCompared;
  std::vector<double> some;
  for (size_t i = 0; i < values.size(); i += std::max<size_t>(step, 1)) some.push_back(values[i]);
  return some;
}

struct TensorPlace {
  std::string layer, what;
  bool evaluation;
  std::string key() const { return (evaluation ? "evaluation " : "training ") + layer + " " + what; }
};

// The layer and the kind of tensor that a tap names; "log_probabilities" and "loss" are of the loss.
TensorPlace place_of_tap(const std::string& tap, bool evaluation) {
  const std::string name = tap.substr(tap.find('/') + 1);
  if (name == "loss" || name == "log_probabilities") return {"loss", name, evaluation};
  return {name, "output", evaluation};
}

// A state is called LAYER.running_variance.
TensorPlace place_of_state(const std::string& name) {
  const size_t dot = name.rfind('.');
  return {name.substr(0, dot), name.substr(dot + 1), true};
}

struct Outputs {
  std::vector<double> training, evaluation;
  double loss = 0;
  std::vector<std::vector<unsigned char>> codes;
};

// `see` gets every activation and, after training mode, every running statistic.
Outputs run_pass(const TrialSpec& spec, const std::function<void(const TensorPlace&, const Tensor&)>& see) {
  const LogPause pause;
  Trial trial(spec);
  bool evaluation = false;
  trial.set_tap([&](const std::string& name, const Tensor& tensor) { see(place_of_tap(name, evaluation), tensor); });
  trial.load_batch(0);
  Outputs out;
  {
    const Tensor output = trial.forward();
    out.training = output.values();
    out.codes.push_back(output.codes());
  }
  if (spec.subject->has_labels()) out.loss = trial.loss();
  for (const State* state : trial.states()) see(place_of_state(state->name), state->value);
  evaluation = true;
  const Tensor inferred = trial.infer();
  out.evaluation = inferred.values();
  out.codes.push_back(inferred.codes());
  const auto* bytes = reinterpret_cast<const unsigned char*>(&out.loss);
  out.codes.emplace_back(bytes, bytes + sizeof out.loss);
  return out;
}

}  // namespace

double PassErrors::largest() const { return std::max({training, evaluation, loss}); }

const TensorError* PassErrors::worst_of(std::string_view layer) const {
  const TensorError* worst = nullptr;
  for (const TensorError& tensor : tensors)
    if (tensor.layer == layer && (!worst || tensor.error > worst->error)) worst = &tensor;
  return worst;
}

PassComparison::PassComparison(TrialSpec spec) : spec_(std::move(spec)) {
  HM_CHECK(spec_.subject->network,
           "subject " + spec_.subject->id() + " is a function of a program; its layers have no policies of their own");
  const TrialSpec exact = spec_.oracle(Inputs::drawn);
  Outputs outputs = run_pass(exact, [this](const TensorPlace& place, const Tensor& tensor) {
    const std::vector<double> values = tensor.values();
    double largest = 0, zero = 0, subnormal = 0;
    const double least = std::ldexp(1.0, format_of(spec_.policy->low).min_exponent());
    for (const double x : values) {
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
      zero += x == 0;
      subnormal += x != 0 && std::fabs(x) < least;
    }
    const auto count = static_cast<double>(std::max<size_t>(values.size(), 1));
    const std::string key = place.key();
    // A layer that runs again has several tensors of one name; the last one counts, in all passes alike.
    reference_.largest[key] = std::max(reference_.largest[key], largest);
    reference_.zero[key] = zero / count, reference_.subnormal[key] = subnormal / count;
    reference_.compared[key] = compared_values(values);
  });
  reference_.training = std::move(outputs.training), reference_.evaluation = std::move(outputs.evaluation);
  reference_.loss = outputs.loss;
  ++passes_;
}

PassErrors PassComparison::under(const Policy& policy) {
  PassErrors errors;
  std::map<std::string, size_t> known;
  Outputs outputs = run_pass(spec_.under(policy), [&](const TensorPlace& place, const Tensor& tensor) {
    const std::string key = place.key();
    const auto exact = reference_.compared.find(key);
    if (exact == reference_.compared.end()) return;
    const std::vector<double> values = tensor.values();
    const double least = std::ldexp(1.0, format_of(spec_.policy->low).min_exponent());
    double nonfinite = 0, zero = 0, subnormal = 0;
    for (const double x : values) {
      nonfinite += !std::isfinite(x);
      zero += x == 0;
      subnormal += x != 0 && std::fabs(x) < least;
    }
    const auto count = static_cast<double>(std::max<size_t>(values.size(), 1));
    TensorError error{.layer = place.layer, .what = place.what, .evaluation = place.evaluation};
    error.error = nonfinite > 0 ? kInfinite : error_of_values(compared_values(values), exact->second);
    error.nonfinite = nonfinite / count;
    error.zeroed = std::max(0.0, zero / count - reference_.zero.at(key));
    error.subnormal = std::max(0.0, subnormal / count - reference_.subnormal.at(key));
    error.largest = reference_.largest.at(key);
    const auto [at, is_new] = known.emplace(key, errors.tensors.size());
    if (is_new)
      errors.tensors.push_back(std::move(error));
    else
      errors.tensors[at->second] = std::move(error);
  });
  ++passes_;
  errors.training = error_of_values(outputs.training, reference_.training);
  errors.evaluation = error_of_values(outputs.evaluation, reference_.evaluation);
  if (spec_.subject->has_labels()) {
    const double size = std::max(std::fabs(reference_.loss), size_of_values(reference_.training));
    const double difference = std::fabs(outputs.loss - reference_.loss);
    errors.loss = !std::isfinite(outputs.loss) ? kInfinite : difference == 0 ? 0 : difference / size;
  }
  errors.codes = std::move(outputs.codes);
  return errors;
}

const Policy& with_precision(const Policy& policy, const std::string& layers) {
  if (layers.empty()) return policy;
  HM_CHECK(policy.layers.empty(),
           "policy " + std::string(policy.name) + " gives layers policies already; leave out its precision=");
  return policy_named(std::string(policy.name) + "+precision=" + layers);
}

}  // namespace halfmark::accuracy
