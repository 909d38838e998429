// Runs the fp64 reference and sums up its tensors.
#include "accuracy/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <utility>

#include "accuracy/oracle.h"

namespace halfmark::accuracy {

namespace {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The batch of a subject holds at most a few of these; all policies of a subject run one after another.
constexpr size_t kKeptNumbers = 8;

std::shared_ptr<const ReferenceNumbers> cached(const std::string& key, auto&& compute) {
  static std::list<std::pair<std::string, std::shared_ptr<const ReferenceNumbers>>> kept;  // latest first
  for (auto entry = kept.begin(); entry != kept.end(); ++entry) {
    if (entry->first != key) continue;
    kept.splice(kept.begin(), kept, entry);
    return entry->second;
  }
  const LogPause pause;
  ReferenceNumbers numbers;
  compute(numbers);
  kept.emplace_front(key, std::make_shared<const ReferenceNumbers>(std::move(numbers)));
  if (kept.size() > kKeptNumbers) kept.pop_back();
  return kept.front().second;
}

// The fp64 reference without a loss scale: powers of two change nothing, and all policies share the numbers.
TrialSpec unscaled_reference(const TrialSpec& spec) {
  TrialSpec exact = spec.oracle(Inputs::drawn);
  exact.settings.scaler = ScalerSpec{};
  return exact;
}

std::string key_of(std::string_view what, const TrialSpec& spec) {
  return fmt::format("{} {} {} {} {}", what, spec.subject->id(), spec.seed, text_of_data(spec), text_of(spec.settings));
}

// Everything that a step changes: parameters, velocities of the optimizer, running statistics.
void add_changed(ReferenceNumbers& numbers, const std::string& stage, Trial& trial) {
  for (const Param* param : trial.params()) numbers.add(stage + "/parameters", param->name, param->value.values());
  const std::vector<Optimizer::State>& optimizer = trial.optimizer().states();
  for (size_t i = 0; i < optimizer.size(); ++i) {
    const std::string& name = trial.params()[i]->name;
    for (const auto& [kind, tensor] :
         {std::pair{"/velocity", &optimizer[i].first}, std::pair{"/mean_square", &optimizer[i].second},
          std::pair{"/compensation", &optimizer[i].compensation}})
      if (!tensor->empty()) numbers.add(stage + kind, name, tensor->values());
  }
  for (const State* state : trial.states()) numbers.add(stage + "/states", state->name, state->value.values());
}

void add_drawn_step(ReferenceNumbers& numbers, const TrialSpec& spec) {
  Trial trial(spec);
  trial.load_batch(0);
  numbers.add("input", "", trial.input().values());
  if (!trial.labels().empty()) numbers.add("labels", "", trial.labels());
  for (const Param* param : trial.params()) numbers.add("initial", param->name, param->value.values());
  for (const State* state : trial.states()) numbers.add("initial", state->name, state->value.values());
  numbers.add("output", "", trial.forward().values());
  numbers.loss("", trial.loss());
  trial.backward();
  if (!row_of(spec.subject->data).has_indices) numbers.add("gradient/input", "", trial.input_gradient());
  for (const Param* param : trial.params()) numbers.add("gradient/" + param->name, "", trial.gradient(*param));
  trial.update();
  add_changed(numbers, "step", trial);
  numbers.add("evaluation", "", trial.infer().values());
}

// Multiples of 1/2 in [-1, 1]: few enough for many ties and zeros. Sums of their products with the weights below are
// exact in fp64, in every order.
double grid_value(uint64_t name, uint64_t index) {
  constexpr uint64_t kValues = 5;
  return static_cast<double>(mixed(name ^ mixed(index)) % kValues) / 2 - 1;
}

// Images: all values of the first channel are equal, if there is another channel.
std::vector<double> special_input(const Shape& shape) {
  const uint64_t name = projection_name("special input");
  const bool has_channels = shape.rank() == 4 && shape[1] > 1;
  const auto pixels = has_channels ? static_cast<size_t>(shape[2] * shape[3]) : 1;
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    const bool constant = has_channels && i / pixels % static_cast<size_t>(shape[1]) == 0;
    values[i] = constant ? 0.5 : grid_value(name, i);
  }
  return values;
}

// Rounds the values to eighths of the power of two below the largest, so that few bits are left. Every fourth row (the
// weights of one output) is zero, and so is every fourth value of a vector whose values differ: a bias. Weight norm divides
// by the length of each row of its direction, which therefore keeps its rows.
void coarsen(Param& param) {
  std::vector<double> values = param.value.values();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double largest = values.empty() ? 0 : std::max(std::fabs(*least), std::fabs(*most));
  if (largest == 0 || !std::isfinite(largest)) return;
  const bool keeps_rows = *least == *most || param.name.ends_with(".weight_v");
  const double grid = std::exp2(std::floor(std::log2(largest))) / 8;
  const Shape& shape = param.value.shape();
  const size_t row = shape.rank() > 1 ? values.size() / static_cast<size_t>(shape[0]) : 1;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::nearbyint(values[i] / grid) * grid;
    if (!keeps_rows && i / row % 4 == 0) values[i] = 0;
  }
  param.value.set_values(values);
}

