// The reduction harness: sums and means of a loss over 10 to 200,000 terms, added and stored in the policy's low format or in
// fp32, with a divisor in either; and what else a loss in half does: label smoothing's sum over classes, the logarithm of
// a sigmoid, Keras's clip of probabilities.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

// 65,519 is the last number that fp16 rounds to its largest one; from 65,520 on it is infinite.
constexpr std::array kLengths = {10, 100, 1000, 4000, 10000, 30000, 50000, 65000, 70000, 100000, 200000};
constexpr double kWrong = 0.01;         // a loss off by 1 % is wrong
constexpr double kSmoothing = 0.1;      // of labels, as in Szegedy et al. 2016
constexpr double kLargestLogit = 40;    // of the search for an infinite loss
constexpr double kLogitStep = 0.25;     // likewise
constexpr double kKerasEpsilon = 1e-7;  // keras.backend.epsilon()

const std::vector<MetricRow>& reduction_table() {
  static const std::vector<MetricRow> rows = {
      {"reduction.error", "1", Better::lower, Kind::bounded,
       "over the number of terms, and at the largest: |value - exact| / |exact|, infinite if the value is not finite. "
       "exact: the terms as stored, added in fp64. sum/KIND, mean/KIND, mean/KIND/low_divisor, where KIND is low_sum: "
       "added "
       "and stored in the low format; low_result: added in fp32, stored in the low format; fp32; policy: what the "
       "policy "
       "does. operation: the device's loss, against fp64 of the stored logits"},
      {"reduction.nonfinite", "1", Better::lower, Kind::bounded,
       "at the same places: share of the lengths at which the value is infinite or NaN"},
      {"reduction.first_wrong", "1", Better::higher, Kind::bounded,
       "at the same places: the least number of terms with an error above 1 %; infinite: none"},
      {"reduction.lengths", "1", Better::neither, Kind::information, "how many numbers of terms were tried"},
      {"reduction.refused", "1", Better::neither, Kind::information,
       "at binary_cross_entropy: 1 if the policy's cast rules refuse it"},
      {"reduction.least_infinite_logit", "1", Better::higher, Kind::bounded,
       "least |logit| of 0.25, 0.5, .. 40 whose loss is infinite with the wrong target; infinite: none. "
       "sigmoid_then_log: "
       "the sigmoid stored in the dtype in which the policy computes it; with_logits: the fused loss"},
      {"reduction.clip_bound", "1", Better::neither, Kind::information,
       "1e-7 at lower/DTYPE and 1 - 1e-7 at upper/DTYPE as the dtype stores them. DTYPE: low, or policy, in which the "
       "policy computes a softmax"},
      {"reduction.clips", "1", Better::neither, Kind::information,
       "likewise: 1 if the clip changes the probability 0 (lower) or 1 (upper)"},
      {"reduction.clipped_loss", "1", Better::lower, Kind::bounded,
       "at impossible/DTYPE: -log of the clipped probability 0; at certain/DTYPE: -log(1 - p) of the clipped "
       "probability 1, "
       "the loss of a certain error in binary cross-entropy"},
      {"reduction.unsupported", "1", Better::lower, Kind::information, "1: the device has no row for the operation"},
  };
  return rows;
}

bool is_loss(const TrialSpec& spec, std::string_view name) { return spec.subject->name == name; }

// Whether the policy computes the subject's loss in fp32.
bool loss_in_fp32(const TrialSpec& spec) {
  if (is_loss(spec, "mse")) return is_in_fp32(*spec.policy, "mse_loss");
  if (is_loss(spec, "cross_entropy"))
    return is_in_fp32(*spec.policy, "cross_entropy_loss") || is_in_fp32(*spec.policy, "log_softmax");
  return is_in_fp32(*spec.policy, "binary_cross_entropy_with_logits");
}
DType loss_dtype(const TrialSpec& spec) { return loss_in_fp32(spec) ? DType::f32 : spec.policy->low; }

