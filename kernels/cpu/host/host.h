// Shared by the host loops: reading blocks of any stored type
// as float or double, and converting operands to one layout.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/cpu/host/vectors.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"

// Element i of the result depends only on element i of the operands, whether or not they share memory.
#define HM_EACH_FOR_ITSELF _Pragma("GCC ivdep")

namespace halfmark::kernels::host {

void add_elementwise(KernelTable& table);  // activations, add, add_bias, bias_gradient, cast
void add_batch_norms(KernelTable& table);
void add_row_norms(KernelTable& table);
void add_poolings(KernelTable& table);
void add_images(KernelTable& table);     // channels copied, images resampled
void add_sequences(KernelTable& table);  // softmax, embedding, dropout, permute, lstm_cell
void add_attention(KernelTable& table);
void add_training(KernelTable& table);  // softmax_cross_entropy
void add_losses(KernelTable& table);
void add_ctc(KernelTable& table);
void add_optimizers(KernelTable& table);  // steps, norm and clipping of gradients
void add_reorders(KernelTable& table);

inline constexpr int64_t kBlock = 1024;         // elements widened at a time: fits the first-level cache
inline constexpr int64_t kGrain = 32 * kBlock;  // elements that a thread takes at a time

template <class T>
inline constexpr DType kStored = sizeof(T) == 8 ? DType::f64 : DType::f32;

// Types that the host loops store: those for which convert() is fast.
Refusal refuses_dtypes(std::initializer_list<const Tensor*> operands);

// Why the time of these loops says nothing about the operands' format: they widen a type that this CPU does not compute
// in. Empty if the CPU computes in it.
Refusal widened_type(const Tensor& tensor);

struct WidenedVisitor {
  Refusal& found;
  void input(std::string_view, const Tensor& tensor) { see(tensor); }
  void output(std::string_view, const Tensor& tensor) { see(tensor); }
  void attribute(const auto&) {}
  void see(const Tensor& tensor) {
    if (!found && !tensor.empty()) found = widened_type(tensor);
  }
};

// A row with a real time for what the loops compute as stored, and an emulated one for what they widen. Casts and
// reorders compute nothing, so their times are real for every type.
template <class Op, auto refuses, auto run>
void add_row(KernelTable& table) {
  constexpr auto refuses_widened = [](const Device& device, const Op& op) {
    Refusal refusal = refuses(device, op);
    if (!refusal) op.visit(WidenedVisitor{refusal});
    return refusal;
  };
  table.of<Op>().push_back({"host", Speed::real, refuses_widened, run, Repeats::by_construction});
  table.of<Op>().push_back({"host-upcast", Speed::emulated, refuses, run, Repeats::by_construction});
}

// fp64 if an operand is, else fp32.
bool computes_in_double(std::initializer_list<const Tensor*> operands);

// Elements in memory order, including the padding of an opaque layout.
inline int64_t stored_elements(const Tensor& tensor) {
  return static_cast<int64_t>(tensor.bytes() / size_of(tensor.dtype()));
}

inline void* at(void* data, DType dtype, int64_t index) {
  return static_cast<unsigned char*>(data) + static_cast<size_t>(index) * size_of(dtype);
}
inline const void* at(const void* data, DType dtype, int64_t index) {
  return static_cast<const unsigned char*>(data) + static_cast<size_t>(index) * size_of(dtype);
}

// A bf16 code and the number that it stands for, as convert() gives them, but for the payload of a NaN, which is the
// quiet one of convert() again when the result is stored. In the loops themselves, so that no buffer is needed.
inline float bf16_value(uint16_t code) { return std::bit_cast<float>(uint32_t{code} << 16); }
inline uint16_t bf16_code(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (u + 0x7FFF + ((u >> 16) & 1)) >> 16, quiet = (u >> 16 & 0x8000) | 0x7FC0;
  return static_cast<uint16_t>((u & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded);
}

// Where a tensor with memory has its elements. A loop over rows of a few elements makes these before it: asking the tensor
// takes as long as such a row.
struct ReadView {
  ReadView(const Tensor& tensor)
      : memory(tensor.data()), dtype(tensor.dtype()), size(static_cast<int64_t>(size_of(dtype))) {}
  const void* at(int64_t index) const { return static_cast<const unsigned char*>(memory) + index * size; }

  const void* memory;
  DType dtype;
  int64_t size;  // of an element in bytes
};
struct WriteView {
  WriteView(Tensor& tensor)
      : memory(tensor.data()), dtype(tensor.dtype()), size(static_cast<int64_t>(size_of(dtype))) {}
  void* at(int64_t index) const { return static_cast<unsigned char*>(memory) + index * size; }

  void* memory;
  DType dtype;
  int64_t size;
};

// `count` elements of memory from index `begin` as T: in place if stored as T, else widened into the buffer.
template <class T>
const T* read(const ReadView& tensor, int64_t begin, int64_t count, T* buffer) {
  const void* source = tensor.at(begin);
  if (tensor.dtype == kStored<T>) return static_cast<const T*>(source);
  if constexpr (std::is_same_v<T, float>) {
    if (tensor.dtype == DType::bf16) {  // here, because a call for each row of a small layer costs more than its row
      const auto* codes = static_cast<const uint16_t*>(source);
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) buffer[j] = bf16_value(codes[j]);
      return buffer;
    }
  }
  convert(tensor.dtype, source, kStored<T>, buffer, static_cast<size_t>(count));
  return buffer;
}

// Where to write such elements, and their rounding to the stored type afterwards.
template <class T>
T* writable(const WriteView& tensor, int64_t begin, T* buffer) {
  return tensor.dtype == kStored<T> ? static_cast<T*>(tensor.at(begin)) : buffer;
}
template <class T>
void written(const WriteView& tensor, int64_t begin, int64_t count, const T* buffer) {
  if (tensor.dtype == kStored<T>) return;
  void* target = tensor.at(begin);
  if constexpr (std::is_same_v<T, float>) {
    if (tensor.dtype == DType::bf16) {
      auto* codes = static_cast<uint16_t*>(target);
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) codes[j] = bf16_code(buffer[j]);
      return;
    }
  }
  convert(kStored<T>, buffer, tensor.dtype, target, static_cast<size_t>(count));
}