void add_special_step(ReferenceNumbers& numbers, const TrialSpec& spec) {
  Trial trial(spec);
  make_special(trial);
  numbers.add("special/output", "", trial.forward().values());
  numbers.loss("special", trial.loss());
  trial.backward();
  if (!row_of(spec.subject->data).has_indices) numbers.add("special/gradient", "input", trial.input_gradient());
  for (const Param* param : trial.params()) numbers.add("special/gradient", param->name, trial.gradient(*param));
  for (const State* state : trial.states()) numbers.add("special/states", state->name, state->value.values());
}

// Steps of the plain training: the second is the first that sees a velocity, the third a velocity of two steps.
constexpr int64_t kPlainSteps = 4;
constexpr int64_t kReferenceSamples = 64;

void add_plain_training(ReferenceNumbers& numbers, const TrialSpec& spec) {
  Trial trial(spec);
  for (int64_t step = 0; step < kPlainSteps; ++step) {
    const StepResult result = trial.train_step(step);
    numbers.loss(fmt::format("train/{}", step), result.loss);
    numbers.accuracy(fmt::format("train/{}", step), result.accuracy);
  }
  add_changed(numbers, "train", trial);
  const Evaluation held_out = trial.evaluate(kReferenceSamples);
  numbers.loss("evaluation", held_out.loss);
  numbers.accuracy("evaluation", held_out.accuracy);
}

// Three clean steps: the scale grows. One clean step, one overflow: it backs off, and the count of clean steps starts
// again. Three clean steps: it grows. One more. A clean step before the overflow tells a reset count from a kept one.
constexpr int64_t kOverflowSteps = 9, kOverflowAt = 4;
constexpr ScalerSpec kShortScaler{
    .kind = ScalerSpec::Kind::dynamic, .initial = 4096, .growth = 2, .backoff = 0.5, .interval = 3};
constexpr double kWeightDecay = 0.01;  // the default 0 would hide the term

void add_overflow_training(ReferenceNumbers& numbers, TrialSpec spec) {
  spec.settings.scaler = kShortScaler;
  spec.settings.weight_decay = kWeightDecay;
  spec.settings.loss_factor =
      1;  // the optimizer divides the rate by it, and a small factor would make the decay diverge
  Trial trial(spec);
  std::vector<double> scale, tracker, skipped;
  for (int64_t step = 0; step < kOverflowSteps; ++step) {
    trial.load_batch(step);
    trial.forward();
    numbers.loss(fmt::format("overflow/{}", step), trial.loss());
    trial.backward();
    if (step == kOverflowAt && !trial.params().empty()) {
      Tensor& gradient = trial.params().front()->grad;
      std::vector<double> values = gradient.values();
      values.front() = std::numeric_limits<double>::infinity();
      gradient.set_values(values);
    }
    skipped.push_back(!trial.update());
    scale.push_back(static_cast<double>(trial.scaler().scale()));
    tracker.push_back(trial.scaler().growth_tracker());
  }
  add_changed(numbers, "overflow", trial);
  numbers.add("overflow/scaler", "scale", scale);
  numbers.add("overflow/scaler", "tracker", tracker);
  numbers.add("overflow/scaler", "skipped", skipped);
}

// Two growths of PyTorch's default interval of 2000 steps, then overflows, then growth up to the largest scale: it must
// stay finite there.
void add_scaler(ReferenceNumbers& numbers, const ScalerSpec& spec) {
  if (spec.kind == ScalerSpec::Kind::none) return;
  const auto record = [&](const std::string& at, const ScalerSpec& kind, int steps, int overflow_every) {
    Scaler scaler(kind);
    std::vector<double> scale, tracker;
    for (int step = 1; step <= steps; ++step) {
      scaler.update(step % overflow_every == 0);
      scale.push_back(static_cast<double>(scaler.scale())), tracker.push_back(scaler.growth_tracker());
    }
    numbers.add(at, "scale", scale), numbers.add(at, "tracker", tracker);
  };
  record("scaler/policy", spec, 2 * spec.interval + 20, 2 * spec.interval + 10);
  ScalerSpec largest = spec;
  largest.initial = 0x1p126, largest.interval = 1;
  record("scaler/largest", largest, 4, 5);
}

}  // namespace

