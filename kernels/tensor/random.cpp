#include "kernels/tensor/random.h"

#include <cmath>
#include <numbers>

namespace halfmark::kernels {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  // Multipliers and Weyl increments from table 2 of the paper and from Random123.
  constexpr uint64_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kM0 * c[0], p1 = kM1 * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += kW0, k[1] += kW1;
  }
  return c;
}

namespace {
std::array<uint32_t, 4> block(uint64_t key, uint64_t counter, uint32_t domain) {
  return philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), domain, 0},
                {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}
uint64_t join(uint32_t high, uint32_t low) { return (uint64_t{high} << 32) | low; }
constexpr uint32_t kNumbers = 0, kChildren = 1;  // domains: a child's key never equals one of the parent's numbers
}  // namespace

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

RandomKey RandomKey::child(uint64_t number) const {
  const auto b = block(key_, number, kChildren);
  return RandomKey(join(b[0], b[1]));
}

RandomKey RandomKey::child(std::string_view name) const { return child(hash_of(name)); }

uint64_t RandomKey::bits(uint64_t index) const {
  const auto b = block(key_, index, kNumbers);
  return join(b[0], b[1]);
}

double RandomKey::uniform(uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }

double RandomKey::normal(uint64_t index) const {
  const auto b = block(key_, index, kNumbers);
  const double u = (static_cast<double>(join(b[0], b[1]) >> 11) + 0.5) * 0x1p-53;  // never 0
  const double v = static_cast<double>(join(b[2], b[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

uint64_t RandomKey::below(uint64_t index, uint64_t limit) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{bits(index)} * limit) >> 64);
}

}  // namespace halfmark::kernels
