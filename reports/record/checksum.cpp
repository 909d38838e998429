#include "reports/record/checksum.h"

#include <fmt/format.h>

#include <cstdint>

namespace halfmark::reports {

namespace {

// 1 and 1.0 are one number, and so are 1.8014398509481984e+16 and its digits: some programs write a report again with the other
// form. Every number of a record is a double.
void make_numbers_alike(nlohmann::json& json) {
  if (json.is_structured())
    for (auto& one : json) make_numbers_alike(one);
  else if (json.is_number_integer())
    json = json.get<double>();
}

}  // namespace

std::string checksum_of(const nlohmann::ordered_json& record) {
  nlohmann::json sorted = record;  // by names
  for (const char* left_out : {"checksum", "lint"}) sorted.erase(left_out);
  make_numbers_alike(sorted);
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : sorted.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return fmt::format("{:016x}", hash);
}

}  // namespace halfmark::reports