uint64_t projection_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

double projection_weight(uint64_t name, uint64_t index) {
  constexpr double kRootOfThree = 1.7320508075688772;
  return kRootOfThree * (static_cast<double>(mixed(name ^ mixed(index)) >> 11) * 0x1p-52 - 1);
}

void make_special(Trial& trial) {
  for (Param* param : trial.params()) coarsen(*param);
  trial.load_batch(0);
  if (row_of(trial.spec().subject->data).has_indices) return;
  trial.input().set_values(special_input(trial.spec().subject->input));
}

void ReferenceNumbers::add(const std::string& at, std::string_view tensor, std::span<const double> values) {
  Place& place = places_[at];
  const uint64_t name = projection_name(fmt::format("{} {}", at, tensor));
  double squares = 0, projection = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += values[i] * values[i];
    projection += values[i] * projection_weight(name, i);
  }
  place.squares += squares, place.projection += projection;
}

// Numbers of very different size in one sum: asinh is linear below 2^-10 and logarithmic above, so that a relative change
// of any of them moves the sum by about as much.
double ReferenceNumbers::sum_of_all() const {
  double sum = 0;
  const auto take = [&](std::string_view metric, std::string_view at, double value) {
    sum += projection_weight(projection_name(fmt::format("{} {}", metric, at)), 0) * std::asinh(value * 0x1p10);
  };
  for (const auto& [at, place] : places_)
    take("norm", at, std::sqrt(place.squares)), take("projection", at, place.projection);
  for (const auto& [at, loss] : losses_) take("loss", at, loss);
  for (const auto& [at, accuracy] : accuracies_) take("accuracy", at, accuracy);
  return sum;
}

void ReferenceNumbers::add_to(FindingsWriter& out) const {
  for (const auto& [at, place] : places_) {
    out.number("reference.norm", at, std::sqrt(place.squares));
    out.number("reference.projection", at, place.projection);
  }
  for (const auto& [at, loss] : losses_) out.number("reference.loss", at, loss);
  for (const auto& [at, accuracy] : accuracies_) out.number("reference.accuracy", at, accuracy);
  out.number("reference.all", "", sum_of_all());
}

void ReferenceNumbers::add_summary_to(FindingsWriter& out) const {
  Place all;
  for (const auto& [at, place] : places_) all.squares += place.squares, all.projection += place.projection;
  out.number("reference.norm", "all", std::sqrt(all.squares));
  out.number("reference.projection", "all", all.projection);
  for (const auto& [at, loss] : losses_) out.number("reference.loss", at, loss);
  out.number("reference.all", "", sum_of_all());
}

std::vector<MetricRow> with_reference_rows(std::vector<MetricRow> rows) {
  rows.insert(
      rows.end(),
      {
          {"reference.norm", "1", Better::neither, Kind::bounded,
           "root of the sum of squares of the fp64 reference's values at this place"},
          {"reference.projection", "1", Better::neither, Kind::bounded,
           "inner product of the same values with a fixed random vector of variance 1"},
          {"reference.loss", "1", Better::neither, Kind::bounded, "loss of the fp64 reference"},
          {"reference.accuracy", "1", Better::neither, Kind::bounded,
           "share of the samples that the fp64 reference classifies correctly"},
          {"reference.all", "1", Better::neither, Kind::bounded,
           "sum over the numbers x of the fp64 reference of random weights times asinh(2^10 x): names a state of the "
           "mathematics in an acknowledgement"},
      });
  return rows;
}

std::shared_ptr<const ReferenceNumbers> step_numbers(const TrialSpec& spec) {
  const TrialSpec exact = unscaled_reference(spec);
  return cached(key_of("step", exact), [&](ReferenceNumbers& numbers) {
    add_drawn_step(numbers, exact);
    add_special_step(numbers, exact);
  });
}

std::shared_ptr<const ReferenceNumbers> training_numbers(const TrialSpec& spec) {
  const TrialSpec exact = unscaled_reference(spec);
  const auto trained = cached(key_of("training", exact), [&](ReferenceNumbers& numbers) {
    add_plain_training(numbers, exact);
    add_overflow_training(numbers, exact);
  });
  auto numbers = std::make_shared<ReferenceNumbers>(*trained);
  add_scaler(*numbers, spec.settings.scaler.value_or(spec.policy->scaler));
  return numbers;
}

}  // namespace halfmark::accuracy
