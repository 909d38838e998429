// Part training of the harness `mantissa`: models trained with fewer fraction bits, judged as the harness `convergence` judges.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "accuracy/accuracy.h"

namespace halfmark::accuracy {

// What is rounded to the format in each step. Sums within a kernel, the loss and the state of the optimizer stay in fp32.
enum class TrainedBits : uint8_t {
  passes,  // weights as the passes see them, activations and gradients; the update reads and writes fp32 weights, as in AMP
  weights,  // the same, and the weights after each update, as in training in pure half
};
std::string_view name_of(TrainedBits mode);

// The loss of `samples` held-out samples, evaluated in fp32, after `steps` steps of fp32 training in which every tensor is
// rounded to `format`. Null: none is.
double loss_with_bits(const TrialSpec& spec, TrainedBits mode, const Format* format, int64_t steps, int64_t samples);

// `formats` from the most fraction bits to the fewest. The first one must be fp32: it has to give the bits of a training without
// any rounding.
void measure_trained_bits(const TrialSpec& spec, std::span<const Format> formats, int64_t seeds, int64_t steps,
                          FindingsWriter& out);

}  // namespace halfmark::accuracy
