// tcgen05 and mbarrier in kernels written in PTX: what they do, and every check of tensor memory.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

const std::string kAllocate =
    "mov.u32 %r10, tile;\nsetp.lt.u32 %p1, %r4, 32;\n"
    "@!%p1 bra ALLOCATED;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 64;\nALLOCATED:\n"
    "bar.sync 0;\nld.shared.u32 %r11, [%r10];\nshr.u32 %r12, %r4, 5;\nshl.b32 %r12, %r12, 21;\n"
    "add.u32 %r13, %r11, %r12;\n";  // r11: the address, r13: of the warp's lanes
const std::string kFences = "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n";
const std::string kRelease =
    kFences + "@!%p1 bra RELEASED;\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %r11, 64;\nRELEASED:\n";
const std::string kStore = "tcgen05.st.sync.aligned.32x32b.x2.b32 [%r13], {%r1, %r4};\n";
const std::string kStored = kStore + "tcgen05.wait::st.sync.aligned;\n";
const std::string kLoad = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r20, %r21}, [%r13];\n";
const std::string kLoaded = kLoad + "tcgen05.wait::ld.sync.aligned;\n";
const std::string kOut = "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd0, %rd2;\nst.global.u32 [%rd2], %r20;\n";

class Tensor : public SoftwareGpu {
 protected:
  void SetUp() override { start({100}); }
  KernelRun run(const std::string& body, unsigned threads = 128, const char* target = "sm_100a") {
    out_ = on_device(std::vector<uint32_t>(threads));
    return run_kernel(module_of_body(body, target, 8192), out_, nullptr, 0, dim3(1), dim3(threads));
  }
  void expect(const std::string& body, const std::string& words, unsigned threads = 128,
              cudaError_t code = cudaErrorLaunchFailure) {
    SetUp();
    expect_fault(run(body, threads), code, words);
  }
  uint32_t* out_ = nullptr;
};

TEST_F(Tensor, HoldsWhatEachWarpStores) {
  ASSERT_EQ(run(kAllocate + kStored + kLoaded + kOut + kRelease).text, "");
  const std::vector<uint32_t> found = from_device(out_, 128);
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(found[i], i);
}

TEST_F(Tensor, RegistersAreNotThereBeforeTheWait) {
  ASSERT_EQ(run(kAllocate + kStored + kLoad + kOut + "tcgen05.wait::ld.sync.aligned;\n" + kRelease).text, "");
  EXPECT_EQ(from_device(out_, 128)[5], 0x7FF7DEADu);
}

TEST_F(Tensor, AllocationHasRules) {
  const auto alloc = [](const std::string& columns) {
    return "mov.u32 %r10, tile;\nmov.u32 %r11, " + columns +
           ";\nbar.warp.sync -1;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], %r11;\n";
  };
  for (const char* columns : {"0", "16", "48", "1024"}) expect(alloc(columns), "a power of two", 32);
  expect(alloc("32"), "32 columns of tensor memory have not been released", 32);
  expect(alloc("512") + alloc("32"), "waits for ever", 32);
  expect("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" + alloc("32"), "after tcgen05.relinquish", 32);
  const std::string address = "bar.warp.sync -1;\nld.shared.u32 %r12, [%r10];\n";
  const auto dealloc = [](const std::string& columns) {
    return "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r12, " + columns + ";\n";
  };
  SetUp();
  EXPECT_EQ(run(alloc("512") + address + dealloc("512") + alloc("32") + address + dealloc("32"), 32).text, "");
  expect(alloc("32") + alloc("64"), "of more columns than the one before it", 32);
  expect(alloc("64") + address + dealloc("32"), "which tcgen05.alloc has not given", 32);
  expect(alloc("64") + address + "add.u32 %r12, %r12, 32;\n" + dealloc("32"), "which tcgen05.alloc has not given", 32);
  expect(alloc("64") + address + dealloc("64") + dealloc("64"), "which tcgen05.alloc has not given", 32);
  const std::string plain = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 32;\n";
  expect("setp.lt.u32 %p2, %r4, 9;\n@!%p2 bra END;\n" + plain + "END: mov.u32 %r20, 1;\n",
         "tcgen05.alloc in divergent code", 32, cudaErrorIllegalInstruction);
  expect(plain, "fewer than 32 threads", 16, cudaErrorIllegalInstruction);
}

