#include "kernels/cpu/reference/operand.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/number/convert.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::reference {
namespace {

// Copies elements between memory order nhwc and logical order nchw.
template <class T>
void permute(const Shape& shape, const T* from, T* to, bool to_logical) {
  const int64_t channels = shape[1], pixels = shape[2] * shape[3];
  parallel_for(shape[0] * channels, std::max<int64_t>(1, kGrain / std::max<int64_t>(pixels, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t plane = begin; plane < end; ++plane)
                   for (int64_t p = 0; p < pixels; ++p) {
                     const int64_t logical = plane * pixels + p,
                                   memory = (plane / channels * pixels + p) * channels + plane % channels;
                     to_logical ? to[logical] = from[memory] : to[memory] = from[logical];
                   }
               });
}

template <class T>
constexpr DType kDTypeOf = std::is_same_v<T, double> ? DType::f64 : DType::f32;

template <class T>
void write_as(Tensor& tensor, const std::vector<T>& values) {
  const std::vector<T>* source = &values;
  std::vector<T> reordered;
  if (tensor.layout() == Layout::nhwc) {
    reordered.resize(values.size());
    permute(tensor.shape(), values.data(), reordered.data(), false);
    source = &reordered;
  }
  auto* memory = static_cast<unsigned char*>(tensor.data());
  parallel_for(tensor.elements(), kGrain, [&](int64_t begin, int64_t end) {
    convert(kDTypeOf<T>, source->data() + begin, tensor.dtype(),
            memory + bytes_for(tensor.dtype(), static_cast<size_t>(begin)), static_cast<size_t>(end - begin));
  });
}

}  // namespace

template <class T>
std::vector<T> read(const Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.elements()));
  const auto* memory = static_cast<const unsigned char*>(tensor.data());
  parallel_for(tensor.elements(), kGrain, [&](int64_t begin, int64_t end) {
    convert(tensor.dtype(), memory + bytes_for(tensor.dtype(), static_cast<size_t>(begin)), kDTypeOf<T>,
            values.data() + begin, static_cast<size_t>(end - begin));
  });
  if (tensor.layout() != Layout::nhwc) return values;
  std::vector<T> logical(values.size());
  permute(tensor.shape(), values.data(), logical.data(), true);
  return logical;
}
template std::vector<double> read(const Tensor&);
template std::vector<float> read(const Tensor&);

void write(Tensor& tensor, const std::vector<double>& values) { write_as(tensor, values); }
void write(Tensor& tensor, const std::vector<float>& values) { write_as(tensor, values); }

void write_codes(Tensor& tensor, const std::vector<unsigned char>& codes) {
  if (codes.empty()) return;
  if (tensor.layout() != Layout::nhwc) {
    std::memcpy(tensor.data(), codes.data(), codes.size());
    return;
  }
  if (is_packed(tensor.dtype())) {
    const Shape& shape = tensor.shape();
    const auto channels = static_cast<size_t>(shape[1]), pixels = static_cast<size_t>(shape[2] * shape[3]);
    for (size_t i = 0; i < static_cast<size_t>(tensor.elements()); ++i)
      store_code(tensor.dtype(), tensor.data(),
                 (i / (channels * pixels) * pixels + i % pixels) * channels + i / pixels % channels,
                 load_code(tensor.dtype(), codes.data(), i));
    return;
  }
  switch (size_of(tensor.dtype())) {
    case 1:
      return permute(tensor.shape(), codes.data(), tensor.as<unsigned char>(), false);
    case 2:
      return permute(tensor.shape(), reinterpret_cast<const uint16_t*>(codes.data()), tensor.as<uint16_t>(), false);
    case 4:
      return permute(tensor.shape(), reinterpret_cast<const uint32_t*>(codes.data()), tensor.as<uint32_t>(), false);
    case 8:
      return permute(tensor.shape(), reinterpret_cast<const uint64_t*>(codes.data()), tensor.as<uint64_t>(), false);
    default:
      throw Error("an element of " + std::to_string(size_of(tensor.dtype())) + " bytes");
  }
}

void settle(Tensor& out, const Tensor& like) {
  out.materialize(out.shape().rank() == 4 && like.layout() == Layout::nhwc ? Layout::nhwc : Layout::plain);
}

bool wants_fp64(const Tensor& tensor) { return tensor.dtype() == DType::f64; }

Refusal refuse_operand(std::string_view name, const Tensor& tensor) {
  if (tensor.layout() == Layout::opaque) return std::string(name) + " has the opaque layout of another row";
  const bool integers = name == "labels" || name == "targets" || name == "indices" || name == "mask" ||
                        name == "wide" || name == "narrow";
  if (!integers && !is_floating(tensor.dtype()))
    return std::string(name) + " of dtype " + std::string(name_of(tensor.dtype())) + " is not floating point";
  return {};
}

}  // namespace halfmark::kernels::reference
