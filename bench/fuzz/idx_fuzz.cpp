// Fuzzes the reader of MNIST: the bytes are first the images and then the labels.
#include <cstddef>
#include <cstdint>

#include "kernels/number/error.h"
#include "models/files/image_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfmark::models;
  static const uint8_t kLabels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 7},
                       kImages[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 9, 8};
  try {
    mnist_table({data, size}, "images", kLabels, "labels");
  } catch (const Error&) {
  }
  try {
    mnist_table(kImages, "images", {data, size}, "labels");
  } catch (const Error&) {
  }
  return 0;
}
