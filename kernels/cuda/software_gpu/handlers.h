// The tables of opcodes: each function adds the opcodes of one file, with what chooses a handler for a spelling.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "kernels/cuda/software_gpu/statement.h"
#include "kernels/cuda/software_gpu/warp.h"

namespace halfmark::kernels::software_gpu {

// Sets handler and operands. false: the opcode has no such modifiers or types. Modifiers that it does not use up are
// unknown too.
using Decoder = bool (*)(Coder&, const Statement&, Modifiers&, Instruction&);
using Decoders = std::unordered_map<std::string_view, Decoder>;

void add_integer_decoders(Decoders& all);
void add_bit_decoders(Decoders& all);
void add_float_decoders(Decoders& all);
void add_compare_decoders(Decoders& all);
void add_convert_decoders(Decoders& all);
void add_memory_decoders(Decoders& all);
void add_warp_decoders(Decoders& all);
void add_control_decoders(Decoders& all);
void add_matrix_decoders(Decoders& all);
void add_mbarrier_decoders(Decoders& all);
void add_tensor_decoders(Decoders& all);

bool decode_warp_barrier(Coder&, const Statement&, Modifiers&, Instruction&);  // the rest of bar.warp.sync

// Operands d, a, b, c of one width each, as many as `widths` has; false if the statement has another number of them.
inline bool take_operands(Coder& coder, const Statement& s, Instruction& i, std::initializer_list<int> widths) {
  if (s.operands.size() != widths.size()) return false;
  uint32_t* places[] = {&i.d, &i.a, &i.b, &i.c};
  size_t n = 0;
  for (const int bits : widths) {
    *places[n] = n == 0 ? coder.destination(s.operands[n], bits) : coder.source(s.operands[n], bits);
    ++n;
  }
  return i.d != kNoRegister;
}

}  // namespace halfmark::kernels::software_gpu
