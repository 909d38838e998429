// Policies: the dtypes, cast rules, arithmetic and loss scaling of a whole training step, as rows of one table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kernels/ops/ops.h"
#include "models/namespaces.h"

namespace halfmark::models {

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
  CastRule of(std::string_view operation) const;  // as_is when not listed
};

std::span<const CastRules> cast_rules();
const CastRules& cast_rules_named(std::string_view name);  // throws Error naming the known ones

// Loss scaling, amp_semantics.md section 2. `none`: the loss is not scaled.
struct ScalerSpec {
  enum class Kind : uint8_t { none, fixed, dynamic } kind = Kind::none;
  double initial = 65536, growth = 2, backoff = 0.5;
  int interval = 2000;
};

struct Policy {
  std::string_view name;
  std::string_view about;            // one line for `halfmark list`
  DType param;                       // storage of parameters
  DType low;                         // inputs of lower-precision operations, and storage of activations
  DType norm;                        // parameters of normalisation layers
  DType state;                       // running statistics
  DType grad;                        // parameter gradients as the optimizer receives them
  bool master = false;               // keeps an f32 copy of every narrower parameter, which the optimizer updates
  const CastRules* rules = nullptr;  // null = no autocast: everything runs in the dtype of the parameters
  Math math{};  // of matmul and convolution in the low dtype; fp32 operands always use fp32 math (tf32 where set)
  ScalerSpec scaler{};
  bool hidden = false;  // serves the oracles; not listed
};

std::span<const Policy> policies();
const Policy& policy_named(std::string_view name);  // throws Error naming the known ones

}  // namespace halfmark::models
