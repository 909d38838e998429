// Every check of device code: the error code, and a text that names kernel, line, thread and address.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

class Check : public SoftwareGpu {
 protected:
  KernelRun run(const std::string& body, unsigned threads = 32, int shared = 0, const void* in = nullptr,
                const char* target = "sm_90a") {
    uint32_t* out = on_device(std::vector<uint32_t>(threads));
    return run_kernel(module_of_body(body, target, shared), out, in, 0, dim3(1), dim3(threads));
  }
};

TEST_F(Check, OutOfBounds) {
  const KernelRun found = run("mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd0, %rd2;\nst.global.u32 [%rd2+4], %r1;");
  expect_fault(found, cudaErrorIllegalAddress, "0 bytes after the 128 bytes of cudaMalloc");
  EXPECT_NE(found.text.find("k, ptx"), std::string::npos) << found.text;
  EXPECT_NE(found.text.find(":21: thread (31, 0, 0) of block (0, 0, 0): writes 4 bytes at address 0x"),
            std::string::npos)
      << found.text;
}
TEST_F(Check, BeforeTheStartAndNull) {
  expect_fault(run("ld.global.u32 %r20, [%rd0+-4];"), cudaErrorIllegalAddress, "4 bytes before");
  SetUp();
  expect_fault(run("ld.global.u32 %r20, [%rd1];"), cudaErrorIllegalAddress, "in no allocation");
}
TEST_F(Check, UseAfterFree) {
  uint32_t* freed = on_device(std::vector<uint32_t>(32));
  EXPECT_EQ(cudaFree(freed), cudaSuccess);
  expect_fault(run("ld.global.u32 %r20, [%rd1];", 32, 0, freed), cudaErrorIllegalAddress, "which has been freed");
}
TEST_F(Check, BytesThatNothingHasWritten) {
  void* fresh = nullptr;
  ASSERT_EQ(cudaMalloc(&fresh, 64), cudaSuccess);
  ASSERT_EQ(cudaMemset(fresh, 0, 6), cudaSuccess);
  EXPECT_EQ(run("ld.global.u32 %r20, [%rd1];", 1, 0, fresh).status(), cudaSuccess);
  expect_fault(run("ld.global.u32 %r20, [%rd1+4];", 1, 0, fresh), cudaErrorLaunchFailure,
               "reads 4 bytes that nothing has written");
}
TEST_F(Check, Alignment) {
  expect_fault(run("ld.global.u32 %r20, [%rd0+2];"), cudaErrorMisalignedAddress, "not a multiple");
  SetUp();
  expect_fault(run("ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd0+8];"), cudaErrorMisalignedAddress,
               "accesses 16 bytes");
}
TEST_F(Check, SharedMemoryBounds) {
  expect_fault(run("mov.u32 %r20, tile;\nst.shared.u32 [%r20+64], %r1;", 1, 64), cudaErrorIllegalAddress,
               "4 bytes at 64 of shared memory, which has 64");
}
TEST_F(Check, SharedMemoryThatNobodyHasWritten) {
  expect_fault(run("mov.u32 %r20, tile;\nld.shared.u32 %r21, [%r20];", 1, 64), cudaErrorLaunchFailure,
               "which no thread of the block has written");
}

