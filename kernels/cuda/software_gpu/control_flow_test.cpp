// Divergence, loops, barriers, and instructions in which lanes exchange values.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

// Each thread stores %r20 to element %r1 of out.
const std::string kStore = "\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd0, %rd2;\nst.global.u32 [%rd2], %r20;\n";

class Control : public SoftwareGpu {
 protected:
  std::vector<uint32_t> results(const std::string& body, unsigned threads, unsigned blocks = 1, int shared = 0) {
    const size_t count = size_t{threads} * blocks;
    uint32_t* out = on_device(std::vector<uint32_t>(count));
    const KernelRun run =
        run_kernel(module_of_body(body, "sm_90a", shared), out, nullptr, 5, dim3(blocks), dim3(threads));
    EXPECT_EQ(run.status(), cudaSuccess) << body << run.text;
    if (run.status() != cudaSuccess) return std::vector<uint32_t>(count);
    return from_device(out, count);
  }
};

TEST_F(Control, LanesThatPartMeetAgain) {
  const auto out = results(
      "setp.lt.u32 %p1, %r1, 7;\n@%p1 bra LOW;\nmov.u32 %r20, 100;\nsetp.gt.u32 %p2, %r1, 20;\n@%p2 bra HIGH;\nbra "
      "JOIN;\n"
      "HIGH: add.u32 %r20, %r20, 1000;\nbra JOIN;\nLOW: mov.u32 %r20, 1;\nJOIN: activemask.b32 %r21;\n"
      "popc.b32 %r21, %r21;\nshl.b32 %r21, %r21, 16;\nor.b32 %r20, %r20, %r21;" +
          kStore,
      32);
  for (uint32_t n = 0; n < 32; ++n) EXPECT_EQ(out[n], (32u << 16) + (n < 7 ? 1 : n > 20 ? 1100 : 100)) << n;
}

TEST_F(Control, LoopsOfDifferentLengthsEndTogether) {
  // 3 n + 1 steps to reach 1, nested in a loop of two rounds.
  const auto out = results(
      "mov.u32 %r20, 0;\nmov.u32 %r25, 0;\nROUND: add.u32 %r21, %r1, 1;\nSTEP: setp.eq.u32 %p1, %r21, 1;\n@%p1 bra "
      "DONE;\n"
      "and.b32 %r22, %r21, 1;\nsetp.eq.u32 %p2, %r22, 0;\n@%p2 bra EVEN;\nmad.lo.s32 %r21, %r21, 3, 1;\nbra NEXT;\n"
      "EVEN: shr.u32 %r21, %r21, 1;\nNEXT: add.u32 %r20, %r20, 1;\nbra STEP;\nDONE: bar.warp.sync 0xffffffff;\n"
      "add.u32 %r25, %r25, 1;\nsetp.lt.u32 %p3, %r25, 2;\n@%p3 bra ROUND;" +
          kStore,
      64);
  for (uint32_t n = 0; n < 64; ++n) {
    uint32_t steps = 0;
    for (uint32_t x = n + 1; x != 1; x = x % 2 ? 3 * x + 1 : x / 2) ++steps;
    EXPECT_EQ(out[n], 2 * steps) << n;
  }
}

TEST_F(Control, ThreadsThatReturnEarlyDoNotHoldUpABarrier) {
  const auto out = results(
      "mov.u32 %r20, 0;\nsetp.ge.u32 %p1, %r1, 70;\n@%p1 bra END;\nbar.sync 0;\nmov.u32 %r20, 9;" + kStore + "END:",
      96);
  for (uint32_t n = 0; n < 96; ++n) EXPECT_EQ(out[n], n < 70 ? 9u : 0u) << n;
}

TEST_F(Control, BarriersOrderSharedMemory) {
  const auto out = results(
      "mov.u32 %r21, tile;\nmad.lo.s32 %r22, %r4, 4, %r21;\nst.shared.u32 [%r22], %r1;\nbar.sync 0;\n"
      "xor.b32 %r23, %r4, 33;\nmad.lo.s32 %r24, %r23, 4, %r21;\nld.shared.u32 %r20, [%r24];\nbar.sync 0;\n"
      "st.shared.u32 [%r22], 1;" +
          kStore,
      64, 3, 256);
  for (uint32_t n = 0; n < 192; ++n) EXPECT_EQ(out[n], n / 64 * 64 + (n % 64 ^ 33)) << n;
}

TEST_F(Control, NamedBarriersSynchroniseSomeWarps) {
  // Warps 0 and 1 exchange through barrier 1, the others through barrier 2.
  const auto out = results(
      "mov.u32 %r21, tile;\nmad.lo.s32 %r22, %r4, 4, %r21;\nst.shared.u32 [%r22], %r1;\nshr.u32 %r25, %r4, 6;\n"
      "add.u32 %r26, %r25, 1;\nbar.sync %r26, 64;\nxor.b32 %r23, %r4, 32;\nmad.lo.s32 %r24, %r23, 4, "
      "%r21;\nld.shared.u32 %r20, [%r24];" +
          kStore,
      128, 1, 512);
  for (uint32_t n = 0; n < 128; ++n) EXPECT_EQ(out[n], n ^ 32) << n;
}

