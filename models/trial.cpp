// A training step, built from data, model, loss, scaler and optimizer.
#include "models/trial.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/batch_source.h"
#include "models/draw.h"
#include "models/layers/loss.h"
#include "models/network/folded.h"

namespace halfmark::models {
namespace {

// A factor of the loss multiplies the gradients, which Adam's step does not depend on.
double rate_of(const Settings& settings) {
  return settings.optimizer.kind == OptimizerKind::sgd ? settings.rate / settings.loss_factor : settings.rate;
}

// A policy with the settings that override it.
Policy adjusted(const Policy& policy, const Settings& settings) {
  Policy own = policy;
  if (settings.batchnorm_state) own.state = *settings.batchnorm_state, own.halves_plain_batch_norm = false;
  if (settings.scaler) own.scaler = *settings.scaler;
  return own;
}

}  // namespace

struct Trial::Parts {
  std::shared_ptr<const Subject> own_subject;  // that of the spec, if it is no one else's
  TrialSpec spec;
  Policy policy;  // the spec's, with the settings that override it
  Device& device;
  RandomKey key;
  BatchSource source;
  LayerPtr model;
  std::vector<Param*> params;
  std::vector<State*> states;
  std::unique_ptr<Loss> head;
  Optimizer optimizer;
  Scaler scaler;
  Tap tap, recomputed_tap;
  CastCounts* cast_counts = nullptr;
  bool training = true;  // the mode of forward and backward
  // Of the last pass, by whether it trained. The first pass of each kind casts one by one.
  std::map<bool, ParameterCasts> forward_casts, backward_casts;

  std::shared_ptr<const HeldOut> held_out;  // shared by all evaluations; empty until the first
  int64_t asked_samples = 0;                // for which it was made; files may have fewer

  // Of the loaded batch.
  Batch batch;
  Tensor x, labels;
  int64_t step = -1;
  // Of the last forward and backward.
  Saved saved;
  Tensor output, loss, dx;
  bool pending = false;     // forward has run and backward has not
  double scale = 1;         // the loss scale of the last backward
  bool unscaled = false;    // the gradients have been divided by it since
  bool unfinished = false;  // enqueue_update has run, finish_update has not
  // The scaled output gradient of a subject without labels; recomputed when the scale changes.
  std::vector<double> slope;
  Tensor dy;
  double dy_scale = 0;

  explicit Parts(TrialSpec given, std::shared_ptr<const Subject> owned = {})
      : own_subject(std::move(owned)),
        spec(std::move(given)),
        policy(adjusted(*spec.policy, spec.settings)),
        device(*spec.device),
        key(spec.seed),
        source(spec, policy),
        model(make_model(*spec.subject, {device, policy, key.child("parameters"), spec.round_first}, spec.settings)),
        params(model->params()),
        states(model->states()),
        head(make_loss(spec.subject->loss)),
        optimizer(stored_under(policy, spec.settings.optimizer), rate_of(spec.settings), spec.settings.momentum,
                  spec.settings.weight_decay, key.child("rounding").value()),
        scaler(policy.scaler) {}

  bool labelled() const { return spec.subject->has_labels(); }
  const std::vector<double>& slopes(const Shape& shape) {
    if (!slope.empty()) return slope;
    const RandomKey numbers = key.child("slope");
    const auto count = static_cast<double>(shape.elements());
    return slope = draw_numbers(shape.elements(), [&](size_t i) { return numbers.normal(i) / count; });
  }

  double loss_of(const Tensor& out, const Tensor& head_loss) {
    if (labelled()) return head_loss.values()[0];
    const std::vector<double> values = out.values();
    const std::vector<double>& weights = slopes(out.shape());
    return std::inner_product(values.begin(), values.end(), weights.begin(), 0.0);
  }

