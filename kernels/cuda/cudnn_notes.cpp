#include <span>
#include <string>

#include "kernels/cuda/cudnn_engines.h"

namespace halfmark::kernels::cuda {

std::string unwanted_note(TensorCores tensor_cores, std::span<const cudnnBackendNumericalNote_t> notes) {
  bool has_tensor_cores = false;
  for (const cudnnBackendNumericalNote_t note : notes) {
    if (note == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP) continue;
    if (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
      has_tensor_cores = true;
    else if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)
      return "converts operands down";
    else if (note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
      return "keeps partial sums in a narrow format";
    else if (note == CUDNN_NUMERICAL_NOTE_FFT)
      return "transforms operands (FFT)";
    else if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
      return "adds in a random order";
    else if (note == CUDNN_NUMERICAL_NOTE_WINOGRAD || note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 ||
             note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 || note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13)
      return "transforms operands (Winograd)";
    else
      return "has numerical note " + std::to_string(static_cast<int>(note));
  }
  if (tensor_cores == TensorCores::excluded && has_tensor_cores) return "rounds operands to tf32";
  if (tensor_cores == TensorCores::needed && !has_tensor_cores) return "computes in fp32, not tf32";
  return {};
}

}  // namespace halfmark::kernels::cuda