// Thread t writes word t; then something; then thread t reads word (t + shift) % threads.
std::string exchange(const std::string& between, int shift, int threads) {
  return "mov.u32 %r21, tile;\nmad.lo.s32 %r22, %r4, 4, %r21;\nst.shared.u32 [%r22], %r1;\n" + between +
         "\nadd.u32 %r23, %r4, " + std::to_string(shift) + ";\nrem.u32 %r23, %r23, " + std::to_string(threads) +
         ";\nmad.lo.s32 %r24, %r23, 4, %r21;\nld.shared.u32 %r20, [%r24];";
}
TEST_F(Check, RacesBetweenWarps) {
  EXPECT_EQ(run(exchange("bar.sync 0;", 32, 64), 64, 256).status(), cudaSuccess);
  // The warp that runs first finds bytes that the other has not written yet.
  expect_fault(run(exchange("bar.warp.sync -1;", 32, 64), 64, 256), cudaErrorLaunchFailure, "of shared memory");
}
TEST_F(Check, RacesWithinAWarp) {
  EXPECT_EQ(run(exchange("bar.warp.sync -1;", 1, 32), 32, 128).status(), cudaSuccess);
  EXPECT_EQ(run(exchange("", 0, 32), 32, 128).status(), cudaSuccess);
  expect_fault(run(exchange("", 1, 32), 32, 128), cudaErrorLaunchFailure, "race on byte");
}
TEST_F(Check, RacesOfAWriteAfterARead) {
  const std::string write = "\nst.shared.u32 [%r22], 5;";
  EXPECT_EQ(run(exchange("bar.sync 0;", 32, 64) + "\nbar.sync 0;" + write, 64, 256).status(), cudaSuccess);
  expect_fault(run(exchange("bar.sync 0;", 32, 64) + write, 64, 256), cudaErrorLaunchFailure, "race on byte");
}
TEST_F(Check, AReadBeforeTheLastBarrierIsNoRace) {
  // All read word 0; after a barrier thread 0 reads and writes it.
  const std::string body =
      "mov.u32 %r21, tile;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 st.shared.u32 [%r21], 1;\nbar.sync 0;\nld.shared.u32 %r20, "
      "[%r21];\n"
      "bar.sync 0;\n@%p1 ld.shared.u32 %r22, [%r21];\n@%p1 st.shared.u32 [%r21], %r22;";
  EXPECT_EQ(run(body, 96, 16).status(), cudaSuccess);
  expect_fault(run("mov.u32 %r21, tile;\nsetp.eq.u32 %p1, %r4, 0;\n@%p1 st.shared.u32 [%r21], 1;\nbar.sync "
                   "0;\nld.shared.u32 %r20, [%r21];\n"
                   "@%p1 st.shared.u32 [%r21], %r20;",
                   96, 16),
               cudaErrorLaunchFailure, "race");
}
TEST_F(Check, WritesOfOneInstruction) {
  EXPECT_EQ(run("mov.u32 %r21, tile;\nst.shared.u32 [%r21], 7;", 32, 16).status(), cudaSuccess);
  expect_fault(run("mov.u32 %r21, tile;\nst.shared.u32 [%r21], %r1;", 32, 16), cudaErrorLaunchFailure, "race");
}
TEST_F(Check, DivergenceAtAlignedInstructions) {
  const std::string part = "setp.lt.u32 %p1, %r1, 5;\n";
  expect_fault(run(part + "@%p1 bar.sync 0;"), cudaErrorIllegalInstruction, "bar.sync in divergent code: thread 5");
  SetUp();
  expect_fault(run(part + "@!%p1 bra END;\nbar.sync 0;\nEND: mov.u32 %r20, 1;"), cudaErrorIllegalInstruction,
               "bar.sync in divergent code");
  SetUp();
  expect_fault(run(part + "@%p1 bar.warp.sync -1;"), cudaErrorIllegalInstruction, "bar.warp.sync in divergent code");
  SetUp();
  EXPECT_EQ(run(part + "@%p1 bar.warp.sync 31;").status(), cudaSuccess);
  expect_fault(run(part + "@%p1 shfl.sync.idx.b32 %r20, %r1, 9, 31, 31;"), cudaErrorIllegalInstruction, "reads lane 9");
  SetUp();
  const std::string mma =
      " mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r20,%r21}, {%r22}, {%f1,%f2,%f3,%f4};";
  expect_fault(run(part + "@%p1" + mma), cudaErrorIllegalInstruction, "mma.sync in divergent code");
  SetUp();
  expect_fault(run(mma, 16), cudaErrorIllegalInstruction, "fewer than 32 threads");
}
TEST_F(Check, TrapAndEndlessLoop) {
  expect_fault(run("setp.eq.u32 %p1, %r1, 3;\n@%p1 trap;"), cudaErrorLaunchFailure,
               "thread (3, 0, 0) of block (0, 0, 0): trap");
  SetUp();
  expect_fault(run("AGAIN: bra AGAIN;"), cudaErrorLaunchTimeout, "no end after");
}
TEST_F(Check, LocalMemory) {
  expect_fault(run(".local .align 4 .b8 mine[8];\nmov.u64 %rd5, mine;\nld.local.u32 %r20, [%rd5];"),
               cudaErrorLaunchFailure, "of local memory, which the thread has not written");
}
TEST_F(Check, LimitsOfALaunch) {
  const std::string module = module_of_body("");
  const auto status = [&](dim3 grid, dim3 block, size_t shared) {
    return run_kernel(module, nullptr, nullptr, 0, grid, block, shared).launch;
  };
  EXPECT_EQ(status(dim3(1), dim3(1024), 0), cudaSuccess);
  EXPECT_EQ(status(dim3(1), dim3(1025), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(status(dim3(1), dim3(32, 32, 2), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(status(dim3(1), dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(status(dim3(0), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(status(dim3(1, 65536), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(status(dim3(1), dim3(1), 48 * 1024), cudaSuccess);
  EXPECT_EQ(status(dim3(1), dim3(1), 48 * 1024 + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "such an error does not stay";
  // With the attribute, up to what the architecture has.
  const void* kernel = kernel_handle(register_ptx({module}), "k");
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024),
            cudaErrorInvalidValue);
  std::string bounded = module;
  bounded.replace(bounded.find("\n{\n"), 1, "\n.maxntid 64, 1, 1\n");
  EXPECT_EQ(run_kernel(bounded, nullptr, nullptr, 0, dim3(1), dim3(65)).launch, cudaErrorLaunchOutOfResources);
}
TEST_F(Check, AFaultStaysUntilTheDeviceIsReset) {
  expect_fault(run("trap;"), cudaErrorLaunchFailure, "trap");
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
