#include "accuracy/lint_training.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/lint_gradients.h"
#include "accuracy/lint_numbers.h"
#include "models/layers/loss.h"

namespace halfmark::accuracy {
namespace {

using Values = std::vector<double>;

constexpr int64_t kEvaluatedAfter = 1, kInfiniteAt = 3;
constexpr size_t kLeastOutputs = 3;  // for a median

// The values that the optimizer updates.
Tensor& updated_tensor(Param& param) { return param.master.empty() ? param.value : param.master; }

std::vector<Values> updated_of(Trial& trial) {
  std::vector<Values> all;
  for (Param* param : trial.params()) all.push_back(updated_tensor(*param).values());
  return all;
}

std::vector<Values> running_values_of(Trial& trial) {
  std::vector<Values> all;
  for (const State* state : trial.states()) all.push_back(state->value.values());
  return all;
}

void set_statistics(Trial& trial, const std::vector<Values>& values) {
  for (size_t i = 0; i < values.size(); ++i) trial.states()[i]->value.set_values(values[i]);
}

void set_parameters(Trial& trial, const std::vector<Values>& values) {
  for (size_t i = 0; i < values.size(); ++i) trial.params()[i]->value.set_values(values[i]);
}

// Scale and shift of normalisation, which autocast does not cast.
bool is_of_norm(const Param& param) { return param.name.ends_with(".scale") || param.name.ends_with(".shift"); }

// Of all gradients as they are stored, one after another.
Values stored_gradients(Trial& trial) {
  Values all;
  for (const Param* param : trial.params())
    if (!param->grad.empty()) std::ranges::copy(param->grad.values(), std::back_inserter(all));
  return all;
}

// The training, its twin, and what is kept between steps.
class Observed {
 public:
  Observed(const TrialSpec& given, const Procedure& procedure)
      : procedure_(procedure),
        padded_(with_padding(*given.subject, procedure.mask_value)),
        twin_padded_(with_padding(*given.subject, {})),
        spec_(with_subject(given, padded_.get())),
        trial_(clipped(spec_)),
        twin_(clipped(twin_spec(with_subject(given, twin_padded_.get())))),
        copies_(procedure.copies, given.seed) {
    const ScalerSpec& scaler = spec_.settings.scaler ? *spec_.settings.scaler : spec_.policy->scaler;
    checks_ = scaler.kind == ScalerSpec::Kind::dynamic;
    start_ = updated_of(trial_);
    for (const Param* param : trial_.params()) cast_once_.push_back(param->value.values());
    narrow_statistics();
  }

  Observation run(int64_t steps) {
    for (int64_t step = 0; step < steps && train(step); ++step) {
      if (step != kEvaluatedAfter) continue;
      trial_.set_training(false), trial_.infer();
      if (procedure_.trains_again) trial_.set_training(true);
    }
    finish();
    return std::move(seen_);
  }

 private:
  static TrialSpec with_subject(TrialSpec spec, const Subject* subject) {
    if (subject) spec.subject = subject;
    return spec;
  }
  static TrialSpec twin_spec(const TrialSpec& spec) {
    TrialSpec twin = spec.oracle(Inputs::drawn);
    twin.settings.scaler = ScalerSpec{};
    twin.settings.optimizer.storage = Storage::nearest, twin.settings.optimizer.rounding = StepRounding::once;
    return twin;
  }
  // The limit is half of the norm of the exact gradients of the first step, so that the first steps are clipped.
  TrialSpec clipped(TrialSpec spec) const {
    if (!procedure_.clips) return spec;
    const LogPause pause;
    Trial first(twin_spec(with_subject(spec, twin_padded_.get())));
    first.load_batch(0), first.forward(), first.backward();
    spec.settings.optimizer.clip_norm = norm_of(stored_gradients(first)) / 2;
    return spec;
  }

  void narrow_statistics() {
    if (trial_.states().empty()) return;
    double narrow = 0;
    for (const State* state : trial_.states()) {
      const std::string layer = state->name.substr(0, state->name.rfind('.') + 1);
      for (const Param* param : trial_.params())
        if (param->name.starts_with(layer) && bits_of(state->value.dtype()) < bits_of(param->value.dtype())) {
          narrow += 1;
          break;
        }
    }
    seen_.narrow_statistics = narrow;
  }

