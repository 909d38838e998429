// mma.sync: section 9.7.14 of the PTX ISA.
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/software_gpu/block.h"
#include "kernels/cuda/software_gpu/fragments.h"
#include "kernels/cuda/software_gpu/handlers.h"
#include "kernels/cuda/software_gpu/lanes.h"
#include "kernels/cuda/software_gpu/matrix_code.h"

namespace halfmark::kernels::software_gpu {
namespace {

std::optional<DType> take_operand_type(Modifiers& m) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"f64", DType::f64},   {"tf32", DType::f32},  {"f16", DType::f16},  {"bf16", DType::bf16},
      {"e4m3", DType::e4m3}, {"e5m2", DType::e5m2}, {"e2m1", DType::e2m1}};
  for (const auto& [name, type] : kTypes)
    if (m.accept(name)) return type;
  return {};
}
std::optional<DType> take_sum_type(Modifiers& m) {
  if (m.accept("f64")) return DType::f64;
  if (m.accept("f32")) return DType::f32;
  if (m.accept("f16")) return DType::f16;
  return {};
}

struct ShapeRow {
  std::string_view name;
  MatrixInstruction instruction;
  int m, n, k;
};
constexpr ShapeRow kShapes[] = {
    {"m8n8k4", MatrixInstruction::mma_m8n8k4, 8, 8, 4},       {"m16n8k4", MatrixInstruction::mma_m16n8k4, 16, 8, 4},
    {"m16n8k8", MatrixInstruction::mma_m16n8k8, 16, 8, 8},    {"m16n8k16", MatrixInstruction::mma_m16n8k16, 16, 8, 16},
    {"m16n8k32", MatrixInstruction::mma_m16n8k32, 16, 8, 32}, {"m16n8k64", MatrixInstruction::mma_m16n8k64, 16, 8, 64}};

int element_bits(DType type, const ShapeRow& shape) {
  if (type == DType::f64) return 64;
  if (type == DType::f32) return 32;
  if (type == DType::f16 || type == DType::bf16) return 16;
  // In m16n8k32 an e2m1 has a byte of its own.
  return type == DType::e2m1 && shape.k == 64 ? 4 : 8;
}

int sum_bits(DType type) { return type == DType::f64 ? 64 : type == DType::f32 ? 32 : 16; }

// The registers of a vector operand, appended to the kernel's lists. -1: not as many as the fragment has.
bool take_registers(Coder& coder, const Operand& operand, int registers, int bits, bool destination) {
  if (operand.kind != Operand::Kind::vector || operand.parts.size() != static_cast<size_t>(registers)) return false;
  for (const Operand& one : operand.parts)
    coder.kernel().lists.push_back(destination ? coder.destination(one, bits) : coder.source(one, bits));
  return true;
}

