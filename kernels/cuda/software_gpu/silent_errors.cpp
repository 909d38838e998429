#include "kernels/cuda/software_gpu/silent_errors.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace halfmark::kernels::software_gpu {
namespace {

// One inverted bit in each window of `window` bits, at a uniformly drawn place.
struct SilentErrors {
  uint64_t window = 0, passed = 0, at = 0, random = 0, inverted = 0;

  uint64_t draw() {  // splitmix64
    uint64_t z = random += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  void start(uint64_t bits) {
    *this = {};
    window = bits;
    if (window) at = draw() % window;
  }
};

SilentErrors& errors() {
  static SilentErrors all = [] {
    SilentErrors made;
    const char* text = std::getenv("HALFMARK_SOFTWARE_GPU_FLIP");
    if (!text) return made;
    const std::string number = text;
    if (number.empty() || number.size() > 18 || number.find_first_not_of("0123456789") != std::string::npos)
      throw std::runtime_error("HALFMARK_SOFTWARE_GPU_FLIP: '" + number + "' is not a number of bits");
    made.start(std::stoull(number));
    return made;
  }();
  return all;
}

}  // namespace

void invert_one_bit_in(uint64_t bits) { errors().start(bits); }
bool inverts_bits() { return errors().window != 0; }
uint64_t inverted_bits() { return errors().inverted; }

uint64_t with_silent_errors(uint64_t code, int bits) {
  SilentErrors& e = errors();
  if (!e.window) return code;
  const auto width = static_cast<uint64_t>(bits);
  for (uint64_t bit = 0; bit < width; ++bit) {
    if (e.passed == e.at) code ^= uint64_t{1} << bit, ++e.inverted;
    if (++e.passed == e.window) e.passed = 0, e.at = e.draw() % e.window;
  }
  return code;
}

}  // namespace halfmark::kernels::software_gpu
