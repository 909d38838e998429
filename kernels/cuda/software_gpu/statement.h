// One instruction of PTX as written, and the means to turn it into one of the interpreter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/program.h"
#include "kernels/cuda/software_gpu/ptx_text.h"

namespace halfmark::kernels::software_gpu {

struct Operand {
  enum class Kind : uint8_t { reg, number, special, variable, address, vector, sink, label };
  Kind kind = Kind::sink;
  PtxType type = PtxType::b32;    // reg
  uint32_t offset = kNoRegister;  // reg: in the warp's registers
  bool negated = false;           // a predicate written with "!"
  PtxNumber number{};
  Special special{};
  std::string_view name{};       // label; variable; parameter
  int64_t addend = 0;            // variable and address
  std::vector<Operand> parts{};  // vector: its elements; address: its base, if there is one
};

struct Statement {
  uint32_t line = 0;
  std::string_view opcode;  // with its modifiers
  Operand guard;            // sink if there is none
  std::vector<Operand> operands;
};

// The modifiers of an opcode, in their order. A handler is chosen only if all of them are used up.
class Modifiers {
 public:
  explicit Modifiers(std::string_view opcode);
  std::string_view opcode() const { return parts_[0]; }  // "ld" of "ld.global.u32"
  bool accept(std::string_view part);
  std::optional<PtxType> type();
  std::string_view peek() const { return at_ < parts_.size() ? parts_[at_] : std::string_view(); }
  std::string_view take() { return at_ < parts_.size() ? parts_[at_++] : std::string_view(); }
  bool done() const { return at_ == parts_.size(); }

 private:
  std::vector<std::string_view> parts_;
  size_t at_ = 1;
};

// Writes the instructions of one kernel. Functions that take an operand throw Error with file and line if it is not of
// the kind or width that the instruction takes.
class Coder {
 public:
  Coder(const PtxText& text, Module& module, Kernel& kernel) : text_(text), module_(module), kernel_(kernel) {}

  uint32_t declare(PtxType type);  // room for a register
  uint32_t source(const Operand& operand, int bits);
  uint32_t source_of_width_up_to(const Operand& operand, int bits, int& actual);  // any register of at least `bits`
  uint32_t destination(const Operand& operand, int bits);                         // kNoRegister for "_"
  uint32_t destination_of_width_from(const Operand& operand, int bits, int& actual);
  uint32_t predicate(const Operand& operand);  // a register; negation is left to the caller
  uint32_t constant(uint64_t value, int bits);
  int bits_of(const Operand& operand) const;      // of a register or special register; 0 for others
  uint64_t number(const Operand& operand) const;  // an integer that must be written in the text
  // The base of an address and its offset: d.a, d.immediate; flags bit 0: the base has 64 bits.
  void address(const Operand& operand, Instruction& instruction);

  const PtxText& text() const { return text_; }
  Module& module() { return module_; }
  const Module& module() const { return module_; }
  Kernel& kernel() { return kernel_; }
  uint32_t line = 0;  // of the current statement, for messages
  [[noreturn]] void fail(const std::string& what) const { text_.fail(line, what); }

 private:
  uint32_t filled(const Filled& what);
  uint32_t symbol(const Operand& operand, int bits);

  const PtxText& text_;
  Module& module_;
  Kernel& kernel_;
  std::unordered_map<uint64_t, uint32_t> constants_[4];  // of 1, 16, 32, 64 bits
};

// Appends the instruction of a statement to the kernel's code, with the label of a branch in `label`. Throws Error for
// a spelling that is not known.
void decode(Coder& coder, const Statement& statement, std::string_view& label);

// Fills target and reconverge of all branches. labels: by name, the index of an instruction.
void resolve_branches(Coder& coder, const std::vector<std::pair<size_t, std::string_view>>& branches,
                      const std::unordered_map<std::string_view, int32_t>& labels);

}  // namespace halfmark::kernels::software_gpu
