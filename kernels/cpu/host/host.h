// What the host loops share: reading blocks of any stored type as float or double, and operands brought into one
// layout.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops.h"

// Element i of the result depends on element i of the operands alone, whether they are the same memory or not.
#define HM_EACH_FOR_ITSELF _Pragma("GCC ivdep")

namespace halfmark::kernels::host {

void add_elementwise(KernelTable& table);  // activations, add, add_bias, bias_gradient, cast
void add_batch_norms(KernelTable& table);
void add_poolings(KernelTable& table);
void add_training(KernelTable& table);  // softmax_cross_entropy, unscale, sgd_step
void add_reorders(KernelTable& table);

inline constexpr int64_t kBlock = 1024;         // elements widened at a time: fits the first-level cache
inline constexpr int64_t kGrain = 32 * kBlock;  // elements a thread takes at a time

template <class T>
inline constexpr DType kStored = sizeof(T) == 8 ? DType::f64 : DType::f32;

// Types the host loops store: those convert() is fast for.
Refusal refuses_dtypes(std::initializer_list<const Tensor*> operands);

// Why the time of these loops is not that of the operands' format: they widen a type that this CPU does not compute in.
// Nothing when it does.
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

// A row for what the loops compute as it is stored, and an emulated one for what they widen. Casts and reorders, which
// compute nothing, are real for every type.
template <class Op, auto refuses, auto run>
void add_row(KernelTable& table) {
  constexpr auto refuses_widened = [](const Device& device, const Op& op) {
    Refusal refusal = refuses(device, op);
    if (!refusal) op.visit(WidenedVisitor{refusal});
    return refusal;
  };
  table.of<Op>().push_back({"host", Speed::real, refuses_widened, run});
  table.of<Op>().push_back({"host-upcast", Speed::emulated, refuses, run});
}

// fp64 when an operand is, else fp32.
bool computes_in_double(std::initializer_list<const Tensor*> operands);

// Elements as they lie in memory, the padding of an opaque layout included.
inline int64_t stored_elements(const Tensor& tensor) {
  return static_cast<int64_t>(tensor.bytes() / size_of(tensor.dtype()));
}

inline void* at(void* data, DType dtype, int64_t index) {
  return static_cast<unsigned char*>(data) + static_cast<size_t>(index) * size_of(dtype);
}
inline const void* at(const void* data, DType dtype, int64_t index) {
  return static_cast<const unsigned char*>(data) + static_cast<size_t>(index) * size_of(dtype);
}

// count elements from index `begin` of memory as T: in place where they are stored so, else widened into the buffer.
template <class T>
const T* read(const Tensor& tensor, int64_t begin, int64_t count, T* buffer) {
  const void* source = at(tensor.data(), tensor.dtype(), begin);
  if (tensor.dtype() == kStored<T>) return static_cast<const T*>(source);
  convert(tensor.dtype(), source, kStored<T>, buffer, static_cast<size_t>(count));
  return buffer;
}

// Where to write such elements, and the rounding to the stored type once they are there.
template <class T>
T* writable(Tensor& tensor, int64_t begin, T* buffer) {
  return tensor.dtype() == kStored<T> ? static_cast<T*>(at(tensor.data(), tensor.dtype(), begin)) : buffer;
}
template <class T>
void written(Tensor& tensor, int64_t begin, int64_t count, const T* buffer) {
  if (tensor.dtype() != kStored<T>)
    convert(kStored<T>, buffer, tensor.dtype(), at(tensor.data(), tensor.dtype(), begin), static_cast<size_t>(count));
}

// The whole tensor as T in memory order; for small tensors and fallbacks.
template <class T>
std::vector<T> widened(const Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(stored_elements(tensor)));
  convert(tensor.dtype(), tensor.data(), kStored<T>, values.data(), values.size());
  return values;
}

// out[i] = f(in[0][i], ..., in[N-1][i]) in memory order.
template <class T, size_t N, class F>
void map(Tensor& out, const std::array<const Tensor*, N>& in, F f) {
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
        else
          r[j] = f(p[0][j], p[1][j]);
      }
      written(out, i, count, r);
    }
  });
}

bool same_layout(const Tensor& a, const Tensor& b);

// An open tensor of this shape, dtype and memory purpose workspace, laid out as `model` is (nhwc when that is opaque
// and of another dtype).
Tensor scratch_like(const Tensor& model, DType dtype);

// The tensor itself, or a copy in the layout of `model`.
Tensor in_layout_of(const Tensor& model, const Tensor& tensor);

// The tensor itself, or where only a library can read it, an nhwc (plain unless of rank 4) copy.
Tensor readable(const Tensor& tensor);

// A result in the layout of a model: the tensor itself once it has memory there, else a scratch tensor that finish()
// copies.
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

// The operand that decides the layout of an elementwise operation: the first that is not plain.
const Tensor& leading(std::initializer_list<const Tensor*> operands);

}  // namespace halfmark::kernels::host
