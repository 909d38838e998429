#include "models/files/bytes.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "kernels/number/error.h"

namespace halfmark::models {

std::vector<uint8_t> read_bytes(const std::filesystem::path& path, int64_t most) {
  std::error_code error;
  HM_CHECK(std::filesystem::exists(path, error), path.string() + ": no such file");
  HM_CHECK(std::filesystem::is_regular_file(path, error), path.string() + ": is not a file");
  const uintmax_t size = std::filesystem::file_size(path, error);
  HM_CHECK(!error, path.string() + ": " + error.message());
  HM_CHECK(size <= static_cast<uintmax_t>(most),
           path.string() + ": has " + std::to_string(size) + " bytes; at most " + std::to_string(most) + " are read");
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  HM_CHECK(in && static_cast<uintmax_t>(in.gcount()) == size, path.string() + ": cannot be read");
  return bytes;
}

std::string hex_of(uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash);
  return digits;
}

void FileHash::mix(std::string_view text) {
  for (const char c : text) hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
}
void FileHash::add(std::string_view name, uint64_t size) {
  mix(name), mix(std::string_view("\0", 1)), mix(std::to_string(size)), mix("\n");
}
void FileHash::add(std::string_view name, Bytes contents) {
  add(name, contents.size());
  mix({reinterpret_cast<const char*>(contents.data()), contents.size()});
}

std::string listing_of(const std::filesystem::path& folder) {
  constexpr size_t kShown = 6;
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (names.empty()) return error ? "what cannot be read: " + error.message() : "nothing";
  std::sort(names.begin(), names.end());
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

std::string own_name(const std::filesystem::path& path) {
  const std::filesystem::path plain = std::filesystem::absolute(path).lexically_normal();
  return plain.has_filename() ? plain.filename().string() : plain.parent_path().filename().string();
}

}  // namespace halfmark::models