TEST_F(Control, ABarrierThatNotAllReachEnds) {
  uint32_t* out = on_device(std::vector<uint32_t>(64));
  expect_fault(run_kernel(module_of_body("setp.lt.u32 %p1, %r4, 32;\n@%p1 bra END;\nbar.sync 1, 64;\nEND:"), out,
                          nullptr, 0, dim3(1), dim3(64)),
               cudaErrorLaunchTimeout, "waits at barrier 1 for threads that never come");
}

TEST_F(Control, ShufflesTakeValuesOfOtherLanes) {
  const struct {
    std::string text;
    uint32_t (*from)(uint32_t lane);
  } rows[] = {
      {"shfl.sync.idx.b32 %r20, %r1, 3, 31, -1;", [](uint32_t) { return 3u; }},
      {"shfl.sync.up.b32 %r20, %r1, 2, 0, -1;", [](uint32_t l) { return l < 2 ? l : l - 2; }},
      {"shfl.sync.down.b32 %r20, %r1, 4, 31, -1;", [](uint32_t l) { return l + 4 > 31 ? l : l + 4; }},
      {"shfl.sync.bfly.b32 %r20, %r1, 16, 31, -1;", [](uint32_t l) { return l ^ 16; }},
      // Segments of eight lanes: c = (32 - 8) << 8 | 7.
      {"shfl.sync.down.b32 %r20, %r1, 3, 6151, -1;", [](uint32_t l) { return l % 8 + 3 > 7 ? l : l + 3; }},
      {"shfl.sync.idx.b32 %r20, %r1, 5, 6151, -1;", [](uint32_t l) { return l / 8 * 8 + 5; }},
  };
  for (const auto& row : rows) {
    const auto out = results(row.text + kStore, 32);
    for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], row.from(l)) << row.text << l;
  }
  const auto in_range = results("shfl.sync.down.b32 %r21|%p1, %r1, 4, 31, -1;\nselp.u32 %r20, 1, 0, %p1;" + kStore, 32);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(in_range[l], l < 28 ? 1u : 0u) << l;
}

TEST_F(Control, VotesAndReductions) {
  const auto ballot = results("setp.lt.u32 %p1, %r1, 9;\nvote.sync.ballot.b32 %r20, %p1, -1;" + kStore, 32);
  EXPECT_EQ(ballot[31], 0x1FFu);
  const auto all = results(
      "setp.lt.u32 %p1, %r1, 9;\nvote.sync.all.pred %p2, %p1, -1;\nvote.sync.any.pred %p3, %p1, -1;\n"
      "selp.u32 %r20, 1, 0, %p2;\nselp.u32 %r21, 2, 0, %p3;\nor.b32 %r20, %r20, %r21;" +
          kStore,
      32);
  EXPECT_EQ(all[5], 2u);
  EXPECT_EQ(results("redux.sync.add.u32 %r20, %r1, -1;" + kStore, 32)[7], 496u);
  EXPECT_EQ(results("redux.sync.max.s32 %r20, %r1, -1;" + kStore, 32)[7], 31u);
  EXPECT_EQ(results("redux.sync.xor.b32 %r20, %r1, -1;" + kStore, 32)[7], 0u);
}

TEST_F(Control, AtomicsOfAllThreadsAddUp) {
  uint32_t* out = on_device(std::vector<uint32_t>(4));
  const std::string body =
      "atom.global.add.u32 %r20, [%rd0], 2;\nred.global.max.u32 [%rd0+4], %r1;\natom.global.cas.b32 %r21, [%rd0+8], 0, "
      "77;\n"
      "mov.f32 %f1, 0f3F000000;\nred.global.add.f32 [%rd0+12], %f1;";
  EXPECT_EQ(run_kernel(module_of_body(body), out, nullptr, 0, dim3(3), dim3(50)).status(), cudaSuccess);
  const auto sums = from_device(out, 4);
  EXPECT_EQ(sums[0], 300u);
  EXPECT_EQ(sums[1], 149u);
  EXPECT_EQ(sums[2], 77u);
  EXPECT_EQ(sums[3], 0x42960000u);  // 75.0f
  const auto shared = results(
      "mov.u32 %r21, tile;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 st.shared.u32 [%r21], 0;\nbar.sync 0;\n"
      "atom.shared.inc.u32 %r22, [%r21], 9;\nbar.sync 0;\nld.shared.u32 %r20, [%r21];" +
          kStore,
      64, 1, 16);
  EXPECT_EQ(shared[0], 64u % 10);
}

TEST_F(Control, GenericAddressesReachSharedAndLocalMemory) {
  const auto out = results(
      ".local .align 4 .b8 mine[8];\nmov.u64 %rd5, mine;\ncvta.local.u64 %rd6, %rd5;\nst.u32 [%rd6+4], %r1;\n"
      "ld.local.u32 %r21, [%rd5+4];\nmov.u64 %rd7, tile;\ncvta.shared.u64 %rd8, %rd7;\nmul.wide.u32 %rd9, %r4, 4;\n"
      "add.s64 %rd10, %rd8, %rd9;\nst.u32 [%rd10], %r21;\nld.u32 %r20, [%rd10];" +
          kStore,
      32, 1, 128);
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
