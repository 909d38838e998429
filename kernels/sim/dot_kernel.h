// The tile of a vector path, shared by all instruction sets. The including file defines HM_VECTOR (the attributes of a
// function of that set) and, in an unnamed namespace of dot_engine, struct Vector with its lanes and operations.
//
// Computes a block of one row of the left panel and `lanes` columns. With e the
// largest exponent, every product and c is multiplied by 2^(F - e), which is exact,
// truncated by the conversion to an integer, and added. The sum is rounded once.
// No include guard: each path's file includes it once.

#include <algorithm>
#include <bit>
#include <cstdint>

using F = Vector::F;
using I = Vector::I;

constexpr int kExponentShift = 23;  // of fp32

struct Constants {
  I exponent_mask, to_scale, kept, floor, result_mask, least_half;
};

HM_VECTOR Constants constants_of(const Plan& plan) {
  return {Vector::all(0x7F800000u),
          Vector::all(static_cast<uint32_t>(254 + plan.kept) << kExponentShift),
          Vector::all(static_cast<uint32_t>(plan.kept) << kExponentShift),
          Vector::all(0x01010101u * static_cast<uint8_t>(plan.floor - 1)),
          Vector::all(plan.result_mask),
          Vector::all(static_cast<uint32_t>(127 + kFp16.min_exponent()) << kExponentShift)};
}

template <bool kHalf>
HM_VECTOR F to_float(I x) {
  return kHalf ? Vector::to_float_odd(x) : Vector::to_float_cut(x);
}

// s1 + s2 if that needs a 33rd bit: twice the rounded half. The half is s1 + s2 shifted down toward minus infinity,
// with the bit shifted out kept in the last place. At least seven bits lie below those of fp32, so that bit acts as a
// remainder there as in the full sum.
template <bool kHalf>
HM_VECTOR F wide_sum(I s1, I s2) {
  const I differ = Vector::bit_xor(s1, s2);
  const I half = Vector::add(Vector::bit_and(s1, s2), Vector::shift_right_once(differ));
  const F rounded_half = to_float<kHalf>(Vector::bit_or(half, Vector::bit_and(differ, Vector::all(1))));
  return Vector::mul(rounded_half, Vector::all(2.0f));
}

template <bool kHalf, bool kMasked>
HM_VECTOR F scaled_back(const Constants& k, F sum, I e) {
  const F unscale = Vector::as_float(Vector::sub(e, k.kept));
  if constexpr (kHalf) return Vector::to_half_and_back(Vector::mul(sum, unscale));
  if constexpr (kMasked) sum = Vector::as_float(Vector::bit_and(Vector::as_int(sum), k.result_mask));
  return Vector::mul(sum, unscale);
}

// kRows rows by one panel, from block `q` of a group; `exponents` holds the bytes of the group's largest ones.
template <size_t kL, bool kHalf, bool kCarries, size_t kRows>
HM_VECTOR void block(const Constants& k, const float* const (&a)[kRows], const float* b, const I (&exponents)[kRows],
                     size_t q, F (&c)[kRows]) {
  I e[kRows], s1[kRows], s2[kRows];
  F scale[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    // fp16: represents infinity as 2^100. No later term can bring either back to a finite result.
    if constexpr (kHalf) c[r] = Vector::clamp(c[r]);
    e[r] = Vector::larger_exponent(c[r], Vector::byte_to_exponent(exponents[r], q), k.exponent_mask);
    // A subnormal fp16 number has the exponent of the smallest normal one.
    if constexpr (kHalf) e[r] = Vector::max_where_not_zero(c[r], e[r], k.least_half);
    scale[r] = Vector::as_float(Vector::sub(k.to_scale, e[r]));
    s2[r] = Vector::cut(Vector::mul(c[r], scale[r]));
    s1[r] = Vector::all(0);
  }
  const size_t first = q * kL;
  HM_UNROLL
  for (size_t t = 0; t < kL; ++t) {
    const F right = Vector::load(b + (first + t) * Vector::kLanes);
    for (size_t r = 0; r < kRows; ++r) {
      const I term = Vector::cut(Vector::mul(Vector::mul(right, Vector::all(a[r][first + t])), scale[r]));
      I& sum = t < 16 ? s1[r] : s2[r];
      sum = Vector::add(sum, term);
    }
  }
  F sum[kRows];
  for (size_t r = 0; r < kRows; ++r) sum[r] = to_float<kHalf>(Vector::add(s1[r], s2[r]));
  if constexpr (kCarries) {
    I overflow = Vector::all(0);  // of any row, in the sign bit
    for (size_t r = 0; r < kRows; ++r)
      overflow = Vector::bit_or(overflow, Vector::overflow(Vector::add(s1[r], s2[r]), s1[r], s2[r]));
    if (Vector::any_negative(overflow)) [[unlikely]]
      for (size_t r = 0; r < kRows; ++r)
        sum[r] = Vector::where_negative(Vector::overflow(Vector::add(s1[r], s2[r]), s1[r], s2[r]),
                                        wide_sum<kHalf>(s1[r], s2[r]), sum[r]);
  }
  for (size_t r = 0; r < kRows; ++r) c[r] = scaled_back<kHalf, (kL > kMostUnmasked)>(k, sum[r], e[r]);
}