  // Under the policy that the model's policy names for the loss.
  Tensor loss_forward(Loss& loss_head, Pass& pass, const Tensor& out, const Tensor& target) const {
    if (policy.layers.empty()) return loss_head.forward(pass, out, target);
    const PolicyScope scope(pass, policy_of_layer(policy, "loss"));
    return loss_head.forward(pass, pass.entering(out), target);
  }

  void prepare(Pass& pass) const {
    pass.caches_casts = spec.settings.cast_cache, pass.fuses = spec.settings.fused;
    pass.counts = cast_counts, pass.recomputed_tap = recomputed_tap;
  }
  // The gradient of scale * loss_factor * loss with respect to the output.
  Tensor output_gradient(Pass& pass, double factor) {
    if (labelled() && policy.layers.empty()) return head->backward(pass, factor);
    if (labelled()) {
      const PolicyScope scope(pass, policy_of_layer(policy, "loss"));
      return pass.cast(head->backward(pass, factor), output.dtype());
    }
    if (dy_scale == factor && !dy.empty()) return dy;
    PurposeScope purpose(Purpose::input);
    dy = {};  // freed first, so that memory counts one
    std::vector<double> values = slopes(output.shape());
    for (double& value : values) {
      value *= factor;
      if (spec.round_first) value = round_to(*spec.round_first, value);
    }
    dy = Tensor::from(device, output.shape(), output.dtype(), values, source.layout_of(output.shape(), output.dtype()));
    dy_scale = factor;
    return dy;
  }

  // Drawn or read when they are first wanted.
  const HeldOut& held_out_samples(int64_t samples) {
    if (!held_out || asked_samples != samples)
      held_out = std::make_shared<HeldOut>(source.held_out(samples)), asked_samples = samples;
    return *held_out;
  }

  Evaluation evaluate(int64_t samples, Answers* answers) {
    HM_CHECK(samples > 0, "evaluation needs at least one sample");
    HM_CHECK(labelled(), "subject " + spec.subject->id() + " has no labels to evaluate it by");
    PhaseScope phase("evaluation");
    const HeldOut& held = held_out_samples(samples);
    double loss_sum = 0;
    Score score;
    for (size_t i = 0; i < held.batches.size(); ++i) {
      const Batch& given = held.batches[i];
      const Shape& shape = held.shapes[i];
      Pass pass(device, policy, false);
      const Tensor out = model->forward(pass, source.given_to_model(source.input(given, shape)), nullptr);
      const Tensor labels_of_batch = source.given_to_loss(source.targets(given, shape, out.shape()));
      const auto own_head = make_loss(spec.subject->loss);
      const Tensor head_loss = loss_forward(*own_head, pass, out, labels_of_batch);
      std::vector<double> values = out.values();
      const Score own = score_of(spec.subject->data, shape, out.shape(), values, given.labels);
      if (answers) {
        answers->inputs.push_back(shape), answers->outputs.push_back(out.shape());
        answers->values.push_back(std::move(values)), answers->labels.push_back(given.labels);
      }
      score.right += own.right, score.counted += own.counted;
      loss_sum += head_loss.values()[0] * static_cast<double>(shape[0]);
    }
    return {.loss = loss_sum / static_cast<double>(held.samples), .accuracy = score.share(), .samples = held.samples};
  }

  FoldedNetwork folded_network() const {
    return spec.subject->network ? fold_batchnorm(*spec.subject->network) : FoldedNetwork{};
  }

  // A copy of the folded model under another policy.
  std::unique_ptr<Parts> copy_folded(const Policy& other) const {
    FoldedNetwork folded = folded_network();
    HM_CHECK(!folded.pairs.empty(), "subject " + spec.subject->id() + " has no batch norm to fold into a convolution");
    NamedValues trained;
    for (const Param* param : params) trained[param->name] = updated_values(*param);
    for (const State* state : states) trained[state->name] = state->value.values();
    const NamedValues values = folded_values(folded.pairs, std::move(trained));
    auto subject = std::make_shared<Subject>(
        subject_of_network(spec.subject->input, spec.subject->data, spec.subject->classes, std::move(folded.network)));
    subject->name = spec.subject->name, subject->sizes = spec.subject->sizes, subject->loss = spec.subject->loss;
    TrialSpec own = spec.under(other);
    own.subject = subject.get();
    own.settings.batchnorm_state.reset(), own.settings.scaler.reset();
    auto made = std::make_unique<Parts>(std::move(own), subject);
    for (Param* param : made->params) param->value.set_values(values.at(param->name));
    for (State* state : made->states) state->value.set_values(values.at(state->name));
    made->held_out = held_out, made->asked_samples = asked_samples;
    return made;
  }

