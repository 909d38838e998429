// Strings of files and command lines, made safe to print.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace halfmark::reports {

// U+FFFD, the replacement for characters that cannot be shown.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes that are not UTF-8 become U+FFFD.
std::string valid_utf8(std::string_view text);

// Calls visit(code point, bytes of the character) for each character of valid UTF-8.
template <class Visit>
void each_character(std::string_view text, const Visit& visit) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    const auto lead = static_cast<unsigned char>(text[begin]);
    uint32_t code = lead < 0x80 ? lead : lead & (0x7Fu >> (end - begin));
    for (size_t i = begin + 1; i < end; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
    visit(code, text.substr(begin, end - begin));
    begin = end;
  }
}

bool is_blank(uint32_t code);         // tab, line ends, line and paragraph separators
bool is_control(uint32_t code);       // C0, DEL, C1
bool turns_direction(uint32_t code);  // marks, embeddings, overrides and isolates of bidirectional text

// Valid UTF-8 on one line, because a report of unknown origin must not control the terminal. Line ends and tabs become
// spaces; other control characters, and those that change the text direction, become U+FFFD.
std::string printable(std::string_view text);

// The same for each line; line ends stay.
std::string printable_lines(std::string_view text);

}  // namespace halfmark::reports
