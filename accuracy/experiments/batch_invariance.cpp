// The harness `batch_invariance`: does the answer to a sample depend on the batch that it is in, on the run, or on the order of
// summation? Evaluation mode, so that no sample depends on another by definition.
#include "accuracy/experiments/batch_invariance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "accuracy/experiments/answers.h"
#include "accuracy/experiments/ranking.h"
#include "accuracy/experiments/trial_values.h"
#include "kernels/number/error.h"

namespace halfmark::accuracy {
namespace {

const std::vector<MetricRow>& invariance_table() {
  constexpr Kind information = Kind::information;
  static const std::vector<MetricRow> rows = {
      {"invariance.batch_equal", "1", Better::higher, information,
       "over the batch sizes: share of the outputs of the first, middle and last sample that are bit-equal to those of "
       "the "
       "sample alone; the number: of all batch sizes"},
      {"invariance.batch_difference", "1", Better::lower, information,
       "over the batch sizes: the largest |output in the batch - alone| / rms of the outputs alone; the number: the "
       "largest"},
      {"invariance.batch_difference_ulps", "1", Better::lower, information,
       "the largest of these numbers / unit roundoff of the format of the output"},
      {"invariance.batch_flips", "1", Better::lower, information,
       "predictions of these samples, per 10,000, whose class is not that of the sample alone; standard error: of a "
       "share"},
      {"invariance.outputs", "1", Better::neither, information, "outputs that were compared, over all batch sizes"},
      {"invariance.run_equal", "1", Better::higher, information,
       "share of the outputs that are bit-equal in every repetition; at inference: the same trial again; at training: "
       "parameters of a new trial after three steps"},
      {"invariance.runs", "1", Better::neither, information, "repetitions, likewise"},
      {"invariance.decode_equal", "1", Better::higher, information,
       "causal text models: share of the logits of each position, from the text up to it alone, that are bit-equal to "
       "those "
       "of one pass over the whole text; curve: over the length"},
      {"invariance.decode_difference", "1", Better::lower, information,
       "the largest difference of these logits / rms of those of the whole text; curve: over the length"},
      {"invariance.decode_flips", "1", Better::lower, information,
       "positions, per 10,000, whose most likely next symbol differs; standard error: of a share"},
      {"invariance.decode_positions", "1", Better::neither, information, "positions that were compared"},
      {"invariance.kl", "1", Better::lower, information,
       "mean over the predictions of the Kullback-Leibler divergence, in nats, between the softmax of the logits and "
       "that "
       "with another order of summation; at split_k: every product summed in two parts; at split_k_low: likewise, the "
       "parts "
       "rounded to the policy's low format; at decode: step by step against the whole text"},
      {"invariance.kl_max", "1", Better::lower, information, "the largest of them"},
  };
  return rows;
}

constexpr int kRepetitions = 20, kFreshTrials = 3, kSteps = 3;

// The logits of one sample or text, a row for each prediction.
struct Rows {
  std::vector<double> values;
  size_t width = 1;
};

void write_divergence(FindingsWriter& out, const std::string& at, const Rows& a, const Rows& b) {
  std::vector<double> all;
  for (size_t row = 0; row + a.width <= a.values.size(); row += a.width)
    all.push_back(softmax_divergence(a.values.data() + row, b.values.data() + row, a.width));
  const SampleMean mean = sample_mean(all);
  Measurement& number = out.number("invariance.kl", at, mean.mean);
  if (std::isfinite(mean.error)) number.standard_error = mean.error;
  out.number("invariance.kl_max", at, *std::max_element(all.begin(), all.end()));
}

double rms_of_answers(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (std::isnan(difference) || difference > largest) largest = difference;
  }
  return largest;
}

// A trial of the subject with another input, and its answers to given inputs.
class Model {
 public:
  Model(const TrialSpec& spec, const Shape& input) : subject_(with_input(*spec.subject, input)), trial_(own(spec)) {
    trial_.load_batch(0);
  }
  Trial& trial() { return trial_; }
  std::vector<double> answer(const std::vector<double>& x) {
    Tensor input = trial_.input();
    input.set_values(x);
    const Tensor output = trial_.infer();
    shape_ = output.shape(), dtype_ = output.dtype();
    return output.values();
  }
  const Shape& output() const { return shape_; }
  DType dtype() const { return dtype_; }

