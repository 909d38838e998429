// What the linter sees of a training: numbers that it left behind, beside those of an fp64 twin. It does not see the settings
// of the training, nor which mistake was planted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/number/quantizer.h"

namespace halfmark::accuracy {

inline constexpr double kNotSeen = std::numeric_limits<double>::quiet_NaN();

// The gradients of one step, from which the optimizer computed; without clipping, those that are finite. The twin starts each
// step from the parameters of the training.
struct GradientFacts {
  double scale = 1;  // of the loss
  // The gradients of the optimizer are the sum of these times the twin's gradients of each micro-batch, by least squares;
  // with clipping, divided by the factor of the twin's clipping. All 1 if they are right.
  std::vector<double> weights;
  double unexplained = 0;  // norm of the rest of that sum / norm of the gradients
  // With clipping: the norm that clipping saw / that of the twin's gradients; and norms that clipping left and that the
  // optimizer got.
  double clipping_ratio = kNotSeen, left_by_clipping = kNotSeen, at_optimizer = kNotSeen;
};

struct StepFacts {
  int64_t number = 0;
  bool skipped = false;
  double scale = 1;                                              // of the loss
  std::optional<GradientFacts> gradients{};                      // of a step that was not skipped
  bool statistics_moved = false, twin_statistics_moved = false;  // any running statistic, by the step
  double nonfinite_statistics = 0;                               // share of the running statistics, after the step
  // Of a step whose loss is finite and whose update left parameters that are not: share of its gradients that are not finite.
  double nonfinite_gradients = 0;
};

// The first tensor of a forward pass on finite input that is not finite.
struct NonFiniteTensor {
  std::string name;
  double nan = 0, infinite = 0;  // shares of its elements
  bool whole_rows = false;       // each row of the last axis is NaN as a whole or has none
  bool twin_is_finite = true;
};

// How far the error of an output points to where the parameters were: the cosine between (output - output of the twin) and
// (output of the twin with earlier parameters - output of the twin). Medians over the steps from the third on.
struct OutputDirections {
  double step_before = 0, start = 0;
  double error = 0;  // norm of the error / norm of the output, in the last step
};

// Codes of a tensor of a training step, as they enter a product in 8 or 4 bits, beside the numbers they stand for.
struct QuantizedCopy {
  enum class Scaling : uint8_t { current, delayed };
  std::string name;
  Scaling scaling = Scaling::current;  // by the recipe: from the tensor itself, or from earlier ones
  bool stochastic = false;             // by the recipe: rounded at random
  bool columnwise = false;             // a copy whose tiles lie along the other axis
  std::vector<float> values;           // [rows, depth] of `codes`
  Quantized codes;
};

struct Observation {
  std::vector<StepFacts> steps;
  std::optional<NonFiniteTensor> first_nonfinite;
  std::optional<OutputDirections> output;  // of steps that were not skipped
  // Share of the numbers of fp32 parameters that are numbers of fp16 or of bf16, the larger of both, after the last update.
  double half_content = kNotSeen;
  // Largest |loss - mean of the losses of the stored output, in fp64|, in unit roundoffs of the loss's dtype, relative to
  // the larger of loss and largest output.
  double loss_error = kNotSeen;
  // Of parameters whose gradient is not 0: share whose mean of squares is 0 and whose update is more than 10^(1/2) times as
  // large as the twin's largest update, or not finite. Of the step with the largest share.
  double runaway_updates = kNotSeen;
  // Running statistics narrower than the parameters of their own layer; largest |variance - twin's| / twin's.
  double narrow_statistics = kNotSeen, statistics_drift = kNotSeen;
  // A dynamic scaler checks gradients; how many it gets in fp16.
  bool scaler_checks = false;
  size_t half_gradients = 0;
  std::vector<QuantizedCopy> copies;  // of all steps
};

}  // namespace halfmark::accuracy