// Logits (for mse: differences of output and target), as the low dtype stores them. Of fewer terms, the first are taken.
std::vector<double> draw_logits(const TrialSpec& spec) {
  const RandomKey key = RandomKey(spec.seed).child("reduction");
  std::vector<double> all(static_cast<size_t>(kLengths.back()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = key.normal(i) * (is_loss(spec, "mse") ? 1 : 2);
  return stored_as(*spec.device, spec.policy->low, all);
}

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double bce_target(size_t i) { return i % 2 == 0 ? 0 : 1; }

// The logarithms of the softmax of one row, by the device, stored in `dtype`.
std::vector<double> log_softmax_by_device(Device& device, DType low, DType dtype, const std::vector<double>& logits) {
  const Shape row{1, static_cast<int64_t>(logits.size())};
  const Tensor x = Tensor::from(device, row, low, logits), labels = Tensor::zeros(device, {1}, DType::i32);
  Tensor loss(device, {1}, dtype), logarithms(device, row, dtype);
  run(SoftmaxCrossEntropy{.logits = x, .labels = labels, .loss = loss, .log_probabilities = logarithms});
  return logarithms.values();
}

// The terms of the loss, not yet stored: squares, minus the logarithms, or binary cross-entropies.
std::vector<double> terms_of(const TrialSpec& spec, const std::vector<double>& logits) {
  if (is_loss(spec, "cross_entropy")) {
    std::vector<double> terms = log_softmax_by_device(*spec.device, spec.policy->low, loss_dtype(spec), logits);
    for (double& term : terms) term = -term;
    return terms;
  }
  std::vector<double> terms(logits.size());
  for (size_t i = 0; i < terms.size(); ++i)
    terms[i] = is_loss(spec, "mse") ? logits[i] * logits[i] : softplus(logits[i]) - bce_target(i) * logits[i];
  return terms;
}

// The device's own loss of these logits, and its fp64 value. For mse and binary cross-entropy the mean; for cross-entropy
// that of one row of label 0 with smoothing.
std::pair<double, double> loss_by_device(const TrialSpec& spec, const std::vector<double>& logits) {
  Device& device = *spec.device;
  const auto count = static_cast<int64_t>(logits.size());
  const DType dtype = loss_dtype(spec);
  Tensor loss(device, {1}, dtype);
  double exact = 0;
  if (is_loss(spec, "cross_entropy")) {
    const Tensor x = Tensor::from(device, {1, count}, dtype, logits), weights;
    const Tensor labels = Tensor::zeros(device, {1}, DType::i32);
    Tensor logarithms(device, {1, count}, dtype), total(device, {1}, dtype);
    run(CrossEntropy{.logits = x,
                     .labels = labels,
                     .weights = weights,
                     .loss = loss,
                     .log_probabilities = logarithms,
                     .total_weight = total,
                     .smoothing = kSmoothing});
    double largest = logits[0], exponentials = 0, sum = 0;
    for (const double one : logits) largest = std::max(largest, one);
    for (const double one : logits) exponentials += std::exp(one - largest);
    const double log_sum = largest + std::log(exponentials);
    for (const double one : logits) sum += log_sum - one;
    exact = (1 - kSmoothing) * (log_sum - logits[0]) + kSmoothing * sum / static_cast<double>(count);
    return {loss.values()[0], exact};
  }
  std::vector<double> targets(logits.size());
  const bool is_mse = is_loss(spec, "mse");
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = is_mse ? 0 : bce_target(i);
  const Tensor x = Tensor::from(device, {1, count}, dtype, logits),
               y = Tensor::from(device, {1, count}, dtype, targets);
  if (is_mse)
    run(ElementLoss<losses::Mse>{.output = x, .target = y, .loss = loss});
  else
    run(ElementLoss<losses::BinaryCrossEntropyWithLogits>{.output = x, .target = y, .loss = loss});
  for (size_t i = 0; i < logits.size(); ++i)
    exact += is_mse ? logits[i] * logits[i] : softplus(logits[i]) - targets[i] * logits[i];
  return {loss.values()[0], exact / static_cast<double>(count)};
}

// What is known of one way to reduce, over the numbers of terms.
struct ReductionErrors {
  std::vector<double> lengths, errors;
  double nonfinite = 0, first_wrong = HUGE_VAL;

  void add(double length, double value, double exact) {
    const double error = relative_error(value, exact);
    lengths.push_back(length), errors.push_back(error);
    nonfinite += !std::isfinite(value);
    if (error > kWrong) first_wrong = std::min(first_wrong, length);
  }
  void write(FindingsWriter& out, const std::string& at) const {
    out.curve("reduction.error", at, lengths, errors);
    out.number("reduction.error", at, errors.back());
    out.number("reduction.nonfinite", at, nonfinite / static_cast<double>(lengths.size()));
    out.number("reduction.first_wrong", at, first_wrong);
  }
};

// A way to reduce: KIND of the table of metrics.
struct Way {
  std::string name;
  SumKind sum;
  DType terms;  // as stored
};

void measure_way(const TrialSpec& spec, const std::vector<double>& logits, const Way& way, FindingsWriter& out) {
  Device& device = *spec.device;
  const DType result = way.sum.stores_low ? way.terms : DType::f32;
  ReductionErrors sums, means, means_by_low;
  for (const int length : kLengths) {
    const std::vector<double> terms =
        stored_as(device, way.terms, terms_of(spec, {logits.begin(), logits.begin() + length}));
    const std::vector<double> ones(terms.size(), 1);
    double exact = 0;
    for (const double term : terms) exact += term;
    const double sum = sum_of_products(device, way.terms, way.terms, way.sum, terms, ones);
    sums.add(length, sum, exact);
    means.add(length, stored_as(device, result, sum / length), exact / length);
    means_by_low.add(length, stored_as(device, result, sum / stored_as(device, spec.policy->low, double(length))),
                     exact / length);
  }
  sums.write(out, "sum/" + way.name), means.write(out, "mean/" + way.name);
  means_by_low.write(out, "mean/" + way.name + "/low_divisor");
}

void measure_operation(const TrialSpec& spec, const std::vector<double>& logits, FindingsWriter& out) {
  ReductionErrors errors;
  for (const int length : kLengths) {
    const auto [value, exact] = loss_by_device(spec, {logits.begin(), logits.begin() + length});
    errors.add(length, value, exact);
  }
  errors.write(out, "operation");
}

// The sigmoid is stored, then -log(1 - p) or -log p is taken of what is left, as losses of probabilities do.
double least_infinite(Device& device, DType dtype, bool positive) {
  for (double logit = kLogitStep; logit <= kLargestLogit; logit += kLogitStep) {
    const Tensor x = Tensor::from(device, {1}, dtype, std::array{positive ? logit : -logit});
    Tensor p(device, {1}, dtype);
    run(Activation<activations::Sigmoid>{.x = x, .out = p});
    const double probability = p.values()[0];
    if (std::isinf(-std::log(positive ? 1 - probability : probability))) return logit;
  }
  return HUGE_VAL;
}

double least_infinite_with_logits(Device& device, DType dtype, bool positive) {
  for (double logit = kLogitStep; logit <= kLargestLogit; logit += kLogitStep) {
    const Tensor x = Tensor::from(device, {1, 1}, dtype, std::array{positive ? logit : -logit});
    const Tensor y = Tensor::from(device, {1, 1}, dtype, std::array{positive ? 0.0 : 1.0});
    Tensor loss(device, {1}, dtype);
    run(ElementLoss<losses::BinaryCrossEntropyWithLogits>{.output = x, .target = y, .loss = loss});
    if (!std::isfinite(loss.values()[0])) return logit;
  }
  return HUGE_VAL;
}

void measure_probabilities(const TrialSpec& spec, FindingsWriter& out) {
  Device& device = *spec.device;
  const bool refused = spec.policy->rules && spec.policy->rules->of("binary_cross_entropy") == CastRule::refused;
  out.number("reduction.refused", "binary_cross_entropy", refused);
  for (const bool positive : {true, false}) {
    const std::string target = positive ? "/target=0" : "/target=1";
    out.number("reduction.least_infinite_logit", "sigmoid_then_log" + target,
               least_infinite(device, spec.policy->low, positive));
    where_supported(out, "reduction.unsupported", "with_logits" + target, [&] {
      out.number("reduction.least_infinite_logit", "with_logits" + target,
                 least_infinite_with_logits(device, loss_dtype(spec), positive));
    });
  }
}

void measure_clip(const TrialSpec& spec, FindingsWriter& out) {
  const DType of_policy = is_in_fp32(*spec.policy, "softmax") ? DType::f32 : spec.policy->low;
  for (const auto& [name, dtype] : {std::pair{"low", spec.policy->low}, std::pair{"policy", of_policy}}) {
    const double lower = stored_as(*spec.device, dtype, kKerasEpsilon),
                 upper = stored_as(*spec.device, dtype, 1 - kKerasEpsilon);
    const auto at = [name = std::string(name)](const char* what) { return what + ("/" + name); };
    out.number("reduction.clip_bound", at("lower"), lower), out.number("reduction.clip_bound", at("upper"), upper);
    out.number("reduction.clips", at("lower"), lower > 0), out.number("reduction.clips", at("upper"), upper < 1);
    out.number("reduction.clipped_loss", at("impossible"), -std::log(lower));
    out.number("reduction.clipped_loss", at("certain"), -std::log(1 - upper));
  }
}

Findings measure_reduction(const TrialSpec& spec) {
  FindingsWriter out(reduction_table());
  out.number("reduction.lengths", "", static_cast<double>(kLengths.size()));
  const std::vector<double> logits = draw_logits(spec);
  std::vector<Way> ways;
  for (const SumKind& kind : kSumKinds) ways.push_back({std::string(kind.name), kind, spec.policy->low});
  ways.push_back({"policy", loss_in_fp32(spec) ? kWideSum : kLowResult, loss_dtype(spec)});
  for (const Way& way : ways)
    where_supported(out, "reduction.unsupported", way.name, [&] { measure_way(spec, logits, way, out); });
  where_supported(out, "reduction.unsupported", "operation", [&] { measure_operation(spec, logits, out); });
  if (is_loss(spec, "binary_cross_entropy_with_logits")) measure_probabilities(spec, out);
  if (is_loss(spec, "cross_entropy")) measure_clip(spec, out);
  return out.take();
}

std::optional<std::string> refuses_reduction(const TrialSpec& spec) {
  for (const char* name : {"mse", "cross_entropy", "binary_cross_entropy_with_logits"})
    if (is_loss(spec, name)) return refusal_of_fp64(spec);
  return "reduces a loss: mse, cross_entropy or binary_cross_entropy_with_logits, not " + spec.subject->id();
}

// The mean of the terms is about 1 (13 for the logarithms of 200,000 classes): a sum of 200,000 is above 65504.
std::optional<Expect> expected_reduction(const TrialSpec& spec) {
  const bool overflows = format_of(loss_dtype(spec)) == kFp16;
  return Expect{"reduction.nonfinite", "sum/policy", overflows ? ">" : "==", 0};
}

}  // namespace

Harness reduction_harness() {
  return {.name = "reduction",
          .about =
              "sum and mean of a loss over 10 to 200,000 terms in the low format and in fp32; sigmoids and clipped "
              "probabilities in half",
          .axes = {},
          .metrics = reduction_table(),
          .refuses = refuses_reduction,
          .measure = measure_reduction,
          .expects = expected_reduction};
}

}  // namespace halfmark::accuracy
