// Fuzzes the reader of JPEG files.
#include <cstddef>
#include <cstdint>

#include "kernels/number/error.h"
#include "models/files/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfmark::models;
  constexpr int64_t kMost = 1 << 20;  // pixels: larger pictures only take longer
  try {
    decode_jpeg({data, size}, "file", kMost);
  } catch (const Error&) {
  }
  return 0;
}
