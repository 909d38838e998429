// Independent dot products on tcgen05.mma: a block of four warps multiplies the rows of A and columns of B of 128
// problems, and the results are on the diagonal of D in tensor memory. Rows and columns without a problem are zeros.
// Each instruction is waited for before the next operands are stored.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dot.h"
#include "kernels/cuda/dot_device.cuh"
#include "kernels/cuda/dot_tcgen05.h"
#include "kernels/cuda/tensor_memory.cuh"

namespace halfmark::kernels::cuda {
namespace {

using namespace tensor_memory;

constexpr int kTcgen05Threads = kTcgen05Problems;

// The opcode as the constraint "C" of an asm statement requires it: a static array.
template <size_t kRow, class Indices = std::make_index_sequence<ptx_of(kDotRows.row[kRow]).length>>
struct MmaOpcode;
template <size_t kRow, size_t... i>
struct MmaOpcode<kRow, std::index_sequence<i...>> {
  static constexpr char text[] = {ptx_of(kDotRows.row[kRow]).text[i]..., '\0'};
};

// By one thread. D is also C: the predicate says that the products are added to it. The commit lets `finished` complete
// a phase when the product is there.
template <size_t kRow>
__device__ __forceinline__ void multiply_tiles(uint32_t d, uint64_t a, uint64_t b, uint32_t finished) {
  constexpr DotRow row = kDotRows.row[kRow];
  if constexpr (row.block == 0)
    asm volatile(
        "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
        "%4 [%0], %1, %2, %3, add;\n}" ::"r"(d),
        "l"(a), "l"(b), "r"(tcgen05_instruction(row)), "C"(MmaOpcode<kRow>::text)
        : "memory");
  else
    asm volatile(
        "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
        "%6 [%0], %1, %2, %3, [%4], [%5], add;\n}" ::"r"(d),
        "l"(a), "l"(b), "r"(tcgen05_instruction(row)), "r"(d + kTcgen05ScalesA), "r"(d + kTcgen05ScalesB),
        "C"(MmaOpcode<kRow>::text)
        : "memory");
  commit(finished);
}

// The bytes of one instruction of a row of A or column of B.
template <size_t kRow>
__device__ __forceinline__ void copy_line(unsigned char* matrix, const void* operand, const DotArgs& s,
                                          uint32_t problem, uint32_t k) {
  const auto* from = reinterpret_cast<const uint32_t*>(
      static_cast<const unsigned char*>(operand) + (size_t{problem} * s.k + k) * dot_bits(kDotRows.row[kRow].a) / 8);
#pragma unroll
  for (int byte = 0; byte < kTcgen05Bytes; byte += 4)
    *reinterpret_cast<uint32_t*>(matrix + tcgen05_offset(static_cast<int>(threadIdx.x), byte)) =
        problem < s.n ? from[byte / 4] : 0;
}

template <size_t kRow>
__device__ __forceinline__ void tcgen05_products(const DotArgs& s) {
  constexpr DotRow row = kDotRows.row[kRow];
  constexpr uint32_t columns = tcgen05_columns(row);
  using Code = std::conditional_t<row.c == DType::f16, uint16_t, uint32_t>;
  __shared__ alignas(128) unsigned char a[kTcgen05Matrix], b[kTcgen05Matrix];
  __shared__ alignas(8) uint64_t finished;
  __shared__ uint32_t place;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const uint32_t first = blockIdx.x * kTcgen05Problems, problem = first + threadIdx.x;

  if (warp == 0) allocate(&place, columns);
  if (thread == 0) start_phases(shared_address(&finished));
  __syncthreads();
  const uint32_t d = place, own = d + tcgen05_lane(warp * 32);  // a warp reads and writes its own 32 lanes only

  const uint32_t start = problem < s.n ? static_cast<const Code*>(s.c)[problem] : 0;
  __syncwarp();
#pragma unroll 1
  for (int column = 0; column < kTcgen05Problems; ++column) store(own + column, column == thread ? start : 0);
  wait_for_stores();

#pragma unroll 1  // smaller code; not time-critical
  for (uint32_t k = 0; k < s.k; k += dot_depth(row.instruction)) {
    copy_line<kRow>(a, s.a, s, problem, k);
    copy_line<kRow>(b, s.b, s, problem, k);
    if constexpr (row.block != 0) {
#pragma unroll
      for (int column = 0; column < kTcgen05Problems / 32; ++column) {
        const uint32_t line = first + tcgen05_scale_line(column, lane);
        const uint32_t scales_a = scales<kRow>(s.scale_a, s, line, k), scales_b = scales<kRow>(s.scale_b, s, line, k);
        __syncwarp();
        store(own + kTcgen05ScalesA + column, scales_a);
        store(own + kTcgen05ScalesB + column, scales_b);
      }
    }
    __syncwarp();
    wait_for_stores();
    asm volatile("fence.proxy.async;" ::: "memory");  // the matrices are read through the async proxy
    before_others();
    __syncthreads();
    if (thread == 0) {
      after_others();
      multiply_tiles<kRow>(d, tcgen05_matrix(shared_address(a)), tcgen05_matrix(shared_address(b)),
                           shared_address(&finished));
    }
    __syncwarp();
    wait_for_phase(shared_address(&finished), k / dot_depth(row.instruction) % 2);
    after_others();
  }

  uint32_t result = 0;
#pragma unroll 1
  for (int column = 0; column < 32; ++column) {
    const uint32_t value = load(own + warp * 32 + column);
    if (column == lane) result = value;
  }
  if (problem < s.n) {
    static_cast<Code*>(s.out)[problem] = static_cast<Code>(result);
    if (s.multiprocessor) s.multiprocessor[problem] = multiprocessor();
  }
  before_others();
  __syncthreads();
  after_others();
  if (warp == 0) release(d, columns);
}

// Empty if the architecture of this code lacks the instruction; the host does not launch it there.
template <size_t kRow>
__global__ void __launch_bounds__(kTcgen05Threads) tcgen05_dot(DotArgs s) {
  if constexpr (has(kImage, kDotRows.row[kRow].reach)) tcgen05_products<kRow>(s);
}

template <size_t kRow>
void launch_products(cudaStream_t stream, const DotArgs& args) {
  if constexpr (is_tcgen05(kDotRows.row[kRow].instruction))
    tcgen05_dot<kRow><<<(args.n + kTcgen05Problems - 1) / kTcgen05Problems, kTcgen05Threads, 0, stream>>>(args);
}

template <size_t... kRow>
void launch_products_of(cudaStream_t stream, size_t row, const DotArgs& args, std::index_sequence<kRow...>) {
  using Launch = void (*)(cudaStream_t, const DotArgs&);
  static constexpr Launch kLaunches[] = {launch_products<kRow>...};
  kLaunches[row](stream, args);
}

}  // namespace

void launch_tcgen05(cudaStream_t stream, size_t row, const DotArgs& args) {
  launch_products_of(stream, row, args, std::make_index_sequence<DotRows::kCount>{});
}

}  // namespace halfmark::kernels::cuda
