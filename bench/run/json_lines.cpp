#include "bench/run/json_lines.h"

#include <algorithm>

namespace halfmark::bench {

JsonLines::JsonLines(std::string_view text, const Json& root) {
  constexpr std::string_view kBlank = " \t\r\n", kBetween = " \t\r\n,:]}";
  std::vector<size_t> lines;  // of the values in the order of the text
  size_t line = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      ++line;
    } else if (c == '"') {
      for (++i; text[i] != '"'; ++i)  // a string has no line breaks
        if (text[i] == '\\') ++i;
      const size_t next = text.find_first_not_of(kBlank, i + 1);
      const bool is_key = next != text.npos && text[next] == ':';
      if (!is_key) lines.push_back(line);
    } else if (c == '{' || c == '[') {
      lines.push_back(line);
    } else if (kBetween.find(c) == kBetween.npos) {  // a number or a word
      lines.push_back(line);
      i = std::min(text.find_first_of(kBetween, i), text.size()) - 1;
    }
  }
  size_t next = 0;
  visit(root, lines, next);
}

size_t JsonLines::of(const Json& value) const {
  const auto found = lines_.find(&value);
  return found == lines_.end() ? 0 : found->second;
}

void JsonLines::visit(const Json& value, const std::vector<size_t>& lines, size_t& next) {
  lines_[&value] = lines.at(next++);
  if (value.is_structured())
    for (const Json& inner : value) visit(inner, lines, next);
}

}  // namespace halfmark::bench
