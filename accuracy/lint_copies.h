// Quantised copies of a tensor of a training step: how recipes of training in 8 and 4 bits make them, three mistakes in
// making them, and what each leaves in scales and codes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accuracy/lint_observation.h"
#include "accuracy/namespaces.h"
#include "reports/record/measurement.h"

namespace halfmark::accuracy {

struct CopyMistakes {
  bool rounds_to_zero = false;  // rounding at random returns zeros
  bool uses_old_amax = false;   // current scaling takes the largest magnitude of the step before
  bool copies_rowwise = false;  // columnwise codes and scales are those of the rowwise copy
};

// A matrix with the last axis as depth, as it enters a product.
struct CopiedMatrix {
  std::vector<float> values;
  size_t rows = 0, depth = 0;
};

// Of one step: current and delayed scaling in e5m2, NVFP4 rounded at random, MXFP8 rowwise and columnwise.
class CopyMaker {
 public:
  explicit CopyMaker(CopyMistakes mistakes, uint64_t noise) : mistakes_(mistakes), noise_(noise) {}
  std::vector<QuantizedCopy> copies_of(const CopiedMatrix& matrix);

 private:
  CopyMistakes mistakes_;
  uint64_t noise_, steps_ = 0;
  std::optional<float> amax_before_;  // of the step before
  AmaxHistory history_{kE5m2};
};

enum class CopyFault : uint8_t { stochastic_zeros, stale_amax, foreign_tiles };

// What a copy shows of it, the number to judge first; nothing if the fault cannot be in this copy.
std::optional<std::vector<NamedNumber>> evidence_of(CopyFault fault, const QuantizedCopy& copy);

}  // namespace halfmark::accuracy
