// The noise of stochastic rounding, one block at a time: the definition that the loops with AES instructions follow.
//
// It is ARS with five rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): the
// AES round function with a Weyl sequence as keys, a pure function of counter and key. Five is the smallest number of
// rounds that the authors found Crush-resistant: no failure in TestU01's SmallCrush, Crush and BigCrush. That includes
// interleaved streams of neighbouring counters and keys, which is how it is used here. It is not a cipher.
// One instruction computes one round for four elements in a 128-bit register, or sixteen in a 512-bit one. Philox with
// seven rounds, of equal quality, took four times the instructions and halved the speed of rounding to bf16.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/number/convert.h"

namespace halfmark::kernels::convert_detail {

inline constexpr size_t kBlockWords = 4;  // 32-bit words per block, one for each element
inline constexpr int kNoiseRounds = 5;
inline constexpr uint64_t kWeylLow = 0x9E3779B97F4A7C15, kWeylHigh = 0xBB67AE8584CAA73B;  // Random123, ars.h

using Bytes = std::array<uint8_t, 16>;

// FIPS 197, section 5.1.1: the inverse in GF(2^8) and an affine map.
// p runs through the powers of 3, q through those of its inverse.
constexpr std::array<uint8_t, 256> aes_substitution() {
  std::array<uint8_t, 256> table{};
  uint8_t p = 1, q = 1;
  do {
    p = static_cast<uint8_t>(p ^ (p << 1) ^ (p & 0x80 ? 0x1B : 0));
    for (const int shift : {1, 2, 4}) q = static_cast<uint8_t>(q ^ (q << shift));
    if (q & 0x80) q ^= 0x09;
    table[p] = static_cast<uint8_t>(q ^ std::rotl(q, 1) ^ std::rotl(q, 2) ^ std::rotl(q, 3) ^ std::rotl(q, 4) ^ 0x63);
  } while (p != 1);
  table[0] = 0x63;
  return table;
}
inline constexpr std::array<uint8_t, 256> kAesSubstitution = aes_substitution();

// ShiftRows and SubBytes, and MixColumns in all rounds but the last; byte r + 4 c is in row r, column c (FIPS 197).
constexpr Bytes aes_round(const Bytes& state, bool last) {
  Bytes mixed{};
  for (size_t c = 0; c < 4; ++c) {
    std::array<uint8_t, 4> s{};
    for (size_t r = 0; r < 4; ++r) s[r] = kAesSubstitution[state[r + 4 * ((c + r) % 4)]];
    const auto all = static_cast<uint8_t>(s[0] ^ s[1] ^ s[2] ^ s[3]);
    for (size_t r = 0; r < 4; ++r) {
      const auto pair = static_cast<uint8_t>(s[r] ^ s[(r + 1) % 4]);
      const auto twice = static_cast<uint8_t>((pair << 1) ^ (pair & 0x80 ? 0x1B : 0));
      mixed[r + 4 * c] = static_cast<uint8_t>(last ? s[r] : s[r] ^ twice ^ all);
    }
  }
  return mixed;
}

// 128 bits as two words, low first, to 128 bits.
constexpr std::array<uint64_t, 2> ars(std::array<uint64_t, 2> counter, std::array<uint64_t, 2> key, int rounds) {
  std::array<uint64_t, 2> state{counter[0] ^ key[0], counter[1] ^ key[1]};
  for (int round = 1; round <= rounds; ++round) {
    key[0] += kWeylLow, key[1] += kWeylHigh;
    state = std::bit_cast<std::array<uint64_t, 2>>(aes_round(std::bit_cast<Bytes>(state), round == rounds));
    state[0] ^= key[0], state[1] ^= key[1];
  }
  return state;
}

// Words 4 `block` to 4 `block` + 3 of the stream: counter (block, 0), key (seed, 0).
constexpr std::array<uint32_t, kBlockWords> noise_block(uint64_t seed, uint64_t block) {
  return std::bit_cast<std::array<uint32_t, kBlockWords>>(ars({block, 0}, {seed, 0}, kNoiseRounds));
}

}  // namespace halfmark::kernels::convert_detail
