// A training step as recorded work of its device: a CUDA graph, which takes one launch instead of one for each kernel.
#pragma once

#include <memory>

#include "kernels/tensor/device.h"
#include "models/namespaces.h"
#include "models/trial.h"

namespace halfmark::models {

// Every run repeats the same arithmetic with the parameters of the moment: the same batch, random numbers, number of the
// step and loss scale. Under a dynamic loss scale the device skips the optimizer's step if a gradient was not finite
// (Trial::overflowed).
class RecordedStep {
 public:
  // Takes two steps, the first not skipped, so that everything is planned and allocated. Throws Unsupported with a reason if the device cannot
  // record the step, or if other kernels would run. The trial and its tensors must live as long as this.
  explicit RecordedStep(Trial& trial);
  void run() { work_->run(); }  // enqueues a step
  RecordedCounts counts() const { return work_->counts(); }

 private:
  std::unique_ptr<RecordedWork> work_;
};

}  // namespace halfmark::models
