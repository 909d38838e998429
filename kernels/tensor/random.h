// Counter-based random numbers: value i of a key is a pure function, so the same seed gives the same numbers on every
// machine, in any order and with any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace halfmark::kernels {

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

uint64_t hash_of(std::string_view text);  // FNV-1a with 64 bits

class RandomKey {
 public:
  explicit RandomKey(uint64_t seed = 0) : key_(seed) {}
  RandomKey child(uint64_t number) const;        // an independent stream
  RandomKey child(std::string_view name) const;  // the same, by name

  uint64_t bits(uint64_t index) const;                   // 64 uniform bits
  double uniform(uint64_t index) const;                  // [0, 1), a multiple of 2^-53
  double normal(uint64_t index) const;                   // mean 0, variance 1 (Box-Muller)
  uint64_t below(uint64_t index, uint64_t limit) const;  // 0 .. limit - 1
  uint64_t value() const { return key_; }

 private:
  uint64_t key_;
};

}  // namespace halfmark::kernels
