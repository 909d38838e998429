// A training step, built from data, model, loss, scaler and optimizer.
#include "models/trial.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "models/draw.h"
#include "models/index_storage.h"
#include "models/layers/detection_loss.h"
#include "models/layers/loss.h"
#include "models/network/folded.h"
#include "models/score.h"

namespace halfmark::models {
namespace {

// A factor of the loss multiplies the gradients, which Adam's step does not depend on.
double rate_of(const Settings& settings) {
  return settings.optimizer.kind == OptimizerKind::sgd ? settings.rate / settings.loss_factor : settings.rate;
}

// A policy with the settings that override it.
Policy adjusted(const Policy& policy, const Settings& settings) {
  Policy own = policy;
  if (settings.batchnorm_state) own.state = *settings.batchnorm_state;
  if (settings.scaler) own.scaler = *settings.scaler;
  return own;
}

// Held-out samples in one forward pass: as many as fit, but not more than this, whatever the batch of the training. In
// evaluation mode no sample depends on another.
constexpr int64_t kEvaluationBatch = 256;
constexpr std::string_view kHeldOutStream = "evaluation";

}  // namespace

TrialSpec TrialSpec::under(const Policy& other) const {
  TrialSpec spec = *this;
  spec.policy = &other;
  return spec;
}

TrialSpec TrialSpec::oracle(Inputs inputs) const {
  TrialSpec spec = under(policy_named("fp64"));
  spec.device = oracle_device(*device);
  spec.round_first = inputs == Inputs::rounded ? &format_of(policy->low) : nullptr;
  // The same scale, exact in fp64, so that values rounded after scaling are rounded in the same way. Such a value is
  // the output gradient of a subject without labels.
  ScalerSpec scale = settings.scaler.value_or(policy->scaler);
  if (scale.kind == ScalerSpec::Kind::dynamic) scale.kind = ScalerSpec::Kind::fixed;
  spec.settings.scaler = scale;
  spec.settings.batchnorm_state.reset(), spec.settings.batchnorm_accumulate.reset();
  return spec;
}

struct Trial::Parts {
  struct HeldOut {
    int64_t samples = 0;
    std::vector<Batch> batches;
  };

  std::shared_ptr<const Subject> own_subject;  // that of the spec, if it is no one else's
  TrialSpec spec;
  Policy policy;  // the spec's, with the settings that override it
  Device& device;
  RandomKey key;
  LayerPtr model;
  std::vector<Param*> params;
  std::vector<State*> states;
  std::unique_ptr<Loss> head;
  Optimizer optimizer;
  Scaler scaler;
  Tap tap;

  std::shared_ptr<const HeldOut> held_out;  // shared by all evaluations; empty until the first

  // Of the loaded batch.
  Batch batch;
  Tensor x, labels;
  int64_t step = -1;
  bool reads_ahead = false;
  std::unique_ptr<ReadAhead> ahead;
  // Of the last forward and backward.
  Saved saved;
  Tensor output, loss, dx;
  bool pending = false;   // forward has run and backward has not
  double scale = 1;       // the loss scale of the last backward
  bool unscaled = false;  // the gradients have been divided by it since
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
        model(make_model(*spec.subject, {device, policy, key.child("parameters"), spec.round_first}, spec.settings)),
        params(model->params()),
        states(model->states()),
        head(make_loss(spec.subject->loss)),
        optimizer(spec.settings.optimizer, rate_of(spec.settings), spec.settings.momentum, spec.settings.weight_decay,
                  key.child("rounding").value()),
        scaler(policy.scaler) {}

  bool labelled() const { return spec.subject->has_labels(); }
  bool has_indices() const { return row_of(spec.subject->data).has_indices; }

  // The shape of the input with another number of samples.
  Shape input_shape(int64_t samples) const {
    std::vector<int64_t> extents(spec.subject->input.extents().begin(), spec.subject->input.extents().end());
    extents[0] = samples;
    return Shape(extents);
  }

  Batch draw(std::string_view stream, int64_t number, const Shape& shape) const {
    const Subject& subject = *spec.subject;
    const RandomKey own = key.child("data").child(stream);
    Batch drawn = !spec.data ? draw_batch(subject.data, shape, subject.classes, own, number)
                  : stream == kHeldOutStream
                      ? held_out_batch(*spec.data, subject.data, shape, own, number * kEvaluationBatch)
                      : training_batch(*spec.data, subject.data, shape, own, number);
    return changed(std::move(drawn));
  }
  // With the settings and the rounding of the trial.
  Batch changed(Batch drawn) const {
    for (double& value : drawn.x) {
      if (has_indices()) break;
      value = value * spec.settings.input_scale + spec.settings.input_offset;
      if (spec.round_first) value = round_to(*spec.round_first, value);
    }
    return drawn;
  }

  // A batch of files, from the thread that reads ahead.
  Batch read(int64_t number) {
    if (!ahead || ahead->next_step() != number)
      ahead = std::make_unique<ReadAhead>(
          [data = spec.data, subject = spec.subject, own = key.child("data").child("training")](int64_t wanted) {
            return training_batch(*data, subject->data, subject->input, own, wanted, true);
          },
          number);
    return changed(ahead->take());
  }

