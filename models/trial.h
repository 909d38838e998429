// A trial: one subject on one device under one policy from one seed. Harnesses create and inspect trials. Two trials
// that differ in the policy only see the same data and start from the same parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "models/files/read_ahead.h"
#include "models/namespaces.h"
#include "models/optimizer.h"
#include "models/scaler.h"
#include "models/score.h"
#include "models/trial_spec.h"

namespace halfmark::models {

struct StepResult {
  double loss = 0;       // without scale and loss_factor; of the batch before the update
  double accuracy = 0;   // of the batch (score.h); 0 without labels
  bool skipped = false;  // the scaler saw a non-finite gradient
  double scale = 1;      // the loss scale used in this step
};

// What a model answers to the held-out samples, batch by batch.
struct Answers {
  std::vector<Shape> inputs{}, outputs{};
  std::vector<std::vector<double>> values{}, labels{};  // outputs (logits), and labels as the score takes them
};

// What backward does with the gradients of an earlier one.
enum class Gradients : uint8_t { replaced, added };  // added: micro-batches

// Of the model in evaluation.
enum class EvaluatedForm : uint8_t {
  trained,  // as it is trained
  folded,   // each batch norm folded into the convolution before it (network/folded.h), in fp64, then rounded once
};

class Trial {
 public:
  explicit Trial(TrialSpec spec);
  ~Trial();
  Trial(Trial&&) noexcept;

  const TrialSpec& spec() const;
  Device& device() const;
  void set_tap(Tap tap);  // used by every later forward and backward
  // Sees the activations that checkpoint layers compute again in backward, under the names of the first forward.
  void set_recomputed_tap(Tap tap);
  // Counts the casts of every later forward and backward, but for what a checkpoint computes again; null: no longer. It lives as
  // long as it is set.
  void set_cast_counts(CastCounts* counts);
  // model.train() or model.eval() for every later forward and backward: batch norm and dropout. On at first.
  void set_training(bool on);

  // The steps, in order; the kernel log names the phases "forward", "backward", "optimizer".
  // Loads training batch number `step`; purpose `input`. A model with labels gets x
  // in the parameters' dtype, as from a data loader (autocast casts it). A single
  // layer gets x in the policy's low dtype, as from a previous layer of a network.
  void load_batch(int64_t step);
  // From now on, the batches after the one that is loaded are read by a thread, so that a training waits for its files as
  // little as possible. Drawn data do not change. Not for timed steps: the thread takes a core.
  void read_ahead();
  const ReadingTimes* reading_times() const;  // of read_ahead; null: nothing was read
  // x of the loaded batch as it is stored (Settings::indices); shares its memory, so a harness may change the values.
  Tensor input() const;
  Tensor forward();            // in the mode above; returns the output (logits), keeps the loss
  Shape output_shape() const;  // of the last forward
  double loss() const;         // of the last forward, without scale and loss_factor; copies from the device
  DType loss_dtype() const;    // as it was stored; of a subject without labels, f64
  // Gradients of scale * loss_factor * loss. Added ones are as stored: not unscaled before, if they are to fit.
  void backward(Gradients earlier = Gradients::replaced);
  bool update();  // unscale, check, clip, optimizer step, scaler update; false = skipped
  // The same in two parts. The device skips the optimizer's step itself, and its gradients may be clipped to NaN then.
  // finish_update waits for the overflow flag, but not for the optimizer's step, and updates the scale and the number of
  // steps; what needs these calls it: the next backward, scaler(), optimizer() and others.
  void enqueue_update();
  bool finish_update();  // false = skipped; true also if there is nothing to finish
  // The parts of an update in its order, for a harness that trains in another one. All but unscale throw Error after
  // enqueue_update without finish_update.
  bool unscale();  // true: a dynamic scale found a gradient that is not finite, so that the step is to be skipped
  void clip();     // by the norm, if the settings say so
  void step_optimizer();          // whether or not a gradient was finite
  void end_update(bool skipped);  // the scaler's
  // What enqueue_update enqueues, apart from the copy of the flag to the host; for a step that is recorded.
  void enqueue_recorded_update();
  bool overflowed();                    // what unscale would return of the last unscaling; waits for the device
  StepResult train_step(int64_t step);  // load_batch, forward, backward, update
  Tensor infer();                       // evaluation mode on the loaded batch; phase "evaluation"

  // Mean loss and accuracy over `samples` held-out samples, in evaluation mode; the tap is not called. Drawn ones come from
  // the generator of the training data, from a stream of their own. Of files, they are those of the test part, and as many
  // as it has if that is fewer. They are drawn or read once: every evaluation of this trial sees the same. `policy` null = the trial's own. With another policy, a copy of the parameters and running statistics
  // is cast to it first (evaluation in fp32, in pure half); the trial does not change.
  // `answers`, if given, gets the outputs too.
  Evaluation evaluate(int64_t samples, const Policy* policy = nullptr, EvaluatedForm form = EvaluatedForm::trained,
                      Answers* answers = nullptr);
  size_t foldable() const;  // batch norms that EvaluatedForm::folded folds; 0 for a model that only a function knows

  std::vector<Param*> params();
  std::vector<State*> states();
  Scaler& scaler();
  const Optimizer& optimizer();
  // As stored; empty where there is none. The output gradient is that of a subject without labels, times the loss scale;
  // that of the input is still multiplied by it.
  Tensor targets() const;
  Tensor fixed_output_gradient() const;
  Tensor scaled_input_gradient() const;
  RandomKey forward_key() const;              // of the loaded batch: what dropout draws from
  const std::vector<double>& labels() const;  // of the loaded batch; empty for a subject without labels
  // After backward: the gradients of loss_factor * loss, i.e. dx of the loaded batch and each Param::grad, divided by
  // the loss scale in fp64. After update, Param::grad is already unscaled and is not divided again.
  std::vector<double> input_gradient() const;
  std::vector<double> gradient(const Param& param) const;
  // Moves every tensor that lives longer than a step to newly allocated memory, with the same values and purposes.
  // `pads` are the sizes in bytes of blocks that are allocated between them and released at the end; they repeat.
  // The speed of a step depends on where its tensors lie; repeated timings use a new place each.
  void move_memory(const std::vector<int64_t>& pads);
  double step_flops() const;  // forward and backward, multiply-adds count two

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace halfmark::models
