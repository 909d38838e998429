// The descriptors of tcgen05.mma, as the PTX ISA 9.0 writes them in sections 9.7.16.4.1 and 9.7.16.4.2, and the layouts
// that they describe. It shares nothing with kernels/cuda/dot_tcgen05.h, so that a mistake in one of the two makes
// results differ.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/software_gpu/matrix_sum.h"

namespace halfmark::kernels::software_gpu {

enum class TensorKind : uint8_t { tf32, f16, f8f6f4, mxf8f6f4, mxf4, mxf4nvf4 };

// A product that an instruction descriptor describes. Dense, K-major, one CTA.
struct TensorProduct {
  int m = 0, n = 0, k = 0;
  int bits = 0;  // of an element of A and B
  MatrixTypes types{};
  int scale_byte_a = 0, scale_byte_b = 0;  // of the 32 bits of a column of scales: the first that is used
  bool negate_a = false, negate_b = false;
};

// `block`: products that share a scale, from the instruction's qualifiers; 0: no scales. Empty, or what is wrong.
std::string read_instruction_descriptor(TensorKind kind, int block, uint32_t descriptor, TensorProduct& product);

// Empty, or why the software GPU cannot follow the matrix descriptor; addresses are then those of descriptor_address.
std::string check_matrix_descriptor(uint64_t descriptor);

// The place of scale number `index` of a row of A or column of B: a column, a lane of each quarter, and a byte.
struct ScalePlace {
  uint32_t column;
  int lane, byte;
};
ScalePlace scale_place(int line, int index, int first_byte);

}  // namespace halfmark::kernels::software_gpu
