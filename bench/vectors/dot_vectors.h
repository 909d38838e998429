// Dot products of codes on a matrix instruction of a device: CSV rows in, one code per row out. Independent of the
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
  int scale_block = 0;       // operands per scale
};

// Columns a, b, c and, with a scale type, scale_a and scale_b -> d, one answer per row. a and b contain the codes of
// one row in increasing k, each with the hex digits of its type (e2m1 one, fp8 and scales two, tf32 eight as f32).
// K may differ between rows; it must be a multiple of the instruction's K. Throws Error with line and column for an
// invalid row, and Unsupported with the reason if the device has no such instruction.
void answer_dots(std::istream& in, std::ostream& out, Device& device, const DotQuestion& question);

}  // namespace halfmark::bench
