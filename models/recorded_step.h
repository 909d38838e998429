// A training step as recorded work of its device: a CUDA graph, which takes one launch instead of one for each kernel.
#pragma once

#include <memory>

#include "kernels/tensor/device.h"
#include "models/namespaces.h"
#include "models/trial.h"

namespace halfmark::models {

// Every run repeats the same arithmetic with the parameters of the moment: the same batch, random numbers, number of the
// step and loss scale. Under a dynamic loss scale a step is two parts, between which the host reads whether a gradient
// was not finite, as it does between the launches.
class RecordedStep {
 public:
  // Takes two steps that are not skipped, so that everything is planned and allocated. Throws Unsupported with a reason if the device cannot
  // record the step, or if other kernels would run. The trial and its tensors must live as long as this.
  explicit RecordedStep(Trial& trial);
  bool run();  // false: skipped, because a gradient was not finite
  RecordedCounts counts() const;

 private:
  Trial& trial_;
  std::unique_ptr<RecordedWork> first_, update_;  // update_ is null without a dynamic loss scale: all is in first_
};

}  // namespace halfmark::models
