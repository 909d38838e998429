// Independent dot products on one matrix instruction: a of problem i is row i of the tile of A, b is column i of B, and
// the result is on the diagonal. The rest of the tile is zeros. Codes are passed unchanged.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/dot.h"
#include "kernels/cuda/dot_device.cuh"
#include "kernels/cuda/dot_tiles.h"

namespace halfmark::kernels::cuda {
namespace {

__constant__ DotImage built_for = kImage;

// The opcode as the constraint "C" of an asm statement requires it: a static array. `kFirst`: with the row's type of c;
// later instructions take the previous result as c.
template <size_t kRow, bool kFirst>
constexpr DotText opcode() {
  DotRow row = kDotRows.row[kRow];
  if (!kFirst) row.c = row.out;
  return ptx_of(row);
}
template <size_t kRow, bool kFirst, class Indices = std::make_index_sequence<opcode<kRow, kFirst>().length>>
struct Opcode;
template <size_t kRow, bool kFirst, size_t... i>
struct Opcode<kRow, kFirst, std::index_sequence<i...>> {
  static constexpr char text[] = {opcode<kRow, kFirst>().text[i]..., '\0'};
};

// The last operands of wgmma: b times 1, and for 16-bit types, b not transposed.
template <bool kAsked>
struct WgmmaEnd {
  static constexpr char text[] = {'1', kAsked ? ',' : ' ', kAsked ? '0' : ' ', '\0'};
};

// Registers of a result or addend: floats, doubles, or pairs of f16.
template <DType kType, int kElements>
struct Sums {
  using Code =
      std::conditional_t<kType == DType::f64, uint64_t, std::conditional_t<kType == DType::f16, uint16_t, uint32_t>>;
  using Register =
      std::conditional_t<kType == DType::f64, double, std::conditional_t<kType == DType::f16, uint32_t, float>>;
  Register r[kType == DType::f16 ? kElements / 2 : kElements];

  __device__ __forceinline__ void set(int i, Code code) {
    if constexpr (kType == DType::f64)
      r[i] = __longlong_as_double(static_cast<long long>(code));
    else if constexpr (kType == DType::f32)
      r[i] = __uint_as_float(code);
    else
      r[i / 2] = i % 2 ? r[i / 2] & 0xFFFFu | uint32_t{code} << 16 : code;
  }
  __device__ __forceinline__ Code get(int i) const {
    if constexpr (kType == DType::f64)
      return static_cast<Code>(__double_as_longlong(r[i]));
    else if constexpr (kType == DType::f32)
      return __float_as_uint(r[i]);
    else
      return static_cast<Code>(r[i / 2] >> i % 2 * 16);
  }
};

// d = a b + d, or a b + c in `first` if c is narrower.
template <size_t kRow>
struct Issue {
  static constexpr DotRow row = kDotRows.row[kRow];
  static constexpr DotTile tile = tile_of(row);
  using Text = Opcode<kRow, false>;
  using Word = std::conditional_t<row.a == DType::f64, double, uint32_t>;
  using D = Sums<row.out, tile.results>;
  using C = Sums<row.c, tile.results>;

  static __device__ __forceinline__ void first(D& sum, const C& start, const Word* a, const Word* b) {
    static_assert(tile.quads && row.c == DType::f16 && row.out == DType::f32);
    float* d = sum.r;
    const uint32_t* c = start.r;
    asm volatile("%16 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%12, %13, %14, %15};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]),
                   "C"(Opcode<kRow, true>::text));
  }

