// Fuzzes the vectors of `halfmark convert` and `halfmark arithmetic`; the first byte chooses types and operation.
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include "bench/vectors/scalar_vectors.h"
#include "kernels/number/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfmark::bench;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  const uint8_t choice = data[0];
  std::ostringstream out;
  try {
    std::istringstream in(text);
    const auto& all = operations();
    answer_arithmetic(in, out, choice & 1 ? kFp16 : kBf16, all[(choice >> 1) % all.size()].operation,
                      choice & 128 ? Rounding::toward_zero : Rounding::near_even);
  } catch (const Error&) {
  }
  try {
    std::istringstream in(text);
    const auto types = dtypes();
    const std::string_view from = name_of(types[choice % types.size()]),
                           to = name_of(types[(choice / 16) % types.size()]);
    answer_convert(in, out, vector_type_named(from), vector_type_named(to), Rounding::near_even,
                   Overflow::format_default);
  } catch (const Error&) {
  }
  return 0;
}