  // One micro-batch, forward and backward. False: the forward pass of finite input is not finite.
  bool pass(int64_t batch, bool is_first, bool is_infinite) {
    trial_.load_batch(batch);
    if (is_infinite) {
      Tensor x = trial_.input();
      Values values = x.values();
      values[0] = HUGE_VAL;
      x.set_values(values);
    }
    std::vector<Values> own;
    if (procedure_.casts_once)
      for (size_t i = 0; i < trial_.params().size(); ++i) {
        Tensor& value = trial_.params()[i]->value;
        own.push_back(value.values());
        if (!is_of_norm(*trial_.params()[i])) value.set_values(cast_once_[i]);
      }
    std::optional<NonFiniteTensor> bad;
    trial_.set_tap([&](const std::string& name, const Tensor& tensor) {
      if (!bad && !is_infinite) bad = nonfinite_in(name, tensor);
    });
    output_ = trial_.forward().values();
    if (!is_infinite) check_loss();
    widest_ = {};
    trial_.set_tap([&](const std::string& name, const Tensor& tensor) { keep_widest(name, tensor); });
    trial_.backward(is_first ? Gradients::replaced : Gradients::added);
    trial_.set_tap({});
    for (size_t i = 0; i < own.size(); ++i) trial_.params()[i]->value.set_values(own[i]);
    if (bad && !seen_.first_nonfinite) seen_.first_nonfinite = bad;
    return !bad;
  }

  // Copies are made of the gradient with most elements that is a matrix; its last axis is the depth.
  void keep_widest(const std::string& name, const Tensor& tensor) {
    const bool is_activation =
        std::ranges::none_of(trial_.params(), [&](const Param* p) { return name == "gradient/" + p->name; });
    if (!is_activation || tensor.shape().rank() < 2 || static_cast<size_t>(tensor.elements()) <= widest_.values.size())
      return;
    const Values values = tensor.values();
    if (!is_finite(values)) return;
    const Shape& shape = tensor.shape();
    const int64_t depth = shape.rank() == 4 ? shape[1] * shape[2] * shape[3] : shape[shape.rank() - 1];
    widest_.values.assign(values.begin(), values.end());
    widest_.depth = static_cast<size_t>(depth), widest_.rows = values.size() / widest_.depth;
  }

  // The loss as the training reports it, beside the mean in fp64 of the losses of its output as stored.
  void check_loss() {
    const Subject& subject = *spec_.subject;
    if (subject.loss.kind != LossKind::cross_entropy || !is_finite(output_)) return;
    Device& device = twin_.device();
    const Policy& exact = policy_named("fp64");
    const Tensor targets = twin_targets();
    const Shape shape = trial_.output_shape();
    const Tensor output = Tensor::from(device, shape, DType::f64, output_);
    const auto loss_of = [&](const Tensor& out, const Tensor& target) {
      const LogPause pause;
      Pass own(device, exact, true);
      return make_loss(subject.loss)->forward(own, out, target).values()[0];
    };
    const double expected = loss_of(output, targets);
    double found = trial_.loss();
    if (procedure_.sums_loss_in_half) {
      const Format& half = format_of(spec_.policy->low);
      double sum = 0;
      for (int64_t i = 0; i < shape[0]; ++i)
        sum = round_to(half, sum + round_to(half, loss_of(output.slice(i, 1), targets.slice(i, 1))));
      found = sum / static_cast<double>(shape[0]);
    }
    double largest = expected;
    for (const double value : output_) largest = std::max(largest, std::fabs(value));
    const double roundoff = std::ldexp(1.0, -format_of(trial_.loss_dtype()).fraction_bits - 1);
    const double error = std::fabs(found - expected) / (roundoff * largest);
    if (!(error <= seen_.loss_error)) seen_.loss_error = error;
  }

  Tensor twin_targets() {
    const LogPause pause;
    twin_.load_batch(batch_);
    return twin_.targets();
  }

  // One step of the training, then of the twin from the parameters that the training had. False: the training ends.
  bool train(int64_t step) {
    StepFacts facts{.number = step, .scale = static_cast<double>(trial_.scaler().scale())};
    const std::vector<Values> before = updated_of(trial_), statistics = running_values_of(trial_);
    const bool is_infinite =
        step == kInfiniteAt && checks_ && !trial_.states().empty() && !row_of(spec_.subject->data).has_indices;
    bool is_good = true, skipped = false;
    for (int j = 0; j < procedure_.micro_batches && is_good; ++j) {
      batch_ = step * procedure_.micro_batches + j;
      is_good = pass(batch_, j == 0, is_infinite && j == 0);
      const bool is_last = j + 1 == procedure_.micro_batches;
      if (is_good && procedure_.unscales_each_micro_batch && !is_last) skipped = trial_.unscale() || skipped;
    }
    if (!is_good) {
      compare_nonfinite(before);
      return false;
    }
    count_half_gradients();
    GradientFacts gradients{.scale = facts.scale, .weights = {}};
    skipped = update(gradients) || skipped;
    facts.skipped = skipped;
    const std::vector<Values> after_statistics = running_values_of(trial_);
    facts.statistics_moved = after_statistics != statistics;
    if (skipped && procedure_.restores_statistics) set_statistics(trial_, statistics);
    double bad = 0, all = 0;
    for (const Values& values : running_values_of(trial_))
      for (const double value : values) bad += !std::isfinite(value), all += 1;
    facts.nonfinite_statistics = all > 0 ? bad / all : 0;
    if (!skipped) follow(step, before, std::move(gradients), facts);
    const bool goes_on =
        std::ranges::all_of(updated_of(trial_), [](const Values& values) { return is_finite(values); });
    if (!goes_on && std::isfinite(trial_.loss())) facts.nonfinite_gradients = nonfinite_gradients_of(trial_);
    seen_.steps.push_back(std::move(facts));
    make_copies();
    return goes_on;
  }

