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

RecordedStep::RecordedStep(Trial& trial) {
  for (int skipped = 0; !launch_step(trial); ++skipped)
    if (skipped == kMostSkipped) throw Unsupported("every step is skipped, because gradients are not finite");
  const KernelLog launched;
  launch_step(trial);
  const LogPause pause;  // those below are no calls of `launched`
  const KernelLog recorded;
  Device& device = trial.device();
  work_ = device.record([&trial] {
    trial.forward();
    trial.backward();
    trial.enqueue_recorded_update();
  });
  if (!recorded.has_same_calls(launched))
    throw Unsupported(device.name() + " would record other kernels than those that a step launches");
}

}  // namespace halfmark::models
