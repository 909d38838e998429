#include "kernels/cuda/software_gpu/ptx_body.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/software_gpu/special_registers.h"
#include "kernels/cuda/software_gpu/statement.h"

namespace halfmark::kernels::software_gpu {
namespace {

struct Register {
  PtxType type;
  uint32_t offset;
};

// Names within a pair of braces.
struct Names {
  std::unordered_map<std::string_view, Register> single;
  struct Range {  // %r<89>: %r0 to %r88
    std::string_view prefix;
    uint32_t count;
    PtxType type;
    uint32_t first, step;
  };
  std::vector<Range> ranges;
};

class Body {
 public:
  Body(PtxText& text, Module& module, Kernel& kernel) : text_(text), coder_(text, module, kernel), kernel_(kernel) {}

  void read() {
    // Dynamic shared memory is declared at module level.
    for (size_t i = 0; i < kernel_.module_variables; ++i)
      if (const Variable& variable = coder_.module().variables[i]; variable.space == Space::shared)
        kernel_.variables.push_back(variable);
    read_block();
    Statement end;
    end.line = text_.line(), end.opcode = "ret";
    add(end);  // control never falls out of the code
    place_variables();
    resolve_branches(coder_, branches_, labels_);
  }

 private:
  void read_block() {
    text_.expect("{");
    names_.emplace_back();
    while (!text_.at("}")) read_statement();
    text_.next();
    names_.pop_back();
  }

  void read_statement() {
    if (text_.at("{")) return read_block();
    if (text_.accept(";")) return;
    const std::string_view word = text_.word();
    if (word == ".reg") return text_.next(), read_registers();
    if (word == ".shared" || word == ".local") {
      text_.next();
      for (Variable& variable : read_variables(text_, word == ".shared" ? Space::shared : Space::local, false))
        kernel_.variables.push_back(std::move(variable));
      return;
    }
    if (word == ".pragma") return text_.next(), text_.next(), text_.expect(";");
    if (word == ".loc") return text_.skip_line();
    if (word.starts_with('.')) text_.fail("'" + std::string(word) + "' is not known in a kernel");
    Statement statement;
    statement.line = text_.line();
    if (text_.accept("@")) {
      const bool negated = text_.accept("!");
      statement.guard = operand(text_.take());
      statement.guard.negated = negated;
    }
    statement.opcode = text_.take();
    if (text_.accept(":")) {
      labels_[statement.opcode] = static_cast<int32_t>(kernel_.code.size());
      return;
    }
    while (!text_.at(";")) {
      statement.operands.push_back(read_operand());
      if (!text_.accept(",") && !text_.accept("|")) break;
    }
    text_.expect(";");
    add(statement);
  }

  void add(const Statement& statement) {
    coder_.line = statement.line;
    std::string_view label;
    const size_t before = kernel_.code.size();
    decode(coder_, statement, label);
    if (!label.empty()) branches_.emplace_back(before, label);
    for (size_t i = before; i < kernel_.code.size(); ++i) kernel_.code[i].line = statement.line;
  }

  void read_registers() {
    const std::string_view written = text_.take();
    const auto type = ptx_type_named(written.substr(1));
    if (!type) text_.fail("registers of unknown type " + std::string(written));
    do {
      const std::string_view name = text_.take();
      if (text_.accept("<")) {
        PtxNumber number;
        if (!read_number(text_.take(), number)) text_.fail("a number of registers expected");
        text_.expect(">");
        const auto count = static_cast<uint32_t>(number.bits);
        const uint32_t first = coder_.declare(*type);
        uint32_t second = first;
        for (uint32_t i = 1; i < count; ++i) {
          const uint32_t next = coder_.declare(*type);
          if (i == 1) second = next;
        }
        names_.back().ranges.push_back({name, count, *type, first, second - first});
      } else {
        names_.back().single[name] = {*type, coder_.declare(*type)};
      }
    } while (text_.accept(","));
    text_.expect(";");
  }

  std::optional<Register> find(std::string_view word) const {
    for (auto names = names_.rbegin(); names != names_.rend(); ++names) {
      if (const auto found = names->single.find(word); found != names->single.end()) return found->second;
      for (const Names::Range& range : names->ranges) {
        if (!word.starts_with(range.prefix) || word.size() == range.prefix.size()) continue;
        uint32_t index = 0;
        bool digits = true;
        for (const char c : word.substr(range.prefix.size())) {
          digits = digits && c >= '0' && c <= '9';
          index = index * 10 + static_cast<uint32_t>(c - '0');
        }
        if (digits && index < range.count) return Register{range.type, range.first + index * range.step};
      }
    }
    return {};
  }

