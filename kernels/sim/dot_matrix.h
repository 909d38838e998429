// Fast matrices of dot products on the model of a tensor core: the basis of matmul and the convolutions on a simulated
// device. Every path gives the same codes as dot().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/sim/tensor_core.h"

namespace halfmark::kernels {

// The instructions of the CPU that a path uses.
enum class DotPath : uint8_t { scalar, avx2, avx512 };
std::string_view name_of(DotPath path);
std::span<const DotPath> dot_paths();  // those this CPU can run, slowest first

// The operands as vectors; the k codes of each are contiguous.
struct Panel {
  Format format;      // fp16, bf16, e4m3, e5m2; tf32 as 32-bit registers
  const void* codes;  // one, two or four bytes each
  size_t vectors;     //
  size_t depth;       // k
  size_t stride;      // elements from one vector to the next
};

size_t size_of_operand(const Format& format);  // bytes of a code in a panel

// d[i * right.vectors + j] = chain over k of left vector i and right vector j. The chain starts with the code that is
// in d as c. Codes are those of core.result, fp16 in the low half of the word; core.addend must equal it. Only
// blocks-summed and interleaved rows without scales. Runs on all threads (thread_pool.h).
void dot_matrix(const TensorCore& core, const Panel& left, const Panel& right, uint32_t* d);
void dot_matrix(DotPath path, const TensorCore& core, const Panel& left, const Panel& right, uint32_t* d);

}  // namespace halfmark::kernels
