// The machines of the exact model: what the literature says about each architecture, written down a second time and
// independently of the table under test (tensor_core_table.cpp). A test compares the two, row by row.
//
// Sources: arXiv 2512.07004 (blocks, kept bits and the exponent of a zero, fitted to outputs of GPUs), arXiv 2511.10909
// and microsoft/MMA-Sim (the same on other GPUs, specials, FP4), PeerJ CS 7:e330 (V100, T4, A100).
#pragma once

#include <algorithm>
#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sim/exact_model_testing.h"
#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels::exact {

// A block takes 8 bytes of each operand on Volta, 16 on Turing, Ampere and Ada,
// 32 from Hopper on. The exponent of a zero is kUnreachable if no term has a bit
// below 2^(that exponent - kept): products of fp16 end at 2^-48, of fp8 at 2^-32.
inline std::vector<Machine> machines() {
  using enum MatrixInstruction;
  using enum Type;
  using enum Output;
  std::vector<Machine> all;
  const auto add = [&](std::string_view architecture, std::initializer_list<MatrixInstruction> instructions,
                       Type operand, Type result, int block, int kept, int floor) {
    for (const MatrixInstruction instruction : instructions)
      all.push_back({architecture, instruction, operand, operand, result, result, Way::blocks,
                     std::min(block, depth_of(instruction)), kept, floor, result == fp16 ? near_fp16 : cut_fp32});
  };
  // e4m3 and e5m2 in any pairing.
  const auto add_fp8 = [&](std::string_view architecture, std::initializer_list<MatrixInstruction> instructions,
                           Type result, Way way, int block, int kept, int floor, Output output, int scale_block = 0) {
    for (const MatrixInstruction instruction : instructions)
      for (const Type a : {e4m3, e5m2})
        for (const Type b : {e4m3, e5m2})
          all.push_back({architecture, instruction, a, b, result, result, way, std::min(block, depth_of(instruction)),
                         kept, floor, output, e8m0, scale_block});
  };
  const auto add_fp4 = [&](std::string_view architecture, MatrixInstruction instruction) {
    for (const auto& [scale, scale_block] : {std::pair{e8m0, 32}, std::pair{e8m0, 16}, std::pair{e4m3, 16}})
      all.push_back({architecture, instruction, e2m1, e2m1, fp32, fp32, Way::groups, 64, 35, kNoFloor, cut_fp32, scale,
                     scale_block});
  };

  add("volta", {mma_m8n8k4}, fp16, fp32, 4, 23, kUnreachable);
  add("volta", {mma_m8n8k4}, fp16, fp16, 4, 23, -19);
  all.push_back({"volta", mma_m8n8k4, fp16, fp16, fp16, fp32, Way::blocks, 4, 23, kUnreachable, cut_fp32});

  add("turing", {mma_m8n8k4, mma_m16n8k8}, fp16, fp32, 8, 24, kUnreachable);
  add("turing", {mma_m8n8k4, mma_m16n8k8}, fp16, fp16, 8, 24, -20);

  for (const std::string_view architecture : {"ampere", "ada"}) {
    add(architecture, {mma_m16n8k8, mma_m16n8k16}, fp16, fp32, 8, 24, kUnreachable);
    add(architecture, {mma_m16n8k8, mma_m16n8k16}, fp16, fp16, 8, 24, -20);
    add(architecture, {mma_m16n8k8, mma_m16n8k16}, bf16, fp32, 8, 24, -132);
    add(architecture, {mma_m16n8k4, mma_m16n8k8}, tf32, fp32, 4, 24, -132);
  }
  add_fp8("ada", {mma_m16n8k16, mma_m16n8k32}, fp32, Way::blocks, 16, 13, kUnreachable, cut_e8m13);
  add_fp8("ada", {mma_m16n8k16, mma_m16n8k32}, fp16, Way::blocks, 16, 13, kNoFloor, near_fp16);

  for (const std::string_view architecture : {"hopper", "blackwell", "blackwell-rtx"}) {
    add(architecture, {mma_m16n8k8, mma_m16n8k16}, fp16, fp32, 16, 25, kUnreachable);
    add(architecture, {mma_m16n8k8, mma_m16n8k16}, fp16, fp16, 16, 25, -21);
    add(architecture, {mma_m16n8k8, mma_m16n8k16}, bf16, fp32, 16, 25, -133);
    add(architecture, {mma_m16n8k4, mma_m16n8k8}, tf32, fp32, 8, 25, -133);
  }
  add("hopper", {wgmma_k16}, fp16, fp32, 16, 25, kUnreachable);
  add("hopper", {wgmma_k16}, fp16, fp16, 16, 25, -21);
  add("hopper", {wgmma_k16}, bf16, fp32, 16, 25, -133);
  add("hopper", {wgmma_k8}, tf32, fp32, 8, 25, -133);
  add_fp8("hopper", {wgmma_k32}, fp32, Way::blocks, 32, 13, kUnreachable, cut_e8m13);
  add_fp8("hopper", {wgmma_k32}, fp16, Way::blocks, 32, 13, kNoFloor, near_fp16);

  add("blackwell", {tcgen05_k16}, fp16, fp32, 16, 25, kUnreachable);
  add("blackwell", {tcgen05_k16}, fp16, fp16, 16, 25, -21);
  add("blackwell", {tcgen05_k16}, bf16, fp32, 16, 25, -133);
  add("blackwell", {tcgen05_k8}, tf32, fp32, 8, 25, -133);
  add_fp8("blackwell", {tcgen05_k32}, fp32, Way::blocks, 32, 25, kUnreachable, cut_fp32);
  add_fp8("blackwell", {tcgen05_k32}, fp16, Way::blocks, 32, 25, kUnreachable, near_fp16);
  add_fp8("blackwell", {tcgen05_k32}, fp32, Way::blocks, 32, 25, -133, cut_fp32, 32);
  add_fp4("blackwell", tcgen05_k64);

  // Their mma.sync has no fp8 units: the operands are unpacked to fp16, half of them at a time.
  for (const std::string_view architecture : {"hopper", "blackwell"}) {
    add_fp8(architecture, {mma_m16n8k32}, fp32, Way::interleaved, 16, 25, kUnreachable, cut_fp32);
    add_fp8(architecture, {mma_m16n8k32}, fp16, Way::interleaved, 16, 25, kUnreachable, near_fp16);
    // Two f16 instructions of K = 8 in the machine code that ptxas generates for it.
    add_fp8(architecture, {mma_m16n8k16}, fp32, Way::interleaved, 8, 25, kUnreachable, cut_fp32);
    add_fp8(architecture, {mma_m16n8k16}, fp16, Way::interleaved, 8, 25, kUnreachable, near_fp16);
  }

  add_fp8("blackwell-rtx", {mma_m16n8k16, mma_m16n8k32}, fp32, Way::blocks, 32, 25, kUnreachable, cut_fp32);
  add_fp8("blackwell-rtx", {mma_m16n8k16, mma_m16n8k32}, fp16, Way::blocks, 32, 25, kUnreachable, near_fp16);
  add_fp8("blackwell-rtx", {mma_m16n8k32}, fp32, Way::blocks, 32, 25, -133, cut_fp32, 32);
  add_fp4("blackwell-rtx", mma_m16n8k64);

  // FP64: IEEE multiply-adds in increasing k. The shapes are those of the PTX ISA: m8n8k4 from the A100 on, the larger
  // ones from the H100 on.
  const auto add_fp64 = [&](std::string_view architecture, std::initializer_list<MatrixInstruction> instructions) {
    for (const MatrixInstruction instruction : instructions)
      all.push_back({architecture, instruction, fp64, fp64, fp64, fp64, Way::fma, 1, 52, kNoFloor, cut_fp32});
  };
  for (const std::string_view architecture : {"ampere", "ada"}) add_fp64(architecture, {mma_m8n8k4});
  for (const std::string_view architecture : {"hopper", "blackwell", "blackwell-rtx"})
    add_fp64(architecture, {mma_m8n8k4, mma_m16n8k4, mma_m16n8k8, mma_m16n8k16});
  return all;
}

// The same in the types of the model under test.

inline DotTypes types_of(const Machine& m) {
  const auto format = [](Type type) { return format_named(name_of(type)); };
  return {.a = format(m.a),
          .b = format(m.b),
          .c = format(m.c),
          .d = format(m.d),
          .scaling = {m.scale == Type::e8m0 ? DType::e8m0 : DType::e4m3, m.scale_block}};
}
inline const TensorCore* core_of(const Machine& m) {
  return find_core(tensor_cores(), m.architecture, m.instruction, types_of(m));
}

inline std::string text_of(const Machine& m) {
  std::string text = std::string(m.architecture) + " " + std::string(name_of(m.instruction)) + " " +
                     std::string(name_of(m.a)) + " x " + std::string(name_of(m.b)) + " + " + std::string(name_of(m.c)) +
                     " to " + std::string(name_of(m.d));
  if (m.scale_block) text += " scaled by " + std::string(name_of(m.scale)) + "/" + std::to_string(m.scale_block);
  return text;
}

inline void PrintTo(const Machine& m, std::ostream* stream) { *stream << text_of(m); }  // for GoogleTest

}  // namespace halfmark::kernels::exact
