// Statements at module level, and variables.
#include "kernels/cuda/software_gpu/ptx_module.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_body.h"
#include "kernels/cuda/software_gpu/ptx_text.h"

namespace halfmark::kernels::software_gpu {
namespace {

void store_initial(Variable& variable, uint64_t at, uint64_t size, uint64_t bits) {
  std::memcpy(variable.initial.data() + at, &bits, size);  // little-endian hosts only
}

// { 1, 2, 3 }, nested for arrays of arrays; fewer elements than there are leave the rest zero.
uint64_t read_elements(PtxText& text, Variable& variable, uint64_t at, uint64_t size) {
  if (text.accept("{")) {
    while (!text.at("}")) {
      at = read_elements(text, variable, at, size);
      if (!text.accept(",")) break;
    }
    text.expect("}");
    return at;
  }
  std::string written = text.accept("-") ? "-" : "";
  written += text.take();
  PtxNumber number;
  if (!read_number(written, number)) text.fail("'" + written + "' in an initialiser is not a number");
  if (at + size > variable.bytes) text.fail("more initialisers than elements of " + variable.name);
  store_initial(variable, at, size, number.bits);
  return at + size;
}

int capability_of(const std::string& target) {
  int capability = 0;
  for (const char c : target)
    if (c >= '0' && c <= '9') capability = capability * 10 + (c - '0');
  return capability;
}

void read_target(PtxText& text, Module& module) {
  module.target = text.take();
  module.capability = capability_of(module.target);
  if (const char last = module.target.back(); last == 'a' || last == 'f') module.suffix = last;
  while (text.accept(",")) text.take();
}

Parameter read_parameter(PtxText& text, uint64_t& end) {
  text.expect(".param");
  uint64_t alignment = 0, size = 0, count = 1;
  while (text.word().starts_with('.')) {
    const std::string_view word = text.take();
    if (word == ".align") {
      PtxNumber number;
      read_number(text.take(), number);
      alignment = number.bits;
    } else if (word == ".ptr") {
      // What it points to (.global .align N) is a promise to the compiler.
      while (text.at(".global") || text.at(".shared") || text.at(".const") || text.at(".local")) text.next();
      if (text.accept(".align")) text.next();
    } else if (const auto type = ptx_type_named(word.substr(1))) {
      size = static_cast<uint64_t>(bits_of(*type)) / 8;
    } else {
      text.fail("unknown property " + std::string(word) + " of a parameter");
    }
  }
  Parameter parameter;
  parameter.name = text.take();
  if (text.accept("[")) {
    PtxNumber number;
    if (!read_number(text.take(), number)) text.fail("the size of a parameter is not a number");
    count = number.bits;
    text.expect("]");
  }
  if (size == 0) text.fail("a parameter without a type");
  if (alignment == 0) alignment = size;
  parameter.offset = (end + alignment - 1) / alignment * alignment;
  parameter.bytes = size * count;
  end = parameter.offset + parameter.bytes;
  return parameter;
}

void read_dimensions(PtxText& text, uint32_t (&to)[3]) {
  for (uint32_t& extent : to) extent = 1;
  for (uint32_t& extent : to) {
    PtxNumber number;
    if (!read_number(text.take(), number)) text.fail("a number of threads expected");
    extent = static_cast<uint32_t>(number.bits);
    if (!text.accept(",")) break;
  }
}

void read_entry(PtxText& text, Module& module, bool with_body) {
  Kernel kernel;
  kernel.name = text.take();
  kernel.module = module.name;
  kernel.module_variables = module.variables.size();
  if (text.accept("(")) {
    while (!text.at(")")) {
      kernel.parameters.push_back(read_parameter(text, kernel.parameter_bytes));
      if (!text.accept(",")) break;
    }
    text.expect(")");
  }
  while (!text.at("{")) {
    if (text.accept(";")) return;  // a declaration
    const std::string_view word = text.take();
    if (word == ".maxntid" || word == ".reqntid") {
      kernel.exact_threads = word == ".reqntid";
      read_dimensions(text, kernel.max_threads);
    } else if (word == ".minnctapersm" || word == ".maxnctapersm" || word == ".maxnreg") {
      text.next();  // hints to the compiler
    } else if (word == ".pragma") {
      text.next(), text.expect(";");
    } else {
      text.fail("unknown property " + std::string(word) + " of a kernel");
    }
  }
  if (with_body)
    read_body(text, module, kernel);
  else
    kernel.unread = text.skip_block();
  std::string name = kernel.name;
  module.kernels.emplace(std::move(name), std::move(kernel));
}

}  // namespace

std::vector<Variable> read_variables(PtxText& text, Space space, bool is_extern) {
  std::vector<Variable> found;
  uint64_t alignment = 0, size = 0, elements = 1;
  while (text.word().starts_with('.')) {
    const std::string_view word = text.take();
    if (word == ".align") {
      PtxNumber number;
      read_number(text.take(), number);
      alignment = number.bits;
    } else if (word == ".v2" || word == ".v4") {
      elements = word == ".v2" ? 2 : 4;
    } else if (const auto type = ptx_type_named(word.substr(1))) {
      size = static_cast<uint64_t>(bits_of(*type)) / 8;
    } else {
      text.fail("unknown property " + std::string(word) + " of a variable");
    }
  }
  if (size == 0) text.fail("a variable without a type");
  do {
    Variable variable;
    variable.space = space;
    variable.is_extern = is_extern;
    variable.alignment = std::max(alignment, size * elements);
    variable.name = text.take();
    variable.bytes = size * elements;
    while (text.accept("[")) {
      if (text.accept("]")) {
        variable.bytes = 0;
        continue;
      }
      PtxNumber number;
      if (!read_number(text.take(), number)) text.fail("the size of a variable is not a number");
      variable.bytes *= number.bits;
      text.expect("]");
    }
    if (space == Space::global || space == Space::constant) {
      variable.initial.resize(variable.bytes);
      variable.initialised = true;
      if (text.accept("=")) read_elements(text, variable, 0, size);
    }
    found.push_back(std::move(variable));
  } while (text.accept(","));
  text.expect(";");
  return found;
}

namespace {

Module read_module(std::string_view content, const std::string& name, bool with_bodies) {
  PtxText text(content, name);
  Module module;
  module.name = name;
  bool is_extern = false;
  std::vector<Variable> shared;  // at module level, for all kernels that follow
  while (!text.word().empty()) {
    const std::string_view word = text.take();
    if (word == ".version" || word == ".address_size") {
      text.next();
    } else if (word == ".target") {
      read_target(text, module);
    } else if (word == ".visible" || word == ".weak") {
    } else if (word == ".extern") {
      is_extern = true;
    } else if (word == ".file" || word == ".loc") {
      text.skip_line();
    } else if (word == ".global" || word == ".const" || word == ".shared") {
      const Space space = word == ".global" ? Space::global : word == ".const" ? Space::constant : Space::shared;
      for (Variable& variable : read_variables(text, space, is_extern)) module.variables.push_back(std::move(variable));
      is_extern = false;
    } else if (word == ".entry") {
      read_entry(text, module, with_bodies);
    } else {
      text.fail("'" + std::string(word) + "' is not known at module level");
    }
  }
  if (module.capability == 0) text.fail(1, "no .target");
  return module;
}

}  // namespace

Module read_module(std::string_view text, const std::string& name) { return read_module(text, name, true); }
Module read_module_without_bodies(std::string_view text, const std::string& name) {
  return read_module(text, name, false);
}

void read_body_of(std::string_view text, Module& module, Kernel& kernel) {
  if (!kernel.unread) return;
  PtxText body(text, module.name, *kernel.unread);
  Kernel whole = kernel;  // one whose body is wrong stays unread
  whole.unread.reset();
  read_body(body, module, whole);
  kernel = std::move(whole);
}

}  // namespace halfmark::kernels::software_gpu
