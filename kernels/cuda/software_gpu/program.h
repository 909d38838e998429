// A kernel in the form that the interpreter runs: instructions with their handlers, and the layout of a warp's
// registers.
//
// A register is 32 lanes next to each other: 16, 32 or 64 bits each; a predicate is one word with a bit per lane.
// Operands are offsets in bytes from the start of the warp's registers. Immediates and special registers are registers
// too, filled before the kernel starts, so that a handler knows one kind of operand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_text.h"
#include "kernels/cuda/software_gpu/ptx_types.h"

namespace halfmark::kernels::software_gpu {

struct Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

inline constexpr uint32_t kNoRegister = 0xFFFFFFFFu;
inline constexpr int32_t kNoPlace = -1;  // no instruction: the end of the kernel

struct Instruction {
  Handler run = nullptr;
  uint32_t d = kNoRegister, a = kNoRegister, b = kNoRegister, c = kNoRegister;
  uint32_t guard = kNoRegister;  // predicate
  bool guard_negated = false;
  uint8_t flags = 0;              // of the handler
  uint16_t count = 0;             // elements of the list
  uint32_t list = 0;              // first of the further operands in Kernel::lists
  uint32_t line = 0;              // of the PTX text
  int32_t target = kNoPlace;      // of a branch
  int32_t reconverge = kNoPlace;  // where diverged lanes meet again; kNoPlace: not before they end
  int64_t immediate = 0;          // offset of an address, or a number of the handler
};

enum class Space : uint8_t { global, constant, shared, local, param, generic };

// A variable at module level or in a kernel.
struct Variable {
  std::string name;
  Space space = Space::global;
  uint64_t bytes = 0, alignment = 1;
  bool is_extern = false;          // shared memory whose size the launch gives
  std::vector<std::byte> initial;  // as long as `bytes`, or empty
  bool initialised = false;        // all bytes have a value: PTX sets those without initialiser to zero
  uint64_t offset = 0;             // in shared or local memory
};

struct Parameter {
  std::string name;
  uint64_t offset = 0, bytes = 0;
};

enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  clock,
  clock64,
  globaltimer,
  dynamic_smem_size,
  total_smem_size,
  smid,
  nsmid,
  warpsize,
};

// Registers that are filled before the kernel starts.
struct Filled {
  enum class With : uint8_t { constant, special, symbol };
  With with;
  uint32_t offset;
  int bits;            // 16, 32, 64; 1 for a predicate
  uint64_t value = 0;  // constant, or what is added to the symbol's address
  Special special{};
  int symbol = -1;  // in Module::variables
};

struct Kernel {
  std::string name;
  std::string module;  // for messages: the file that the PTX was compiled from
  std::vector<Instruction> code;
  std::vector<uint32_t> lists;
  std::vector<std::string> texts;  // of instructions that a message should show, by index; empty otherwise
  std::vector<Filled> filled;
  std::vector<Parameter> parameters;
  std::vector<Variable> variables;  // shared and local
  uint64_t parameter_bytes = 0;
  uint64_t shared_bytes = 0;            // static
  uint64_t dynamic_offset = 0;          // where dynamic shared memory begins
  uint64_t local_bytes = 0;             // per thread
  uint32_t register_bytes = 0;          // of a warp
  uint32_t max_threads[3] = {0, 0, 0};  // of a block, 0: not stated
  bool exact_threads = false;           // .reqntid
  bool reads_clock = false;
  // Of a body that is not read yet, of which only what is before it is known; and how many variables the module had there.
  std::optional<PtxPlace> unread;
  size_t module_variables = 0;
};

struct Module {
  std::string name;
  std::string target;               // "sm_90a"
  int capability = 0;               // 90
  char suffix = 0;                  // 'a', 'f' or 0
  std::vector<Variable> variables;  // global and constant
  std::unordered_map<std::string, Kernel> kernels;
};

}  // namespace halfmark::kernels::software_gpu
