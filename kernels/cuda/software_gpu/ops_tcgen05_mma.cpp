// tcgen05.mma: section 9.7.16.10 of the PTX ISA 9.0. One thread issues it; A and B are in shared memory, D in tensor
// memory: row i of D is lane i, column j is the j-th column from the address (M = 128, one CTA).
//
// The product is computed and written when the instruction is issued. What other threads may know of it is in
// TensorMemory: nobody reads it before its commit has been waited for.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/fragments.h"
#include "kernels/cuda/software_gpu/memory_access.h"
#include "kernels/cuda/software_gpu/tensor_code.h"
#include "kernels/cuda/software_gpu/tensor_descriptors.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr int kTensorLineBytes = 32;  // of K in every kind

// The operands in Kernel::lists.
enum Place : uint32_t { kD, kA, kB, kDescriptor, kAdds, kScaleA, kScaleB };

TensorKind tensor_kind(const Instruction& i) { return static_cast<TensorKind>(i.immediate); }

// Elements of the lines of a matrix in shared memory, which is read through the async proxy.
std::vector<uint64_t> read_matrix(Warp& w, const Instruction& i, int lane, uint64_t descriptor, int lines,
                                  const TensorProduct& product, bool negated) {
  if (const std::string wrong = check_matrix_descriptor(descriptor); !wrong.empty())
    fault(w, i, lane, cudaErrorIllegalInstruction, wrong);
  SharedMemory& shared = w.block->shared();
  const std::vector<uint32_t> fences = w.block->proxy_fences();
  std::vector<uint64_t> elements;
  std::vector<uint32_t> pieces;
  for (int line = 0; line < lines; ++line) {
    uint8_t bytes[kTensorLineBytes];
    for (int byte = 0; byte < kTensorLineBytes; byte += 16) {
      const uint32_t at = descriptor_address(descriptor, line, byte);
      if (at + 16 > shared.bytes())
        fault(w, i, lane, cudaErrorIllegalAddress,
              "the matrix descriptor leads to byte " + std::to_string(at) + " of shared memory, which has " +
                  std::to_string(shared.bytes()));
      if (const std::string wrong = shared.read_by_product(accessor(w, lane), at, 16, fences); !wrong.empty())
        fault(w, i, lane, cudaErrorLaunchFailure, wrong);
      std::memcpy(bytes + byte, shared.data() + at, 16);
      pieces.push_back(at);
    }
    for (int k = 0; k < product.k; ++k) {
      const int bit = k * product.bits;
      uint32_t word = 0;
      std::memcpy(&word, bytes + bit / 32 * 4, sizeof word);
      const uint32_t code = product.bits == 32 ? word : word >> bit % 32 & ((1u << product.bits) - 1);
      elements.push_back(negated ? code ^ 1u << (product.bits - 1) : code);
    }
  }
  // Until the product is there these bytes must not change.
  std::sort(pieces.begin(), pieces.end());
  for (size_t n = 0, first = 0; n < pieces.size(); ++n)
    if (n + 1 == pieces.size() || pieces[n + 1] > pieces[n] + 16) {
      shared.begin_product_read(w.block->tensor().products(), pieces[first], pieces[n] + 16 - pieces[first]);
      first = n + 1;
    }
  return elements;
}

// A column of all lanes, 32 at a time.
struct TensorReader {
  Warp& w;
  const Instruction& i;
  int lane;
  TensorMemory::After after;

  TensorMemory::Values read(int quarter, uint32_t column, bool is_sum) const {
    TensorMemory::Values values{};
    const std::string wrong = w.block->tensor().product_reads(w.index, after, quarter, column, is_sum, values);
    if (!wrong.empty()) fault(w, i, lane, cudaErrorLaunchFailure, wrong);
    return values;
  }
};

// The scales of all lines of A or B. The four quarters must hold the same.
std::vector<uint8_t> read_scales(const TensorReader& reader, uint32_t address, int lines, int first_byte,
                                 const TensorProduct& product) {
  if (address >> 16) fault(reader.w, reader.i, reader.lane, cudaErrorIllegalAddress, "scales begin in lane 0");
  const int of_line = product.k / product.types.block;
  std::vector<TensorMemory::Values> columns;
  for (int column = 0; column * TensorMemory::kQuarterLanes < lines; ++column)
    for (int quarter = 0; quarter < TensorMemory::kQuarters; ++quarter) {
      const auto values = reader.read(quarter, address + static_cast<uint32_t>(column), false);
      if (quarter == 0)
        columns.push_back(values);
      else if (values != columns.back())
        fault(reader.w, reader.i, reader.lane, cudaErrorLaunchFailure,
              "the scales in lanes 0 to 31 of tensor memory are not repeated in the other lanes");
    }
  std::vector<uint8_t> scales;
  for (int line = 0; line < lines; ++line)
    for (int n = 0; n < of_line; ++n) {
      const ScalePlace at = scale_place(line, n, first_byte);
      scales.push_back(static_cast<uint8_t>(columns[at.column][static_cast<size_t>(at.lane)] >> 8 * at.byte));
    }
  return scales;
}

