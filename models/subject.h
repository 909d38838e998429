// A subject: a single layer or a model, with everything that a trial needs to build it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "models/data.h"
#include "models/layer.h"
#include "models/layers/loss.h"
#include "models/namespaces.h"
#include "models/network/network.h"
#include "models/settings.h"

namespace halfmark::models {

struct Subject {
  std::string name;   // "linear", "conv2d", "batchnorm2d", "mlp", "convnet", ...
  std::string sizes;  // "b16_i32_h64_o8"
  Shape input;        // with the batch first
  DataKind data;
  int64_t classes;  // of the data; 0: it has none
  std::function<LayerPtr(const Init&, const Settings&)> make;
  bool built_in = false;                     // of a family, not added by a program of another project
  std::shared_ptr<const Network> network{};  // what `make` builds; empty: known to `make` only
  LossSpec loss{};                           // of a subject with labels
  Settings settings{};                       // with which it is trained, unless a harness changes them
  std::string id() const { return name + "/" + sizes; }
  // Without labels, the loss is the inner product of the output with fixed N(0, 1) / elements numbers.
  bool has_labels() const { return classes > 0 && row_of(data).has_labels(); }
  // Of the input under a policy.
  DType input_dtype(const Policy& policy) const {
    const DataRow& row = row_of(data);
    if (row.has_indices) return DType::i32;
    // Each layer casts it to its own dtype; where all have the same one, so does the input.
    DType dtype = row.from_layer ? policy.low : policy.param;
    for (const LayerPolicy& one : policy.layers)
      dtype = wider(dtype, row.from_layer ? one.policy->low : one.policy->param);
    return dtype;
  }
};

// What is wrong with the layers that the policy names: a pattern that matches none of the subject's; nothing if all do.
std::optional<std::string> unmatched_layer(const Policy& policy, const Subject& subject);
// What is wrong with the layers that get a policy with quantised products: a pattern of whose layers none is quantised, which
// would run as if the policy had no quantised products; nothing if each quantises some.
std::optional<std::string> unquantised_layer(const Policy& policy, const Subject& subject);

// A subject, still without name and sizes, whose model is this network.
Subject subject_of_network(const Shape& input, DataKind data, int64_t classes, Network network);

// Throws Error if the loss cannot be that of such labels: of ctc a blank other than 0, which no symbol of speech is.
void check_loss(DataKind data, const LossSpec& loss);

// A hash, in hexadecimal, of what decides which numbers the subject computes from its initial values and data: input, kind
// of data, classes, loss and network. Empty for a subject that only a function of a program knows.
std::string definition_of(const Subject& subject);

// The subject's model. Throws Error naming the subject if check_loss does, its `make` fails or returns nothing, or if two parameters or
// two states have the same name: gradients and statistics are identified by it.
LayerPtr make_model(const Subject& subject, const Init& init, const Settings& settings);

}  // namespace halfmark::models