void multiply_matrices(Warp& w, const Instruction& i) {
  require_convergence(w, i, "mma.sync");
  if (w.active != kAllLanes)
    fault(w, i, -1, cudaErrorIllegalInstruction, "mma.sync in a warp of fewer than 32 threads");
  ++w.lane_syncs;
  const MatrixCode& code = matrix_code(static_cast<size_t>(i.immediate));
  const MatrixForm& f = code.form;
  const uint32_t* registers = &w.kernel->lists[i.list];
  const uint32_t *d = registers, *a = d + code.d_registers, *b = a + code.a_registers, *c = b + code.b_registers,
                 *scales = c + code.c_registers;
  const int products = f.quads ? 4 : 1;
  std::vector<MatrixProblem> problems(static_cast<size_t>(products));
  for (MatrixProblem& p : problems) {
    p.m = f.m, p.n = f.n, p.k = f.k;
    p.a.resize(static_cast<size_t>(f.m * f.k)), p.b.resize(static_cast<size_t>(f.n * f.k));
    p.c.resize(static_cast<size_t>(f.m * f.n));
  }
  const int c_bits = sum_bits(code.types.c), d_bits = sum_bits(code.types.d);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int n = 0; n < f.a_elements(); ++n) {
      const ElementPlace at = a_element(f, lane, n);
      problems[static_cast<size_t>(at.product)].a[static_cast<size_t>(at.row * f.k + at.column)] =
          code.operand(read_element(w, a, f.bits, lane, n), code.types.a);
    }
    for (int n = 0; n < f.b_elements(); ++n) {
      const ElementPlace at = b_element(f, lane, n);
      problems[static_cast<size_t>(at.product)].b[static_cast<size_t>(at.column * f.k + at.row)] =
          code.operand(read_element(w, b, f.bits, lane, n), code.types.b);
    }
    for (int n = 0; n < f.c_elements(); ++n) {
      const ElementPlace at = c_element(f, c_bits == 16, lane, n);
      problems[static_cast<size_t>(at.product)].c[static_cast<size_t>(at.row * f.n + at.column)] =
          read_element(w, c, c_bits, lane, n);
    }
  }
  if (code.types.block) {
    const int blocks = f.k / code.types.block;
    const auto scale = [&](uint32_t offset, int lane, int byte) {
      return static_cast<uint8_t>(w.lane<uint32_t>(offset, lane) >> 8 * byte);
    };
    MatrixProblem& p = problems[0];
    for (int row = 0; row < f.m; ++row)
      for (int n = 0; n < blocks; ++n)
        p.scale_a.push_back(scale(scales[0], lane_of_scale_a(row, code.thread_a), code.byte_a + n));
    for (int column = 0; column < f.n; ++column)
      for (int n = 0; n < blocks; ++n)
        p.scale_b.push_back(scale(scales[1], lane_of_scale_b(column, code.thread_b), code.byte_b + n));
  }
  for (MatrixProblem& p : problems)
    if (const std::string why = multiply(w.block->launch().architecture, code.types, p); !why.empty())
      fault(w, i, -1, cudaErrorIllegalInstruction, why);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int n = 0; n < f.c_elements(); ++n) {
      const ElementPlace at = c_element(f, d_bits == 16, lane, n);
      write_element(w, d, d_bits, lane, n,
                    problems[static_cast<size_t>(at.product)].d[static_cast<size_t>(at.row * f.n + at.column)]);
    }
}

bool decode_scales(Coder& coder, const Statement& s, MatrixCode& code) {
  if (s.operands.size() != 8) return false;
  for (const bool of_a : {true, false}) {
    const Operand &data = s.operands[of_a ? 4 : 6], &selector = s.operands[of_a ? 5 : 7];
    if (!take_registers(coder, data, 1, 32, false)) return false;
    if (selector.kind != Operand::Kind::vector || selector.parts.size() != 2) return false;
    const auto byte = static_cast<int>(coder.number(selector.parts[0])),
               thread = static_cast<int>(coder.number(selector.parts[1]));
    const int blocks = code.form.k / code.types.block;
    if (byte % blocks || byte + blocks > 4 || thread >= (of_a ? 2 : 4)) coder.fail("a scale selector out of range");
    (of_a ? code.byte_a : code.byte_b) = byte;
    (of_a ? code.thread_a : code.thread_b) = thread;
  }
  return true;
}

