#include "reports/record/checksum.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace halfmark::reports {

namespace {

// 1 and 1.0 are one number: some programs write a report again with the shorter form.
void make_numbers_alike(nlohmann::json& json) {
  constexpr double kExact = 0x1p53;
  if (json.is_structured())
    for (auto& one : json) make_numbers_alike(one);
  else if (json.is_number_integer() && std::fabs(json.get<double>()) <= kExact)
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