TEST_F(Tensor, AWarpAccessesItsOwnLanes) {
  const std::string other = "add.u32 %r13, %r11, 0;\n";
  expect(kAllocate + kStored + other + kLoaded + kRelease, "tcgen05.ld of lanes from 0", 128, cudaErrorIllegalAddress);
  expect(kAllocate + other + kStored + kRelease, "tcgen05.st of lanes from 0", 128, cudaErrorIllegalAddress);
  expect(kAllocate + "add.u32 %r13, %r13, %r4;\n" + kStored, "give different operands", 128,
         cudaErrorIllegalInstruction);
}

TEST_F(Tensor, ColumnsMustBeAllocatedAndWritten) {
  expect(kAllocate + kLoaded, "is read and has not been written");
  expect(kAllocate + "sub.u32 %r13, %r13, 1;\n" + kStored, "of tensor memory is not allocated");
  expect(kAllocate + kStored + kRelease + kLoaded, "of tensor memory is not allocated");
}

TEST_F(Tensor, AccessesAreWaitedFor) {
  expect(kAllocate + kStore + kLoaded, "with no tcgen05.wait::st since");
  expect(kAllocate + kStore + kStore, "with no tcgen05.wait::st since");
  expect(kAllocate + kStored + kLoad + kStore, "with no tcgen05.wait::ld since");
  expect(kAllocate + kStore + kRelease, "tcgen05.dealloc of tensor memory that warp 0 has stored with no");
}

TEST_F(Tensor, OtherWarpsNeedFencesAroundABarrier) {
  // Warps 0 and 4 have the same lanes: warp 4 loads what warp 0 has stored.
  const std::string lanes =
      "and.b32 %r12, %r4, 127;\nshr.u32 %r12, %r12, 5;\nshl.b32 %r12, %r12, 21;\nadd.u32 %r13, "
      "%r11, %r12;\nsetp.lt.u32 %p3, %r4, 128;\n";
  const auto body = [&](const std::string& between) {
    return kAllocate + lanes + "@!%p3 bra STORED;\n" + kStored + "STORED:\n" + between + "@%p3 bra LOADED;\n" +
           kLoaded + "LOADED:\nbar.sync 0;\n" + kRelease;
  };
  const std::string before = "tcgen05.fence::before_thread_sync;\n", after = "tcgen05.fence::after_thread_sync;\n";
  EXPECT_EQ(run(body(before + "bar.sync 0;\n" + after), 256).text, "");
  expect(body("bar.sync 0;\n" + after), "no tcgen05.fence::before_thread_sync since", 256);
  expect(body("bar.sync 0;\n" + before + after), "no barrier and tcgen05.fence::after_thread_sync since", 256);
  expect(body(before + "bar.sync 0;\n"), "no barrier and tcgen05.fence::after_thread_sync since", 256);
  expect(body(before + after + "bar.sync 0;\n"), "no barrier and tcgen05.fence::after_thread_sync since", 256);
}

