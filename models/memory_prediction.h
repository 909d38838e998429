// The memory of a training step, computed from the description of a subject without running it: shapes, dtypes of the policy,
// its cast rules, the optimizer and the batch. It shares no code with the layers and with the ledger of a device, so that
// each checks the other. Bytes are those of logical tensors: neither scratch of kernels nor padding of their layouts.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/tensor/memory.h"
#include "models/namespaces.h"
#include "models/policy.h"
#include "models/settings.h"
#include "models/subject.h"

namespace halfmark::models {

struct KeptByLayer {
  const LayerSpec* layer;  // of the subject's network
  size_t bytes;            // that only exist because this layer keeps them for backward; copies of weights not included
};

struct MemoryPrediction {
  MemoryUse peak;                   // the split at the moment of the largest total of a step that is not the first
  size_t saved = 0;                 // for backward, when forward and the loss have run; purpose `saved`
  std::vector<KeptByLayer> layers;  // in the order in which they run; of a checkpoint its input
};

// Throws Error for a subject without a network, and Unsupported if the policy refuses one of its operations.
MemoryPrediction predict_memory(const Subject& subject, const Policy& policy, const Settings& settings = {});

}  // namespace halfmark::models
