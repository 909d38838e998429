// The noise of stochastic rounding on the device, with the bits of number/convert_noise.h, which defines it: the AES round
// function by a table, as FIPS 197 and "The Design of Rijndael", section 4.2, describe it.
#pragma once

#include <cstdint>

namespace halfmark::kernels::cuda {

// Rounds and the sequence of keys: Random123, ars.h.
constexpr int kArsRounds = 5;
constexpr uint64_t kArsLow = 0x9E3779B97F4A7C15, kArsHigh = 0xBB67AE8584CAA73B;

struct AesBytes {
  uint8_t bytes[256];
};
constexpr uint32_t aes_product(uint32_t a, uint32_t b) {  // in GF(2^8)
  uint32_t product = 0;
  for (; b != 0; b >>= 1, a = (a << 1) ^ (a & 0x80 ? 0x11b : 0)) product ^= b & 1 ? a : 0;
  return product;
}
// FIPS 197, section 5.1.1: the inverse, which is the 254th power, and an affine map.
constexpr AesBytes aes_substitution() {
  AesBytes table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t power = i, inverse = 1;
    for (int bit = 1; bit < 8; ++bit) power = aes_product(power, power), inverse = aes_product(inverse, power);
    uint32_t sum = inverse;
    for (int shift = 1; shift < 5; ++shift) sum ^= inverse << shift | inverse >> (8 - shift);
    table.bytes[i] = static_cast<uint8_t>((sum & 0xff) ^ 0x63);
  }
  return table;
}
__device__ const AesBytes kAesBytes = aes_substitution();

// Entry x is what byte x of row 0 adds to its column, after SubBytes and MixColumns. Call before a barrier.
__device__ inline void fill_aes_table(uint32_t* table) {
  for (uint32_t i = threadIdx.x; i < 256; i += blockDim.x) {
    const uint32_t s = kAesBytes.bytes[i], twice = ((s << 1) ^ (s & 0x80 ? 0x1b : 0)) & 0xff;
    table[i] = twice | s << 8 | s << 16 | (s ^ twice) << 24;
  }
}

struct NoiseWords {  // four, in order
  uint32_t a, b, c, d;
  __device__ uint32_t operator[](uint32_t i) const { return i < 2 ? (i == 0 ? a : b) : (i == 2 ? c : d); }
};

__device__ __forceinline__ uint32_t rotated(uint32_t x, int bits) { return __funnelshift_l(x, x, bits); }

// Words 4 `block` to 4 `block` + 3 of the stream `seed`. Table: fill_aes_table(), in shared memory.
__device__ inline NoiseWords noise_words(const uint32_t* table, uint64_t seed, uint64_t block) {
  uint64_t low_key = seed, high_key = 0;
  uint64_t low = block ^ low_key, high = 0;
  for (int round = 1; round <= kArsRounds; ++round) {
    low_key += kArsLow, high_key += kArsHigh;
    const uint32_t c0 = static_cast<uint32_t>(low), c1 = static_cast<uint32_t>(low >> 32);
    const uint32_t c2 = static_cast<uint32_t>(high), c3 = static_cast<uint32_t>(high >> 32);
    const bool last = round == kArsRounds;
    // Of the columns that the rows of one new column come from.
    const auto column = [&](uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
      const uint32_t t0 = table[r0 & 0xff], t1 = table[r1 >> 8 & 0xff], t2 = table[r2 >> 16 & 0xff],
                     t3 = table[r3 >> 24];
      // The last round has no MixColumns: the plain byte is the second of an entry.
      if (last) return (t0 >> 8 & 0xff) | (t1 & 0xff00) | (t2 << 8 & 0xff0000) | (t3 << 16 & 0xff000000);
      return t0 ^ rotated(t1, 8) ^ rotated(t2, 16) ^ rotated(t3, 24);
    };
    const uint32_t d0 = column(c0, c1, c2, c3), d1 = column(c1, c2, c3, c0), d2 = column(c2, c3, c0, c1),
                   d3 = column(c3, c0, c1, c2);
    low = (d0 | static_cast<uint64_t>(d1) << 32) ^ low_key;
    high = (d2 | static_cast<uint64_t>(d3) << 32) ^ high_key;
  }
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
          static_cast<uint32_t>(high >> 32)};
}

// As rounding_noise() of number/convert.h, which takes element `index` from the words of its block.
__device__ __forceinline__ uint64_t noise_of(const NoiseWords& words, uint64_t index) {
  const uint32_t place = static_cast<uint32_t>(index) & 3;
  return static_cast<uint64_t>(words[place]) << 32 | words[place ^ 1];
}

}  // namespace halfmark::kernels::cuda