void multiply_in_tensor_memory(Warp& w, const Instruction& i) {
  if (w.active == 0) return;
  if (std::popcount(w.active) != 1)
    fault(w, i, -1, cudaErrorIllegalInstruction,
          "tcgen05.mma by " + std::to_string(std::popcount(w.active)) + " threads: each multiplies once");
  const int lane = std::countr_zero(w.active);
  const uint32_t* operands = &w.kernel->lists[i.list];
  const auto descriptor = w.lane<uint32_t>(operands[kDescriptor], lane), d = w.lane<uint32_t>(operands[kD], lane);
  TensorProduct product;
  if (const std::string wrong = read_instruction_descriptor(tensor_kind(i), i.count, descriptor, product);
      !wrong.empty())
    fault(w, i, lane, cudaErrorIllegalInstruction, wrong);
  if (d >> 16) fault(w, i, lane, cudaErrorIllegalAddress, "D of 128 rows begins in lane 0 of tensor memory");
  TensorMemory& tensor = w.block->tensor();
  const uint64_t shape = uint64_t{d} << 40 | static_cast<uint64_t>(tensor_kind(i)) << 32 | descriptor;
  if (const std::string wrong = tensor.begin_product(w.index * kLanes + lane, shape); !wrong.empty())
    fault(w, i, lane, cudaErrorNotSupported, wrong);
  const TensorReader reader{w, i, lane, tensor.after(w.index, w.active)};
  MatrixProblem p{product.m, product.n, product.k, {}, {}, {}, {}, {}, {}};
  p.a = read_matrix(w, i, lane, w.lane<uint64_t>(operands[kA], lane), product.m, product, product.negate_a);
  p.b = read_matrix(w, i, lane, w.lane<uint64_t>(operands[kB], lane), product.n, product, product.negate_b);
  if (product.types.block) {
    p.scale_a =
        read_scales(reader, w.lane<uint32_t>(operands[kScaleA], lane), product.m, product.scale_byte_a, product);
    p.scale_b =
        read_scales(reader, w.lane<uint32_t>(operands[kScaleB], lane), product.n, product.scale_byte_b, product);
  }
  const bool adds = w.predicate(operands[kAdds]) >> lane & 1;
  const bool narrow = product.types.d == DType::f16;
  const auto at = [&](int quarter, int l, int column) {
    return static_cast<size_t>((quarter * TensorMemory::kQuarterLanes + l) * product.n + column);
  };
  p.c.resize(static_cast<size_t>(product.m * product.n));
  for (int column = 0; column < product.n && adds; ++column)
    for (int quarter = 0; quarter < TensorMemory::kQuarters; ++quarter) {
      const auto values = reader.read(quarter, d + static_cast<uint32_t>(column), true);
      for (int l = 0; l < TensorMemory::kQuarterLanes; ++l)  // an f16 is in the lower half
        p.c[at(quarter, l, column)] = narrow ? values[static_cast<size_t>(l)] & 0xFFFF : values[static_cast<size_t>(l)];
    }
  if (const std::string why = multiply(w.block->launch().architecture, product.types, p); !why.empty())
    fault(w, i, lane, cudaErrorIllegalInstruction, why);
  for (int column = 0; column < product.n; ++column)
    for (int quarter = 0; quarter < TensorMemory::kQuarters; ++quarter) {
      TensorMemory::Values values;
      for (int l = 0; l < TensorMemory::kQuarterLanes; ++l)
        values[static_cast<size_t>(l)] = static_cast<uint32_t>(p.d[at(quarter, l, column)]);
      const std::string wrong =
          tensor.product_writes(w.index, reader.after, quarter, d + static_cast<uint32_t>(column), values);
      if (!wrong.empty()) fault(w, i, lane, cudaErrorLaunchFailure, wrong);
    }
}

}  // namespace

// [d], a, b, descriptor, {[scales of a], [scales of b],} whether the products are added to d.
bool decode_tensor_product(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  constexpr std::pair<const char*, TensorKind> kKinds[] = {
      {"kind::tf32", TensorKind::tf32},         {"kind::f16", TensorKind::f16},
      {"kind::f8f6f4", TensorKind::f8f6f4},     {"kind::mxf8f6f4", TensorKind::mxf8f6f4},
      {"kind::mxf4nvf4", TensorKind::mxf4nvf4}, {"kind::mxf4", TensorKind::mxf4}};
  bool known = false;
  for (const auto& [name, kind] : kKinds)
    if (!known && m.accept(name)) known = true, i.immediate = static_cast<int64_t>(kind);
  if (!known) return false;
  const bool scaled = m.accept("block_scale");
  const TensorKind kind = tensor_kind(i);
  if (scaled != (kind == TensorKind::mxf8f6f4 || kind == TensorKind::mxf4 || kind == TensorKind::mxf4nvf4))
    return false;
  if (scaled) {  // without a size there is one scale for 32 products; mxf4nvf4 must have one
    if (kind == TensorKind::mxf4nvf4 && m.done()) return false;
    const bool sixteen = kind == TensorKind::mxf4nvf4 && (m.accept("scale_vec::4X") || m.accept("block16"));
    if (!sixteen)
      (void)(m.accept(kind == TensorKind::mxf8f6f4 ? "scale_vec::1X" : "scale_vec::2X") || m.accept("block32"));
    i.count = sixteen ? 16 : 32;
  }
  const auto& o = s.operands;
  if (o.size() != (scaled ? 7u : 5u)) return false;
  if (o[1].kind == Operand::Kind::address) coder.fail("the software GPU has no A of tcgen05.mma in tensor memory");
  auto& lists = coder.kernel().lists;
  const uint32_t d = tensor_address(coder, o[0]), a = coder.source(o[1], 64), b = coder.source(o[2], 64),
                 descriptor = coder.source(o[3], 32), adds = coder.predicate(o.back());
  i.list = static_cast<uint32_t>(lists.size());
  lists.insert(lists.end(), {d, a, b, descriptor, adds});
  if (scaled) lists.insert(lists.end(), {tensor_address(coder, o[4]), tensor_address(coder, o[5])});
  i.run = multiply_in_tensor_memory;
  return !o.back().negated;
}

}  // namespace halfmark::kernels::software_gpu
