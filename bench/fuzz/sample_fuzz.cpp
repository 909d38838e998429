// Fuzzes the parser of a build's answers to `halfmark ab`.
#include <cstdint>

#include "bench/ab/sampler.h"
#include "kernels/number/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    halfmark::bench::sample_of({reinterpret_cast<const char*>(data), size});
  } catch (const halfmark::kernels::Error&) {
  }
  return 0;
}