  Layout layout_of(const Shape& shape, DType dtype) const {
    return shape.rank() == 4 && is_floating(dtype) ? device.image_layout(dtype) : Layout::plain;
  }
  Tensor input(const Batch& drawn, const Shape& shape) const {
    PurposeScope purpose(Purpose::input);
    const DType dtype = spec.subject->input_dtype(policy);
    if (has_indices()) return stored_indices(device, shape, drawn.x, spec.settings.indices);
    return Tensor::from(device, shape, dtype, drawn.x, layout_of(shape, dtype));
  }
  // 1 for the class of the label and 0 for the others, for losses that compare numbers.
  Tensor one_hot(const std::vector<double>& classes, const Shape& result) const {
    const bool is_image = result.rank() == 4;
    const int64_t count = is_image ? result[1] : result[result.rank() - 1];
    const int64_t pixels = is_image ? result[2] * result[3] : 1;
    std::vector<double> values(static_cast<size_t>(result.elements()), 0.0);
    for (int64_t i = 0; i < static_cast<int64_t>(classes.size()); ++i) {
      const auto label = static_cast<int64_t>(classes[static_cast<size_t>(i)]);
      if (label < count) values[static_cast<size_t>((i / pixels * count + label) * pixels + i % pixels)] = 1;
    }
    return Tensor::from(device, result, policy.param, values);
  }
  // Of a batch of inputs `given`, for outputs `result`.
  Tensor targets(const Batch& drawn, const Shape& given, const Shape& result) const {
    PurposeScope purpose(Purpose::input);
    const Shape shape = target_shape(spec.subject->data, given);
    if (row_of(spec.subject->loss.kind).targets == TargetKind::values) return one_hot(drawn.labels, result);
    if (spec.subject->data == DataKind::boxes)
      return Tensor::from(device, {result[0], result[1], 2 * result[2]}, policy.param,
                          detection_targets(drawn.labels, result[0], result[2] - 4, given[2], given[3]));
    if (spec.subject->data != DataKind::speech)
      return stored_indices(device, shape, drawn.labels, spec.settings.indices);
    std::vector<double> filled = drawn.labels;  // all steps of the output count
    for (size_t i = 0; i < filled.size(); i += static_cast<size_t>(shape[1]))
      filled[i] = static_cast<double>(result[1]);
    return stored_indices(device, shape, filled, spec.settings.indices);
  }
  // Of the model, from a stored batch.
  Tensor given_to_model(const Tensor& stored) const {
    return has_indices() ? indices_for_kernels(stored, spec.settings.indices) : stored;
  }
  // Of the loss. Targets that are floating numbers are stored as they are.
  Tensor given_to_loss(const Tensor& stored) const {
    return is_floating(stored.dtype()) ? stored : indices_for_kernels(stored, spec.settings.indices);
  }

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

  // The gradient of scale * loss_factor * loss with respect to the output.
  Tensor output_gradient(Pass& pass, double factor) {
    if (labelled()) return head->backward(pass, factor);
    if (dy_scale == factor && !dy.empty()) return dy;
    PurposeScope purpose(Purpose::input);
    std::vector<double> values = slopes(output.shape());
    for (double& value : values) {
      value *= factor;
      if (spec.round_first) value = round_to(*spec.round_first, value);
    }
    dy = Tensor::from(device, output.shape(), output.dtype(), values, layout_of(output.shape(), output.dtype()));
    dy_scale = factor;
    return dy;
  }

  // `samples` held-out samples in batches, drawn when they are first wanted.
  const HeldOut& held_out_samples(int64_t samples) {
    if (spec.data) samples = std::min(samples, spec.data->samples(Split::held_out, spec.subject->input));
    if (held_out && held_out->samples == samples) return *held_out;
    auto drawn = std::make_shared<HeldOut>();
    drawn->samples = samples;
    for (int64_t first = 0; first < samples; first += kEvaluationBatch)
      drawn->batches.push_back(
          draw(kHeldOutStream, first / kEvaluationBatch, input_shape(std::min(kEvaluationBatch, samples - first))));
    held_out = std::move(drawn);
    return *held_out;
  }

