// Policies: the dtypes, cast rules, arithmetic and loss scaling of a whole training step, as rows of one table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops/ops.h"
#include "models/namespaces.h"
#include "models/scaler_spec.h"

namespace halfmark::models {

struct QuantizedProducts;  // models/quantized_products.h

// What autocast does with the inputs of an operation.
enum class CastRule : uint8_t {
  lower,     // all floating inputs to the policy's low dtype
  fp32,      // all floating inputs to f32
  fp32_out,  // inputs unchanged, output f32 (softmax: the kernel reads half and computes in fp32)
  widest,    // all inputs to the widest dtype among them
  as_is,     // unchanged: runs in the dtype of its input
  refused,   // not allowed under this table (binary cross-entropy)
};

// The cast rules of one framework backend by operation name, including operations that this suite does not implement.
struct CastRules {
  struct Group {
    CastRule rule;
    std::string_view operations;  // separated by single spaces
  };
  std::string_view name;  // "torch-cuda"
  std::span<const Group> groups;
  // Each layer first casts its floating inputs to the low dtype; then the rules of its operations hold.
  bool casts_layer_inputs = false;
  CastRule of(std::string_view operation) const;  // as_is when not listed
};

std::span<const CastRules> cast_rules();
const CastRules& cast_rules_named(std::string_view name);  // throws Error naming the known ones

struct Policy;

// Layers that run under another policy than the rest of the model, with its parameters, casts and arithmetic.
struct LayerPolicy {
  std::string pattern;  // of names of layers: * is any text; "loss" is the loss
  const Policy* policy;
};

struct Policy {
  std::string_view name;
  std::string_view about;  // one line for `halfmark list`
  DType param;             // storage of parameters
  DType low;               // inputs of lower-precision operations, and storage of activations
  DType batch_norm;        // parameters of batch norms; other norms have `param`
  DType state;             // running statistics
  DType grad;              // parameter gradients as the optimizer receives them
  bool halves_plain_batch_norm =
      false;                         // a batch norm without scale and shift is stored in `param`, as any other module
  bool master = false;               // keeps an f32 copy of every narrower parameter, which the optimizer updates
  const CastRules* rules = nullptr;  // null = no autocast: everything runs in the dtype of the parameters
  Math math{};  // of matmul and convolution in the low dtype; fp32 operands always use fp32 math (tf32 where set)
  ScalerSpec scaler{};
  Storage storage = Storage::nearest;           // of parameters narrower than fp32 by the optimizer
  std::vector<LayerPolicy> layers = {};         // the last one that matches a layer counts
  const Policy* base = nullptr;                 // the row that this policy is a change of; null: a row
  const QuantizedProducts* products = nullptr;  // how linear layers quantise their operands; null: they do not
};

std::span<const Policy> policies();  // the rows

// A row by its name, or a change of a row: NAME+rules=RULES+scaler=SCALER+precision=LAYERS, each part at most once, as in
// "amp-fp16+scaler=static:128" or "fp16+precision=conv3=fp32,block*.bn=fp16-bn32". RULES: cast_rules(); SCALER:
// scaler_of(); LAYERS: patterns of names of layers, each with a row. The same change gives the same policy, whose name is
// its shortest form. Throws Error that says what does not fit.
const Policy& policy_named(std::string_view text);
size_t place_of(const Policy& policy);  // of its row in policies()

bool matches_layer(const std::string& pattern, const std::string& layer);
// The entry of `layers` that counts for a layer; null: it has the model's policy.
const LayerPolicy* entry_of_layer(const Policy& model, const std::string& layer);
// The policy of a layer: that of `layers`, else the model's.
const Policy& policy_of_layer(const Policy& model, const std::string& layer);

// Running statistics of a batch norm.
inline DType statistics_dtype(const Policy& policy, bool is_affine) {
  return policy.halves_plain_batch_norm && !is_affine ? policy.param : policy.state;
}

inline bool casts_layer_inputs(const Policy& policy) { return policy.rules && policy.rules->casts_layer_inputs; }

// Whether the policy, or that of one of its layers, quantises; and whether with delayed scaling.
bool quantizes_products(const Policy& policy);
bool has_delayed_scaling(const Policy& policy);

}  // namespace halfmark::models
