// Matmul on operands with block scales, on the model of a tensor core. Each output element is one chain in increasing k
// from +0, in the simple integer arithmetic of the model.
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sim/dot_rows.h"
#include "kernels/sim/sim_device.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {
namespace {

const TensorCore* core_for(const Device& device, const ScaledMatmul& op, std::string* why = nullptr) {
  const auto& sim = static_cast<const SimDevice&>(device);
  const Tensor &a = op.a.codes, &b = op.b.codes, &scales = op.a.scales;
  const DotTypes types{format_of(a.dtype()),
                       format_of(b.dtype()),
                       kFp32,
                       kFp32,
                       {scales.dtype(), static_cast<int>(a.shape()[1] / scales.shape()[1])}};
  return find_core(sim.cores(), sim.architecture().name, MatrixInstruction::usual, types, why);
}

Refusal refuses(const Device& device, const ScaledMatmul& op) {
  if (Refusal refusal = reference::refuses(device, op)) return refusal;
  std::string why;
  if (!core_for(device, op, &why)) return why;
  return {};
}

std::vector<Term> terms_of(const Tensor& tensor) {
  const std::vector<unsigned char> codes = tensor.codes();
  const Format& format = format_of(tensor.dtype());
  std::vector<Term> terms(static_cast<size_t>(tensor.elements()));
  for (size_t i = 0; i < terms.size(); ++i)
    terms[i] = take_apart(format, static_cast<uint32_t>(load_code(tensor.dtype(), codes.data(), i)));
  return terms;
}

void run(Device& device, const ScaledMatmul& op) {
  const TensorCore& core = *core_for(device, op);
  const auto k = static_cast<size_t>(op.a.codes.shape()[1]), blocks = static_cast<size_t>(op.a.scales.shape()[1]);
  const std::vector<Term> a = terms_of(op.a.codes), b = terms_of(op.b.codes);
  const std::vector<uint8_t> scale_a = op.a.scales.codes(), scale_b = op.b.scales.codes();
  const auto operand = [&](const Tensor& codes, const std::vector<Term>& terms, const std::vector<uint8_t>& scales,
                           size_t row) -> Operand {
    return {format_of(codes.dtype()), std::span(terms).subspan(row * k, k),
            std::span(scales).subspan(row * blocks, blocks)};
  };
  reference::settle(op.out, op.a.codes);
  const auto columns = static_cast<size_t>(op.out.shape()[1]);
  // If no operation follows the sum, the instruction's own code is stored, including its NaN.
  const bool as_it_is = op.out.dtype() == DType::f32 && op.factor() == 1;
  std::vector<uint32_t> codes(static_cast<size_t>(op.out.elements()));
  parallel_for(op.out.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      for (size_t j = 0; j < columns; ++j)
        codes[i * columns + j] = dot(core, operand(op.a.codes, a, scale_a, i), operand(op.b.codes, b, scale_b, j), 0);
  });
  if (as_it_is) {
    std::vector<unsigned char> bytes(codes.size() * sizeof(uint32_t));
    std::memcpy(bytes.data(), codes.data(), bytes.size());  // little-endian hosts only
    return reference::write_codes(op.out, bytes);
  }
  std::vector<double> values(codes.size());
  for (size_t i = 0; i < codes.size(); ++i) values[i] = decode(DType::f32, codes[i]) * op.factor();
  reference::write(op.out, values);
}

}  // namespace

void add_scaled_rows(KernelTable& table) {
  table.of<ScaledMatmul>().push_back({"tensor-core", Speed::emulated, &refuses, &run, Repeats::by_construction});
}

}  // namespace halfmark::kernels
