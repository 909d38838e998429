#include "kernels/cuda/software_gpu/narrow_floats.h"

#include <cmath>

#include "kernels/cuda/software_gpu/lanes.h"
#include "kernels/number/dtype.h"
#include "kernels/number/format.h"

namespace halfmark::kernels::software_gpu {
namespace {

template <bool kBf16, NarrowOperation kOperation>
uint16_t compute_one(uint16_t a, uint16_t b, uint16_t c) {
  using enum NarrowOperation;
  if (kOperation == neg) return static_cast<uint16_t>(a ^ 0x8000);
  if (kOperation == abs) return static_cast<uint16_t>(a & 0x7FFF);
  const Format& format = kBf16 ? format_of(DType::bf16) : format_of(DType::f16);
  const double x = decode_format(format, a), y = decode_format(format, b), z = decode_format(format, c);
  double result = 0;
  switch (kOperation) {
    case add:
      result = add_to_odd(x, y);
      break;
    case sub:
      result = add_to_odd(x, -y);
      break;
    case mul:
      result = x * y;  // exact
      break;
    case fma:
    case fma_relu:
      result = fused_multiply_add(format, x, y, z);
      if (kOperation == fma_relu && result < 0) result = 0;
      break;
    case min:
    case max:
    case min_nan:
    case max_nan: {
      const bool largest = kOperation == max || kOperation == max_nan;
      if (std::isnan(x) || std::isnan(y)) {
        if (kOperation == min_nan || kOperation == max_nan || (std::isnan(x) && std::isnan(y))) return 0x7FFF;
        return std::isnan(x) ? b : a;
      }
      if (x == y) return (std::signbit(x) != largest) ? a : b;
      return (x < y) == largest ? b : a;
    }
    case neg:
    case abs:
      break;
  }
  if (std::isnan(result)) return 0x7FFF;
  return static_cast<uint16_t>(encode_format(format, result));
}

template <bool kBf16, NarrowOperation kOperation, class Word>
void narrow(Warp& w, const Instruction& i) {
  write_lanes<Word>(w, i.d, [&](int l) {
    const Word a = w.lane<Word>(i.a, l), b = i.b == kNoRegister ? a : w.lane<Word>(i.b, l),
               c = i.c == kNoRegister ? a : w.lane<Word>(i.c, l);
    uint32_t result = 0;
    for (size_t n = 0; n < sizeof(Word) / 2; ++n)
      result |= static_cast<uint32_t>(compute_one<kBf16, kOperation>(static_cast<uint16_t>(uint32_t{a} >> 16 * n),
                                                                     static_cast<uint16_t>(uint32_t{b} >> 16 * n),
                                                                     static_cast<uint16_t>(uint32_t{c} >> 16 * n)))
                << 16 * n;
    return static_cast<Word>(result);
  });
}

template <NarrowOperation kOperation>
Handler of_type(PtxType type) {
  if (type == PtxType::f16) return narrow<false, kOperation, uint16_t>;
  if (type == PtxType::bf16) return narrow<true, kOperation, uint16_t>;
  if (type == PtxType::f16x2) return narrow<false, kOperation, uint32_t>;
  if (type == PtxType::bf16x2) return narrow<true, kOperation, uint32_t>;
  return nullptr;
}

}  // namespace

Handler narrow_handler(PtxType type, NarrowOperation operation) {
  using enum NarrowOperation;
  switch (operation) {
    case add:
      return of_type<add>(type);
    case sub:
      return of_type<sub>(type);
    case mul:
      return of_type<mul>(type);
    case fma:
      return of_type<fma>(type);
    case fma_relu:
      return of_type<fma_relu>(type);
    case min:
      return of_type<min>(type);
    case max:
      return of_type<max>(type);
    case min_nan:
      return of_type<min_nan>(type);
    case max_nan:
      return of_type<max_nan>(type);
    case neg:
      return of_type<neg>(type);
    case abs:
      return of_type<abs>(type);
  }
  return nullptr;
}

}  // namespace halfmark::kernels::software_gpu
