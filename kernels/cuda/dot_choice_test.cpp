// Which instruction each GPU uses, and the reason it gives if it has none.
#include "kernels/cuda/dot_choice.h"

#include <gtest/gtest.h>

namespace halfmark::kernels::cuda {
namespace {

using enum DType;
using enum MatrixInstruction;

constexpr DotTypes kHalf{f16, f16, f32, f32}, kHalfSums{f16, f16, f16, f16}, kHalfWidened{f16, f16, f16, f32},
    kBrain{bf16, bf16, f32, f32}, kTf32Registers{f32, f32, f32, f32}, kDouble{f64, f64, f64, f64},
    kFp8{e4m3, e5m2, f32, f32}, kMx{e5m2, e4m3, f32, f32, 32, e8m0}, kMxFp4{e2m1, e2m1, f32, f32, 32, e8m0},
    kMxFp4Of16{e2m1, e2m1, f32, f32, 16, e8m0}, kNvFp4{e2m1, e2m1, f32, f32, 16, e4m3},
    kFp8HalfSums{e5m2, e5m2, f16, f16};

// A GPU with the code that a build for it contains.
DotGpu gpu(int capability) {
  const bool specific = capability == 90 || (capability >= 100 && capability <= 121);
  return {capability, {capability, specific}, "this very GPU"};
}

MatrixInstruction usual_of(int capability, const DotTypes& types) {
  const DotChoice choice = choose_dot(gpu(capability), usual, types);
  return choice.row ? choice.row->instruction : usual;  // usual: refused
}

std::string refusal(const DotGpu& where, MatrixInstruction instruction, const DotTypes& types) {
  const DotChoice choice = choose_dot(where, instruction, types);
  EXPECT_EQ(choice.row, nullptr) << name_of(instruction);
  return choice.refusal;
}

TEST(DotChoice, TakesTheUsualInstructionOfEachGpu) {
  for (const DotTypes& types : {kHalf, kHalfSums}) {
    EXPECT_EQ(usual_of(70, types), mma_m8n8k4);
    EXPECT_EQ(usual_of(75, types), mma_m16n8k8);
    for (const int newer : {80, 86, 89, 90, 100, 120}) EXPECT_EQ(usual_of(newer, types), mma_m16n8k16) << newer;
  }
  for (const int newer : {80, 89, 90, 100, 120}) {
    EXPECT_EQ(usual_of(newer, kBrain), mma_m16n8k16) << newer;
    EXPECT_EQ(usual_of(newer, kTf32Registers), mma_m16n8k8) << newer;
    EXPECT_EQ(usual_of(newer, kDouble), mma_m8n8k4) << newer;
  }
  EXPECT_EQ(usual_of(75, kBrain), usual);
  EXPECT_EQ(usual_of(80, kFp8), usual);
  EXPECT_EQ(usual_of(89, kFp8), mma_m16n8k32);
  EXPECT_EQ(usual_of(90, kFp8), wgmma_k32);
  EXPECT_EQ(usual_of(120, kFp8), mma_m16n8k32);
  for (const int server : {100, 103, 110}) {
    EXPECT_EQ(usual_of(server, kFp8), tcgen05_k32) << server;
    EXPECT_EQ(usual_of(server, kFp8HalfSums), tcgen05_k32) << server;
    EXPECT_EQ(usual_of(server, kMx), tcgen05_k32) << server;
    for (const DotTypes& fp4 : {kMxFp4, kMxFp4Of16, kNvFp4}) EXPECT_EQ(usual_of(server, fp4), tcgen05_k64) << server;
  }
  EXPECT_EQ(usual_of(120, kMx), mma_m16n8k32);
  EXPECT_EQ(usual_of(120, kMxFp4), mma_m16n8k64);
  EXPECT_EQ(usual_of(121, kNvFp4), mma_m16n8k64);
  EXPECT_EQ(usual_of(75, kHalfWidened), mma_m8n8k4);
  EXPECT_EQ(usual_of(80, kHalfWidened), usual);
}

TEST(DotChoice, FindsEveryRowByName) {
  for (const DotRow& row : kDotRows.row) {
    const DotTypes types{row.a, row.b, row.c, row.out, row.block, row.scale};
    EXPECT_EQ(choose_dot(gpu(row.reach.from), row.instruction, types).row, &row) << ptx_of(row).text;
  }
}

TEST(DotChoice, SaysWhichGpusHaveTheInstruction) {
  EXPECT_EQ(refusal(gpu(80), wgmma_k16, kHalf),
            "sm_80 has no such instruction for f16 times f16 plus f32 to f32; other GPUs have wgmma.k16 (sm_90a)");
  EXPECT_EQ(refusal(gpu(120), tcgen05_k16, kHalf),
            "sm_120 has no such instruction for f16 times f16 plus f32 to f32; other GPUs have tcgen05.k16 (sm_100a to "
            "sm_110a)");
  EXPECT_EQ(refusal(gpu(90), mma_m8n8k4, kHalf),
            "sm_90 has no such instruction for f16 times f16 plus f32 to f32; other GPUs have mma.m8n8k4 (sm_70 to "
            "sm_75)");
  EXPECT_EQ(refusal(gpu(80), usual, kFp8),
            "sm_80 has no matrix instruction for e4m3 times e5m2 plus f32 to f32; other GPUs have wgmma.k32 (sm_90a), "
            "tcgen05.k32 (sm_100a to sm_110a), mma.m16n8k32 (sm_89 and newer), mma.m16n8k16 (sm_89 and newer)");
  EXPECT_EQ(refusal(gpu(100), mma_m16n8k64, kNvFp4),
            "sm_100 has no such instruction for e2m1 times e2m1 scaled by e4m3 per 16 plus f32 to f32; other GPUs have "
            "mma.m16n8k64 (sm_120a to sm_121a)");
}

TEST(DotChoice, SaysWhatTheBuildLacksInsteadOfTakingAnotherInstruction) {
  const DotGpu plain{90, {90, false}, "sm_80, compute_90"};
  for (const MatrixInstruction instruction : {usual, wgmma_k32})
    EXPECT_EQ(refusal(plain, instruction, kFp8),
              "wgmma.k32 of e4m3 times e5m2 plus f32 to f32 needs code for sm_90a; this build has it for sm_80, "
              "compute_90: configure with -DCMAKE_CUDA_ARCHITECTURES=90");
  EXPECT_NE(choose_dot(plain, mma_m16n8k32, kFp8).row, nullptr);
  // PTX of an older architecture has only instructions of that architecture. Of those, the GPU must still have the one
  // that is requested.
  const DotGpu older{80, {75, false}, "compute_75"};
  for (const MatrixInstruction instruction : {usual, mma_m16n8k16})
    EXPECT_NE(refusal(older, instruction, kHalf).find("needs code for sm_80 and newer"), std::string::npos);
  EXPECT_NE(refusal(older, mma_m8n8k4, kHalf).find("sm_80 has no such instruction"), std::string::npos);
  EXPECT_NE(choose_dot(older, mma_m16n8k8, kHalf).row, nullptr);
}

TEST(DotChoice, DoesNotPutAnotherInstructionInTcgen05sPlace) {
  const DotGpu plain{100, {100, false}, "sm_100"};
  for (const MatrixInstruction instruction : {usual, tcgen05_k32})
    EXPECT_EQ(refusal(plain, instruction, kFp8),
              "tcgen05.k32 of e4m3 times e5m2 plus f32 to f32 needs code for sm_100a to sm_110a; this build has it for "
              "sm_100: configure with -DCMAKE_CUDA_ARCHITECTURES=100");
  for (const DotTypes& types : {kMx, kNvFp4})
    EXPECT_NE(refusal(plain, usual, types).find("needs code for sm_100a to sm_110a"), std::string::npos);
  EXPECT_NE(choose_dot(plain, mma_m16n8k32, kFp8).row, nullptr);
  EXPECT_NE(choose_dot(gpu(100), mma_m16n8k32, kFp8).row, nullptr);
}

TEST(DotChoice, SaysWhatNoInstructionTakes) {
  EXPECT_EQ(refusal(gpu(90), mma_m16n8k8, kFp8), "no mma.m16n8k8 takes e4m3 times e5m2 plus f32 to f32");
  EXPECT_EQ(refusal(gpu(120), usual, {e2m1, e2m1, f32, f32, 64, e8m0}),
            "no matrix instruction takes e2m1 times e2m1 scaled by e8m0 per 64 plus f32 to f32");
  EXPECT_EQ(refusal(gpu(120), mma_m16n8k64, {e2m1, e2m1, f32, f32}),
            "no mma.m16n8k64 takes e2m1 times e2m1 plus f32 to f32");
}

}  // namespace
}  // namespace halfmark::kernels::cuda
