#include "models/files/idx.h"

#include <algorithm>
#include <limits>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

// Bytes of an element; 0: not a type.
int64_t size_of_idx(uint8_t type) {
  switch (type) {
    case static_cast<uint8_t>(IdxType::u8):
    case static_cast<uint8_t>(IdxType::i8):
      return 1;
    case static_cast<uint8_t>(IdxType::i16):
      return 2;
    case static_cast<uint8_t>(IdxType::i32):
    case static_cast<uint8_t>(IdxType::f32):
      return 4;
    case static_cast<uint8_t>(IdxType::f64):
      return 8;
    default:
      return 0;
  }
}

// "00 00 08 03"
std::string hexadecimal(Bytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += text.empty() ? "" : " ";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace

IdxArray parse_idx(Bytes file, const std::string& where, const std::optional<IdxForm>& form) {
  const auto need = [&](bool fine, const std::string& what) { HM_CHECK(fine, where + ": " + what); };
  need(file.size() < 2 || file[0] != 0x1F || file[1] != 0x8B, "is compressed with gzip; gunzip it first");
  need(file.size() >= 4, "has " + std::to_string(file.size()) + " bytes; the header of IDX alone has more");
  const std::string begins = "begins with the bytes " + hexadecimal(file.first(4));
  if (form) {
    const uint8_t wanted[] = {0, 0, static_cast<uint8_t>(form->type), form->extents};
    need(std::equal(wanted, wanted + 4, file.begin()),
         begins + ", " + std::string(form->of) + " with " + hexadecimal(wanted));
  }
  need(file[0] == 0 && file[1] == 0, begins + ", IDX with 00 00");
  const int64_t size = size_of_idx(file[2]);
  need(size > 0, begins + ", of which the third is no type of IDX");
  const size_t rank = file[3];
  need(rank >= 1 && rank <= 3, "its fourth byte says " + std::to_string(rank) + " extents; 1 to 3 are read");
  need(file.size() >= 4 + 4 * rank, "ends within its header");
  IdxArray array;
  array.type = static_cast<IdxType>(file[2]);
  int64_t bytes = size;
  for (size_t i = 0; i < rank; ++i) {
    const uint8_t* at = file.data() + 4 + 4 * i;
    const int64_t extent = int64_t{at[0]} << 24 | int64_t{at[1]} << 16 | int64_t{at[2]} << 8 | int64_t{at[3]};
    need(extent > 0, "its header says that extent " + std::to_string(i) + " of " + std::to_string(rank) + " is 0");
    need(bytes <= std::numeric_limits<int64_t>::max() / extent,
         "its header says more bytes of numbers than any file has");
    bytes *= extent;
    array.extents.push_back(extent);
  }
  array.data = file.subspan(4 + 4 * rank);
  need(static_cast<uint64_t>(bytes) == array.data.size(), "its header says " + std::to_string(bytes) +
                                                              " bytes of numbers, the file has " +
                                                              std::to_string(array.data.size()) + " after the header");
  return array;
}

}  // namespace halfmark::models
