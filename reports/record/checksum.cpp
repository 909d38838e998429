#include "reports/record/checksum.h"

#include <fmt/format.h>

#include <cstdint>

namespace halfmark::reports {

std::string checksum_of(const nlohmann::ordered_json& record) {
  nlohmann::json sorted = record;  // by names
  for (const char* left_out : {"checksum", "lint"}) sorted.erase(left_out);
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : sorted.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return fmt::format("{:016x}", hash);
}

}  // namespace halfmark::reports
