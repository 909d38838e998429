// What a kind of layer needs memory for in a training step, as a rule that is written from the definition of mixed precision
// and not from the layer's code: the tensors that backward needs, the copies that autocast makes, and what exists beside
// them for a moment. models/memory_prediction.h adds the rules of a network up; a test compares the sum with what trials
// allocate. Elements are those of the logical tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/namespaces.h"
#include "models/network/arguments.h"
#include "models/policy.h"

namespace halfmark::models {

struct StoredTensor {
  int64_t elements;
  DType dtype;
  size_t bytes() const { return bytes_for(dtype, static_cast<size_t>(elements)); }
};
using StoredTensors = std::vector<StoredTensor>;

// What a rule is told about a layer. The arguments have been checked against the kind's rows.
struct MemoryRequest {
  const Policy& policy;
  const std::string& name;  // of the layer
  Shape input, output;
  DType given;  // of the input
  GivenArguments arguments;

  // The dtype in which an operation reads a tensor of dtype `x`, and that of its result: the cast rules of the policy.
  // Throws Unsupported for an operation that the rules refuse.
  DType reads(std::string_view operation, DType x) const;
  DType writes(std::string_view operation, DType read) const;
};

struct LayerMemory {
  struct Weight {
    std::string name;  // "fc.weight", or that of another layer if it is shared
    int64_t elements;
    DType dtype;         // as it is stored
    DType read;          // as the operation reads it; a copy where it differs
    DType computed;      // of its gradient, before that is stored
    bool kept = true;    // backward reads it, so that its copy lives until then
    bool is_own = true;  // false: another layer has it
    bool is_trained = true;
  };
  // Where the gradient of the input is.
  enum class Gradient : uint8_t {
    fresh,      // in memory of its own
    of_result,  // that of the result, in another shape
    none,       // indices have none
  };

  std::vector<Weight> weights = {};
  int64_t states = 0;  // elements of running statistics, and of histories of delayed scaling
  DType states_dtype = DType::f32;
  DType read =
      DType::f32;  // of the input, as the layer reads it: a copy, for as long as forward runs, where it differs
  DType result = DType::f32;
  bool is_view = false;  // the result is the input in another shape
  bool keeps_input = false, keeps_result = false;
  StoredTensors keeps = {};                       // other tensors for backward
  StoredTensors kept_casts = {};                  // codes of weights for backward
  std::vector<StoredTensors> before_result = {};  // moments of forward, beside all of the above
  StoredTensors with_result = {};                 // what exists together with the result, likewise
  StoredTensors with_weight_gradients = {};       // what exists together with the gradient of a weight
  std::vector<StoredTensors> backward = {};       // moments of backward, beside what is kept and the result's gradient
  StoredTensors with_gradient = {};               // what exists together with the input's gradient
  bool gradient_is_last = false;                  // what is kept is released before the input's gradient is stored
  bool cast_is_last = false;                      // and before that gets the dtype of the input
  DType gradient_dtype = DType::f32;              // of the input's gradient, before it gets the dtype of the input
  Gradient gradient = Gradient::fresh;
};

// Layers of branches, and those that refer to other layers: they have no memory of their own beyond the sum. The walk over the
// network knows their forms.
enum class Joins : uint8_t {
  sum,     // the results of both branches, and their sum; the gradient of the sum goes to both
  concat,  // the results of all, and their copies one after the other; each gets a copy of its share of the gradient
  side,    // the input; the result of the branch waits for a join, and its gradient waits for the side
  join,    // the input with what waits, as sum or as concat
  same_layer,  // the rule of an earlier layer, with its weights
  recomputed,  // one branch, of which only the input is kept: backward computes forward again
};

// A column of the table of layer kinds. It has no default, so that a row without it does not compile.
class MemoryRule {
 public:
  using OfLayer = LayerMemory (*)(const MemoryRequest&);
  constexpr MemoryRule(OfLayer rule) : of_layer_(rule) {}  // NOLINT(google-explicit-constructor)
  constexpr MemoryRule(Joins form) : joins_(form) {}       // NOLINT(google-explicit-constructor)
  OfLayer of_layer() const { return of_layer_; }           // null: it joins branches
  Joins joins() const { return joins_; }

 private:
  OfLayer of_layer_ = nullptr;
  Joins joins_ = Joins::sum;
};

namespace memory_rules {

LayerMemory linear(const MemoryRequest& r);
LayerMemory tied_linear(const MemoryRequest& r);
LayerMemory conv2d(const MemoryRequest& r);
LayerMemory conv_transpose2d(const MemoryRequest& r);
LayerMemory batchnorm(const MemoryRequest& r);
LayerMemory layer_norm(const MemoryRequest& r);
LayerMemory rms_norm(const MemoryRequest& r);
LayerMemory group_norm(const MemoryRequest& r);
LayerMemory max_pool2d(const MemoryRequest& r);
LayerMemory avg_pool2d(const MemoryRequest& r);
LayerMemory adaptive_avg_pool2d(const MemoryRequest& r);
LayerMemory upsample_bilinear2d(const MemoryRequest& r);
LayerMemory upsample_nearest2d(const MemoryRequest& r);
LayerMemory flatten(const MemoryRequest& r);
LayerMemory rearranged(const MemoryRequest& r);  // to another order, or a part of it
LayerMemory softmax(const MemoryRequest& r);
LayerMemory dropout(const MemoryRequest& r);
LayerMemory embedding(const MemoryRequest& r);
LayerMemory position_embedding(const MemoryRequest& r);
LayerMemory self_attention(const MemoryRequest& r);
LayerMemory lstm(const MemoryRequest& r);
LayerMemory lstm_cell(const MemoryRequest& r);
// An activation under PyTorch's name of it, of which backward reads the result or the input.
LayerMemory activation(const MemoryRequest& r, std::string_view operation, bool keeps_result);

}  // namespace memory_rules

}  // namespace halfmark::models