  Operand operand(std::string_view word) {
    Operand found;
    if (word == "_") return found;
    if (const auto reg = find(word)) {
      found.kind = Operand::Kind::reg, found.type = reg->type, found.offset = reg->offset;
    } else if (const SpecialRow* special = special_named(word)) {
      found.kind = Operand::Kind::special, found.special = special->special;
    } else if (word.starts_with('%')) {
      text_.fail("'" + std::string(word) + "' is no register of this kernel and no known special register");
    } else if (read_number(word, found.number)) {
      found.kind = Operand::Kind::number;
    } else if (is_variable(word)) {
      found.kind = Operand::Kind::variable, found.name = word;
    } else {
      found.kind = Operand::Kind::label, found.name = word;
    }
    return found;
  }

  bool is_variable(std::string_view word) const {
    for (const Parameter& parameter : kernel_.parameters)
      if (parameter.name == word) return true;
    for (const Variable& variable : kernel_.variables)
      if (variable.name == word) return true;
    for (size_t i = 0; i < kernel_.module_variables; ++i)
      if (coder_.module().variables[i].name == word) return true;
    return false;
  }

  int64_t read_addend() {
    int64_t sum = 0;
    while (text_.at("+") || text_.at("-")) {
      bool negative = text_.take() == "-";
      if (text_.accept("-")) negative = !negative;
      PtxNumber number;
      if (!read_number(text_.take(), number)) text_.fail("an offset that is not a number");
      sum += negative ? -static_cast<int64_t>(number.bits) : static_cast<int64_t>(number.bits);
    }
    return sum;
  }

  Operand read_operand() {
    if (text_.accept("[")) {
      Operand address;
      address.kind = Operand::Kind::address;
      Operand base = read_operand();
      if (base.kind == Operand::Kind::number) {
        address.addend = static_cast<int64_t>(base.number.bits);
      } else {
        address.addend = std::exchange(base.addend, 0);
        address.parts.push_back(std::move(base));
      }
      text_.expect("]");
      return address;
    }
    if (text_.accept("{")) {
      Operand vector;
      vector.kind = Operand::Kind::vector;
      while (!text_.at("}")) {
        vector.parts.push_back(read_operand());
        if (!text_.accept(",")) break;
      }
      text_.expect("}");
      return vector;
    }
    if (text_.accept("!")) {
      Operand found = operand(text_.take());
      found.negated = true;
      return found;
    }
    if (text_.accept("-")) {
      const std::string written = "-" + std::string(text_.take());
      Operand found;
      found.kind = Operand::Kind::number;
      if (!read_number(written, found.number)) text_.fail("'" + written + "' is not a number");
      return found;
    }
    Operand found = operand(text_.take());
    if (found.kind != Operand::Kind::number) found.addend = read_addend();
    return found;
  }

  void place_variables() {
    for (const bool is_extern : {false, true}) {
      for (Variable& variable : kernel_.variables) {
        if (variable.is_extern != is_extern) continue;
        uint64_t& end = variable.space == Space::shared ? kernel_.shared_bytes : kernel_.local_bytes;
        variable.offset = (end + variable.alignment - 1) / variable.alignment * variable.alignment;
        if (!is_extern) end = variable.offset + variable.bytes;
        if (is_extern) kernel_.dynamic_offset = variable.offset;  // all extern arrays begin there
      }
    }
    for (Filled& filled : kernel_.filled)
      if (filled.with == Filled::With::symbol && filled.symbol < 0) {
        filled.with = Filled::With::constant;
        filled.value += kernel_.variables[static_cast<size_t>(-filled.symbol - 1)].offset;
      }
  }

  PtxText& text_;
  Coder coder_;
  Kernel& kernel_;
  std::vector<Names> names_;
  std::unordered_map<std::string_view, int32_t> labels_;
  std::vector<std::pair<size_t, std::string_view>> branches_;
};

}  // namespace

void read_body(PtxText& text, Module& module, Kernel& kernel) { Body(text, module, kernel).read(); }

}  // namespace halfmark::kernels::software_gpu
