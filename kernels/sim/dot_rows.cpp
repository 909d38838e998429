// Dot products one row at a time, in the plain integer arithmetic of the model.
#include "kernels/sim/dot_rows.h"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sim/sim_device.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {
namespace {

// What the instruction reads: tf32 registers are stored as f32.
const Format& operand_format(const Tensor& tensor) {
  return tensor.dtype() == DType::f32 ? kTf32 : format_of(tensor.dtype());
}

DotTypes types_of(const DotProducts& op) {
  DotTypes types{operand_format(op.a), operand_format(op.b), format_of(op.c.dtype()), format_of(op.out.dtype())};
  if (!op.scale_a.empty())
    types.scaling = {op.scale_a.dtype(), static_cast<int>(op.a.shape()[1] / op.scale_a.shape()[1])};
  return types;
}

const TensorCore* core_for(const Device& device, const DotProducts& op, std::string* why = nullptr) {
  const auto& sim = static_cast<const SimDevice&>(device);
  return find_core(sim.cores(), sim.architecture().name, op.instruction, types_of(op), why);
}

Refusal refuses(const Device& device, const DotProducts& op) {
  if (Refusal refusal = reference::refuses(device, op)) return refusal;
  std::string why;
  const TensorCore* core = core_for(device, op, &why);
  if (!core) return why;
  if (op.a.shape()[1] % core->depth() != 0)
    return "K = " + std::to_string(op.a.shape()[1]) + " is not a multiple of the K of " +
           std::string(name_of(core->instruction));
  return {};
}

// Codes of a tensor in logical order, one per word.
std::vector<uint64_t> words(const Tensor& tensor) {
  const std::vector<unsigned char> bytes = tensor.codes();
  std::vector<uint64_t> all(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = load_code(tensor.dtype(), bytes.data(), i);
  return all;
}

std::vector<uint8_t> scales(const Tensor& tensor) {
  if (tensor.empty()) return {};
  return tensor.codes();  // one byte each
}

void run(Device& device, const DotProducts& op) {
  const DotTypes types = types_of(op);
  const TensorCore& core = *core_for(device, op);
  reference::settle(op.out, op.c);
  const std::vector<uint64_t> a = words(op.a), b = words(op.b), c = words(op.c);
  const std::vector<uint8_t> scale_a = scales(op.scale_a), scale_b = scales(op.scale_b);
  const auto k = static_cast<size_t>(op.a.shape()[1]);
  const size_t blocks = op.scale_a.empty() ? 0 : static_cast<size_t>(op.scale_a.shape()[1]);
  const size_t size = size_of(op.out.dtype());
  std::vector<unsigned char> results(c.size() * size);
  parallel_for(static_cast<int64_t>(c.size()), 256, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const auto of = [&](const auto& all, size_t n) { return std::span(all.data() + i * n, n); };
      const uint64_t d = dot(core, types, of(a, k), of(b, k), c[i], of(scale_a, blocks), of(scale_b, blocks));
      std::memcpy(&results[i * size], &d, size);  // little-endian hosts only
    }
  });
  reference::write_codes(op.out, results);
}

}  // namespace

void add_dot_rows(KernelTable& table) {
  table.of<DotProducts>().push_back({"tensor-core", Speed::emulated, &refuses, &run, Repeats::by_construction});
}

}  // namespace halfmark::kernels
