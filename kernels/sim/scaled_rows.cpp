// Matmul on codes with scales, on the model of a tensor core.
// - Scales of MX and NVFP4 belong to the instruction: one chain in increasing k from +0 for each element, in the simple
//   integer arithmetic of the model.
// - One scale for a tensor: a chain of the FP8 instruction. If that keeps fewer bits than fp32 and the operation does not allow
//   it, chains of 128 products are added in fp32 (DeepSeek-V3, arXiv 2412.19437, section 3.3.2; cuBLAS does not say where it
//   adds without CUBLASLT_MATMUL_DESC_FAST_ACCUM).
// - Scales f32 for blocks of 128: on Hopper a chain for each block, times both scales, added in fp32, as DeepGEMM does. A GPU
//   with MX instructions takes them as MX scales, which needs powers of two (Transformer Engine's documentation of
//   Float8BlockScaling on Blackwell).
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "kernels/sim/dot_matrix.h"
#include "kernels/sim/dot_rows.h"
#include "kernels/sim/sim_device.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {
namespace {

constexpr size_t kPromoted = 128;  // products in a chain, if its instruction keeps too few bits
constexpr Scaling kMx{DType::e8m0, 32};

const TensorCore* find(const Device& device, const ScaledMatmul& op, const Scaling& scaling,
                       std::string* why = nullptr) {
  const auto& sim = static_cast<const SimDevice&>(device);
  const DotTypes types{format_of(op.a.codes.dtype()), format_of(op.b.codes.dtype()), kFp32, kFp32, scaling};
  return find_core(sim.cores(), sim.architecture().name, MatrixInstruction::usual, types, why);
}

const TensorCore* core_for(const Device& device, const ScaledMatmul& op, std::string* why = nullptr) {
  if (op.a.scales.empty()) return find(device, op, {}, why);
  if (!op.has_outer_scales()) return find(device, op, {op.a.scales.dtype(), static_cast<int>(op.a.block())}, why);
  if (const TensorCore* core = find(device, op, kMx)) return core;
  const TensorCore* core = find(device, op, {}, why);
  if (!core || core->instruction == MatrixInstruction::wgmma_k32) return core;
  if (why) *why = std::string(core->architecture) + " has neither wgmma nor MX instructions for blocks with f32 scales";
  return nullptr;
}

Refusal refuses(const Device& device, const ScaledMatmul& op) {
  if (Refusal refusal = reference::refuses(device, op)) return refusal;
  std::string why;
  const TensorCore* core = core_for(device, op, &why);
  if (!core) return why;
  const bool is_fp8 = takes(Operands::fp8, format_of(op.a.codes.dtype()));
  if (op.a.scales.empty() && !is_fp8) return "computes FP8 and block-scaled operands only";
  if (op.has_outer_scales() && op.a.block() % kMx.block != 0) return "blocks are multiples of 32";
  return {};
}

// The codes of [rows, k], one in each byte, with k filled with +0 to whole blocks of a scale.
struct CodedSide {
  std::vector<uint8_t> codes;
  size_t rows, k, width;
};
CodedSide codes_of_side(const Scaled& operand, size_t block) {
  const auto rows = static_cast<size_t>(operand.rows()), k = static_cast<size_t>(operand.depth());
  CodedSide side{{}, rows, k, (k + block - 1) / block * block};
  side.codes.assign(rows * side.width, 0);
  const std::vector<unsigned char> stored = operand.codes.codes();
  for (size_t row = 0; row < rows; ++row)
    for (size_t l = 0; l < k; ++l)
      side.codes[row * side.width + l] = static_cast<uint8_t>(
          load_code(operand.codes.dtype(), stored.data(), operand.transposed ? l * rows + row : row * k + l));
  return side;
}

// Codes of scales, [rows, width / block]. A scale in f32 becomes the power of two that it is.
std::vector<uint8_t> scale_codes(const Scaled& operand, const CodedSide& side, size_t block) {
  const std::vector<double> values = operand.scales.values();
  const std::vector<unsigned char> stored = operand.scales.codes();
  std::vector<uint8_t> codes;
  for (size_t row = 0; row < side.rows; ++row)
    for (size_t l = 0; l < side.width; l += block) {
      const size_t tile = operand.tile_of(static_cast<int64_t>(row), static_cast<int64_t>(std::min(l, side.k - 1)));
      if (operand.scales.dtype() != DType::f32) {
        codes.push_back(stored[tile]);
        continue;
      }
      const uint64_t code = encode(DType::e8m0, values[tile]);
      if (decode(DType::e8m0, code) != values[tile])
        throw Unsupported("this GPU takes f32 scales of blocks as MX scales, which are powers of two");
      codes.push_back(static_cast<uint8_t>(code));
    }
  return codes;
}

std::vector<Term> terms_of(const CodedSide& side, const Format& format) {
  std::vector<Term> terms;
  for (const uint8_t code : side.codes) terms.push_back(take_apart(format, code));
  return terms;
}

// Chains with scales inside the instruction.
std::vector<uint32_t> scaled_chains(const TensorCore& core, const ScaledMatmul& op) {
  const auto block = static_cast<size_t>(core.scaling.block);
  const CodedSide left = codes_of_side(op.a, block), right = codes_of_side(op.b, block);
  const Format &format_a = format_of(op.a.codes.dtype()), &format_b = format_of(op.b.codes.dtype());
  const std::vector<Term> a = terms_of(left, format_a), b = terms_of(right, format_b);
  const std::vector<uint8_t> scale_a = scale_codes(op.a, left, block), scale_b = scale_codes(op.b, right, block);
  const size_t width = left.width, blocks = width / block;
  const auto operand = [&](const Format& format, const std::vector<Term>& terms, const std::vector<uint8_t>& scales,
                           size_t row) -> Operand {
    return {format, std::span(terms).subspan(row * width, width), std::span(scales).subspan(row * blocks, blocks)};
  };
  std::vector<uint32_t> sums(left.rows * right.rows);
  parallel_for(op.a.rows(), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      for (size_t j = 0; j < right.rows; ++j)
        sums[i * right.rows + j] = dot(core, operand(format_a, a, scale_a, i), operand(format_b, b, scale_b, j), 0);
  });
  return sums;
}

