// Fuzzes the readers of CIFAR-10 and CIFAR-100.
#include <cstddef>
#include <cstdint>

#include "kernels/number/error.h"
#include "models/files/image_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfmark::models;
  for (const Cifar variant : {Cifar::ten, Cifar::hundred}) {
    ImageTable table;
    try {
      add_cifar(variant, {data, size}, "file", table);
    } catch (const Error&) {
    }
  }
  return 0;
}