  // True: the step was skipped.
  bool update(GradientFacts& facts) {
    if (procedure_.clips_before_unscale) clip(facts);
    bool skipped = false;
    if (procedure_.unscales) skipped = trial_.unscale();
    if (procedure_.unscales && procedure_.unscales_again && !skipped) trial_.unscale();
    if (!skipped && procedure_.clips && !procedure_.clips_before_unscale) clip(facts);
    got_ = stored_gradients(trial_);
    facts.at_optimizer = norm_of(got_);
    if (!skipped) trial_.step_optimizer();
    if (!skipped && procedure_.updates_in_half)
      for (Param* param : trial_.params()) {
        Tensor& tensor = updated_tensor(*param);
        Values values = tensor.values();
        for (double& value : values) value = round_to(format_of(spec_.policy->low), value);
        tensor.set_values(values);
      }
    if (procedure_.unscales) trial_.end_update(skipped);
    return skipped;
  }

  void clip(GradientFacts& facts) {
    facts.clipping_ratio = norm_of(stored_gradients(trial_));  // of the twin's: follow()
    trial_.clip();
    facts.left_by_clipping = norm_of(stored_gradients(trial_));
  }

  // The step of the twin from the parameters that the training had before its own, and what it tells about that.
  void follow(int64_t step, const std::vector<Values>& before, GradientFacts gradients, StepFacts& facts) {
    const LogPause pause;
    set_parameters(twin_, before);
    const std::vector<Values> statistics = running_values_of(twin_);
    std::vector<Values> parts;
    Values sum;
    Values output;
    for (int j = 0; j < procedure_.micro_batches; ++j) {
      twin_.load_batch(step * procedure_.micro_batches + j);
      output = twin_.forward().values();
      twin_.backward();
      parts.push_back(stored_gradients(twin_));
      if (sum.empty()) sum.resize(parts.back().size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts.back()[i];
    }
    size_t at = 0;
    for (Param* param : twin_.params()) {
      const auto count = static_cast<size_t>(param->grad.elements());
      param->grad.set_values(std::span(sum).subspan(at, count)), at += count;
    }
    const double exact = norm_of(sum);
    gradients.clipping_ratio /= exact;
    twin_.clip();
    const double clipping = norm_of(stored_gradients(twin_)) / exact;
    twin_.step_optimizer();
    facts.twin_statistics_moved = running_values_of(twin_) != statistics;
    // What overflowed says nothing of the scale; what did not still does. With an infinite norm clipping leaves 0 or NaN.
    Values finite = got_;
    if (!procedure_.clips) drop_nonfinite(finite, parts);
    const bool tells_scale = is_finite(got_) || (is_finite(finite) && norm_of(finite) > 0);
    if (exact > 0 && tells_scale) {
      const WeightedSum fit = fit_sum(parts, finite);
      gradients.weights = fit.weights, gradients.unexplained = fit.unexplained;
      for (double& weight : gradients.weights) weight /= clipping;
      facts.gradients = std::move(gradients);
    }
    compare_updates(before);
    compare_outputs(output);
    before_last_ = before;
  }

  // 0 in `values` and in each of `parts` where a number of `values` is not finite.
  static void drop_nonfinite(Values& values, std::vector<Values>& parts) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      values[i] = 0;
      for (Values& part : parts) part[i] = 0;
    }
  }

  // Adam's updates whose mean of squares is 0.
  void compare_updates(const std::vector<Values>& before) {
    const std::vector<Optimizer::State>& states = trial_.optimizer().states();
    double runaway = 0, all = 0, largest = 0;
    size_t at = 0;
    const std::vector<Values> after = updated_of(trial_), exact = updated_of(twin_);
    for (size_t p = 0; p < exact.size(); ++p)
      for (size_t i = 0; i < exact[p].size(); ++i) largest = std::max(largest, std::fabs(exact[p][i] - before[p][i]));
    for (size_t p = 0; p < after.size(); ++p) {
      const size_t first = at;
      at += after[p].size();
      if (p >= states.size() || states[p].second.empty()) continue;
      const Values squares = states[p].second.values();
      constexpr double kMost = 3.1622776601683795;  // 10^(1/2): Adam's largest update / rate
      for (size_t i = 0; i < after[p].size(); ++i) {
        if (got_[first + i] == 0) continue;
        all += 1;
        runaway += squares[i] == 0 && !(std::fabs(after[p][i] - before[p][i]) <= kMost * largest);
      }
    }
    if (all > 0 && !(runaway / all <= seen_.runaway_updates)) seen_.runaway_updates = runaway / all;
  }