float fp32_of(uint32_t code) { return static_cast<float>(decode(DType::f32, code)); }

// Chains without scales, of all of k or of `length` products each. Partial chains are added in fp32, times the scales of
// their block if they have any.
std::vector<uint32_t> plain_chains(const TensorCore& core, const ScaledMatmul& op, size_t length) {
  const CodedSide left = codes_of_side(op.a, 1), right = codes_of_side(op.b, 1);
  const auto panel = [&](const Scaled& operand, const CodedSide& side, size_t begin, size_t end) -> Panel {
    return {format_of(operand.codes.dtype()), side.codes.data() + begin, side.rows, end - begin, side.k};
  };
  std::vector<uint32_t> part(left.rows * right.rows, 0);
  if (length == 0) {
    dot_matrix(core, panel(op.a, left, 0, left.k), panel(op.b, right, 0, right.k), part.data());
    return part;
  }
  const std::vector<double> scale_a = op.has_outer_scales() ? op.a.scales.values() : std::vector<double>(),
                            scale_b = op.has_outer_scales() ? op.b.scales.values() : std::vector<double>();
  std::vector<float> sums(part.size(), 0.0F);
  for (size_t begin = 0; begin < left.k; begin += length) {
    const size_t end = std::min(begin + length, left.k);
    std::ranges::fill(part, 0);
    dot_matrix(core, panel(op.a, left, begin, end), panel(op.b, right, begin, end), part.data());
    for (size_t i = 0; i < left.rows; ++i)
      for (size_t j = 0; j < right.rows; ++j) {
        float value = fp32_of(part[i * right.rows + j]);
        if (op.has_outer_scales()) {
          const auto at = [&](const Scaled& operand, const std::vector<double>& scales, size_t row) {
            return static_cast<float>(scales[operand.tile_of(static_cast<int64_t>(row), static_cast<int64_t>(begin))]);
          };
          value *= at(op.a, scale_a, i) * at(op.b, scale_b, j);
        }
        sums[i * right.rows + j] += value;
      }
  }
  for (size_t i = 0; i < sums.size(); ++i)
    part[i] = static_cast<uint32_t>(encode(DType::f32, static_cast<double>(sums[i])));
  return part;
}

void run(Device& device, const ScaledMatmul& op) {
  const TensorCore& core = *core_for(device, op);
  const bool is_narrow = core.block.kept_fraction_bits < kFp32.fraction_bits;
  const size_t length = op.has_outer_scales()              ? static_cast<size_t>(op.a.block())
                        : is_narrow && !op.fast_accumulate ? kPromoted
                                                           : 0;
  const std::vector<uint32_t> codes = core.scaling.block > 0 ? scaled_chains(core, op) : plain_chains(core, op, length);
  reference::settle(op.out, op.a.codes);
  // If no operation follows the sum, the instruction's own code is stored, including its NaN.
  if (op.out.dtype() == DType::f32 && !op.has_factor()) {
    std::vector<unsigned char> bytes(codes.size() * sizeof(uint32_t));
    std::memcpy(bytes.data(), codes.data(), bytes.size());  // little-endian hosts only
    return reference::write_codes(op.out, bytes);
  }
  const float factor = op.factor();
  std::vector<float> values(codes.size());
  for (size_t i = 0; i < codes.size(); ++i)
    values[i] = op.has_factor() ? fp32_of(codes[i]) * factor : fp32_of(codes[i]);
  reference::write(op.out, values);
}

}  // namespace

void add_scaled_rows(KernelTable& table) {
  table.of<ScaledMatmul>().push_back({"tensor-core", Speed::emulated, &refuses, &run, Repeats::by_construction});
}

}  // namespace halfmark::kernels
