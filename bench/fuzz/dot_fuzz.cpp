// Fuzzes the vectors of `halfmark dot`; the first byte chooses types and instruction.
#include <array>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>

#include "bench/vectors/dot_vectors.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfmark::bench;
  static const std::shared_ptr<Device> device = open_device("sim:blackwell");
  static const DotQuestion questions[] = {
      {"f16", "f16", "f32", "f32"},
      {"bf16", "bf16", "f32", "f32", MatrixInstruction::tcgen05_k16},
      {"e4m3", "e5m2", "f32", "f32", MatrixInstruction::tcgen05_k32},
      {"e2m1", "e2m1", "f32", "f32", MatrixInstruction::tcgen05_k64, "ue4m3", 16},
      {"e4m3", "e4m3", "f32", "f32", MatrixInstruction::tcgen05_k32, "ue8m0", 32},
      {"f64", "f64", "f64", "f64"},
  };
  if (size == 0) return 0;
  std::istringstream in(std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  std::ostringstream out;
  try {
    answer_dots(in, out, *device, questions[data[0] % std::size(questions)]);
  } catch (const Error&) {
  }
  return 0;
}