 private:
  TrialSpec own(TrialSpec spec) const {
    spec.subject = &subject_;
    return spec;
  }
  Subject subject_;
  Trial trial_;
  Shape shape_;
  DType dtype_ = DType::f32;
};

template <class T>
std::vector<T> part_of_batch(const std::vector<T>& all, size_t batch, size_t place) {
  const size_t width = all.size() / batch;
  return {all.begin() + static_cast<std::ptrdiff_t>(place * width),
          all.begin() + static_cast<std::ptrdiff_t>((place + 1) * width)};
}

bool predicts(const TrialSpec& spec) { return spec.subject->has_labels(); }

void compare_batches(const TrialSpec& spec, int64_t most, FindingsWriter& out) {
  const Shape& shape = spec.subject->input;
  Model alone(spec, with_batch(shape, 1));
  std::vector<double> sizes, equal_shares, differences;
  double equal = 0, outputs = 0, largest = 0, flips = 0, predictions = 0;
  for (int64_t size = 2; size <= most; size *= 2) {
    Model together(spec, with_batch(shape, size));
    const std::vector<double> x = together.trial().input().values(), y = together.answer(x);
    const auto batch = static_cast<size_t>(size);
    double equal_here = 0, outputs_here = 0, largest_here = 0;
    std::vector<size_t> places = {0, batch / 2, batch - 1};
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (const size_t place : places) {
      const std::vector<double> own = alone.answer(part_of_batch(x, batch, place));
      const SampleInBatch found = sample_in_batch(y, batch, place, own);
      equal_here += found.equal, outputs_here += found.outputs;
      if (std::isnan(found.difference) || found.difference > largest_here) largest_here = found.difference;
      if (!predicts(spec)) continue;
      const auto of_own = predicted_classes(spec.subject->data, alone.output(), own),
                 of_seen = predicted_classes(spec.subject->data, alone.output(), part_of_batch(y, batch, place));
      for (size_t i = 0; i < of_own.size(); ++i) flips += of_own[i] != of_seen[i];
      predictions += static_cast<double>(of_own.size());
    }
    sizes.push_back(static_cast<double>(size)), equal_shares.push_back(equal_here / outputs_here);
    differences.push_back(largest_here);
    equal += equal_here, outputs += outputs_here;
    if (std::isnan(largest_here) || largest_here > largest) largest = largest_here;
  }
  out.curve("invariance.batch_equal", "", sizes, equal_shares);
  out.number("invariance.batch_equal", "", equal / outputs);
  out.curve("invariance.batch_difference", "", sizes, differences);
  out.number("invariance.batch_difference", "", largest);
  out.number("invariance.batch_difference_ulps", "", largest / format_of(alone.dtype()).unit_roundoff());
  out.number("invariance.outputs", "", outputs);
  if (predictions > 0)
    out.number("invariance.batch_flips", "", 1e4 * flips / predictions).standard_error =
        1e4 * share_error(flips, predictions);
}

void compare_runs(const TrialSpec& spec, FindingsWriter& out) {
  Trial trial(spec);
  trial.load_batch(0);
  const std::vector<double> first = trial.infer().values();
  double least = 1;
  for (int run = 1; run < kRepetitions; ++run)
    least = std::min(least, share_of_equal_values(trial.infer().values(), first));
  out.number("invariance.run_equal", "inference", least);
  out.number("invariance.runs", "inference", kRepetitions);
  std::vector<double> trained;
  least = 1;
  for (int run = 0; run < kFreshTrials; ++run) {
    Trial fresh(spec);
    for (int64_t step = 0; step < kSteps; ++step) fresh.train_step(step);
    const std::vector<double> values = all_values(values_of(fresh));
    if (run == 0) trained = values;
    least = std::min(least, share_of_equal_values(values, trained));
  }
  out.number("invariance.run_equal", "training", least);
  out.number("invariance.runs", "training", kFreshTrials);
}

size_t classes_of(const Shape& output) { return static_cast<size_t>(output[output.rank() - 1]); }

void compare_decoding(const TrialSpec& spec, FindingsWriter& out) {
  const Shape& shape = spec.subject->input;
  const int64_t length = shape[1];
  Model whole(spec, with_batch(shape, 1));
  const std::vector<double> text = whole.trial().input().values(), full = whole.answer(text);
  const size_t classes = classes_of(whole.output());
  Rows prefill{full, classes}, decoded{{}, classes};
  std::vector<double> lengths, equal_shares, differences;
  const double scale = rms_of_answers(full);
  double flips = 0;
  for (int64_t count = 1; count <= length; ++count) {
    Model prefix(spec, Shape{1, count});
    const std::vector<double> y = prefix.answer({text.begin(), text.begin() + count});
    const std::vector<double> last(y.end() - static_cast<std::ptrdiff_t>(classes), y.end());
    const std::vector<double> wanted = part_of_batch(full, static_cast<size_t>(length), static_cast<size_t>(count - 1));
    decoded.values.insert(decoded.values.end(), last.begin(), last.end());
    lengths.push_back(static_cast<double>(count)), equal_shares.push_back(share_of_equal_values(last, wanted));
    differences.push_back(largest_difference(last, wanted) / scale);
    const Shape one{1, static_cast<int64_t>(classes)};
    flips += predicted_classes(DataKind::text, one, last) != predicted_classes(DataKind::text, one, wanted);
  }
  const auto positions = static_cast<double>(length);
  out.curve("invariance.decode_equal", "", lengths, equal_shares);
  out.number("invariance.decode_equal", "", sample_mean(equal_shares).mean);
  out.curve("invariance.decode_difference", "", lengths, differences);
  out.number("invariance.decode_difference", "", *std::max_element(differences.begin(), differences.end()));
  out.number("invariance.decode_flips", "", 1e4 * flips / positions).standard_error =
      1e4 * share_error(flips, positions);
  out.number("invariance.decode_positions", "", positions);
  write_divergence(out, "decode", prefill, decoded);
}

void compare_orders(const TrialSpec& spec, FindingsWriter& out) {
  Trial trial(spec);
  trial.load_batch(0);
  const Tensor output = trial.infer();
  const size_t classes = classes_of(output.shape());
  const Rows plain{output.values(), classes};
  for (const auto& [at, partial] : {std::pair{"split_k", kFp32}, {"split_k_low", format_of(spec.policy->low)}}) {
    Policy split = *spec.policy;
    split.math.split_k = 2, split.math.partial = partial;
    Trial other(spec.under(split));
    other.load_batch(0);
    write_divergence(out, at, plain, {other.infer().values(), classes});
  }
}

// Logits over the last axis, for which the divergence of their softmax is defined.
bool has_logits_last(const Subject& subject) {
  return subject.has_labels() && subject.loss.kind == LossKind::cross_entropy && subject.data != DataKind::streets &&
         subject.data != DataKind::boxes;
}

Findings measure_invariance(const TrialSpec& spec) {
  FindingsWriter out(invariance_table());
  compare_batches(spec, std::stoll(axis_value(batch_invariance_harness(), spec, "batch")), out);
  compare_runs(spec, out);
  if (spec.subject->data == DataKind::text) compare_decoding(spec, out);
  // Quantised products are summed in one way only.
  if (has_logits_last(*spec.subject) && !quantizes_products(*spec.policy)) compare_orders(spec, out);
  return out.take();
}

std::optional<std::string> refuses_invariance(const TrialSpec& spec) {
  if (!spec.subject->network) return "only a function of a program knows the network of " + spec.subject->id();
  return {};
}

}  // namespace