// The whole tensor as T in memory order; for small tensors and fallbacks.
template <class T>
std::vector<T> widened(const Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(stored_elements(tensor)));
  convert(tensor.dtype(), tensor.data(), kStored<T>, values.data(), values.size());
  return values;
}

// Partial sums of a long sum: independent chains of additions, so that none waits for the one before it.
template <class T>
inline constexpr int64_t kLanes = sizeof(T) == 8 ? 8 : 32;

// The parts of a sum in an order that does not depend on the machine.
template <class Sum, int64_t lanes>
Sum sum_of_lanes(Sum (&sums)[lanes]) {
  for (int64_t left = lanes / 2; left > 0; left /= 2)
    for (int64_t lane = 0; lane < left; ++lane) sums[lane] = sums[2 * lane] + sums[2 * lane + 1];
  return sums[0];
}

// The sum of term(j) over j < count in `lanes` parts.
template <class Sum, int64_t lanes, class Term>
Sum lanes_sum(int64_t count, Term term) {
  Sum sums[lanes] = {};
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += term(j + lane);
  for (; j < count; ++j) sums[j % lanes] += term(j);
  return sum_of_lanes(sums);
}

// The largest of x in parts; a NaN may be lost.
template <class T>
T largest_of(const T* x, int64_t count) {
  constexpr int64_t lanes = kLanes<T>;
  T largest[lanes];
  std::fill_n(largest, lanes, x[0]);
  int64_t j = 0;
  for (; j + lanes <= count; j += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      largest[lane] = x[j + lane] > largest[lane] ? x[j + lane] : largest[lane];
  for (; j < count; ++j) largest[0] = x[j] > largest[0] ? x[j] : largest[0];
  for (int64_t left = lanes / 2; left > 0; left /= 2)
    for (int64_t lane = 0; lane < left; ++lane)
      largest[lane] = largest[left + lane] > largest[lane] ? largest[left + lane] : largest[lane];
  return largest[0];
}

// map() of bf16 numbers.
template <size_t N, class F>
void map_bf16(Tensor& out, const std::array<const Tensor*, N>& in, F f) {
  std::array<const uint16_t*, N> p;
  for (size_t k = 0; k < N; ++k) p[k] = static_cast<const uint16_t*>(in[k]->data());
  auto* r = static_cast<uint16_t*>(out.data());
  parallel_for(stored_elements(out), kGrain, [=](int64_t begin, int64_t end) {
    HM_EACH_FOR_ITSELF
    for (int64_t j = begin; j < end; ++j) {
      if constexpr (N == 1)
        r[j] = bf16_code(f(bf16_value(p[0][j])));
      else if constexpr (N == 2)
        r[j] = bf16_code(f(bf16_value(p[0][j]), bf16_value(p[1][j])));
      else
        r[j] = bf16_code(f(bf16_value(p[0][j]), bf16_value(p[1][j]), bf16_value(p[2][j])));
    }
  });
}

// out[i] = f(in[0][i], ..., in[N-1][i]) in memory order.
template <class T, size_t N, class F>
void map(Tensor& out, const std::array<const Tensor*, N>& in, F f) {
  if constexpr (std::is_same_v<T, float>) {
    bool all = out.dtype() == DType::bf16;
    for (const Tensor* one : in) all = all && one->dtype() == DType::bf16;
    if (all) return map_bf16(out, in, f);
  }
  parallel_for(stored_elements(out), kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) T buffers[N][kBlock];
    alignas(64) T result[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      std::array<const T*, N> p;
      for (size_t k = 0; k < N; ++k) p[k] = read(*in[k], i, count, buffers[k]);
      T* r = writable(out, i, result);
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < count; ++j) {
        if constexpr (N == 1)
          r[j] = f(p[0][j]);
        else if constexpr (N == 2)
          r[j] = f(p[0][j], p[1][j]);
        else
          r[j] = f(p[0][j], p[1][j], p[2][j]);
      }
      written(out, i, count, r);
    }
  });
}

bool same_layout(const Tensor& a, const Tensor& b);

// A tensor of this shape and dtype for purpose workspace, in the layout of `model` (nhwc if that is opaque and of
// another dtype).
Tensor scratch_like(const Tensor& model, DType dtype);

// The tensor itself, or a copy in the layout of `model`.
Tensor in_layout_of(const Tensor& model, const Tensor& tensor);

// The tensor itself, or an nhwc copy (plain unless of rank 4) if only a library can read it.
Tensor readable(const Tensor& tensor);

// A result in the layout of a model: the tensor itself if it has memory in that layout, else a scratch tensor that
// finish() copies.
class Result {
 public:
  Result(Tensor& target, const Tensor& model);
  Tensor& tensor() { return use_; }
  void finish();

 private:
  Tensor& target_;
  Tensor use_;
  bool copies_;
};

// The operand that determines the layout of an elementwise operation: the first that is not plain.
const Tensor& leading(std::initializer_list<const Tensor*> operands);

}  // namespace halfmark::kernels::host
