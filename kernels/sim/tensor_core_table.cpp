// The tables: architectures, and the arithmetic of each of their matrix instructions. To add an architecture, add its
// name and its rows here; devices, commands, probes and tests follow.
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {
namespace {

constexpr std::array kArchitectures{
    Architecture{"volta", "V100 (sm_70)", {70}},
    Architecture{"turing", "T4, RTX 20 (sm_75)", {75}},
    Architecture{"ampere", "A100, A30, A2, RTX 30 (sm_80, sm_86)", {80, 86}},
    Architecture{"ada", "L40S, L4, RTX 40 (sm_89)", {89}},
    Architecture{"hopper", "H100, H200 (sm_90): mma.sync and wgmma", {90}},
    Architecture{"blackwell", "B200 (sm_100): mma.sync and tcgen05", {100}},
    Architecture{"blackwell-rtx", "RTX PRO 6000, RTX 50 (sm_120)", {120}},
};

// The sources of the numbers in the rows. The evidence of a row names them by key.
constexpr std::array kSources{
    InstructionSource{
        "mma-sim",
        "MMA-Sim, arXiv:2511.10909; microsoft/MMA-Sim @ c785138, tests @ f35d9c5 and 1727461, probes @ "
        "47eb633: directed and bitwise random tests on V100, T4, A100, RTX 4090, H100, B200, RTX PRO 6000"},
    InstructionSource{"khattak-mikaitis",
                      "F. A. Khattak, M. Mikaitis: Accurate Models of NVIDIA Tensor Cores, arXiv:2512.07004, "
                      "doi:10.1145/3830409; models of north-numerical-computing/MATLAB-tensor-core @ b12b5a7"},
    InstructionSource{"gpu-outputs",
                      "outputs of V100, A100, A2, RTX 1000 Ada, H100, H200, B200 published in model_validation of "
                      "north-numerical-computing/MATLAB-tensor-core @ b12b5a7, reproduced by our test"},
    InstructionSource{
        "fasi-2021",
        "M. Fasi, N. Higham, M. Mikaitis, S. Pranesh: Numerical behavior of NVIDIA tensor cores, PeerJ CS "
        "7:e330, 2021; tensor-cores-numerical-behavior @ 9dae3fc: V100, T4, A100"},
    InstructionSource{
        "halfmark-h200",
        "cuda_tests of halfmark @ e8c39c9 and c709f43 on an NVIDIA H200, driver 580.159.04, code by ptxas "
        "13.0: a million rows of each instruction, on inputs that distinguish models, gave these bits"},
    InstructionSource{"ptx-isa", "NVIDIA PTX ISA, sections on mma, wmma and wgmma; version not recorded"},
    InstructionSource{"ptxas", "machine code made by ptxas of CUDA 13.0"},
};

constexpr std::string_view kModels = "L, F: mma-sim, khattak-mikaitis; e_zero: khattak-mikaitis";
constexpr std::string_view kModelsAndOutputs = "L, F: mma-sim, khattak-mikaitis, gpu-outputs; e_zero: khattak-mikaitis";
constexpr std::string_view kTuring = "L, F: mma-sim, fasi-2021; e_zero: mma-sim";
constexpr std::string_view kWidenedAddend = "as with an f32 addend; that c is widened first: mma-sim";
constexpr std::string_view kShortFp8 =
    "L, F, E8M13: mma-sim, khattak-mikaitis, gpu-outputs; e_zero of f16 results unknown, none assumed";
constexpr std::string_view kShortFp8OfHopper =
    "L, F, E8M13: mma-sim, khattak-mikaitis, gpu-outputs, halfmark-h200; no e_zero of f16 results shows: halfmark-h200";
constexpr std::string_view kUnpackedFp8 = "order of k, L, F: gpu-outputs; specials not measured";
constexpr std::string_view kUnpackedFp8OfHopper =
    "order of k, L, F: gpu-outputs, halfmark-h200; subnormal e4m3, specials: halfmark-h200";
constexpr std::string_view kUnpackedShortOfHopper = "two f16 m16n8k8 and an addition: ptxas, halfmark-h200";
constexpr std::string_view kUnpackedShort = "two f16 m16n8k8 and an addition: ptxas; not measured";
constexpr std::string_view kFullFp8 = "L, F: mma-sim; e_zero not reachable";
constexpr std::string_view kMx = "L, F: mma-sim; e_zero as for bf16, not measured";
constexpr std::string_view kGroups = "groups, F: mma-sim; no e_zero assumed";
constexpr std::string_view kIeee = "order: mma-sim; IEEE operations: ptx-isa";

constexpr int kNone = kNoZeroExponent;  // not reachable with these operands, or not known
constexpr BlockSum to_f32(int products, int kept, int zero) {
  return {products, kept, zero, BlockRounding::truncate_fp32};
}
constexpr BlockSum to_f16(int products, int kept, int zero) {
  return {products, kept, zero, BlockRounding::near_even_fp16};
}
constexpr BlockSum to_e8m13(int products, int kept) { return {products, kept, kNone, BlockRounding::truncate_e8m13}; }

using enum MatrixInstruction;
using enum Operands;
using enum Summation;

using Rows = std::vector<TensorCore>;

void add(Rows& rows, std::initializer_list<TensorCore> more) {
  for (const TensorCore& core : more) rows.push_back(core);
}

void add_volta(Rows& rows) {
  add(rows, {{"volta", mma_m8n8k4, f16, kFp32, kFp32, blocks, to_f32(4, 23, kNone), kModelsAndOutputs},
             {"volta", mma_m8n8k4, f16, kFp16, kFp16, blocks, to_f16(4, 23, -19), kModelsAndOutputs},
             {"volta", mma_m8n8k4, f16, kFp16, kFp32, blocks, to_f32(4, 23, kNone), kWidenedAddend}});
}

void add_turing(Rows& rows) {
  add(rows, {{"turing", mma_m16n8k8, f16, kFp32, kFp32, blocks, to_f32(8, 24, kNone), kTuring},
             {"turing", mma_m16n8k8, f16, kFp16, kFp16, blocks, to_f16(8, 24, -20), kTuring},
             {"turing", mma_m8n8k4, f16, kFp32, kFp32, blocks, to_f32(4, 24, kNone), kTuring},
             {"turing", mma_m8n8k4, f16, kFp16, kFp16, blocks, to_f16(4, 24, -20), kTuring}});
}

// Ampere and Ada: a block takes 16 bytes of an operand, so m16n8k16 is two blocks of f16.
void add_sixteen_bytes(Rows& rows, std::string_view name) {
  add(rows, {{name, mma_m16n8k16, f16, kFp32, kFp32, blocks, to_f32(8, 24, -132), kModelsAndOutputs},
             {name, mma_m16n8k16, f16, kFp16, kFp16, blocks, to_f16(8, 24, -20), kModelsAndOutputs},
             {name, mma_m16n8k16, bf16, kFp32, kFp32, blocks, to_f32(8, 24, -132), kModelsAndOutputs},
             {name, mma_m16n8k8, f16, kFp32, kFp32, blocks, to_f32(8, 24, -132), kModelsAndOutputs},
             {name, mma_m16n8k8, f16, kFp16, kFp16, blocks, to_f16(8, 24, -20), kModelsAndOutputs},
             {name, mma_m16n8k8, bf16, kFp32, kFp32, blocks, to_f32(8, 24, -132), kModelsAndOutputs},
             {name, mma_m16n8k8, tf32, kFp32, kFp32, blocks, to_f32(4, 24, -132), kModelsAndOutputs},
             {name, mma_m16n8k4, tf32, kFp32, kFp32, blocks, to_f32(4, 24, -132), kModelsAndOutputs},
             {name, mma_m8n8k4, fp64, kFp64, kFp64, fma_chain, {}, kIeee}});
}

void add_ada_fp8(Rows& rows) {
  for (const MatrixInstruction instruction : {mma_m16n8k32, mma_m16n8k16})
    add(rows, {{"ada", instruction, fp8, kFp32, kFp32, blocks, to_e8m13(16, 13), kShortFp8},
               {"ada", instruction, fp8, kFp16, kFp16, blocks, to_f16(16, 13, kNone), kShortFp8}});
}

// Hopper and later: a block takes 32 bytes. The 16-bit formats, tf32 and fp64, common to all three.
void add_thirty_two_bytes(Rows& rows, std::string_view name) {
  add(rows, {{name, mma_m16n8k16, f16, kFp32, kFp32, blocks, to_f32(16, 25, -133), kModelsAndOutputs},
             {name, mma_m16n8k16, f16, kFp16, kFp16, blocks, to_f16(16, 25, -21), kModelsAndOutputs},
             {name, mma_m16n8k16, bf16, kFp32, kFp32, blocks, to_f32(16, 25, -133), kModelsAndOutputs},
             {name, mma_m16n8k8, f16, kFp32, kFp32, blocks, to_f32(8, 25, -133), kModels},
             {name, mma_m16n8k8, f16, kFp16, kFp16, blocks, to_f16(8, 25, -21), kModels},
             {name, mma_m16n8k8, bf16, kFp32, kFp32, blocks, to_f32(8, 25, -133), kModels},
             {name, mma_m16n8k8, tf32, kFp32, kFp32, blocks, to_f32(8, 25, -133), kModels},
             {name, mma_m16n8k4, tf32, kFp32, kFp32, blocks, to_f32(4, 25, -133), kModels}});
  for (const MatrixInstruction instruction : {mma_m8n8k4, mma_m16n8k4, mma_m16n8k8, mma_m16n8k16})
    rows.push_back({name, instruction, fp64, kFp64, kFp64, fma_chain, {}, kIeee});
}

// fp8 passed to mma.sync on sm_90 and sm_100: the assembler generates f16 instructions, which take k in another order.
void add_unpacked_fp8(Rows& rows, std::string_view name, std::string_view evidence, std::string_view of_short) {
  add(rows, {{name, mma_m16n8k32, fp8, kFp32, kFp32, interleaved, to_f32(16, 25, -133), evidence},
             {name, mma_m16n8k32, fp8, kFp16, kFp16, interleaved, to_f16(16, 25, -21), evidence},
             {name, mma_m16n8k16, fp8, kFp32, kFp32, interleaved, to_f32(8, 25, -133), of_short},
             {name, mma_m16n8k16, fp8, kFp16, kFp16, interleaved, to_f16(8, 25, -21), of_short}});
}

void add_wgmma(Rows& rows) {
  add(rows, {{"hopper", wgmma_k16, f16, kFp32, kFp32, blocks, to_f32(16, 25, -133), kModels},
             {"hopper", wgmma_k16, f16, kFp16, kFp16, blocks, to_f16(16, 25, -21), kModels},
             {"hopper", wgmma_k16, bf16, kFp32, kFp32, blocks, to_f32(16, 25, -133), kModels},
             {"hopper", wgmma_k8, tf32, kFp32, kFp32, blocks, to_f32(8, 25, -133), kModels},
             {"hopper", wgmma_k32, fp8, kFp32, kFp32, blocks, to_e8m13(32, 13), kShortFp8OfHopper},
             {"hopper", wgmma_k32, fp8, kFp16, kFp16, blocks, to_f16(32, 13, kNone), kShortFp8OfHopper}});
}

void add_tcgen05(Rows& rows) {
  add(rows, {{"blackwell", tcgen05_k16, f16, kFp32, kFp32, blocks, to_f32(16, 25, -133), kModels},
             {"blackwell", tcgen05_k16, f16, kFp16, kFp16, blocks, to_f16(16, 25, -21), kModels},
             {"blackwell", tcgen05_k16, bf16, kFp32, kFp32, blocks, to_f32(16, 25, -133), kModels},
             {"blackwell", tcgen05_k8, tf32, kFp32, kFp32, blocks, to_f32(8, 25, -133), kModels}});
}

// Dedicated fp8 multipliers with full precision, and the block-scaled formats.
void add_full_fp8(Rows& rows, std::string_view name, MatrixInstruction k32, MatrixInstruction k64) {
  add(rows, {{name, k32, fp8, kFp32, kFp32, blocks, to_f32(32, 25, kNone), kFullFp8},
             {name, k32, fp8, kFp16, kFp16, blocks, to_f16(32, 25, kNone), kFullFp8},
             {name, k32, fp8, kFp32, kFp32, blocks, to_f32(32, 25, -133), kMx, {DType::e8m0, 32}},
             {name, k64, fp4, kFp32, kFp32, groups, to_f32(64, 35, kNone), kGroups, {DType::e8m0, 32}},
             {name, k64, fp4, kFp32, kFp32, groups, to_f32(64, 35, kNone), kGroups, {DType::e8m0, 16}},
             {name, k64, fp4, kFp32, kFp32, groups, to_f32(64, 35, kNone), kGroups, {DType::e4m3, 16}}});
}

Rows every_row() {
  Rows rows;
  add_volta(rows);
  add_turing(rows);
  add_sixteen_bytes(rows, "ampere");
  add_sixteen_bytes(rows, "ada"), add_ada_fp8(rows);
  add_thirty_two_bytes(rows, "hopper"), add_wgmma(rows),
      add_unpacked_fp8(rows, "hopper", kUnpackedFp8OfHopper, kUnpackedShortOfHopper);
  add_thirty_two_bytes(rows, "blackwell"), add_tcgen05(rows);
  add_full_fp8(rows, "blackwell", tcgen05_k32, tcgen05_k64),
      add_unpacked_fp8(rows, "blackwell", kUnpackedFp8, kUnpackedShort);
  add_thirty_two_bytes(rows, "blackwell-rtx"), add_full_fp8(rows, "blackwell-rtx", mma_m16n8k32, mma_m16n8k64);
  rows.push_back({"blackwell-rtx", mma_m16n8k16, fp8, kFp32, kFp32, blocks, to_f32(16, 25, kNone), kFullFp8});
  rows.push_back({"blackwell-rtx", mma_m16n8k16, fp8, kFp16, kFp16, blocks, to_f16(16, 25, kNone), kFullFp8});
  return rows;
}

std::string text_of(const DotTypes& types) {
  std::string text = std::string(types.a.name) + " times " + std::string(types.b.name);
  if (types.scaling.block)
    text += " scaled by " + std::string(name_of(types.scaling.type)) + " per " + std::to_string(types.scaling.block);
  if (!(types.c == types.d)) text += " plus " + std::string(types.c.name);
  return text + " summed in " + std::string(types.d.name);
}

}  // namespace

std::string_view name_of(Operands operands) {
  switch (operands) {
    case f16:
      return "f16";
    case bf16:
      return "bf16";
    case tf32:
      return "tf32";
    case fp8:
      return "e4m3 and e5m2";
    case fp4:
      return "e2m1";
    case fp64:
      return "f64";
  }
  return "?";
}

std::string_view text_of(BlockRounding rounding) {
  switch (rounding) {
    case BlockRounding::truncate_fp32:
      return "cut to fp32";
    case BlockRounding::truncate_e8m13:
      return "cut to 13 fraction bits";
    case BlockRounding::near_even_fp16:
      return "rounded to fp16";
  }
  return "?";
}

std::string_view text_of(Summation summation) {
  switch (summation) {
    case blocks:
      return "blocks";
    case interleaved:
      return "blocks, k interleaved, c added last";
    case groups:
      return "groups of 16 added first";
    case fma_chain:
      return "fused multiply-adds one after another";
  }
  return "?";
}

namespace {

// "mma.m16n8k8 (f16, bf16, tf32), wgmma.k16 (f16)"
std::string offered(std::span<const TensorCore> cores, std::string_view architecture) {
  std::string text;
  for (const MatrixInstructionRow& row : matrix_instructions()) {
    std::string types;
    for (const TensorCore& core : cores) {
      if (core.architecture != architecture || core.instruction != row.instruction) continue;
      const std::string name(name_of(core.operands));
      if (types.find(name) == std::string::npos) types += (types.empty() ? "" : ", ") + name;
    }
    if (!types.empty()) text += (text.empty() ? "" : "; ") + std::string(row.name) + " of " + types;
  }
  return text;
}

}  // namespace

std::string text_of(const TensorCore& core) {
  std::string text = std::string(name_of(core.operands)) + " to " + std::string(core.result.name);
  if (core.scaling.block)
    text += ", scaled by " + std::string(name_of(core.scaling.type)) + " per " + std::to_string(core.scaling.block);
  if (core.summation == fma_chain) return text + ": " + std::string(text_of(fma_chain));
  text += ": blocks of " + std::to_string(core.block.products) + ", " + std::to_string(core.block.kept_fraction_bits) +
          " fraction bits kept, " + std::string(text_of(core.block.rounding));
  if (core.summation == interleaved) text += ", k interleaved, c added last";
  if (core.summation == groups) text += ", groups of 16 added first";
  return text;
}

std::span<const Architecture> architectures() { return kArchitectures; }

std::span<const InstructionSource> instruction_sources() { return kSources; }

std::span<const TensorCore> tensor_cores() {
  static const Rows rows = every_row();
  return rows;
}

const TensorCore* find_core(std::span<const TensorCore> cores, std::string_view architecture,
                            MatrixInstruction instruction, const DotTypes& types, std::string* why) {
  for (const TensorCore& core : cores)
    if (core.architecture == architecture && (instruction == usual || core.instruction == instruction) &&
        takes(core.operands, types.a) && takes(core.operands, types.b) && core.addend == types.c &&
        core.result == types.d && core.scaling == types.scaling)
      return &core;
  if (why)
    *why = std::string(architecture) + " has no " +
           (instruction == usual ? std::string("instruction") : std::string(name_of(instruction))) + " for " +
           text_of(types) + "; it has " + offered(cores, architecture);
  return nullptr;
}

}  // namespace halfmark::kernels
