// Vectors of dot products: rows of codes in, a code out for each, from the matrix instruction of a device. Without the
// command line, for tests.
#pragma once

#include <istream>
#include <optional>
#include <ostream>
#include <string>

#include "bench/namespaces.h"
#include "kernels/ops/ops.h"

namespace halfmark::bench {

struct DotQuestion {
  std::string a, b, c, d;  // types: f16 bf16 tf32 e4m3 e5m2 e2m1 f32 f64
  MatrixInstruction instruction = MatrixInstruction::usual;
  std::string scale_type{};  // "ue8m0", "ue4m3"; empty: no scales
  int scale_block = 0;       // operands to a scale
};

// Columns a, b, c, and scale_a, scale_b with a scale type -> d, one answer a row. a and b hold the codes of one row in
// increasing k: as many hex digits each as the type has (e2m1 one, fp8 and scales two, tf32 the eight of its register).
// K may differ from row to row; it must be a multiple of the instruction's. Throws Error with file line and column for
// a wrong row, Unsupported with the reason where the device has no such instruction.
void answer_dots(std::istream& in, std::ostream& out, Device& device, const DotQuestion& question);

}  // namespace halfmark::bench
