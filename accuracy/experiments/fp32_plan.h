// Which layers of a network must run in fp32 under a policy in half, and why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "accuracy/experiments/layer_errors.h"
#include "accuracy/namespaces.h"
#include "models/trial.h"

namespace halfmark::accuracy {

// Why a layer cannot stay in half, found by running it once more with one thing changed.
enum class PlanCause : uint8_t {
  accumulation,  // its sums: with half storage and sums in fp32 the tolerance is met
  range,         // values beyond the format or below it: with the exponents of bf16, and fewer fraction bits, it is met
  cancellation,  // its rounding alone, all other layers in fp32, breaks the tolerance
  rounding,      // its rounding breaks the tolerance only together with that of other layers
  unknown,       // no pass was left to find out
};
std::string_view name_of(PlanCause cause);

struct PlannedLayer {
  std::string name, kind{};
  PlanCause cause = PlanCause::unknown;
  // The layer back in half, the others of the set in fp32.
  double error = 0;           // of the results
  TensorError worst{};        // of its own tensors
  std::string largest_at{};   // where the largest value that it reads or computes is
  double largest = 0;         // that value, in fp64
  double changed_error = -1;  // of the results with the one thing changed; -1: not run
  std::string changed{};      // that thing, as "sums in fp32"
  std::string evidence{};     // in words
};

struct Fp32PlanOptions {
  double tolerance = 0;  // 0: derived_tolerance
  int most_passes = 40;
};

struct Fp32Plan {
  std::vector<PlannedLayer> layers;  // in running order
  std::string precision;             // "exp3=fp32,fc4=fp32"; empty: none
  double tolerance = 0;
  bool tolerance_is_derived = false;
  std::string_view format{};  // the coarsest that a forward pass multiplies in
  size_t layers_in_all = 0;   // with the loss, if there is one
  bool meets = false;         // with all layers in fp32 the tolerance is met
  bool is_minimal = false;    // without any one layer of the set the tolerance was missed
  PassErrors none, with_set, all, fp32;
  bool all_is_fp32 = false;  // bits of `all` and `fp32` are equal
  int passes = 0;            // each in training and in evaluation mode, with the fp64 reference
};

// 8 u sqrt(n): u is the unit roundoff of the policy's low format (or of the one that it multiplies in, if that is coarser: tf32,
// or the codes of a recipe), n the number of layers without the loss. n independent relative errors u add up to u sqrt(n); each layer may make several.
double derived_tolerance(const Policy& policy, size_t layers);

// `spec.policy` is the policy in half. Throws Error for a policy that is not, for a subject without a network, and where the
// derived tolerance is 1 or more.
Fp32Plan fp32_plan(const TrialSpec& spec, const Fp32PlanOptions& options);

}  // namespace halfmark::accuracy
