#include "reports/record/printable.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace halfmark::reports {

std::string valid_utf8(std::string_view text) {
  // The JSON library replaces invalid bytes while it writes.
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  return nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, kReplace)).get<std::string>();
}

bool is_blank(uint32_t code) {
  return code == '\t' || code == '\n' || code == '\r' || code == 0x2028 || code == 0x2029;
}

bool is_control(uint32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

bool turns_direction(uint32_t code) {
  return code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string printable(std::string_view text) {
  // Nearly every text is plain ASCII, and a report contains millions.
  const auto is_plain = [](unsigned char c) { return c >= ' ' && c < 0x7F; };
  if (std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string result;
  each_character(valid_utf8(text), [&](uint32_t code, std::string_view bytes) {
    result += is_blank(code) ? " " : is_control(code) || turns_direction(code) ? kReplacement : bytes;
  });
  return result;
}

std::string printable_lines(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (end != text.npos && line.ends_with('\r')) line.remove_suffix(1);  // "\r\n" of CSV
    result += printable(line);
    if (end != text.npos) result += '\n';
  }
  return result;
}

}  // namespace halfmark::reports
