#include "kernels/ops/cases/row_checks.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace halfmark::kernels::ops_cases {

namespace {

std::vector<unsigned char> memory_of(const Tensor& tensor) {
  std::vector<unsigned char> bytes(tensor.bytes());
  if (!bytes.empty()) tensor.device().copy_out(bytes.data(), tensor.data(), bytes.size());
  return bytes;
}

std::set<const void*> memory_only_read(const std::vector<Operand>& operands) {
  std::set<const void*> inputs;
  for (const Operand& operand : operands)
    if (!operand.output && operand.tensor.layout() != Layout::any) inputs.insert(operand.tensor.data());
  for (const Operand& operand : operands)  // in place
    if (operand.output && operand.tensor.layout() != Layout::any) inputs.erase(operand.tensor.data());
  return inputs;
}

std::string text_of(const GuardBytes::Damage& damage, const std::vector<Operand>& operands) {
  std::string where = "a scratch tensor";
  for (const Operand& operand : operands)
    if (!damage.released && operand.tensor.layout() != Layout::any && operand.tensor.data() == damage.memory)
      where = "operand " + std::string(operand.name);
  return "wrote outside " + where + " of " + std::to_string(damage.bytes) + " bytes: " + std::to_string(damage.count) +
         " bytes from offset " + std::to_string(damage.offset);
}

}  // namespace

void Findings::run(const std::string& name, const CaseUnderTest& one, const Comparison& compare) {
  (void)guard_.take_damage();  // from rows that made the operands, not from this one
  try {
    one.check();
    if (const Refusal refusal = one.refuses()) {
      if (refusal->empty()) add(name, "a refusal must say why");
      refusals_.insert(*refusal);
      return;
    }
    ++taken_;
    std::vector<Operand> operands = one.operands();
    std::map<uint64_t, std::vector<double>> before;
    for (Operand& operand : operands) {
      if (operand.tensor.layout() == Layout::any) continue;
      operand.bytes = memory_of(operand.tensor);
      if (operand.output) before[operand.tensor.id()] = operand.tensor.values();
    }
    guard_.redraw(memory_only_read(operands));
    one.run();
    device_.synchronize();
    for (const GuardBytes::Damage& damage : guard_.take_damage()) add(name, text_of(damage, operands));
    look_at_inputs(name, operands, before);
    look_at_padding(name, operands);
    CaseResult result(std::move(before), flushes_subnormals_);
    compare(result);
    for (const std::string& finding : result.findings()) add(name, finding);
  } catch (const std::exception& error) {
    add(name, std::string("threw: ") + error.what());
  }
}

// Inputs must not change, unless an output is the same memory.
void Findings::look_at_inputs(const std::string& name, const std::vector<Operand>& operands,
                              const std::map<uint64_t, std::vector<double>>& outputs) {
  for (const Operand& operand : operands) {
    if (operand.output || operand.tensor.layout() == Layout::any || outputs.contains(operand.tensor.id())) continue;
    const std::vector<unsigned char> after = memory_of(operand.tensor);
    size_t changed = 0, first = after.size();
    for (size_t i = after.size(); i-- > 0;)
      if (after[i] != operand.bytes[i]) first = i, ++changed;
    if (changed)
      add(name, "changed its input " + std::string(operand.name) + " of " + std::to_string(after.size()) +
                    " bytes: " + std::to_string(changed) + " bytes from offset " + std::to_string(first));
  }
}

// The padding of a library's layout must stay zero: the library computes with it.
void Findings::look_at_padding(const std::string& name, const std::vector<Operand>& operands) {
  for (const auto& [operand_name, tensor, output, bytes] : operands) {
    const DType dtype = tensor.dtype();
    if (!output || tensor.layout() != Layout::opaque || !is_floating(dtype)) continue;
    const auto not_zero = [](double value) { return value != 0; };
    std::vector<double> stored(tensor.bytes() / size_of(dtype));
    const std::vector<unsigned char> memory = memory_of(tensor);
    for (size_t i = 0; i < stored.size(); ++i) stored[i] = load(dtype, memory.data(), i);
    const std::vector<double> values = tensor.values();
    if (std::ranges::count_if(stored, not_zero) != std::ranges::count_if(values, not_zero))
      add(name, "the padding of " + std::string(operand_name) + " is not zero");
  }
}

}  // namespace halfmark::kernels::ops_cases
