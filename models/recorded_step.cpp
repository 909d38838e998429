#include "models/recorded_step.h"

#include "kernels/number/error.h"
#include "kernels/ops/ops.h"

namespace halfmark::models {
namespace {

// Overflows lower a dynamic loss scale from the largest one of fp32 to less than 1 in so many steps.
constexpr int kMostSkipped = 130;

bool launch_step(Trial& trial) {
  trial.forward();
  trial.backward();
  return trial.update();
}

}  // namespace

RecordedStep::RecordedStep(Trial& trial) : trial_(trial) {
  for (int skipped = 0; !launch_step(trial); ++skipped)
    if (skipped == kMostSkipped) throw Unsupported("every step is skipped, because gradients are not finite");
  const KernelLog launched;
  launch_step(trial);
  const LogPause pause;  // those below are no calls of `launched`
  const KernelLog recorded;
  const auto gradients = [&] {
    trial.forward();
    trial.backward();
    trial.enqueue_unscale();
  };
  const auto update = [&] {
    trial.clip();
    trial.step_optimizer();
  };
  Device& device = trial.device();
  if (trial.scaler().is_dynamic()) {
    first_ = device.record(gradients);
    update_ = device.record(update);
  } else {
    first_ = device.record([gradients, update] { gradients(), update(); });
  }
  if (!recorded.has_same_calls(launched))
    throw Unsupported(device.name() + " would record other kernels than those that a step launches");
}

bool RecordedStep::run() {
  first_->run();
  if (!update_) return true;
  if (trial_.overflowed()) return false;
  update_->run();
  return true;
}

RecordedCounts RecordedStep::counts() const {
  RecordedCounts all = first_->counts();
  if (!update_) return all;
  const RecordedCounts update = update_->counts();
  all.kernels += update.kernels, all.copies += update.copies, all.fills += update.fills;
  return all;
}

}  // namespace halfmark::models
