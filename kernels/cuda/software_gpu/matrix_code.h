// What mma.sync and wgmma share: the description of one instruction, and elements in registers.
#pragma once

#include <cstdint>

#include "kernels/cuda/software_gpu/fragments.h"
#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/matrix_sum.h"
#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

struct MatrixCode {
  MatrixForm form{};
  MatrixTypes types{};
  int d_registers = 0, a_registers = 0, b_registers = 0, c_registers = 0;
  int byte_a = 0, thread_a = 0, byte_b = 0, thread_b = 0;  // scale selectors
  bool in_bytes = false;                                   // elements of fewer than 8 bits have a byte each
  bool a_in_memory = false;                                // wgmma
  bool negate_a = false, negate_b = false;                 // wgmma
  friend bool operator==(const MatrixCode& x, const MatrixCode& y) {
    return x.form.m == y.form.m && x.form.n == y.form.n && x.form.k == y.form.k && x.form.bits == y.form.bits &&
           x.form.quads == y.form.quads && x.types == y.types && x.byte_a == y.byte_a && x.thread_a == y.thread_a &&
           x.byte_b == y.byte_b && x.thread_b == y.thread_b && x.in_bytes == y.in_bytes &&
           x.a_in_memory == y.a_in_memory && x.negate_a == y.negate_a && x.negate_b == y.negate_b;
  }
  uint64_t operand(uint64_t code, DType type) const;  // the code of an element as it is in a register
};

// Instructions refer to their description by number.
size_t add_matrix_code(const MatrixCode& code);
const MatrixCode& matrix_code(size_t index);

uint64_t read_element(const Warp& warp, const uint32_t* registers, int bits, int lane, int n);
void write_element(Warp& warp, const uint32_t* registers, int bits, int lane, int n,
                   uint64_t code);  // 16 bits and more

void add_wgmma_decoders(Decoders& all);

}  // namespace halfmark::kernels::software_gpu
