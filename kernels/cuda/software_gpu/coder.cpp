// Operands of instructions, and the instruction that a statement becomes.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/special_registers.h"
#include "kernels/cuda/software_gpu/statement.h"

namespace halfmark::kernels::software_gpu {
namespace {

int index_of_width(int bits) { return bits == 1 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3; }
// Registers of 8 bits hold as many as those of 16, as in the hardware.
int register_bits(PtxType type) { return type == PtxType::pred ? 1 : std::max(bits_of(type), 16); }

}  // namespace

Modifiers::Modifiers(std::string_view opcode) {
  for (size_t start = 0;;) {
    const size_t end = opcode.find('.', start);
    parts_.push_back(opcode.substr(start, end - start));
    if (end == std::string_view::npos) return;
    start = end + 1;
  }
}

bool Modifiers::accept(std::string_view part) {
  if (peek() != part || done()) return false;
  ++at_;
  return true;
}

std::optional<PtxType> Modifiers::type() {
  const auto found = done() ? std::nullopt : ptx_type_named(peek());
  if (found) ++at_;
  return found;
}

uint32_t Coder::declare(PtxType type) {
  const int bits = register_bits(type);
  const uint32_t offset = kernel_.register_bytes;
  kernel_.register_bytes += bits == 1 ? 4u : static_cast<uint32_t>(kLanes * bits / 8);
  return offset;
}

uint32_t Coder::filled(const Filled& what) {
  Filled made = what;
  made.offset = kernel_.register_bytes;
  kernel_.register_bytes += made.bits == 1 ? 4u : static_cast<uint32_t>(kLanes * made.bits / 8);
  kernel_.filled.push_back(made);
  return made.offset;
}

uint32_t Coder::constant(uint64_t value, int bits) {
  bits = bits == 8 ? 16 : bits;
  if (bits < 64) value &= (uint64_t{1} << bits) - 1;
  auto& known = constants_[index_of_width(bits)];
  if (const auto found = known.find(value); found != known.end()) return found->second;
  return known[value] = filled({Filled::With::constant, 0, bits, value});
}

uint32_t Coder::symbol(const Operand& operand, int bits) {
  for (const Parameter& parameter : kernel_.parameters)
    if (parameter.name == operand.name) return constant(parameter.offset + static_cast<uint64_t>(operand.addend), bits);
  Filled what{Filled::With::symbol, 0, bits, static_cast<uint64_t>(operand.addend)};
  for (size_t i = 0; i < kernel_.variables.size(); ++i)
    if (kernel_.variables[i].name == operand.name) {
      what.symbol = -static_cast<int>(i) - 1;  // its offset is known at the end of the kernel
      return filled(what);
    }
  for (size_t i = 0; i < kernel_.module_variables; ++i)
    if (module_.variables[i].name == operand.name) {
      if (bits != 64) fail("the address of a variable takes 64 bits");
      what.symbol = static_cast<int>(i);
      return filled(what);
    }
  fail("unknown variable " + std::string(operand.name));
}

int Coder::bits_of(const Operand& operand) const {
  if (operand.kind == Operand::Kind::reg) return register_bits(operand.type);
  if (operand.kind == Operand::Kind::special) return software_gpu::bits_of(operand.special);
  return 0;
}

uint32_t Coder::source(const Operand& operand, int bits) {
  const int wanted = bits == 8 ? 16 : bits;
  if (operand.negated) fail("only predicates can be negated");
  switch (operand.kind) {
    case Operand::Kind::reg:
      if (register_bits(operand.type) != wanted)
        fail("a register of " + std::to_string(register_bits(operand.type)) + " bits where the instruction takes " +
             std::to_string(wanted));
      return operand.offset;
    case Operand::Kind::special:
      if (software_gpu::bits_of(operand.special) != wanted) fail("a special register of another width");
      if (operand.special == Special::clock || operand.special == Special::clock64 ||
          operand.special == Special::globaltimer)
        fail("clocks are read by mov only");
      return filled({Filled::With::special, 0, wanted, 0, operand.special});
    case Operand::Kind::number: {
      const PtxNumber& n = operand.number;
      if (n.kind == PtxNumber::Kind::f64 && bits != 64) fail("an f64 number where the instruction takes fewer bits");
      if (n.kind == PtxNumber::Kind::f32 && bits != 32) fail("an f32 number where the instruction takes other bits");
      return constant(n.bits, wanted);
    }
    case Operand::Kind::variable:
      return symbol(operand, wanted);
    case Operand::Kind::address:
    case Operand::Kind::vector:
    case Operand::Kind::sink:
    case Operand::Kind::label:
      break;
  }
  fail("operand '" + std::string(operand.name) + "' is no register and no number");
}

uint32_t Coder::source_of_width_up_to(const Operand& operand, int bits, int& actual) {
  actual = operand.kind == Operand::Kind::reg ? register_bits(operand.type) : std::max(bits, 16);
  if (actual < bits) fail("a register that is narrower than the type");
  return source(operand, actual);
}

uint32_t Coder::destination(const Operand& operand, int bits) {
  if (operand.kind == Operand::Kind::sink) return kNoRegister;
  if (operand.kind != Operand::Kind::reg || operand.negated) fail("the destination is no register");
  if (register_bits(operand.type) != (bits == 8 ? 16 : bits))
    fail("a destination of " + std::to_string(register_bits(operand.type)) + " bits where the instruction has " +
         std::to_string(bits));
  return operand.offset;
}

uint32_t Coder::destination_of_width_from(const Operand& operand, int bits, int& actual) {
  actual = std::max(bits, 16);
  if (operand.kind != Operand::Kind::reg) return destination(operand, bits);
  actual = register_bits(operand.type);
  if (actual < bits) fail("a destination that is narrower than the type");
  return destination(operand, actual);
}

uint32_t Coder::predicate(const Operand& operand) {
  if (operand.kind == Operand::Kind::number) return constant(operand.number.bits ? 1 : 0, 1);
  if (operand.kind != Operand::Kind::reg || operand.type != PtxType::pred) fail("a predicate expected");
  return operand.offset;
}

uint64_t Coder::number(const Operand& operand) const {
  if (operand.kind != Operand::Kind::number || operand.number.kind != PtxNumber::Kind::integer)
    fail("a number expected");
  return operand.number.bits;
}

void Coder::address(const Operand& operand, Instruction& instruction) {
  if (operand.kind != Operand::Kind::address) fail("an address in brackets expected");
  instruction.immediate = operand.addend;
  if (operand.parts.empty()) {
    instruction.a = constant(0, 64);
    instruction.flags |= 1;
    return;
  }
  const Operand& base = operand.parts[0];
  const bool wide = base.kind == Operand::Kind::variable || bits_of(base) == 64;
  if (!wide && bits_of(base) != 32) fail("the base of an address has 32 or 64 bits");
  instruction.a = source(base, wide ? 64 : 32);
  instruction.flags = static_cast<uint8_t>(instruction.flags | (wide ? 1 : 0));
}

void decode(Coder& coder, const Statement& statement, std::string_view& label) {
  static const std::unordered_map<std::string_view, Decoder> decoders = [] {
    std::unordered_map<std::string_view, Decoder> all;
    add_integer_decoders(all);
    add_bit_decoders(all);
    add_float_decoders(all);
    add_compare_decoders(all);
    add_convert_decoders(all);
    add_memory_decoders(all);
    add_warp_decoders(all);
    add_control_decoders(all);
    add_matrix_decoders(all);
    add_mbarrier_decoders(all);
    add_tensor_decoders(all);
    return all;
  }();
  Modifiers modifiers(statement.opcode);
  const auto found = decoders.find(modifiers.opcode());
  Instruction instruction;
  if (statement.guard.kind != Operand::Kind::sink) {
    instruction.guard = coder.predicate(statement.guard);
    instruction.guard_negated = statement.guard.negated;
  }
  if (found == decoders.end() || !found->second(coder, statement, modifiers, instruction) || !modifiers.done() ||
      !instruction.run)
    coder.fail("unknown instruction '" + std::string(statement.opcode) +
               "': " + coder.text().line_text(statement.line));
  if (modifiers.opcode() == "bra") label = statement.operands[0].name;
  coder.kernel().code.push_back(instruction);
}

}  // namespace halfmark::kernels::software_gpu
