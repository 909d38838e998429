// Writes the tensors of training steps as .npy files, with an index: for a comparison with other programs, and to look at.
#pragma once

#include <cstdint>
#include <string>

#include "bench/namespaces.h"
#include "models/trial.h"

namespace halfmark::bench {

// A .npy file, format version 1.0, little-endian, C order: f64, f32, f16, i32 and u8 as NumPy's types; other types as the
// unsigned integers of their codes (bf16: u2).
std::string npy_text(const Tensor& tensor);
std::string npy_type(DType dtype);  // "<f4"

// The loss scale under overflows that are planted, without tensors: PATTERN has a character for each step, '1' where the first
// gradient becomes infinite. An entry of "steps" has the scale and whether the step was skipped.
struct ScalePattern {
  std::string pattern{};
  int interval = 0;  // steps without overflow after which the scale grows; 0: those of the policy's scaler
};

// Runs the steps and makes the folder with the index dump.json and a file for each tensor. The folder appears when all is
// written. Throws Error if it exists and is not empty, or cannot be written; then nothing is left behind.
void dump_steps(const TrialSpec& spec, int64_t steps, const std::string& folder, const std::string& command,
                const ScalePattern& scales = {});

}  // namespace halfmark::bench