TEST_F(Tensor, PhasesCompleteByTheirParity) {
  const std::string init =
      "mov.u32 %r10, tile;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 mbarrier.init.shared::cta.b64 [%r10], 2;\n";
  const std::string commit = "@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r10];\n";
  const auto wait = [](int parity) {
    return "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r10], " + std::to_string(parity) + ";\n";
  };
  const std::string ready = init + "bar.sync 0;\n";
  // The phase before the first counts as complete, so that parity 1 does not wait.
  EXPECT_EQ(
      run(ready + wait(1) + "bar.sync 0;\n" + commit + commit + wait(0) + "bar.sync 0;\n" + commit + commit + wait(1))
          .text,
      "");
  expect(ready + commit + wait(0), "never completes", 128, cudaErrorLaunchTimeout);
  expect(ready + commit + commit + wait(1), "never completes", 128, cudaErrorLaunchTimeout);
  expect(init + wait(0), "of shared memory: thread 0 wrote it and no barrier lies between");
  expect("mov.u32 %r10, tile;\n" + wait(0), "which no thread of the block has written");
  expect(ready + "@%p1 mbarrier.inval.shared::cta.b64 [%r10];\nbar.sync 0;\n" + wait(0),
         "no mbarrier has been initialised");
  expect(ready + wait(2), "the parity of a phase", 128, cudaErrorIllegalInstruction);
  expect("mov.u32 %r10, tile;\nmbarrier.init.shared::cta.b64 [%r10+4], 1;\n", "not a multiple", 1,
         cudaErrorMisalignedAddress);
  SetUp();
  // A warp that waits lets the others run: the last warp commits.
  EXPECT_EQ(run(ready + "setp.eq.u32 %p1, %r4, 127;\n@%p1 bra COMMIT;\n" + wait(0) + "bra END;\nCOMMIT:\n" + commit +
                commit + "END:\n")
                .text,
            "");
}

// A of ones, column j of B of 2^j, 16 columns of D.
std::string product(uint32_t descriptor, const char* adds, const std::string& before = "") {
  const auto matrix = [](uint64_t leading) {
    return std::to_string(uint64_t{1} << 46 | 8ull << 32 | leading / 16 << 16);
  };
  return "mov.u32 %r10, tile;\nadd.u32 %r14, %r10, 8184;\nadd.u32 %r15, %r10, 8176;\nsetp.lt.u32 %p1, %r4, 32;\n"
         "@!%p1 bra ALLOCATED;\ntcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r14], 64;\nALLOCATED:\n"
         "setp.eq.u32 %p2, %r4, 0;\n@%p2 mbarrier.init.shared::cta.b64 [%r15], 1;\n"
         "shr.u32 %r16, %r4, 3;\nshl.b32 %r16, %r16, 7;\nand.b32 %r17, %r4, 7;\nshl.b32 %r17, %r17, 4;\n"
         "add.u32 %r16, %r16, %r17;\nadd.u32 %r16, %r16, %r10;\nmov.u32 %r18, 0x3C003C00;\n"
         "st.shared.v4.u32 [%r16], {%r18, %r18, %r18, %r18};\nst.shared.v4.u32 [%r16+2048], {%r18, %r18, %r18, %r18};\n"
         "setp.lt.u32 %p3, %r4, 16;\nadd.u32 %r19, %r4, 15;\nshl.b32 %r19, %r19, 10;\nshl.b32 %r20, %r19, 16;\n"
         "or.b32 %r19, %r19, %r20;\n@%p3 st.shared.v4.u32 [%r16+4096], {%r19, %r19, %r19, %r19};\n"
         "@%p3 st.shared.v4.u32 [%r16+4352], {%r19, %r19, %r19, %r19};\n"
         "fence.proxy.async;\nbar.sync 0;\nld.shared.u32 %r11, [%r14];\nshr.u32 %r12, %r4, 5;\nshl.b32 %r12, %r12, "
         "21;\n"
         "add.u32 %r13, %r11, %r12;\n" +
         before + kFences +
         "shr.u32 %r21, %r10, 4;\ncvt.u64.u32 %rd5, %r21;\nadd.u32 %r21, %r21, 256;\ncvt.u64.u32 %rd6, %r21;\n"
         "or.b64 %rd5, %rd5, " +
         matrix(2048) + ";\nor.b64 %rd6, %rd6, " + matrix(256) + ";\nmov.u32 %r22, " + std::to_string(descriptor) +
         ";\nsetp.eq.u32 %p4, 0, " + adds +
         ";\n"
         "@%p2 tcgen05.mma.cta_group::1.kind::f16 [%r11], %rd5, %rd6, %r22, %p4;\n"
         "@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r15];\n";
}
const std::string kWaitAndLoad =
    "mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r15], 0;\ntcgen05.fence::after_thread_sync;\n"
    "add.u32 %r13, %r13, 3;\ntcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r13];\ntcgen05.wait::ld.sync.aligned;\n";

