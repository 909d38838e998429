#include "bench/commands/matmul_shape.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <system_error>

#include "kernels/number/error.h"

namespace halfmark::bench {

probe::MatmulShape matmul_shape_named(const std::string& text) {
  probe::MatmulShape shape;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int64_t* extent : {&shape.m, &shape.n, &shape.k}) {
    const auto [next, error] = std::from_chars(at, end, *extent);
    const bool last = extent == &shape.k;
    if (error != std::errc() || *extent < 1 || (last ? next != end : next == end || *next != 'x'))
      throw Error(fmt::format("--shape '{}': write MxNxK, as in 32x32x64", text));
    at = next + 1;
  }
  return shape;
}

}  // namespace halfmark::bench
