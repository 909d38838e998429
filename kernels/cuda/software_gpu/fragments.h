// Which thread of a warp holds which element of a matrix instruction's operands, as the PTX ISA 9.0 writes it in
// sections 9.7.14.5 ("Matrix Fragments for mma...") and 9.7.15.5 ("Asynchronous wgmma"). It shares nothing with
// kernels/cuda/dot_tiles.h, so that a mistake in one of the two tables makes results differ.
#pragma once

#include <cstdint>

namespace halfmark::kernels::software_gpu {

// The elements of A, B and C that one thread holds, counted i = 0, 1, ... in the order of its registers, the lowest
// bits of a register first.
struct MatrixForm {
  int m, n, k;
  int bits;    // of an element of A and B in a register: 64, 32 (tf32), 16, 8, 4
  bool quads;  // m8n8k4 of f16: four products at once, each of two groups of four threads
  int a_elements() const { return quads ? 4 : m * k / 32; }
  int b_elements() const { return quads ? 4 : n * k / 32; }
  int c_elements() const { return quads ? 8 : m * n / 32; }
};

struct ElementPlace {
  int row, column;
  int product = 0;  // of the four of quads
};

ElementPlace a_element(const MatrixForm& form, int lane, int i);
ElementPlace b_element(const MatrixForm& form, int lane, int i);
// `narrow`: C or D of f16. wgmma: n is 8 to 256; rows are those of the warp, 16 for each of the four.
ElementPlace c_element(const MatrixForm& form, bool narrow, int lane, int i);

// Block scales ("mma.sync ... .block_scale"). The lane whose register holds the scales of a row of A or a column of B.
int lane_of_scale_a(int row, int thread_id);     // thread_id: 0 or 1
int lane_of_scale_b(int column, int thread_id);  // 0 to 3

// The address in shared memory of byte `byte` of row or column `line` (K-major, no swizzle), from the matrix descriptor
// (section 9.7.15.5.1): start at bits 0 to 13, leading dimension at 16 to 29 (to the next 16 bytes along K), stride at
// 32 to 45 (to the next eight lines), all in units of 16 bytes.
uint32_t descriptor_address(uint64_t descriptor, int line, int byte);
int descriptor_swizzle(uint64_t descriptor);      // bits 62 and 63; 0: none
int descriptor_base_offset(uint64_t descriptor);  // bits 49 to 51

}  // namespace halfmark::kernels::software_gpu
