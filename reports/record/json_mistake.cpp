#include "reports/record/json_mistake.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/record/printable.h"

namespace halfmark::reports {

namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool is_of_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-' ||
         c == '.' || c == '_';
}

// The parser stops at a character of the token that does not belong: after a string or word, or within one that is none.
size_t begin_of_token(std::string_view text, size_t stopped) {
  if (stopped >= text.size()) return text.size() - 1;
  if (text[stopped] == '"') {
    const size_t opened = stopped == 0 ? text.npos : text.find_last_of("\"\n", stopped - 1);
    return opened == text.npos || text[opened] == '\n' ? stopped : opened;
  }
  size_t begin = stopped;
  while (begin > 0 && is_of_word(text[begin]) && is_of_word(text[begin - 1])) --begin;
  return begin;
}

std::string short_token(std::string_view text) {
  constexpr size_t kLongest = 20;
  size_t size = 1;
  if (text[0] == '"')
    size = std::min(text.find_first_of("\"\n", 1), text.size() - 1) + 1;
  else if (is_of_word(text[0]))
    while (size < text.size() && is_of_word(text[size])) ++size;
  return printable(text.substr(0, std::min(size, kLongest))) + (size > kLongest ? "..." : "");
}

// What people type that JSON does not have, and what they forget; empty: none of it.
std::string_view likely_mistake(std::string_view text, size_t begin) {
  const size_t last = begin == 0 ? text.npos : text.find_last_not_of(kSpaces, begin - 1);
  const char before = last == text.npos ? '\0' : text[last];
  switch (text[begin]) {
    case '\'':
      return " (JSON has words in double quotes)";
    case '/':
    case '#':
      return " (JSON has no comments)";
    case '}':
    case ']':
      if (before == ',') return " (JSON has no comma after the last element)";
      break;
    case 'T':
    case 'F':
    case 'N':
      return " (JSON writes true, false and null in small letters)";
    default:
      break;
  }
  const bool begins_value = text[begin] == '"' || text[begin] == '{' || text[begin] == '[' || is_of_word(text[begin]);
  const bool ends_value = before == '"' || before == '}' || before == ']' || is_of_word(before);
  return begins_value && ends_value ? " (is a comma missing before it?)" : "";
}

}  // namespace

size_t line_at(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

size_t line_of_key(std::string_view text, size_t number) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '"') continue;
    const size_t begin = at;
    for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
    const size_t next = text.find_first_not_of(kSpaces, std::min(at + 1, text.size()));
    if (next != text.npos && text[next] == ':' && number-- == 0) return line_at(text, begin + 1);
  }
  return line_at(text, text.size());
}

std::string place_of_mistake(std::string_view text, size_t byte) {
  const size_t begin = begin_of_token(text, byte == 0 ? 0 : byte - 1);
  const size_t line_end = begin == 0 ? text.npos : text.rfind('\n', begin - 1);
  const size_t column = begin - (line_end == text.npos ? 0 : line_end + 1) + 1;
  return fmt::format("at line {}, column {}, where {} begins{}", line_at(text, begin + 1), column,
                     short_token(text.substr(begin)), likely_mistake(text, begin));
}

}  // namespace halfmark::reports