  static __device__ __forceinline__ void next(D& sum, const Word* a, const Word* b) {
    auto* d = sum.r;
    if constexpr (row.out == DType::f64 && tile.m == 8)
      asm volatile("%4 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(d[0]), "+d"(d[1])
                   : "d"(a[0]), "d"(b[0]), "C"(Text::text));
    else if constexpr (row.out == DType::f64 && tile.k == 4)
      asm volatile("%7 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                   : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                   : "d"(a[0]), "d"(a[1]), "d"(b[0]), "C"(Text::text));
    else if constexpr (row.out == DType::f64 && tile.k == 8)
      asm volatile("%10 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                   : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]), "C"(Text::text));
    else if constexpr (row.out == DType::f64)
      asm volatile("%16 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
                   : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                   : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
                     "d"(b[1]), "d"(b[2]), "d"(b[3]), "C"(Text::text));
    else if constexpr (tile.quads && row.out == DType::f32)
      asm volatile("%12 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                   : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "C"(Text::text));
    else if constexpr (tile.quads)
      asm volatile("%8 {%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%0, %1, %2, %3};"
                   : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "C"(Text::text));
    else if constexpr (tile.a_registers == 2 && row.out == DType::f32)
      asm volatile("%7 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(b[0]), "C"(Text::text));
    else if constexpr (tile.a_registers == 2)
      asm volatile("%5 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                   : "+r"(d[0]), "+r"(d[1])
                   : "r"(a[0]), "r"(a[1]), "r"(b[0]), "C"(Text::text));
    else if constexpr (row.out == DType::f32)
      asm volatile("%10 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(Text::text));
    else
      asm volatile("%8 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                   : "+r"(d[0]), "+r"(d[1])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(Text::text));
  }

  // Both selectors 0: the scales begin at byte 0 of the registers of the first threads in each group of four.
  static __device__ __forceinline__ void scaled(D& sum, const Word* a, const Word* b, uint32_t scale_a,
                                                uint32_t scale_b) {
    float* d = sum.r;
    asm volatile("%12 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {0, 0}, {%11}, {0, 0};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scale_a), "r"(scale_b),
                   "C"(Text::text));
  }

  // One statement from the fence to the wait: the accumulators are written until the wait ends, and code between two
  // statements could read or move them earlier. The predicate says that the products are added to d.
  static __device__ __forceinline__ void wgmma(D& sum, const Word* a, uint64_t b) {
    using End = WgmmaEnd<dot_bits(row.a) == 16>;
    auto* d = sum.r;
    if constexpr (row.out == DType::f32)
      asm volatile(
          "wgmma.fence.sync.aligned;\n{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
          "%9 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, add, 1, %10;\n}\n"
          "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "C"(Text::text), "C"(End::text)
          : "memory");
    else
      asm volatile(
          "wgmma.fence.sync.aligned;\n{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"
          "%7 {%0, %1}, {%2, %3, %4, %5}, %6, add, 1, %8;\n}\n"
          "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
          : "+r"(d[0]), "+r"(d[1])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "C"(Text::text), "C"(End::text)
          : "memory");
  }
};

// Which problem of the batch a row or column of the block's tile belongs to.
struct Batch {
  uint32_t first, n;
  // The index, or n if there is none: rows of A beyond the diagonal, and the rest of the last tile.
  __device__ __forceinline__ uint32_t problem(int tile, int line) const {
    const uint32_t i = first + static_cast<uint32_t>(tile * 8 + line);
    return line < 8 && i < n ? i : n;
  }
};

// Consecutive elements from k on, in their order within a register.
template <size_t kRow>
__device__ __forceinline__ auto word(const void* operand, const DotArgs& s, uint32_t problem, uint32_t k) {
  using I = Issue<kRow>;
  using Word = typename I::Word;
  if (problem >= s.n) return Word{0};
  constexpr int bits = dot_bits(I::row.a);
  const auto* bytes = static_cast<const unsigned char*>(operand) + (size_t{problem} * s.k + k) * bits / 8;
  if constexpr (I::tile.elements * bits == 16) {
    return e2m1_in_bytes(*reinterpret_cast<const uint16_t*>(bytes));
  } else {
    return *reinterpret_cast<const Word*>(bytes);
  }
}

template <size_t kRow>
__device__ __forceinline__ void dot_products(const DotArgs& s) {
  using I = Issue<kRow>;
  constexpr DotRow row = I::row;
  constexpr DotTile tile = I::tile;
  const int thread = static_cast<int>(threadIdx.x);
  const Batch batch{blockIdx.x * tile.problems(), s.n};

  typename I::C start;
#pragma unroll
  for (int i = 0; i < tile.results; ++i) {
    const TilePlace p = result_place(tile, row.c == DType::f16, thread, i);
    const uint32_t problem = p.row == p.column ? batch.problem(p.tile, p.row) : s.n;
    start.set(i, problem < s.n ? static_cast<const typename I::C::Code*>(s.c)[problem] : 0);
  }
  typename I::D sum;
  if constexpr (row.c == row.out) sum = start;

#pragma unroll 1  // smaller code; not time-critical
  for (uint32_t k = 0; k < s.k; k += tile.k) {
    typename I::Word a[tile.a_registers];
#pragma unroll
    for (int r = 0; r < tile.a_registers; ++r) {
      const TilePlace p = a_place(tile, thread, r);
      a[r] = word<kRow>(s.a, s, batch.problem(p.tile, p.row), k + p.column);
    }
    if constexpr (tile.wgmma) {
      __shared__ alignas(kWgmmaHalf) unsigned char columns[kWgmmaBytes];
      if (thread < kWgmmaBytes / 4) {
        const int column = thread / 8, of_column = thread % 8;
        *reinterpret_cast<uint32_t*>(columns + wgmma_offset(column, of_column * 4)) =
            word<kRow>(s.b, s, batch.problem(0, column), k + of_column * tile.elements);
      }
      asm volatile("fence.proxy.async;" ::: "memory");  // wgmma reads through the async proxy
      __syncthreads();
      I::wgmma(sum, a, wgmma_descriptor(static_cast<uint32_t>(__cvta_generic_to_shared(columns))));
      __syncthreads();  // before the next columns overwrite these
    } else {
      typename I::Word b[tile.b_registers];
#pragma unroll
      for (int r = 0; r < tile.b_registers; ++r) {
        const TilePlace p = b_place(tile, thread, r);
        b[r] = word<kRow>(s.b, s, batch.problem(p.tile, p.column), k + p.row);
      }
      uint32_t scale_a = 0, scale_b = 0;
      if constexpr (row.block != 0) {
        scale_a = scales<kRow>(s.scale_a, s, batch.problem(0, scale_row(thread)), k);
        scale_b = scales<kRow>(s.scale_b, s, batch.problem(0, scale_column(thread)), k);
      }
      __syncwarp();  // threads without a problem skipped their loads; the instruction needs all of them here
      if constexpr (row.block != 0)
        I::scaled(sum, a, b, scale_a, scale_b);
      else if constexpr (row.c != row.out)
        k == 0 ? I::first(sum, start, a, b) : I::next(sum, a, b);
      else
        I::next(sum, a, b);
    }
  }

#pragma unroll
  for (int i = 0; i < tile.results; ++i) {
    const TilePlace p = result_place(tile, row.out == DType::f16, thread, i);
    const uint32_t problem = p.row == p.column ? batch.problem(p.tile, p.row) : s.n;
    if (problem < s.n) {
      static_cast<typename I::D::Code*>(s.out)[problem] = sum.get(i);
      if (s.multiprocessor) s.multiprocessor[problem] = multiprocessor();
    }
  }
}

// Empty if the architecture of this code lacks the instruction; the host does not launch it there.
template <size_t kRow>
__global__ void __launch_bounds__(tile_of(kDotRows.row[kRow]).threads()) dot(DotArgs s) {
  if constexpr (has(kImage, kDotRows.row[kRow].reach)) dot_products<kRow>(s);
}

template <size_t kRow>
void launch(cudaStream_t stream, const DotArgs& args) {
  if constexpr (is_tcgen05(kDotRows.row[kRow].instruction)) {
    launch_tcgen05(stream, kRow, args);
  } else {
    constexpr DotTile tile = tile_of(kDotRows.row[kRow]);
    dot<kRow><<<(args.n + tile.problems() - 1) / tile.problems(), tile.threads(), 0, stream>>>(args);
  }
}

template <size_t... kRow>
void launch_row(cudaStream_t stream, size_t row, const DotArgs& args, std::index_sequence<kRow...>) {
  using Launch = void (*)(cudaStream_t, const DotArgs&);
  static constexpr Launch kLaunches[] = {launch<kRow>...};
  kLaunches[row](stream, args);
}

}  // namespace

void launch_dot(cudaStream_t stream, size_t row, const DotArgs& args) {
  launch_row(stream, row, args, std::make_index_sequence<DotRows::kCount>{});
  check(cudaGetLastError(), "dot products");
}

DotImage dot_image() {
  DotImage image{};
  const cudaError_t status = cudaMemcpyFromSymbol(&image, built_for, sizeof image);
  if (status == cudaErrorNoKernelImageForDevice) {
    (void)cudaGetLastError();
    return {};
  }
  check(status, "cudaMemcpyFromSymbol");
  return image;
}

}  // namespace halfmark::kernels::cuda
