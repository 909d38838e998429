// The conversion between plain and nhwc images: bytes are copied without decoding.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "kernels/cpu/host/host.h"

namespace halfmark::kernels::host {
namespace {

Refusal refuses(const Device&, const Reorder& op) {
  if (op.x.layout() == Layout::opaque || op.out.layout() == Layout::opaque)
    return "only its library can convert an opaque layout";
  if (is_packed(op.x.dtype())) return "copies whole bytes, and " + std::string(name_of(op.x.dtype())) + " is packed";
  return {};
}

// Transposes rows x columns to columns x rows in tiles that fit the first-level cache.
template <class Word>
void transpose(const Word* from, Word* to, int64_t rows, int64_t columns) {
  constexpr int64_t kTile = 32;
  for (int64_t i = 0; i < rows; i += kTile)
    for (int64_t j = 0; j < columns; j += kTile)
      for (int64_t q = j; q < std::min(j + kTile, columns); ++q)
        for (int64_t p = i; p < std::min(i + kTile, rows); ++p) to[q * rows + p] = from[p * columns + q];
}

template <class Word>
void transpose_images(const Tensor& x, Tensor& out) {
  const Shape& s = x.shape();
  const int64_t pixels = s[2] * s[3], image = s[1] * pixels;
  const bool to_nhwc = x.layout() == Layout::plain;
  parallel_for(s[0], std::max<int64_t>(1, kGrain / std::max<int64_t>(image, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      transpose(x.as<Word>() + n * image, out.as<Word>() + n * image, to_nhwc ? s[1] : pixels, to_nhwc ? pixels : s[1]);
  });
}

void run(Device&, const Reorder& op) {
  op.out.materialize(Layout::plain);
  if (op.x.layout() == op.out.layout()) {
    if (op.x.bytes()) std::memcpy(op.out.data(), op.x.data(), op.x.bytes());
    return;
  }
  switch (size_of(op.x.dtype())) {
    case 1:
      return transpose_images<uint8_t>(op.x, op.out);
    case 2:
      return transpose_images<uint16_t>(op.x, op.out);
    case 4:
      return transpose_images<uint32_t>(op.x, op.out);
    case 8:
      return transpose_images<uint64_t>(op.x, op.out);
    default:
      throw Error("no reorder of elements of " + std::to_string(size_of(op.x.dtype())) + " bytes");
  }
}

}  // namespace

void add_reorders(KernelTable& table) {
  table.of<Reorder>().push_back({"host", Speed::real, refuses, run, Repeats::by_construction});
}

}  // namespace halfmark::kernels::host
