// Files as bytes, and the names of what a folder holds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/namespaces.h"

namespace halfmark::models {

using Bytes = std::span<const uint8_t>;

inline constexpr int64_t kMostFileBytes = int64_t{4} << 30;  // of a file that is read as a whole

// The whole file. Throws Error, naming the file: it is no regular file, cannot be read, or is larger than `most` bytes.
std::vector<uint8_t> read_bytes(const std::filesystem::path& path, int64_t most = kMostFileBytes);

std::string hex_of(uint64_t hash);
// Over what each was added as, in this order: name, size, contents.
class FileHash {
 public:
  void add(std::string_view name, Bytes contents);
  void add(std::string_view name, uint64_t size);
  std::string text() const { return hex_of(hash_); }

 private:
  void mix(std::string_view text);
  uint64_t hash_ = 0xCBF29CE484222325u;  // FNV-1a with 64 bits, as of hash_of
};

// "a, b, c and 12 more": the names in a folder, for messages.
std::string listing_of(const std::filesystem::path& folder);
// The last part of a path, also of one that ends in a slash.
std::string own_name(const std::filesystem::path& path);

}  // namespace halfmark::models