  Evaluation evaluate(int64_t samples) {
    HM_CHECK(samples > 0, "evaluation needs at least one sample");
    HM_CHECK(labelled(), "subject " + spec.subject->id() + " has no labels to evaluate it by");
    PhaseScope phase("evaluation");
    const HeldOut& held = held_out_samples(samples);
    Evaluation result{.samples = held.samples};
    double loss_sum = 0, right = 0;
    for (const Batch& given : held.batches) {
      const int64_t count = static_cast<int64_t>(given.x.size()) / std::max<int64_t>(1, input_shape(1).elements());
      Pass pass(device, policy, false);
      const Tensor out = model->forward(pass, given_to_model(input(given, input_shape(count))), nullptr);
      const Tensor labels_of_batch = given_to_loss(targets(given, input_shape(count), out.shape()));
      const Tensor head_loss = make_loss(spec.subject->loss)->forward(pass, out, labels_of_batch);
      right += accuracy_of(spec.subject->data, input_shape(count), out.shape(), out.values(), given.labels) *
               static_cast<double>(count);
      loss_sum += head_loss.values()[0] * static_cast<double>(count);
    }
    result.loss = loss_sum / static_cast<double>(result.samples);
    result.accuracy = right / static_cast<double>(result.samples);
    return result;
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
    made->held_out = held_out;
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
    made->held_out = held_out;
    return made;
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
std::vector<Param*> Trial::params() { return parts_->params; }
std::vector<State*> Trial::states() { return parts_->states; }
Scaler& Trial::scaler() { return parts_->scaler; }
const Optimizer& Trial::optimizer() const { return parts_->optimizer; }
const std::vector<double>& Trial::labels() const { return parts_->batch.labels; }

void Trial::load_batch(int64_t step) {
  Parts& p = *parts_;
  p.x = {}, p.labels = {}, p.output = {};  // freed first, so that memory counts one batch at a time
  p.batch = p.reads_ahead ? p.read(step) : p.draw("training", step, p.spec.subject->input);
  p.x = p.input(p.batch, p.spec.subject->input);
  if (p.labelled()) p.labels = p.targets(p.batch, p.spec.subject->input, p.model->output_shape(p.spec.subject->input));
  p.step = step;
}

void Trial::read_ahead() { parts_->reads_ahead = parts_->spec.data != nullptr; }
const ReadingTimes* Trial::reading_times() const { return parts_->ahead ? &parts_->ahead->times() : nullptr; }

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
  Pass pass(p.device, p.policy, true, forward_key(), p.tap);
  const Tensor x = p.given_to_model(p.x);
  p.output = p.model->forward(pass, x, &p.saved);
  const Shape promised = p.model->output_shape(x.shape());
  HM_CHECK(p.output.shape() == promised, "subject " + p.spec.subject->id() + ": its output has the shape " +
                                             p.output.shape().text() + ", its output_shape says " + promised.text());
  if (p.labelled()) p.loss = p.head->forward(pass, p.output, p.given_to_loss(p.labels));
  p.pending = true;
  return p.output;
}

double Trial::loss() const {
  HM_CHECK(!parts_->output.empty(), "there is no loss before forward");
  return parts_->loss_of(parts_->output, parts_->loss);
}

void Trial::backward() {
  Parts& p = *parts_;
  HM_CHECK(p.pending, "backward needs a forward before it; it cannot run twice");
  PhaseScope phase("backward");
  Pass pass(p.device, p.policy, true, p.key.child("backward").child(static_cast<uint64_t>(p.step)), p.tap);
  p.pending = false;
  p.scale = static_cast<double>(p.scaler.scale()), p.unscaled = false;
  p.dx = p.model->backward(pass, p.output_gradient(pass, p.scale * p.spec.settings.loss_factor), p.saved);
  HM_CHECK(p.saved.empty(), "backward did not use everything that forward kept");
  if (!p.dx.empty()) pass.look("gradient/input", p.dx);
}

bool Trial::update() {
  Parts& p = *parts_;
  PhaseScope phase("optimizer");
  const bool skip = p.scaler.unscale(p.device, p.params);
  p.unscaled = true;
  if (!skip) p.optimizer.clip(p.params);
  if (!skip) p.optimizer.step(p.params);
  p.scaler.update(skip);
  return !skip;
}

StepResult Trial::train_step(int64_t step) {
  load_batch(step);
  const Tensor output = forward();
  StepResult result{.loss = loss(), .scale = static_cast<double>(scaler().scale())};
  if (const std::vector<double>& labels = parts_->batch.labels; parts_->labelled())
    result.accuracy =
        accuracy_of(parts_->spec.subject->data, parts_->spec.subject->input, output.shape(), output.values(), labels);
  backward();
  result.skipped = !update();
  return result;
}

Tensor Trial::infer() {
  Parts& p = *parts_;
  HM_CHECK(!p.x.empty(), "inference needs a loaded batch");
  PhaseScope phase("evaluation");
  Pass pass(p.device, p.policy, false, p.key, p.tap);
  return p.model->forward(pass, p.given_to_model(p.x), nullptr);
}

double Evaluation::accuracy_error() const {
  const auto count = static_cast<double>(samples);
  const double q = (accuracy * count + 1) / (count + 2);
  return std::sqrt(q * (1 - q) / count);
}

size_t Trial::foldable() const { return parts_->folded_network().pairs.size(); }

Evaluation Trial::evaluate(int64_t samples, const Policy* policy, EvaluatedForm form) {
  parts_->held_out_samples(samples);
  if (form == EvaluatedForm::folded)
    return parts_->copy_folded(policy ? *policy : *parts_->spec.policy)->evaluate(samples);
  return policy ? parts_->copy_under(*policy)->evaluate(samples) : parts_->evaluate(samples);
}

std::vector<double> Trial::input_gradient() const {
  HM_CHECK(parts_->has_indices() || !parts_->dx.empty(), "there is no input gradient before backward");
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
