// wgmma: section 9.7.15 of the PTX ISA. Each warp of the warpgroup computes its own 16 of the 64 rows.
//
// The result is computed when the instruction is issued and given to the registers when wgmma.wait_group says that it
// is there; until then they hold a NaN pattern, so that code that reads them too early gets wrong numbers. Shared
// memory that the instruction reads must not be written before that either.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/block.h"
#include "kernels/cuda/software_gpu/matrix_code.h"
#include "kernels/cuda/software_gpu/memory_access.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr uint32_t kNotThere = 0x7FF7DEADu;  // a NaN as f32 and, in its upper half, as f16

// Bytes of a line (row of A or column of B) of a matrix in shared memory, as the descriptor says.
std::vector<uint8_t> read_lines(Warp& w, const Instruction& i, uint64_t descriptor, int lines, int bytes,
                                int first_line) {
  if (descriptor_swizzle(descriptor) || descriptor_base_offset(descriptor))
    fault(w, i, -1, cudaErrorNotSupported, "the software GPU has no swizzled layouts of wgmma");
  SharedMemory& shared = w.block->shared();
  std::vector<uint8_t> data(static_cast<size_t>(lines * bytes));
  const std::vector<uint32_t> fences = w.block->proxy_fences();
  for (int line = 0; line < lines; ++line)
    for (int byte = 0; byte < bytes; byte += 16) {
      const uint32_t at = descriptor_address(descriptor, first_line + line, byte);
      if (at + 16 > shared.bytes())
        fault(w, i, -1, cudaErrorIllegalAddress,
              "the matrix descriptor leads to byte " + std::to_string(at) + " of shared memory, which has " +
                  std::to_string(shared.bytes()));
      if (const std::string wrong = shared.read_async(accessor(w, 0), at, 16, fences); !wrong.empty())
        fault(w, i, 0, cudaErrorLaunchFailure, wrong);
      std::memcpy(&data[static_cast<size_t>(line * bytes + byte)], shared.data() + at, 16);
    }
  return data;
}

uint64_t element_in(const std::vector<uint8_t>& line_bytes, int line, int element, int k, int bits) {
  const auto size = static_cast<size_t>(bits / 8);
  uint64_t code = 0;
  std::memcpy(&code, &line_bytes[static_cast<size_t>(line * k + element) * size], size);
  return code;
}

PendingResult* pending_of(Warp& w, uint32_t offset) {
  for (auto p = w.pending.rbegin(); p != w.pending.rend(); ++p)
    if (p->offset == offset) return &*p;
  return nullptr;
}

uint32_t accumulator(Warp& w, uint32_t offset, int lane) {
  const PendingResult* pending = pending_of(w, offset);
  return pending ? pending->lanes[static_cast<size_t>(lane)] : w.lane<uint32_t>(offset, lane);
}

