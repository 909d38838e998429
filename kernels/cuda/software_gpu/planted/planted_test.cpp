// Planted mistakes: each changes one thing in the plugin's own device code, or in host code that launches it, and must
// be caught. The table has a row for each; without a plant everything passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <regex>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/software_gpu/planted/plants_testing.h"
#include "kernels/cuda/software_gpu/planted/problems_testing.h"
#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

const KernelPlant kKernelPlants[] = {
    {"no barrier between writing and reading a tile",
     transpose,
     {"transposeIj", "bar\\.sync[^;]*;", ""},
     "of shared memory"},
    {"a barrier in divergent code",
     transpose,
     {"transposeIj", "bar\\.sync", "setp.gt.u32 %p10, %r4, 9;\n@%p10 bar.sync"},
     "in divergent code"},
    {"a barrier that one warp does not reach",
     transpose,
     {"transposeIj", "bar\\.sync", "setp.gt.u32 %p10, %r4, 31;\n@%p10 bar.sync"},
     "of shared memory"},
    {"no guard of the last rows",
     transpose,
     {"transposeIj", "setp\\.ge\\.u32 (\\s*%p\\d+, %r\\d+), %r\\d+;", "setp.ge.u32 $1, 100000;"},
     "bytes after"},
    {"no guard of the last columns when writing",
     transpose,
     {"transposeIj", "setp\\.ge\\.u32 (\\s*%p\\d+, %r\\d+), %r\\d+;", "setp.ge.u32 $1, 100000;", 3},
     "of shared memory"},
    {"an index off by one element",
     transpose,
     {"transposeIj", "ld\\.global\\.u32 (\\s*%r\\d+), \\[(%rd\\d+)\\]", "ld.global.u32 $1, [$2+4]"},
     "bytes after"},
    {"an address off by two bytes",
     transpose,
     {"transposeIj", "st\\.global\\.u32 (\\s*)\\[(%rd\\d+)\\]", "st.global.u32 $1[$2+2]"},
     "not a multiple"},
    {"a result that is not written",
     transpose,
     {"transposeIj", "st\\.global\\.u32[^;]*;", ""},
     "not all of them have been written"},
    {"a tile that is not written",
     transpose,
     {"transposeIj", "st\\.shared\\.u32[^;]*;", ""},
     "which no thread of the block has written"},
    {"a tile without its padding column", transpose, {"transposeIj", "132, %r38", "128, %r38"}, ""},
    {"a loop that does not advance",
     transpose,
     {"transposeIj", "add\\.s32 (\\s*%r\\d+, %r\\d+), 8;", "add.s32 $1, 0;"},
     "of shared memory"},
    {"two parameters exchanged", transpose, {"transposeIj", "param_2\\];", "param_3];"}, "that nothing has written"},
    {"the wrong half of the products", transpose, {"transposeIj", "mad\\.lo\\.s32", "mad.hi.s32"}, ""},
    {"no barrier between the sums of warps and their sum",
     sums,
     {"sum_lastIfLj4E.*SumOfIfNS1_5TypedIf", "bar\\.sync[^;]*;", "", 1},
     "of shared memory"},
    {"the lanes of a warp do not take part in a sum",
     sums,
     {"sum_lastIfLj4E.*SumOfIfNS1_5TypedIf", "(shfl\\.sync\\.down\\.b32\\s*%r\\d+\\|%p\\d+, %r\\d+), %r\\d+,",
      "$1, 0,"},
     kWrong},
    // The additions before are of operands that do not begin on a boundary of 16 bytes.
    {"a sum that subtracts", sums, {"sum_lastIfLj4E.*SumOfIfNS1_5TypedIf", "add\\.rn\\.f32", "sub.rn.f32", 17}, kWrong},
    {"partial sums that are not written",
     sums,
     {"sum_lastIfLj4E.*SumOfIfNS1_5TypedIf", "st\\.global\\.v2[^;]*;", ""},
     "that nothing has written"},
    {"a sum that is cut instead of rounded", matmul, {"matmulIf", "fma\\.rn\\.f32", "fma.rz.f32"}, kWrong},
    {"a sum without its last product",
     matmul,
     {"matmulIf", "fma\\.rn\\.f32 (\\s*%f\\d+), (%f\\d+), (%f\\d+), (%f\\d+);", "mul.rn.f32 $1, $2, $3;"},
     kWrong},
    {"too many threads compute",
     matmul,
     {"matmulIf", "setp\\.ge\\.u32 (\\s*%p\\d+, %r\\d+), %r\\d+;", "setp.ge.u32 $1, 100000;"},
     "bytes after"},
    {"no barrier between writing and reading the maxima of warps",
     softmax,
     {"7softmaxIfNS1_5TypedIf", "bar\\.sync[^;]*;", "", 2},
     "of shared memory"},
    {"no barrier before the sums of warps take the places of their maxima",
     softmax,
     {"7softmaxIfNS1_5TypedIf", "bar\\.sync[^;]*;", "", 3},
     "of shared memory"},
    {"half of the lanes of a warp do not take part in a sum",
     softmax,
     {"7softmaxIfNS1_5TypedIf", "(shfl\\.sync\\.bfly\\.b32\\s*%r\\d+\\|%p\\d+, %r\\d+), %r\\d+,", "$1, 0,", 6},
     kWrong},
    {"lanes of a row in registers do not take part in its sum",
     softmax_in_registers,
     {"13softmax_packsIffLj2ELb1", "(shfl\\.sync\\.bfly\\.b32\\s*%r\\d+\\|%p\\d+, %r\\d+), %r\\d+,", "$1, 0,", 2},
     kWrong},
    {"no barrier between weights and the values that they multiply",
     attention,
     {"9attentionIfNS1_5TypedIf", "bar\\.sync[^;]*;", "", 5},
     "of shared memory"},
    {"a step beyond the end of a parameter",
     sgd,
     {"6updateIfLb1E", "setp\\.ge\\.u32 (\\s*%p\\d+, %r\\d+), %r\\d+;", "setp.ge.u32 $1, 100000;"},
     "bytes after"},
    {"a block looks for its parameter on the wrong side",
     sgd,
     {"6updateIfLb1E", "setp\\.le\\.u32", "setp.gt.u32"},
     kWrong},
    {"registers of a exchanged",
     dot_mma,
     {"dotILm0E", "\\{(%r\\d+), (%r\\d+), (%r\\d+), (%r\\d+)\\}", "{$1, $3, $2, $4}"},
     kWrong},
    {"registers of b exchanged", dot_mma, {"dotILm0E", "\\{(%r\\d+), (%r\\d+)\\}, \\{%f", "{$2, $1}, {%f"}, ""},
    {"registers of the result exchanged",
     dot_mma,
     {"dotILm0E", "f32 \\{(%f\\d+), (%f\\d+), (%f\\d+), (%f\\d+)\\}", "f32 {$2, $1, $3, $4}"},
     kWrong},
    {"the instruction for bf16", dot_mma, {"dotILm0E", "f32\\.f16\\.f16\\.f32", "f32.bf16.bf16.f32"}, kWrong},
    {"a matrix instruction in divergent code",
     dot_mma,
     {"dotILm0E", "mma\\.sync",
      "setp.lt.s32 %p1, %r1, 100000;\nmov.u32 %r1, %laneid;\nsetp.lt.u32 %p1, %r1, 16;\n@%p1 mma.sync"},
     "mma.sync in divergent code"},
    {"no barrier before wgmma", dot_wgmma, {"dotILm3E", "bar\\.sync[^;]*;", "", 1}, "of shared memory"},
    {"no barrier after wgmma", dot_wgmma, {"dotILm3E", "bar\\.sync[^;]*;", "", 2}, "race on byte"},
    {"no fence of the async proxy",
     dot_wgmma,
     {"dotILm3E", "fence\\.proxy\\.async;", ""},
     "no fence.proxy.async since"},
    {"no fence before wgmma", dot_wgmma, {"dotILm3E", "wgmma\\.fence\\.sync\\.aligned;", ""}, "without a wgmma.fence"},
    {"no wait for wgmma",
     dot_wgmma,
     {"dotILm3E", "wgmma\\.wait_group\\.sync\\.aligned 0;", ""},
     "that has not been waited for"},
    {"wgmma is not committed",
     dot_wgmma,
     {"dotILm3E", "wgmma\\.commit_group\\.sync\\.aligned;", ""},
     "that has not been waited for"},
    {"half the step in the descriptor", dot_wgmma, {"dotILm3E", "34360262656", "17180131328"}, kWrong},
    {"the sign of a in wgmma", dot_wgmma, {"dotILm3E", "add, 1, 1,0;", "add, -1, 1,0;"}, kWrong},
};