  // The twin's outputs with earlier parameters, on the last micro-batch.
  void compare_outputs(const Values& exact) {
    if (before_last_.empty() || !is_finite(output_)) return;
    const std::vector<Values> statistics = running_values_of(twin_), updated = updated_of(twin_);
    const auto direction = [&](const std::vector<Values>& parameters) {
      set_parameters(twin_, parameters);
      return cosine_of_differences(output_, twin_.forward().values(), exact);
    };
    towards_before_.push_back(direction(before_last_)), towards_start_.push_back(direction(start_));
    last_error_ = distance_over_norm(output_, exact);
    set_statistics(twin_, statistics);
    set_parameters(twin_, updated);
  }

  void compare_nonfinite(const std::vector<Values>& before) {
    const LogPause pause;
    set_parameters(twin_, before);
    twin_.load_batch(batch_);
    twin_.set_tap([&](const std::string& name, const Tensor& tensor) {
      if (name == seen_.first_nonfinite->name) seen_.first_nonfinite->twin_is_finite = is_finite(tensor.values());
    });
    twin_.forward();
    twin_.set_tap({});
  }

  void count_half_gradients() {
    seen_.half_gradients = 0;
    for (const Param* param : trial_.params())
      seen_.half_gradients += !param->grad.empty() && param->grad.dtype() == DType::f16;
  }

  void make_copies() {
    if (widest_.values.empty()) return;
    for (QuantizedCopy& copy : copies_.copies_of(widest_)) seen_.copies.push_back(std::move(copy));
  }

  void finish() {
    seen_.scaler_checks = checks_;
    if (towards_start_.size() >= kLeastOutputs)
      seen_.output = OutputDirections{median_of_values(towards_before_), median_of_values(towards_start_), last_error_};
    double half[2] = {0, 0}, all = 0;
    for (Param* param : trial_.params()) {
      const Tensor& tensor = updated_tensor(*param);
      if (tensor.dtype() != DType::f32) continue;
      for (const double value : tensor.values()) {
        half[0] += round_to(kFp16, value) == value, half[1] += round_to(kBf16, value) == value;
        all += 1;
      }
    }
    const bool has_updated = std::ranges::any_of(seen_.steps, [](const StepFacts& step) { return !step.skipped; });
    if (all > 0 && has_updated) seen_.half_content = std::max(half[0], half[1]) / all;
    double drift = 0;
    for (size_t i = 0; i < trial_.states().size(); ++i) {
      if (!trial_.states()[i]->name.ends_with("variance")) continue;
      const Values own = trial_.states()[i]->value.values(), exact = twin_.states()[i]->value.values();
      for (size_t c = 0; c < own.size(); ++c) drift = std::max(drift, std::fabs(own[c] - exact[c]) / exact[c]);
    }
    seen_.statistics_drift = drift;
  }

  Procedure procedure_;
  std::shared_ptr<const Subject> padded_, twin_padded_;
  TrialSpec spec_;
  Trial trial_, twin_;
  CopyMaker copies_;
  bool checks_ = false;
  std::vector<Values> start_, cast_once_, before_last_;
  // Of the last micro-batch.
  int64_t batch_ = 0;
  Values output_;
  CopiedMatrix widest_;
  Values towards_before_, towards_start_;
  double last_error_ = 0;
  Values got_;  // the gradients that the optimizer got
  Observation seen_;
};

}  // namespace

Observation observe_training(const TrialSpec& spec, const Procedure& procedure, int64_t steps) {
  return Observed(spec, procedure).run(steps);
}

double nonfinite_gradients_of(Trial& trial) {
  double bad = 0, all = 0;
  for (const double value : stored_gradients(trial)) bad += !std::isfinite(value), all += 1;
  return all > 0 ? bad / all : 0;
}

Observation observe_scaling(Trial& trial, std::vector<StepFacts> steps) {
  Observation seen;
  seen.steps = std::move(steps);
  const TrialSpec& spec = trial.spec();
  const ScalerSpec& scaler = spec.settings.scaler ? *spec.settings.scaler : spec.policy->scaler;
  seen.scaler_checks = scaler.kind == ScalerSpec::Kind::dynamic;
  for (const Param* param : trial.params())
    seen.half_gradients += !param->grad.empty() && param->grad.dtype() == DType::f16;
  return seen;
}

}  // namespace halfmark::accuracy
