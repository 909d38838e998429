// The IDX format of MNIST (http://yann.lecun.com/exdb/mnist): an array of numbers with its extents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/bytes.h"
#include "models/namespaces.h"

namespace halfmark::models {

// The third byte of a file; 0x0A is not assigned.
enum class IdxType : uint8_t { u8 = 0x08, i8 = 0x09, i16 = 0x0B, i32 = 0x0C, f32 = 0x0D, f64 = 0x0E };

struct IdxArray {
  IdxType type = IdxType::u8;
  std::vector<int64_t> extents;  // 1 to 3
  Bytes data;                    // part of the file; elements of more than one byte are big-endian
};

// What a file must hold. Its first four bytes say so: 00 00, the type, the number of extents.
struct IdxForm {
  IdxType type;
  uint8_t extents;
  std::string_view of;  // "images of MNIST", for messages
};

// `where` is the file's name in messages. Throws Error that says what is wrong: gzip, another format, other first bytes than
// those of `form`, a size that is not that of the header.
IdxArray parse_idx(Bytes file, const std::string& where, const std::optional<IdxForm>& form = {});

}  // namespace halfmark::models