SampleInBatch sample_in_batch(const std::vector<double>& together, size_t batch, size_t place,
                              const std::vector<double>& alone) {
  const std::vector<double> seen = part_of_batch(together, batch, place);
  SampleInBatch found{.outputs = static_cast<double>(alone.size())};
  found.equal = share_of_equal_values(seen, alone) * found.outputs;
  const double difference = largest_difference(seen, alone);
  found.difference = difference == 0 ? 0 : difference / rms_of_answers(alone);
  return found;
}

double softmax_divergence(const double* a, const double* b, size_t width) {
  const auto log_sum = [&](const double* x) {
    double largest = x[0], sum = 0;
    for (size_t i = 0; i < width; ++i) largest = std::max(largest, x[i]);
    for (size_t i = 0; i < width; ++i) sum += std::exp(x[i] - largest);
    return largest + std::log(sum);
  };
  const double of_a = log_sum(a), of_b = log_sum(b);
  double kl = 0;
  for (size_t i = 0; i < width; ++i) kl += std::exp(a[i] - of_a) * ((a[i] - of_a) - (b[i] - of_b));
  return kl < 0 ? 0 : kl;  // rounding in fp64 can go below 0; a NaN stays
}

Harness batch_invariance_harness() {
  return {.name = "batch_invariance",
          .about = "bits of an output alone and in batches, from run to run, and of a text at once and step by step",
          .axes = {{"batch",
                    {"512", "64", "8"},
                    AxisNumbers{2, 4096, true},
                    "batches of 2, 4, 8, ... samples, at most so many"}},
          .metrics = invariance_table(),
          .refuses = refuses_invariance,
          .measure = measure_invariance};
}

}  // namespace halfmark::accuracy