class Planted : public SoftwareGpu {
 protected:
  void TearDown() override {
    set_ptx_filter({});
    SoftwareGpu::TearDown();
  }
};

TEST_F(Planted, NothingIsFoundWithoutAPlant) {
  for (const auto run : {transpose, sums, matmul, softmax, softmax_in_registers, attention, sgd, dot_mma, dot_wgmma}) {
    SetUp();
    EXPECT_EQ(outcome(run), "");
  }
}

TEST_F(Planted, EveryMistakeInAKernelIsCaught) {
  for (const KernelPlant& plant : kKernelPlants) {
    SetUp();
    expect_caught(plant);
  }
}

// Host code. Each returns what the runtime or the comparison said.
struct HostPlant {
  const char* what;
  std::string (*run)();
  const char* caught;
};
std::string text_of(cudaError_t status) { return status == cudaSuccess ? "" : cudaGetErrorString(status); }
uint32_t* some() { return on_device(std::vector<uint32_t>(32 * 32, 5)); }
void reorder(const void* x, void* out, cudaStream_t stream = nullptr) {
  cuda::launch_reorder(stream, 1, 32, 32, 4, true, x, out);
}

const HostPlant kHostPlants[] = {
    {"an output that is too small",
     [] {
       reorder(some(), fresh<uint32_t>(1000));
       return text_of(cudaDeviceSynchronize());
     },
     "bytes after the 4000 bytes"},
    {"an input that nothing has written",
     [] {
       reorder(fresh<uint32_t>(1024), fresh<uint32_t>(1024));
       return text_of(cudaDeviceSynchronize());
     },
     "that nothing has written"},
    {"memory used after it was freed",
     [] {
       uint32_t* x = some();
       EXPECT_EQ(cudaFree(x), cudaSuccess);
       reorder(x, fresh<uint32_t>(1024));
       return text_of(cudaDeviceSynchronize());
     },
     "which has been freed"},
    {"memory freed twice",
     [] {
       uint32_t* x = some();
       EXPECT_EQ(cudaFree(x), cudaSuccess);
       return text_of(cudaFree(x));
     },
     "freed a second time"},
    {"a host pointer given to a kernel",
     [] {
       std::vector<uint32_t> x(1024);
       reorder(x.data(), fresh<uint32_t>(1024));
       return text_of(cudaDeviceSynchronize());
     },
     "in no allocation"},
    {"a copy of one byte too many",
     [] {
       std::vector<std::byte> x(4097);
       return text_of(cudaMemcpy(x.data(), some(), 4097, cudaMemcpyDeviceToHost));
     },
     "the source: 4097 bytes"},
    {"a copy in the wrong direction",
     [] {
       std::vector<std::byte> x(16);
       return text_of(cudaMemcpy(some(), x.data(), 16, cudaMemcpyDeviceToHost));
     },
     "invalid argument"},
    {"a result read without waiting",
     [] {
       std::vector<uint32_t> x(1024);
       uint32_t* out = fresh<uint32_t>(1024);
       cudaStream_t stream = nullptr;
       EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
       reorder(some(), out, stream);
       EXPECT_EQ(cudaMemcpyAsync(x.data(), out, 4096, cudaMemcpyDeviceToHost, stream), cudaSuccess);
       return std::string(x[0] == 5 ? "" : kWrong);
     },
     kWrong},
    {"a stream that does not wait for another",
     [] {
       cudaStream_t first = nullptr, second = nullptr;
       EXPECT_EQ(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
       EXPECT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
       uint32_t *middle = fresh<uint32_t>(1024), *out = fresh<uint32_t>(1024);
       reorder(some(), middle, first), reorder(middle, out, second);
       return text_of(cudaStreamSynchronize(second));
     },
     "that nothing has written"},
    {"a launch of no blocks",
     [] {
       cuda::launch_reorder(nullptr, 0, 32, 32, 4, true, some(), fresh<uint32_t>(1024));
       return text_of(cudaGetLastError());
     },
     "invalid configuration"},
    {"memory of another device",
     [] {
       set_devices({90, 90}, kTestMemory);
       uint32_t* x = some();
       EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
       reorder(x, fresh<uint32_t>(1024));
       return text_of(cudaDeviceSynchronize());
     },
     "memory of device 0"},
    {"a call whose failure is not noticed",
     [] {
       fail_call("cudaLaunchKernel", 1, cudaErrorLaunchOutOfResources);
       uint32_t* out = fresh<uint32_t>(1024);
       try {
         reorder(some(), out);
       } catch (const std::exception&) {
       }
       return compared(out, std::vector<uint32_t>(1024, 5));
     },
     "not all of them have been written"},
};

TEST_F(Planted, EveryMistakeInHostCodeIsCaught) {
  for (const HostPlant& plant : kHostPlants) {
    fail_no_call();
    SetUp();
    const std::string found = outcome(plant.run);
    EXPECT_NE(found, "") << plant.what << ": not caught";
    EXPECT_NE(found.find(plant.caught), std::string::npos) << plant.what << ": " << found;
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
