// Planted mistakes in the plugin's kernels on tcgen05: descriptors, tensor memory, fences, waits. Each must be caught.
#include <string>

#include "kernels/cuda/dot_table.h"
#include "kernels/cuda/software_gpu/planted/plants_testing.h"
#include "kernels/cuda/software_gpu/planted/problems_testing.h"
#include "kernels/cuda/software_gpu/ptx_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

// The kernels are named by the numbers of their rows.
static_assert(cuda::kDotRows.row[4].instruction == MatrixInstruction::tcgen05_k16 &&
              cuda::kDotRows.row[4].out == DType::f32);
static_assert(cuda::kDotRows.row[31].instruction == MatrixInstruction::tcgen05_k32 &&
              cuda::kDotRows.row[31].block == 32 && cuda::kDotRows.row[31].a == DType::e4m3);
static_assert(cuda::kDotRows.row[65].instruction == MatrixInstruction::tcgen05_k64 &&
              cuda::kDotRows.row[65].scale == DType::e4m3);
constexpr const char *kF16 = "tcgen05_dotILm4E", *kMx = "tcgen05_dotILm31E", *kFp4 = "tcgen05_dotILm65E";

const KernelPlant kTensorPlants[] = {
    // The instruction descriptor: 136314896 is M = 128, N = 128, D of f32, f16.
    {"the types of bf16", dot_tcgen05_f16, {kF16, "136314896", "136316048"}, kWrong},
    {"D of f16", dot_tcgen05_f16, {kF16, "136314896", "136314880"}, kWrong},
    {"A negated", dot_tcgen05_f16, {kF16, "136314896", "136323088"}, kWrong},
    {"A transposed", dot_tcgen05_f16, {kF16, "136314896", "136347664"}, "transposes"},
    {"half the columns", dot_tcgen05_f16, {kF16, "136314896", "135266320"}, kWrong},
    {"half the rows", dot_tcgen05_f16, {kF16, "136314896", "69206032"}, "M = 64"},
    {"another kind", dot_tcgen05_f16, {kF16, "kind::f16", "kind::tf32"}, "operand types that the kind has not"},
    {"another byte of the scales", dot_tcgen05_mx, {kMx, "144703488", "681574400"}, kWrong},
    {"scales of ue4m3 with MX", dot_tcgen05_mx, {kMx, "144703488", "136314880"}, "scales of ue4m3"},
    {"scales of ue8m0 with NVFP4", dot_tcgen05_fp4, {kFp4, "136316032", "144704640"}, kWrong},
    // The matrix descriptors: 70403112304640 is 2048 bytes to the next 16 of k, 128 to the next eight lines.
    {"half the leading dimension", dot_tcgen05_f16, {kF16, "70403112304640", "70403108110336"}, kWrong},
    {"half the stride", dot_tcgen05_f16, {kF16, "70403112304640", "70385932435456"}, kWrong},
    {"leading dimension and stride exchanged",
     dot_tcgen05_f16,
     {kF16, "70403112304640", "70918500515840"},
     "the matrix descriptor leads to byte"},
    {"without the constant 0b001", dot_tcgen05_f16, {kF16, "70403112304640", "34368126976"}, "0b001"},
    {"a swizzle", dot_tcgen05_f16, {kF16, "70403112304640", "4611756421539692544"}, "swizzle"},
    // Operands in shared memory.
    {"the second 16 bytes of k at another place",
     dot_tcgen05_f16,
     {kF16, "st\\.shared\\.u32 (\\s*)\\[(%r\\d+)\\+2048\\]", "st.shared.u32 $1[$2+16]"},
     "of shared memory"},
    {"a word of k twice",
     dot_tcgen05_f16,
     {kF16, "ld\\.global\\.u32 (\\s*%r\\d+), \\[(%rd\\d+)\\+16\\]", "ld.global.u32 $1, [$2+12]"},
     kWrong},
    {"a step of k too long", dot_tcgen05_f16, {kF16, "add\\.s32 (\\s*%r\\d+, %r\\d+), 16;", "add.s32 $1, 32;"}, ""},
    {"no barrier before the product", dot_tcgen05_f16, {kF16, "bar\\.sync[^;]*;", "", 2}, "of shared memory"},
    {"no fence of the async proxy",
     dot_tcgen05_f16,
     {kF16, "fence\\.proxy\\.async;", ""},
     "no fence.proxy.async since"},
    // Waits and fences.
    {"the products are not added", dot_tcgen05_f16, {kF16, "setp\\.eq\\.u32 add", "setp.ne.u32 add"}, kWrong},
    {"every thread multiplies",
     dot_tcgen05_f16,
     {kF16, "@%p\\d+ bra[^;]*;([^;@]*tcgen05\\.fence::after)", "$1"},
     "tcgen05.mma by 32 threads"},
    {"the product is not committed", dot_tcgen05_f16, {kF16, "tcgen05\\.commit[^;]*;", ""}, "never completes"},
    {"the commit is not waited for",
     dot_tcgen05_f16,
     {kF16, "mbarrier\\.try_wait[^;]*;", "setp.eq.u32 done, 0, 0;"},
     "whose commit has not been waited for"},
    {"always the first phase",
     dot_tcgen05_f16,
     {kF16, "and\\.b32 (\\s*%r\\d+, %r\\d+), 1;", "and.b32 $1, 0;"},
     "never completes"},
    {"an mbarrier for two arrivals",
     dot_tcgen05_f16,
     {kF16, "(mbarrier\\.init\\S* \\[%r\\d+\\]), 1;", "$1, 2;"},
     "never completes"},
    {"the mbarrier is not initialised",
     dot_tcgen05_f16,
     {kF16, "mbarrier\\.init[^;]*;", ""},
     "which no thread of the block has written"},
    {"no wait for the stores of scales",
     dot_tcgen05_mx,
     {kMx, "tcgen05\\.wait::st[^;]*;", "", 2},
     "no tcgen05.wait::st since"},
    {"no fence before the barrier",
     dot_tcgen05_f16,
     {kF16, "tcgen05\\.fence::before_thread_sync;", ""},
     "no tcgen05.fence::before_thread_sync since"},
    {"no fence between the barrier and the product",
     dot_tcgen05_f16,
     {kF16, "tcgen05\\.fence::after_thread_sync;", ""},
     "no barrier and tcgen05.fence::after_thread_sync since"},
    {"no fence after the wait for the commit",
     dot_tcgen05_f16,
     {kF16, "tcgen05\\.fence::after_thread_sync;", "", 2},
     "no tcgen05.fence::after_thread_sync follows the wait"},
    {"no wait for the loads", dot_tcgen05_f16, {kF16, "tcgen05\\.wait::ld[^;]*;", ""}, "no tcgen05.wait::ld since"},
    // Tensor memory.
    {"every warp loads the first lanes", dot_tcgen05_f16, {kF16, ", 2097184,", ", 32,"}, "tcgen05.ld of lanes from 0"},
    {"the diagonal of other columns", dot_tcgen05_f16, {kF16, ", 2097184,", ", 2097183,"}, kWrong},
    {"every warp stores in the first lanes",
     dot_tcgen05_f16,
     {kF16, "and\\.b32 (\\s*%r\\d+, %r\\d+), 65011712;", "and.b32 $1, 0;"},
     "tcgen05.st of lanes from 0"},
    {"scales one column on",
     dot_tcgen05_mx,
     {kMx, "add\\.s32 (\\s*%r\\d+, %r\\d+), 132;", "add.s32 $1, 133;", 2},
     "has not been written"},
    {"not released", dot_tcgen05_f16, {kF16, "tcgen05\\.dealloc[^;]*;", ""}, "have not been released"},
    {"released before all have loaded", dot_tcgen05_f16, {kF16, "bar\\.sync[^;]*;", "", 3}, "is not allocated"},
    {"another number of columns released",
     dot_tcgen05_f16,
     {kF16, "(tcgen05\\.dealloc\\S* %r\\d+), %r\\d+;", "$1, 64;"},
     "which tcgen05.alloc has not given like that"},
    {"too few columns",
     dot_tcgen05_f16,
     {kF16, "(tcgen05\\.alloc\\S* \\[%r\\d+\\]), %r\\d+;", "$1, 64;"},
     "is not allocated"},
    {"a number of columns that is no power of two",
     dot_tcgen05_f16,
     {kF16, "(tcgen05\\.alloc\\S* \\[%r\\d+\\]), %r\\d+;", "$1, 160;"},
     "a power of two"},
    {"the permit given up first",
     dot_tcgen05_f16,
     {kF16, "(tcgen05\\.alloc[^;]*;)(\\s*)(tcgen05\\.relinquish[^;]*;)", "$3$2$1"},
     "after tcgen05.relinquish_alloc_permit"},
    {"no barrier before the address is read", dot_tcgen05_f16, {kF16, "bar\\.sync[^;]*;", "", 1}, "of shared memory"},
    {"the address taken to be 0",
     dot_tcgen05_f16,
     {kF16, "(bar\\.sync\\s+0;)\\s*ld\\.shared\\.u32 (\\s*%r\\d+), [^;]*;", "$1\nmov.u32 $2, 0;"},
     "is not allocated"},
};

class PlantedTensor : public SoftwareGpu {
 protected:
  void SetUp() override { start({100}); }
  void TearDown() override {
    set_ptx_filter({});
    SoftwareGpu::TearDown();
  }
};

TEST_F(PlantedTensor, NothingIsFoundWithoutAPlant) {
  for (const auto run : {dot_tcgen05_f16, dot_tcgen05_mx, dot_tcgen05_fp4}) {
    SetUp();
    EXPECT_EQ(outcome(run), "");
  }
}

TEST_F(PlantedTensor, EveryMistakeIsCaught) {
  for (const KernelPlant& plant : kTensorPlants) {
    SetUp();
    expect_caught(plant);
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