TEST_F(Tensor, ProductsAreThoseOfTheirDescriptors) {
  constexpr uint32_t kSixteen = 1u << 4 | 2u << 17 | 8u << 24;  // f16 to f32, N = 16, M = 128
  const auto answer = [&](uint32_t descriptor) {
    SetUp();
    EXPECT_EQ(run(product(descriptor, "1") + kWaitAndLoad + kOut + kRelease).text, "");
    const std::vector<uint32_t> found = from_device(out_, 128);
    EXPECT_EQ(found, std::vector<uint32_t>(128, found[0]));
    return found[0];
  };
  EXPECT_EQ(answer(kSixteen), 0x43000000u);             // column 3: 16 times 8 is 128
  EXPECT_EQ(answer(kSixteen | 1u << 13), 0xC3000000u);  // A negated
  EXPECT_EQ(answer(kSixteen | 1u << 14), 0xC3000000u);  // B negated
  EXPECT_EQ(answer(kSixteen | 1u << 13 | 1u << 14), 0x43000000u);
  EXPECT_EQ(answer(kSixteen & ~(1u << 4)), 0x5800u);  // D of f16
  // D is added to if the predicate says so; then it must have been written.
  expect(product(kSixteen, "0"), "is read and has not been written");
  // N = 32, but there are 16 lines of B.
  expect(product(kSixteen ^ 6u << 17, "1"), "of shared memory, which no thread of the block has written");
}

TEST_F(Tensor, ProductsAreWaitedFor) {
  constexpr uint32_t kSixteen = 1u << 4 | 2u << 17 | 8u << 24;
  const std::string load = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r13];\n";
  expect(product(kSixteen, "1") + load, "its commit has not been waited for");
  expect(product(kSixteen, "1") + "tcgen05.fence::after_thread_sync;\n" + load, "its commit has not been waited for");
  expect(product(kSixteen, "1") + kStore, "its commit has not been waited for");
  expect(product(kSixteen, "1") + "st.shared.u32 [%r16], 5;\n", "whose commit has not been waited for");
  expect(product(kSixteen, "1") + kRelease, "its commit has not been waited for");
  // Products of one shape follow each other; of others they do not.
  const std::string again = "@%p2 tcgen05.mma.cta_group::1.kind::f16 [%r11], %rd5, %rd6, %r22, 1;\n";
  const std::string commit = "@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r15];\n";
  const std::string next =
      "mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r15], 1;\ntcgen05.fence::after_thread_sync;\n";
  SetUp();
  EXPECT_EQ(run(product(kSixteen, "1") + again + commit + next + kWaitAndLoad.substr(kWaitAndLoad.find("add")) + kOut +
                kRelease)
                .text,
            "");
  EXPECT_EQ(from_device(out_, 128)[77], 0x43800000u);  // twice
  expect(product(kSixteen, "1") + "mov.u32 %r22, " + std::to_string(kSixteen | 1u << 13) + ";\n" + again,
         "tcgen05.mma reads tensor memory of a tcgen05.mma that need not be done");
  // What warps store before a product must be fenced on both sides of a barrier.
  const std::string stored =
      "tcgen05.st.sync.aligned.32x32b.x16.b32 [%r13], {%r1, %r1, %r1, %r1, %r1, %r1, %r1, %r1, "
      "%r1, %r1, %r1, %r1, %r1, %r1, %r1, %r1};\n";
  SetUp();
  EXPECT_EQ(run(product(kSixteen, "0", stored + "tcgen05.wait::st.sync.aligned;\n") + kWaitAndLoad + kRelease).text,
            "");
  expect(product(kSixteen, "0", stored), "with no tcgen05.wait::st since");
}

TEST_F(Tensor, ExistsInCodeForTheArchitectureOnly) {
  for (const char* target : {"sm_90a", "sm_100", "sm_120a"}) {
    const KernelRun found = run("tcgen05.fence::before_thread_sync;", 32, target);
    EXPECT_NE(found.status(), cudaSuccess) << target;
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