void multiply_in_warpgroup(Warp& w, const Instruction& i) {
  require_convergence(w, i, "wgmma.mma_async");
  if (w.active != kAllLanes || w.block->warps().size() % 4)
    fault(w, i, -1, cudaErrorIllegalInstruction, "wgmma.mma_async needs four whole warps");
  if (!w.wgmma_fenced)
    fault(w, i, -1, cudaErrorLaunchFailure,
          "wgmma.mma_async without a wgmma.fence before it: registers may be read too early");
  if (w.block->launch().module->capability != 90 || w.block->launch().module->suffix != 'a')
    fault(w, i, -1, cudaErrorIllegalInstruction, "wgmma exists on sm_90a only");
  ++w.wgmma_count;
  const MatrixCode& code = matrix_code(static_cast<size_t>(i.immediate));
  const MatrixForm& f = code.form;
  const uint32_t* registers = &w.kernel->lists[i.list];
  const uint32_t *d = registers, *a = d + code.d_registers, *b = a + code.a_registers, *scale_d = b + 1;
  MatrixProblem p;
  p.m = 16, p.n = f.n, p.k = f.k;
  p.a.resize(static_cast<size_t>(16 * f.k)), p.b.resize(static_cast<size_t>(f.n * f.k)),
      p.c.resize(static_cast<size_t>(16 * f.n));
  const MatrixForm rows{16, 8, f.k, f.bits, false};
  const int bytes = f.k * f.bits / 8;
  if (code.a_in_memory) {
    const auto lines = read_lines(w, i, w.lane<uint64_t>(a[0], 0), 16, bytes, w.index % 4 * 16);
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < f.k; ++k) p.a[static_cast<size_t>(row * f.k + k)] = element_in(lines, row, k, f.k, f.bits);
  } else {
    for (int lane = 0; lane < kLanes; ++lane)
      for (int n = 0; n < rows.a_elements(); ++n) {
        const ElementPlace at = a_element(rows, lane, n);
        p.a[static_cast<size_t>(at.row * f.k + at.column)] = read_element(w, a, f.bits, lane, n);
      }
  }
  const uint64_t descriptor = w.lane<uint64_t>(b[0], 0);
  const auto lines = read_lines(w, i, descriptor, f.n, bytes, 0);
  for (int column = 0; column < f.n; ++column)
    for (int k = 0; k < f.k; ++k)
      p.b[static_cast<size_t>(column * f.k + k)] = element_in(lines, column, k, f.k, f.bits);
  const uint64_t sign = uint64_t{1} << (f.bits - 1);
  if (code.negate_a)
    for (uint64_t& x : p.a) x ^= sign;
  if (code.negate_b)
    for (uint64_t& x : p.b) x ^= sign;
  const bool narrow = code.types.d == DType::f16;
  const bool adds = w.predicate(scale_d[0]) & 1;
  const int elements = 16 * f.n / 32;
  for (int lane = 0; lane < kLanes && adds; ++lane)
    for (int n = 0; n < elements; ++n) {
      const ElementPlace at = c_element(f, narrow, lane, n);
      const uint32_t word = accumulator(w, d[narrow ? n / 2 : n], lane);
      p.c[static_cast<size_t>(at.row * f.n + at.column)] = narrow ? word >> n % 2 * 16 & 0xFFFF : word;
    }
  if (const std::string why = multiply(w.block->launch().architecture, code.types, p); !why.empty())
    fault(w, i, -1, cudaErrorIllegalInstruction, why);
  for (int r = 0; r < code.d_registers; ++r) {
    PendingResult result;
    result.offset = d[r];
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto of = [&](int n) {
        const ElementPlace at = c_element(f, narrow, lane, n);
        return static_cast<uint32_t>(p.d[static_cast<size_t>(at.row * f.n + at.column)]);
      };
      result.lanes[static_cast<size_t>(lane)] = narrow ? of(2 * r) | of(2 * r + 1) << 16 : of(r);
      w.set_lane<uint32_t>(d[r], lane, kNotThere);
    }
    w.pending.push_back(result);
  }
  for (int line = 0; line < f.n; ++line)
    for (int byte = 0; byte < bytes; byte += 16)
      w.block->shared().begin_async_read(w.index, descriptor_address(descriptor, line, byte), 16);
}

void fence(Warp& w, const Instruction& i) {
  require_convergence(w, i, "wgmma.fence");
  w.wgmma_fenced = true;
}
void commit(Warp& w, const Instruction& i) {
  require_convergence(w, i, "wgmma.commit_group");
  for (PendingResult& p : w.pending)
    if (p.group == 0) p.group = w.groups + 1;
  ++w.groups;
}
// Waits until at most `immediate` of the latest groups are pending.
void wait(Warp& w, const Instruction& i) {
  require_convergence(w, i, "wgmma.wait_group");
  const uint64_t done =
      w.groups > static_cast<uint64_t>(i.immediate) ? w.groups - static_cast<uint64_t>(i.immediate) : 0;
  std::vector<PendingResult> rest;
  for (const PendingResult& p : w.pending) {
    if (p.group == 0 || p.group > done) {
      rest.push_back(p);
      continue;
    }
    for (int lane = 0; lane < kLanes; ++lane) w.set_lane<uint32_t>(p.offset, lane, p.lanes[static_cast<size_t>(lane)]);
  }
  // A register that a later group writes again is still not there.
  for (const PendingResult& p : rest)
    for (int lane = 0; lane < kLanes; ++lane) w.set_lane<uint32_t>(p.offset, lane, kNotThere);
  w.pending = std::move(rest);
  if (w.pending.empty()) {
    w.block->shared().end_async_reads(w.index);
    w.wgmma_fenced = false;
  }
}

template <Handler kHandler>
bool decode_plain(Coder& coder, const Statement& s, Modifiers& m, Instruction& i, bool number) {
  if (!m.accept("sync") || !m.accept("aligned") || s.operands.size() != (number ? 1u : 0u)) return false;
  if (number) i.immediate = static_cast<int64_t>(coder.number(s.operands[0]));
  i.run = kHandler;
  return true;
}

