#include "models/recorded_step.h"

#include "kernels/number/error.h"
#include "kernels/ops/ops.h"

namespace halfmark::models {
namespace {

void launch_step(Trial& trial) {
  trial.forward();
  trial.backward();
  trial.update();
}

}  // namespace

RecordedStep::RecordedStep(Trial& trial) : trial_(trial) {
  launch_step(trial);
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
    first_ = device.record([&] { gradients(), update(); });
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

}  // namespace halfmark::models
