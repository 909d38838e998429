// The arithmetic of matrix instructions, from the simulated tensor cores of kernels/sim.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/number/dtype.h"
#include "kernels/ops/matrix_instruction.h"

namespace halfmark::kernels::software_gpu {

// The types of an instruction. b1 types do not exist here; tf32 is `DType::f32`.
struct MatrixTypes {
  MatrixInstruction instruction;
  DType a, b, c, d;
  int block = 0;  // products that share a scale; 0: no scales
  DType scale = DType::e8m0;
  friend bool operator==(const MatrixTypes&, const MatrixTypes&) = default;
};

// D = A B + C. Codes of A by row, of B by column (both with k last), of C and D by row.
struct MatrixProblem {
  int m, n, k;
  std::vector<uint64_t> a, b, c, d;
  std::vector<uint8_t> scale_a, scale_b;  // [m][k / block], [n][k / block]
};

// Empty, or why the architecture (90 for sm_90) has no such instruction.
std::string multiply(int architecture, const MatrixTypes& types, MatrixProblem& problem);

}  // namespace halfmark::kernels::software_gpu