  // The values that the optimizer updates.
  static std::vector<double> updated_values(const Param& param) {
    return (param.master.empty() ? param.value : param.master).values();
  }

  // A copy of the model under another policy: every value is rounded once to that policy's dtypes.
  std::unique_ptr<Parts> copy_under(const Policy& other) const {
    TrialSpec own = spec.under(other);
    own.settings.batchnorm_state.reset();
    own.settings.scaler.reset();
    auto made = std::make_unique<Parts>(std::move(own));
    for (size_t i = 0; i < params.size(); ++i) made->params[i]->value.set_values(updated_values(*params[i]));
    for (size_t i = 0; i < states.size(); ++i) made->states[i]->value.set_values(states[i]->value.values());
    made->held_out = held_out, made->asked_samples = asked_samples;
    return made;
  }

  void expect_finished() const { HM_CHECK(!unfinished, "an update is enqueued and not finished"); }

  void enqueue_unscale() {
    const PhaseScope phase("optimizer");
    unscaled = true;
    scaler.enqueue_unscale(device, params);
  }

  // After a non-finite gradient the device skips the optimizer's step.
  void step_unless_overflowed() {
    const PhaseScope phase("optimizer");
    optimizer.clip(params);
    optimizer.step(params, scaler.is_dynamic() ? scaler.found_inf() : Tensor());
  }

