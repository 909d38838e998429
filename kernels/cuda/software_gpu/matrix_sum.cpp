#include "kernels/cuda/software_gpu/matrix_sum.h"

#include <span>

#include "kernels/cuda/software_gpu/silent_errors.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels::software_gpu {
namespace {

// The simulated GPU whose matrix instructions an architecture has.
std::string_view simulated(int architecture) {
  struct Row {
    int architecture;
    std::string_view name;
  };
  static constexpr Row kRows[] = {{75, "turing"}, {80, "ampere"},     {86, "ampere"},         {89, "ada"},
                                  {90, "hopper"}, {100, "blackwell"}, {120, "blackwell-rtx"}, {121, "blackwell-rtx"}};
  for (const Row& row : kRows)
    if (row.architecture == architecture) return row.name;
  return {};
}

const Format& operand_format(DType dtype) { return dtype == DType::f32 ? kTf32 : format_of(dtype); }

// Every e2m1 is an e4m3; instructions with operands of a byte multiply it as such.
uint64_t e4m3_of_e2m1(uint64_t code) { return encode(DType::e4m3, decode(DType::e2m1, code)); }

std::string exact_product(int architecture, const MatrixTypes& given, MatrixProblem& p) {
  MatrixTypes types = given;
  const auto k = static_cast<size_t>(p.k);
  if (types.instruction == MatrixInstruction::mma_m16n8k32) {
    for (const bool of_a : {true, false}) {
      DType& dtype = of_a ? types.a : types.b;
      if (dtype != DType::e2m1) continue;
      for (uint64_t& code : of_a ? p.a : p.b) code = e4m3_of_e2m1(code);
      dtype = DType::e4m3;
    }
  }
  DotTypes dot_types{operand_format(types.a), operand_format(types.b), format_of(types.c), format_of(types.d),
                     types.block ? Scaling{types.scale, types.block} : Scaling{}};
  std::string why;
  const TensorCore* core = find_core(tensor_cores(), simulated(architecture), types.instruction, dot_types, &why);
  if (!core && types.c == DType::f16 && types.d == DType::f32) {
    // A c of f16 is an f32 exactly. That m8n8k4 of sm_75 widens it before the sum, as on sm_70, is assumed.
    dot_types.c = kFp32;
    core = find_core(tensor_cores(), simulated(architecture), types.instruction, dot_types, &why);
    for (uint64_t& code : p.c) code = encode(DType::f32, decode(DType::f16, code));
  }
  if (!core) return "sm_" + std::to_string(architecture) + ": " + why;
  const size_t blocks = types.block ? k / static_cast<size_t>(types.block) : 0;
  p.d.resize(p.c.size());
  if (core->operands == Operands::fp64) {
    for (size_t row = 0; row < static_cast<size_t>(p.m); ++row)
      for (size_t column = 0; column < static_cast<size_t>(p.n); ++column) {
        const size_t at = row * static_cast<size_t>(p.n) + column;
        p.d[at] =
            dot(*core, dot_types, std::span(p.a.data() + row * k, k), std::span(p.b.data() + column * k, k), p.c[at]);
      }
    return {};
  }
  const auto decoded = [&](const std::vector<uint64_t>& codes, const Format& format) {
    std::vector<Term> terms(codes.size());
    for (size_t i = 0; i < codes.size(); ++i) terms[i] = take_apart(format, static_cast<uint32_t>(codes[i]));
    return terms;
  };
  const std::vector<Term> a = decoded(p.a, dot_types.a), b = decoded(p.b, dot_types.b);
  for (size_t row = 0; row < static_cast<size_t>(p.m); ++row)
    for (size_t column = 0; column < static_cast<size_t>(p.n); ++column) {
      const size_t at = row * static_cast<size_t>(p.n) + column;
      const Operand left{dot_types.a, std::span(a.data() + row * k, k),
                         std::span(p.scale_a.data() + row * blocks, blocks)};
      const Operand right{dot_types.b, std::span(b.data() + column * k, k),
                          std::span(p.scale_b.data() + column * blocks, blocks)};
      p.d[at] = dot(*core, left, right, static_cast<uint32_t>(p.c[at]));
    }
  return {};
}

}  // namespace

std::string multiply(int architecture, const MatrixTypes& types, MatrixProblem& problem) {
  std::string why = exact_product(architecture, types, problem);
  if (why.empty() && inverts_bits())
    for (uint64_t& code : problem.d) code = with_silent_errors(code, bits_of(types.d));
  return why;
}

}  // namespace halfmark::kernels::software_gpu