bool decode_mma(Coder& coder, const Statement& s, Modifiers& m, Instruction& i) {
  if (!m.accept("sync") || !m.accept("aligned")) return false;
  const ShapeRow* shape = nullptr;
  for (const ShapeRow& row : kShapes)
    if (!shape && m.accept(row.name)) shape = &row;
  if (!shape || !m.accept("row") || !m.accept("col")) return false;
  MatrixCode code;
  int scales = 0;
  bool mxf4 = false;
  if (m.accept("kind::mxf8f6f4"))
    scales = 1;
  else if (m.accept("kind::mxf4"))
    scales = 2, mxf4 = true;
  else if (m.accept("kind::mxf4nvf4"))
    scales = 4;
  if (scales) {
    if (!m.accept("block_scale")) return false;
    const bool two = m.accept("scale_vec::2X"), four = !two && m.accept("scale_vec::4X");
    const int stated = two ? 2 : four ? 4 : m.accept("scale_vec::1X") ? 1 : scales;
    if (stated != scales && !(scales == 4 && stated == 2)) return false;
    scales = stated;
  }
  const auto d = take_sum_type(m), a = d ? take_operand_type(m) : std::nullopt,
             b = a ? take_operand_type(m) : std::nullopt, c = b ? take_sum_type(m) : std::nullopt;
  if (!c) return false;
  code.types = {shape->instruction, *a, *b, *c, *d};
  if (scales) {
    code.types.block = shape->k / scales;
    if (m.accept("ue4m3"))
      code.types.scale = DType::e4m3;
    else if (!m.accept("ue8m0"))
      return false;
    if (mxf4 && code.types.scale != DType::e8m0) return false;
  }
  const int bits = element_bits(*a, *shape);
  if (bits != element_bits(*b, *shape)) return false;
  code.form = {shape->m, shape->n, shape->k, bits, shape->m == 8 && bits == 16};
  code.in_bytes = shape->k == 32;
  const auto registers = [](int elements, int width) { return width == 64 ? elements : elements * width / 32; };
  code.d_registers = registers(code.form.c_elements(), sum_bits(*d));
  code.a_registers = registers(code.form.a_elements(), bits),
  code.b_registers = registers(code.form.b_elements(), bits);
  code.c_registers = registers(code.form.c_elements(), sum_bits(*c));
  if (s.operands.size() < 4 || (!scales && s.operands.size() != 4)) return false;
  i.list = static_cast<uint32_t>(coder.kernel().lists.size());
  const auto width = [](int of) { return of == 64 ? 64 : 32; };
  if (!take_registers(coder, s.operands[0], code.d_registers, width(sum_bits(*d)), true) ||
      !take_registers(coder, s.operands[1], code.a_registers, width(bits), false) ||
      !take_registers(coder, s.operands[2], code.b_registers, width(bits), false) ||
      !take_registers(coder, s.operands[3], code.c_registers, width(sum_bits(*c)), false))
    return false;
  if (scales && !decode_scales(coder, s, code)) return false;
  i.run = multiply_matrices;
  i.immediate = static_cast<int64_t>(add_matrix_code(code));
  return true;
}

std::vector<MatrixCode>& codes() {
  static auto* all = new std::vector<MatrixCode>;
  return *all;
}

}  // namespace

size_t add_matrix_code(const MatrixCode& code) {
  for (size_t n = 0; n < codes().size(); ++n)
    if (codes()[n] == code) return n;
  codes().push_back(code);
  return codes().size() - 1;
}
const MatrixCode& matrix_code(size_t index) { return codes()[index]; }

uint64_t MatrixCode::operand(uint64_t code, DType type) const {
  // In a byte the four bits of an e2m1 are bits 2 to 5.
  return in_bytes && type == DType::e2m1 ? code >> 2 & 0xF : code;
}

uint64_t read_element(const Warp& w, const uint32_t* registers, int bits, int lane, int n) {
  if (bits == 64) return w.lane<uint64_t>(registers[n], lane);
  const int in_register = 32 / bits;
  const uint32_t word = w.lane<uint32_t>(registers[n / in_register], lane);
  return bits == 32 ? word : word >> n % in_register * bits & ((1u << bits) - 1);
}
void write_element(Warp& w, const uint32_t* registers, int bits, int lane, int n, uint64_t code) {
  if (bits == 64) return w.set_lane<uint64_t>(registers[n], lane, code);
  if (bits == 32) return w.set_lane<uint32_t>(registers[n], lane, static_cast<uint32_t>(code));
  const uint32_t offset = registers[n / 2];
  const uint32_t word = w.lane<uint32_t>(offset, lane), shift = n % 2 * 16u;
  w.set_lane<uint32_t>(offset, lane, (word & ~(0xFFFFu << shift)) | static_cast<uint32_t>(code & 0xFFFF) << shift);
}

void add_matrix_decoders(Decoders& all) {
  all["mma"] = decode_mma;
  add_wgmma_decoders(all);
}

}  // namespace halfmark::kernels::software_gpu