  // The gradient of loss_factor * loss, without the loss scale.
  static std::vector<double> divided(const Tensor& gradient, double by) {
    std::vector<double> values = gradient.values();
    for (double& value : values) value /= by;
    return values;
  }
};

namespace {
TrialSpec checked(TrialSpec spec) {
  HM_CHECK(spec.subject && spec.device && spec.policy, "a trial needs a subject, a device and a policy");
  return spec;
}
}  // namespace

Trial::Trial(TrialSpec spec) : parts_(std::make_unique<Parts>(checked(std::move(spec)))) {}
Trial::~Trial() = default;
Trial::Trial(Trial&&) noexcept = default;

const TrialSpec& Trial::spec() const { return parts_->spec; }
Device& Trial::device() const { return parts_->device; }
void Trial::set_tap(Tap tap) { parts_->tap = std::move(tap); }
void Trial::set_cast_counts(CastCounts* counts) { parts_->cast_counts = counts; }
void Trial::set_recomputed_tap(Tap tap) { parts_->recomputed_tap = std::move(tap); }
void Trial::set_training(bool on) {
  HM_CHECK(!parts_->pending, "the mode changes between steps, not between forward and backward");
  parts_->training = on;
}
std::vector<Param*> Trial::params() { return parts_->params; }
std::vector<State*> Trial::states() { return parts_->states; }
Scaler& Trial::scaler() { return finish_update(), parts_->scaler; }
const Optimizer& Trial::optimizer() { return finish_update(), parts_->optimizer; }
const std::vector<double>& Trial::labels() const { return parts_->batch.labels; }

void Trial::load_batch(int64_t step) {
  Parts& p = *parts_;
  p.x = {}, p.labels = {}, p.output = {};  // freed first, so that memory counts one batch at a time
  const Shape& shape = p.spec.subject->input;
  p.batch = p.source.training(step);
  p.x = p.source.input(p.batch, shape);
  if (p.labelled()) p.labels = p.source.targets(p.batch, shape, p.model->output_shape(shape));
  p.step = step;
}

void Trial::read_ahead() { parts_->source.read_ahead(); }
const ReadingTimes* Trial::reading_times() const { return parts_->source.reading_times(); }

Tensor Trial::input() const { return parts_->x; }

Tensor Trial::targets() const { return parts_->labels; }
Tensor Trial::fixed_output_gradient() const { return parts_->dy; }
Tensor Trial::scaled_input_gradient() const { return parts_->dx; }
RandomKey Trial::forward_key() const { return parts_->key.child("forward").child(static_cast<uint64_t>(parts_->step)); }

Tensor Trial::forward() {
  Parts& p = *parts_;
  HM_CHECK(!p.x.empty(), "forward needs a loaded batch");
  PhaseScope phase("forward");
  p.output = {}, p.loss = {}, p.dx = {}, p.saved = {};  // results of the previous forward
  Pass pass(p.device, p.policy, p.training, forward_key(), p.tap);
  p.prepare(pass);
  const Tensor x = p.source.given_to_model(p.x);
  const CastAhead ahead(pass, p.forward_casts[p.training]);
  p.output = p.model->forward(pass, x, &p.saved);
  const Shape promised = p.model->output_shape(x.shape());
  HM_CHECK(p.output.shape() == promised, "subject " + p.spec.subject->id() + ": its output has the shape " +
                                             p.output.shape().text() + ", its output_shape says " + promised.text());
  if (p.labelled()) p.loss = p.loss_forward(*p.head, pass, p.output, p.source.given_to_loss(p.labels));
  p.pending = true;
  return p.output;
}

double Trial::loss() const {
  HM_CHECK(!parts_->output.empty(), "there is no loss before forward");
  return parts_->loss_of(parts_->output, parts_->loss);
}

Shape Trial::output_shape() const { return parts_->output.shape(); }
DType Trial::loss_dtype() const { return parts_->loss.empty() ? DType::f64 : parts_->loss.dtype(); }

void Trial::backward(Gradients earlier) {
  Parts& p = *parts_;
  HM_CHECK(p.pending, "backward needs a forward before it; it cannot run twice");
  PhaseScope phase("backward");
  Pass pass(p.device, p.policy, p.training, p.key.child("backward").child(static_cast<uint64_t>(p.step)), p.tap);
  p.prepare(pass);
  pass.casts_tensors = CastOf::gradient;
  pass.accumulate = earlier == Gradients::added;
  p.pending = false;
  finish_update();
  p.scale = static_cast<double>(p.scaler.scale()), p.unscaled = false;
  const CastAhead ahead(pass, p.backward_casts[p.training]);
  p.dx = p.model->backward(pass, p.output_gradient(pass, p.scale * p.spec.settings.loss_factor), p.saved);
  HM_CHECK(p.saved.empty(), "backward did not use everything that forward kept");
  if (!p.dx.empty()) pass.look("gradient/input", p.dx);
}

bool Trial::unscale() {
  finish_update();
  parts_->enqueue_unscale();
  return overflowed();
}

bool Trial::overflowed() { return parts_->scaler.overflowed(); }

void Trial::clip() {
  parts_->expect_finished();
  const PhaseScope phase("optimizer");
  parts_->optimizer.clip(parts_->params);
}

void Trial::step_optimizer() {
  parts_->expect_finished();
  const PhaseScope phase("optimizer");
  parts_->optimizer.step(parts_->params);
}

void Trial::end_update(bool skipped) {
  parts_->expect_finished();
  parts_->scaler.update(skipped);
}

bool Trial::update() {
  enqueue_update();
  return finish_update();
}

void Trial::enqueue_update() {
  finish_update();
  parts_->enqueue_unscale();
  parts_->scaler.enqueue_read();
  parts_->step_unless_overflowed();
  parts_->unfinished = true;
}

void Trial::enqueue_recorded_update() {
  parts_->expect_finished();
  parts_->enqueue_unscale();
  parts_->step_unless_overflowed();
}

bool Trial::finish_update() {
  Parts& p = *parts_;
  if (!p.unfinished) return true;
  const bool skipped = p.scaler.read();
  p.unfinished = false;
  if (skipped) p.optimizer.forget_step();
  p.scaler.update(skipped);
  return !skipped;
}

StepResult Trial::train_step(int64_t step) {
  load_batch(step);
  const Tensor output = forward();
  StepResult result{.loss = loss(), .scale = static_cast<double>(scaler().scale())};
  if (const std::vector<double>& labels = parts_->batch.labels; parts_->labelled())
    result.accuracy =
        score_of(parts_->spec.subject->data, parts_->spec.subject->input, output.shape(), output.values(), labels)
            .share();
  backward();
  result.skipped = !update();
  return result;
}

Tensor Trial::infer() {
  Parts& p = *parts_;
  HM_CHECK(!p.x.empty(), "inference needs a loaded batch");
  PhaseScope phase("evaluation");
  Pass pass(p.device, p.policy, false, p.key, p.tap);
  p.prepare(pass);
  pass.counts = nullptr;  // they are of forward and backward
  const CastAhead ahead(pass, p.forward_casts[false]);
  return p.model->forward(pass, p.source.given_to_model(p.x), nullptr);
}

size_t Trial::foldable() const { return parts_->folded_network().pairs.size(); }

Evaluation Trial::evaluate(int64_t samples, const Policy* policy, EvaluatedForm form, Answers* answers) {
  parts_->held_out_samples(samples);
  if (answers) *answers = {};
  if (form == EvaluatedForm::folded)
    return parts_->copy_folded(policy ? *policy : *parts_->spec.policy)->evaluate(samples, answers);
  return policy ? parts_->copy_under(*policy)->evaluate(samples, answers) : parts_->evaluate(samples, answers);
}

std::vector<double> Trial::input_gradient() const {
  HM_CHECK(parts_->source.has_indices() || !parts_->dx.empty(), "there is no input gradient before backward");
  if (parts_->dx.empty()) return {};
  return Parts::divided(parts_->dx, parts_->scale);
}

std::vector<double> Trial::gradient(const Param& param) const {
  HM_CHECK(!param.grad.empty(), param.name + " has no gradient before backward");
  return Parts::divided(param.grad, parts_->unscaled ? 1 : parts_->scale);
}

void Trial::move_memory(const std::vector<int64_t>& pads) {
  Parts& p = *parts_;
  HM_CHECK(!p.pending, "memory is moved between steps, not between forward and backward");
  finish_update();
  p.output = {}, p.loss = {}, p.dx = {}, p.saved = {};  // results of the last step
  std::vector<Tensor*> tensors = {&p.x, &p.labels, &p.dy, &p.scaler.found_inf()};
  for (Param* param : p.params) tensors.insert(tensors.end(), {&param->value, &param->grad, &param->master});
  for (State* state : p.states) tensors.push_back(&state->value);
  for (Tensor* state : p.optimizer.tensors()) tensors.push_back(state);
  p.device.return_kept_memory();  // otherwise two places would take turns
  // All old memory is kept until the end, so that no new tensor gets it.
  std::vector<Tensor> kept;
  size_t next = 0;
  for (Tensor* tensor : tensors) {
    if (tensor->empty()) continue;
    if (!pads.empty()) kept.emplace_back(p.device, Shape{pads[next++ % pads.size()]}, DType::u8);
    const PurposeScope purpose(tensor->purpose());
    Tensor moved = tensor->clone();
    kept.push_back(std::exchange(*tensor, std::move(moved)));
  }
}

double Trial::step_flops() const {
  // Backward costs twice the forward: once for the gradient of the input, once for the gradient of the weights.
  return 3 * parts_->model->forward_flops(parts_->spec.subject->input);
}

}  // namespace halfmark::models
