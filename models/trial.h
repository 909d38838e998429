// A trial: one subject, on one device, under one policy, from one seed. Harnesses make trials and look at them; two
// trials that differ in the policy alone see the same data and start from the same parameters.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/optimizer.h"
#include "models/scaler.h"
#include "models/settings.h"
#include "models/zoo.h"

namespace halfmark::models {

using Axes = std::map<std::string, std::string>;

enum class Inputs : uint8_t {
  drawn,
  rounded
};  // what an oracle is fed: the drawn numbers, or those rounded to the policy's low format

struct TrialSpec {
  const Subject* subject = nullptr;
  std::shared_ptr<Device> device;
  const Policy* policy = nullptr;
  Axes axes;  // of the harness, for the case's id; Settings are what they mean
  uint64_t seed = 0;
  Settings settings;
  const Format* round_first =
      nullptr;  // x and parameters are rounded to this format before anything else; set by oracle()

  TrialSpec under(const Policy& other) const;
  TrialSpec oracle(Inputs inputs) const;  // the fp64 twin, on a device of its own
};

struct StepResult {
  double loss = 0;       // without scale and loss_factor; of the batch before the update
  double accuracy = 0;   // of the batch; 0 without labels
  bool skipped = false;  // the scaler saw a non-finite gradient
  double scale = 1;      // the loss scale used in this step
};

struct Evaluation {
  double loss = 0, accuracy = 0;
};

class Trial {
 public:
  explicit Trial(TrialSpec spec);
  ~Trial();
  Trial(Trial&&) noexcept;

  const TrialSpec& spec() const;
  Device& device() const;
  void set_tap(Tap tap);  // seen by every later forward and backward

  // The parts, in order; phases "forward", "backward", "optimizer" are named in the kernel log.
  // Training batch number `step`; purpose `input`. With labels x has the parameters' dtype, as a data loader hands it
  // over (autocast casts it). A layer alone gets x in the policy's low dtype: it stands inside a network, where a layer
  // before it stored that.
  void load_batch(int64_t step);
  Tensor input() const;                 // x of the loaded batch; shares its memory, so a harness may change the values
  Tensor forward();                     // training mode; returns the output (logits), keeps the loss
  double loss() const;                  // of the last forward, without scale and loss_factor; copies from the device
  void backward();                      // gradients of scale * loss_factor * loss
  bool update();                        // unscale, check, optimizer step, scaler update; false = skipped
  StepResult train_step(int64_t step);  // all of the above
  Tensor infer();                       // evaluation mode on the loaded batch; phase "evaluation"

  // Loss and accuracy over `batches` held-out batches, in evaluation mode; the tap does not see it. `policy` null = the
  // trial's own; another one casts parameters and running statistics to that policy first (evaluation in fp32, in full
  // half), leaving the trial unchanged.
  Evaluation evaluate(int64_t batches, const Policy* policy = nullptr);

  std::vector<Param*> params();
  std::vector<State*> states();
  Scaler& scaler();
  // After backward: dx of the loaded batch, and each Param::grad, divided by the loss scale in fp64 (once: after update
  // they are unscaled already). Gradients of loss_factor * loss.
  std::vector<double> input_gradient() const;
  std::vector<double> gradient(const Param& param) const;
  double step_flops() const;  // forward and backward, multiply-adds count two

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace halfmark::models
