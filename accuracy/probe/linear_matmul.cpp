#include "accuracy/probe/linear_matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::accuracy::probe {

MatmulShape matmul_of(const Subject& linear) {
  HM_CHECK(linear.name == "linear", fmt::format("{}: only a linear layer is one matmul", linear.id()));
  const auto size = [&](char letter) -> int64_t {
    const std::string& sizes = linear.sizes;  // "b32_i64_o32"
    for (size_t at = 0; at < sizes.size(); at = std::min(sizes.find('_', at), sizes.size() - 1) + 1)
      if (sizes[at] == letter) return std::stoll(sizes.substr(at + 1));
    throw Error(fmt::format("{} has no size {}", linear.id(), letter));
  };
  return {size('b'), size('o'), size('i')};
}

}  // namespace halfmark::accuracy::probe
