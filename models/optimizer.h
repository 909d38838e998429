// Optimizers: a table of kinds with the definitions of PyTorch and Keras, how they store parameters, and clipping by the
// norm of the gradients. Arithmetic is at least fp32 for every storage dtype (kernels/ops/operations/training.h). State
// has Purpose::optimizer and the dtype of the parameter that is updated: the master copy if there is one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "models/layer.h"
#include "models/namespaces.h"
#include "models/settings.h"

namespace halfmark::models {

struct OptimizerRow {
  OptimizerKind kind;
  std::string_view name;       // "adamw"
  std::string_view about;      // one line
  std::string_view arguments;  // the members of OptimizerSpec that it reads, separated by single spaces
  double epsilon;              // its default; 0: it has none
};

std::span<const OptimizerRow> optimizer_rows();
const OptimizerRow& optimizer_named(std::string_view name);  // throws Error naming the known ones
const OptimizerRow& row_of(OptimizerKind kind);

struct StorageRow {
  Storage storage;
  std::string_view name;   // "kahan"
  std::string_view about;  // one line
};
std::span<const StorageRow> storage_rows();
const StorageRow& storage_named(std::string_view name);
const StorageRow& row_of(Storage storage);

// With the policy's storage of parameters, if the optimizer has none of its own.
OptimizerSpec stored_under(const Policy& policy, const OptimizerSpec& spec);

class Optimizer {
 public:
  // Of one parameter. Tensors are empty until its first step, and where the kind or the storage has none.
  struct State {
    Tensor first;         // SGD: the velocity; Adam: the mean of the gradients
    Tensor second;        // the mean of their squares
    Tensor compensation;  // what the parameter lacks, with Storage::kahan
    int64_t steps = 0;    // that were enqueued or recorded and not forgotten; not those of a recorded step that runs
  };

  // `noise`: the seed of rounding at random. Throws Error for arguments that cannot be.
  Optimizer(const OptimizerSpec& spec, double rate, double momentum = 0, double weight_decay = 0, uint64_t noise = 0);

  // Multiplies all gradients by min(1, clip_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; nothing if the
  // specification has no clip_norm. The norm is f32 (f64 if a gradient is); with StepRounding::each_operation it is stored
  // in the widest dtype of the gradients, as in PyTorch: in fp16 a norm of 1e5 is infinite and all gradients become 0.
  void clip(const std::vector<Param*>& params);
  // Updates every parameter that has a gradient: the master copy if there is one, which is rounded into the value. `found_inf`:
  // as of SgdStep.
  void step(const std::vector<Param*>& params, const Tensor& found_inf = {});
  void forget_step();  // undoes the count of the last step, which the device has skipped

  const std::vector<State>& states() const { return states_; }  // in the order of the parameters
  std::vector<Tensor*> tensors();                               // all state that is not empty

 private:
  // What one launch updates.
  struct Updates {
    std::span<UpdatedTensors> tensors;
    const Tensor& found_inf;
    int64_t number;  // of the step
    uint64_t noise;
  };
  void sgd(const Updates& updates) const;
  void adam(const Updates& updates) const;

  OptimizerSpec spec_;
  double rate_, momentum_, weight_decay_;
  uint64_t noise_;
  int64_t steps_ = 0;
  std::vector<State> states_;
  std::vector<size_t> stepped_;  // the parameters of the last step
};

}  // namespace halfmark::models