// "m64n8k16": n from 8 to 256 in steps of 8.
bool take_shape(Modifiers& m, int& n, int& k) {
  const std::string_view name = m.peek();
  const size_t n_at = name.find('n'), k_at = name.find('k');
  if (!name.starts_with("m64n") || k_at == std::string_view::npos) return false;
  const auto number = [&](std::string_view digits) {
    int value = 0;
    for (const char c : digits) value = c >= '0' && c <= '9' ? value * 10 + (c - '0') : -100000;
    return value;
  };
  n = number(name.substr(n_at + 1, k_at - n_at - 1)), k = number(name.substr(k_at + 1));
  m.take();
  return n >= 8 && n <= 256 && n % 8 == 0 && (k == 8 || k == 16 || k == 32);
}

std::optional<DType> take_type(Modifiers& m) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"tf32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"e4m3", DType::e4m3}, {"e5m2", DType::e5m2}};
  for (const auto& [name, type] : kTypes)
    if (m.accept(name)) return type;
  return {};
}

// {d}, {a} or descriptor, descriptor, scale-d, imm-scale-a, imm-scale-b, and for 16-bit types transpositions.
bool decode_product(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!m.accept("sync") || !m.accept("aligned")) return false;
  int n = 0, k = 0;
  if (!take_shape(m, n, k)) return false;
  MatrixCode code;
  const bool wide = m.accept("f32");
  if (!wide && !m.accept("f16")) return false;
  const auto a = take_type(m), b = a ? take_type(m) : std::nullopt;
  if (!b) return false;
  const int bits = *a == DType::f32 ? 32 : *a == DType::f16 || *a == DType::bf16 ? 16 : 8;
  if (k * bits != 256) return false;
  const DType sum = wide ? DType::f32 : DType::f16;
  code.types = {k == 8    ? MatrixInstruction::wgmma_k8
                : k == 16 ? MatrixInstruction::wgmma_k16
                          : MatrixInstruction::wgmma_k32,
                *a, *b, sum, sum};
  code.form = {64, n, k, bits, false};
  const auto& o = s.operands;
  if (o.size() < 6) return false;
  code.a_in_memory = o[1].kind != Operand::Kind::vector;
  const size_t transpositions = bits != 16 ? 0 : code.a_in_memory ? 2 : 1;
  if (o.size() != 6 + transpositions) return false;
  for (size_t t = 0; t < transpositions; ++t)
    if (coder.number(o[6 + t]) != 0) coder.fail("the software GPU has no transposed operands of wgmma");
  code.d_registers = 16 * n / 32 / (wide ? 1 : 2);
  code.a_registers = code.a_in_memory ? 1 : 4;
  auto& lists = coder.kernel().lists;
  i.list = static_cast<uint32_t>(lists.size());
  if (o[0].kind != Operand::Kind::vector || o[0].parts.size() != static_cast<size_t>(code.d_registers)) return false;
  for (const Operand& one : o[0].parts) lists.push_back(coder.destination(one, 32));
  if (code.a_in_memory) {
    lists.push_back(coder.source(o[1], 64));
  } else {
    if (o[1].parts.size() != 4) return false;
    for (const Operand& one : o[1].parts) lists.push_back(coder.source(one, 32));
  }
  lists.push_back(coder.source(o[2], 64));
  lists.push_back(coder.predicate(o[3]));
  const auto sign = [&](const Operand& operand) {
    const auto value = static_cast<int64_t>(coder.number(operand));
    if (value != 1 && value != -1) coder.fail("a sign of wgmma is 1 or -1");
    return value < 0;
  };
  code.negate_a = sign(o[4]), code.negate_b = sign(o[5]);
  i.run = multiply_in_warpgroup;
  i.immediate = static_cast<int64_t>(add_matrix_code(code));
  return true;
}

bool decode_wgmma(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (m.accept("fence")) return decode_plain<fence>(coder, s, m, i, false);
  if (m.accept("commit_group")) return decode_plain<commit>(coder, s, m, i, false);
  if (m.accept("wait_group")) return decode_plain<wait>(coder, s, m, i, true);
  return m.accept("mma_async") && decode_product(coder, s, m, i);
}

}  // namespace

void add_wgmma_decoders(Decoders& all) { all["wgmma"] = decode_wgmma; }

}  // namespace halfmark::kernels::software_gpu
