// Matmul and the convolutions on the model of a tensor core. Each output element is one chain of blocks in increasing
// k. For the convolutions k runs over kh, kw, channel (weights' gradient: n, y, x), and padding is +0. K is padded with
// +0 to whole blocks. split_k: contiguous slices, each a chain of its own from c = +0, rounded to math.partial and
// added in order by ordinary fp32 (fp16) additions. beta: beta times out, rounded to the accumulator's format, is the c
// of the first block (with split_k, of the first slice).
#include "kernels/sim/tensor_core_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cpu/contraction.h"
#include "kernels/cpu/reference/operand.h"
#include "kernels/sim/dot_matrix.h"
#include "kernels/sim/sim_device.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {
namespace {

bool holds(const Format& outer, const Format& inner) {
  return outer.fraction_bits >= inner.fraction_bits && outer.max_exponent() >= inner.max_exponent() &&
         outer.min_subnormal_exponent() <= inner.min_subnormal_exponent();
}

// What the instruction multiplies. f32 operands are tf32 registers, whose low bits the instruction drops.
const Format& operand_format(const Tensor& tensor, const Math& math) {
  return tensor.dtype() == DType::f32 && math.multiply == kTf32 ? kTf32 : format_of(tensor.dtype());
}

const TensorCore* core_for(const Device& device, const Tensor& a, const Tensor& b, const Math& math,
                           std::string* why = nullptr) {
  const auto& sim = static_cast<const SimDevice&>(device);
  return find_core(sim.cores(), sim.architecture().name, MatrixInstruction::usual,
                   {operand_format(a, math), operand_format(b, math), math.accumulate, math.accumulate}, why);
}

Refusal refuses_types(const Device& device, const Tensor& a, const Tensor& b, const Math& math) {
  std::string why;
  const TensorCore* core = core_for(device, a, b, math, &why);
  if (!core) return why;
  if (core->operands == Operands::fp64) return "does not sum in fp64";
  for (const Tensor* operand : {&a, &b})
    if (!holds(math.multiply, operand_format(*operand, math)))
      return "multiplies " + std::string(name_of(operand->dtype())) + " as stored, not rounded to " +
             std::string(math.multiply.name);
  const bool fewer_bits = core->block.kept_fraction_bits < math.accumulate.fraction_bits;
  if (fewer_bits && core->operands == Operands::fp8 && !math.fast_accumulate)
    return std::string(name_of(core->instruction)) + " keeps " + std::to_string(core->block.kept_fraction_bits) +
           " fraction bits of a sum, which only fast_accumulate allows";
  return {};
}

template <class Op>
Refusal refuses(const Device& device, const Op& op) {
  if (Refusal refusal = reference::refuses(device, op)) return refusal;
  if constexpr (std::is_same_v<Op, Conv2dBackwardData>) {
    return refuses_types(device, op.dy, op.w, op.math);
  } else if constexpr (std::is_same_v<Op, Conv2dBackwardWeights>) {
    return refuses_types(device, op.x, op.dy, op.math);
  } else if constexpr (std::is_same_v<Op, Conv2d>) {
    return refuses_types(device, op.x, op.w, op.math);
  } else {
    return refuses_types(device, op.a, op.b, op.math);
  }
}

// A missing element in a vector of a panel is padding: +0, as an implicit GEMM reads it.
template <class Code>
void gather(const std::vector<unsigned char>& codes, const std::vector<int64_t>& at, unsigned char* vector) {
  const auto* from = reinterpret_cast<const Code*>(codes.data());
  auto* to = reinterpret_cast<Code*>(vector);
  for (size_t k = 0; k < at.size(); ++k) to[k] = at[k] < 0 ? Code{0} : from[at[k]];
}

void gather(size_t size, const std::vector<unsigned char>& codes, const std::vector<int64_t>& at,
            unsigned char* vector) {
  if (size == 1) return gather<uint8_t>(codes, at, vector);
  if (size == 2) return gather<uint16_t>(codes, at, vector);
  gather<uint32_t>(codes, at, vector);
}

// The chains of one panel of rows with all columns, k split as math specifies. d contains codes of core.result.
void chains(const TensorCore& core, const Math& math, const Panel& left, const Panel& right, uint32_t* d) {
  const size_t depth = left.depth,
               slices = std::clamp<size_t>(static_cast<size_t>(math.split_k), 1, std::max<size_t>(depth, 1));
  if (slices == 1) return dot_matrix(core, left, right, d);
  const auto slice = [](Panel panel, size_t begin, size_t end) {
    const size_t size = size_of_operand(panel.format);
    panel.codes = static_cast<const unsigned char*>(panel.codes) + begin * size;
    panel.depth = end - begin;
    return panel;
  };
  const DType dtype = result_dtype(core);
  const size_t count = left.vectors * right.vectors, step = (depth + slices - 1) / slices;
  std::vector<double> total(count);
  std::vector<uint32_t> part(d, d + count);  // the first slice starts with c, the others with +0
  for (size_t s = 0; s < slices; ++s) {
    const size_t begin = std::min(s * step, depth), end = std::min(begin + step, depth);
    dot_matrix(core, slice(left, begin, end), slice(right, begin, end), part.data());
    for (size_t i = 0; i < count; ++i) {
      const double value = round_to(math.partial, decode(dtype, part[i]));
      total[i] = round_to(math.accumulate, s ? add_to_odd(total[i], value) : value);
    }
    std::fill(part.begin(), part.end(), 0);
  }
  for (size_t i = 0; i < count; ++i) d[i] = static_cast<uint32_t>(encode(dtype, total[i]));
}

template <class Op>
void run(Device& device, const Op& op) {
  const Contraction work(op);
  const TensorCore& core = *core_for(device, *work.left, *work.right, work.math);
  Tensor& out = *work.out;
  reference::settle(out, *work.left);
  const Format &left_format = operand_format(*work.left, work.math),
               &right_format = operand_format(*work.right, work.math);
  const std::vector<unsigned char> left = work.left->codes(), right = work.right->codes();
  const size_t left_size = size_of(work.left->dtype()), right_size = size_of(work.right->dtype());
  std::vector<double> before;
  if (work.beta != 0) before = reference::read<double>(out);

  const DType dtype = out.dtype(), sum_dtype = result_dtype(core);
  const size_t size = size_of(dtype), depth = static_cast<size_t>(work.depth),
               columns = static_cast<size_t>(work.columns);
  std::vector<unsigned char> results(static_cast<size_t>(out.elements()) * size);
  // A limited number of rows at a time, so that the gathered rows of a large convolution stay small.
  const int64_t chunk = std::clamp<int64_t>((int64_t{4} << 20) / std::max<int64_t>(work.depth, 1), 64, 4096);
  std::vector<unsigned char> column_codes(columns * depth * right_size), row_codes;
  std::vector<uint32_t> d;
  for (int64_t group = 0; group < work.groups; ++group) {
    parallel_for(work.columns, 16, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> at(depth);
      for (int64_t c = begin; c < end; ++c) {
        work.right_column(group, c, at.data());
        gather(right_size, right, at, &column_codes[static_cast<size_t>(c) * depth * right_size]);
      }
    });
    for (int64_t first = 0; first < work.rows; first += chunk) {
      const int64_t rows = std::min(chunk, work.rows - first);
      row_codes.resize(static_cast<size_t>(rows) * depth * left_size);
      d.assign(static_cast<size_t>(rows) * columns, 0);
      parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
        std::vector<int64_t> at(depth);
        for (int64_t r = begin; r < end; ++r) {
          work.left_row(group, first + r, at.data());
          gather(left_size, left, at, &row_codes[static_cast<size_t>(r) * depth * left_size]);
          if (work.beta == 0) continue;
          for (size_t c = 0; c < columns; ++c) {
            const auto o = static_cast<size_t>(work.out_index(group, first + r, static_cast<int64_t>(c)));
            d[static_cast<size_t>(r) * columns + c] = static_cast<uint32_t>(encode(sum_dtype, work.beta * before[o]));
          }
        }
      });
      chains(core, work.math, {left_format, row_codes.data(), static_cast<size_t>(rows), depth, depth},
             {right_format, column_codes.data(), columns, depth, depth}, d.data());
      parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          for (size_t c = 0; c < columns; ++c) {
            const uint32_t code = d[static_cast<size_t>(r) * columns + c];
            // The instruction's own code, including its NaN, if the tensor stores that type.
            const uint64_t stored = dtype == sum_dtype ? code : encode(dtype, decode(sum_dtype, code));
            const auto o = static_cast<size_t>(work.out_index(group, first + r, static_cast<int64_t>(c)));
            std::memcpy(&results[o * size], &stored, size);  // little-endian hosts only
          }
      });
    }
  }
  reference::write_codes(out, results);
}

template <class Op>
void add(KernelTable& table) {
  table.of<Op>().push_back({"tensor-core", Speed::emulated, &refuses<Op>, &run<Op>, Repeats::by_construction});
}

}  // namespace

void add_tensor_core_rows(KernelTable& table) {
  add<Matmul>(table), add<Conv2d>(table), add<Conv2dBackwardData>(table), add<Conv2dBackwardWeights>(table);
}

}  // namespace halfmark::kernels