template <size_t kL, bool kHalf, bool kCarries, bool kInterleaved>
__attribute__((noinline)) HM_VECTOR_CALL void run_blocks(const Plan& plan, const Tile& tile,
                                                         float (*c)[Vector::kLanes]) {
  constexpr size_t kRows = Vector::kRows;  // interleaved: each row is a long chain of dependent operations
  constexpr size_t kChunk = (kBlocksOfGroup + 1) * kL, kTerms = kBlocksOfGroup * kL;
  const Constants k = constants_of(plan);
  const float *left = tile.left, *right = tile.right;
  for (size_t done = 0; done < tile.blocks; done += kBlocksOfGroup) {
    const size_t blocks = std::min(kBlocksOfGroup, tile.blocks - done);
    for (size_t row = 0; row < tile.rows; row += kRows) {
      const float* a[kRows];
      I exponents[kRows];
      F sum[kRows];
      for (size_t r = 0; r < kRows; ++r) {
        a[r] = left + (row + r) * kChunk;
        exponents[r] = k.floor;
        sum[r] = Vector::load(c[row + r]);
      }
      for (size_t t = 0; t < kL; ++t) {
        const I of_right = Vector::load_words(right + (kTerms + t) * Vector::kLanes);
        for (size_t r = 0; r < kRows; ++r)
          exponents[r] = Vector::max_bytes(
              exponents[r], Vector::add_bytes(of_right, Vector::all(std::bit_cast<uint32_t>(a[r][kTerms + t]))));
      }
      for (I& bytes : exponents) bytes = Vector::bit_xor(bytes, Vector::all(0x80808080u));
      for (size_t q = 0; q < blocks; ++q) {
        if constexpr (kInterleaved) {
          F part[kRows];
          for (F& x : part) x = Vector::all(0.0f);
          block<kL, kHalf, kCarries>(k, a, right, exponents, q++, part);
          block<kL, kHalf, kCarries>(k, a, right, exponents, q, part);
          for (size_t r = 0; r < kRows; ++r) {
            sum[r] = Vector::add(sum[r], part[r]);
            if constexpr (kHalf) sum[r] = Vector::to_half_and_back(sum[r]);  // 24 bits are twice 11 plus 2
          }
        } else {
          block<kL, kHalf, kCarries>(k, a, right, exponents, q, sum);
        }
      }
      for (size_t r = 0; r < kRows; ++r) Vector::store(c[row + r], sum[r]);
    }
    left += kTileRows * kChunk, right += kChunk * Vector::kLanes;
  }
}

// Only the forms that plan_for allows: each takes long to compile.
template <size_t kL, bool kHalf>
HM_VECTOR_CALL void run_products(const Plan& plan, const Tile& tile, float (*c)[Vector::kLanes]) {
  [[maybe_unused]] const Vector::Rounding rounding;
  if constexpr (kL == 16) {
    if (plan.interleaved)
      return plan.carries ? run_blocks<kL, kHalf, true, true>(plan, tile, c)
                          : run_blocks<kL, kHalf, false, true>(plan, tile, c);
  }
  if constexpr (kL >= 16) {
    if (plan.carries) return run_blocks<kL, kHalf, true, false>(plan, tile, c);
  }
  run_blocks<kL, kHalf, false, false>(plan, tile, c);
}

template <bool kHalf>
HM_VECTOR_CALL void run_tile(const Plan& plan, const Tile& tile) {
  alignas(64) float c[kTileRows][Vector::kLanes] = {};
  alignas(64) uint32_t words[Vector::kLanes] = {};
  for (size_t r = 0; r < tile.rows; ++r) {
    std::copy_n(tile.d + r * tile.stride, tile.columns, words);
    Vector::store(c[r],
                  kHalf ? Vector::from_half(Vector::load_words(words)) : Vector::as_float(Vector::load_words(words)));
  }
  switch (plan.products) {
    case 4:
      run_products<4, kHalf>(plan, tile, c);
      break;
    case 8:
      run_products<8, kHalf>(plan, tile, c);
      break;
    case 16:
      run_products<16, kHalf>(plan, tile, c);
      break;
    default:
      run_products<32, kHalf>(plan, tile, c);
  }
  for (size_t r = 0; r < tile.rows; ++r) {
    const F sum = Vector::load(c[r]);
    Vector::store(words, kHalf ? Vector::to_half(sum) : Vector::as_int(sum));
    uint32_t* out = tile.d + r * tile.stride;
    for (size_t i = 0; i < tile.columns; ++i) {
      const uint32_t code = words[i];
      if constexpr (kHalf)  // a sum that rounds to zero gives +0; only one NaN code is written
        out[i] = code == 0x8000u ? 0 : (code & 0x7FFFu) > 0x7C00u ? 0x7FFFu : code;
      else
        out[i] = code;
    }
  }
}

void run(const Plan& plan, const Tile& tile) {
  return plan.half ? run_tile<true>(plan, tile) : run_tile<false>(plan, tile);
}
