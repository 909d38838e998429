#include "reports/outputs/clean.h"

#include <fmt/format.h>

#include <cstdint>

namespace halfmark::reports {

namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// Markup characters become numeric references, which are always plain text. That holds for "|" too, because Markdown
// splits the columns of a table before it decodes references.
std::string without_markup(std::string_view given, bool code) {
  static constexpr std::string_view kMarkup = "|<>&`*~[]\\$#!";
  const std::string text = printable(given);
  const auto follows = [&](size_t i, std::string_view part) { return text.compare(i, part.size(), part) == 0; };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // An underscore inside a word is plain text; elsewhere two of them make the text between them italic.
    const bool inside_word =
        i > 0 && i + 1 < text.size() && is_alphanumeric(text[i - 1]) && is_alphanumeric(text[i + 1]);
    const bool makes_link = follows(i, "://") || (c == '.' && i >= 3 && follows(i - 3, "www"));
    if (kMarkup.find(c) != kMarkup.npos || (c == '_' && !inside_word) || makes_link)
      result += fmt::format("&#{};", static_cast<int>(c));
    else
      result += c;
    // GitHub looks for mentions and addresses after it has decoded the references. A word joiner prevents that. Code is
    // copied from the page, so there an HTML comment is used, which is not shown.
    if (c == '@') result += code ? "<!-- -->" : "&#8288;";
  }
  return result;
}

std::string percent_escaped(std::string_view given, std::string_view characters) {
  std::string result;
  for (const char c : valid_utf8(given)) {
    if (characters.find(c) != characters.npos)
      result += fmt::format("%{:02X}", static_cast<int>(c));
    else
      result += c;
  }
  return result;
}

}  // namespace

std::string xml_characters(std::string_view text) {
  std::string result;
  each_character(valid_utf8(text), [&](uint32_t code, std::string_view bytes) {
    const bool keeps_lines = code == '\t' || code == '\n' || code == '\r';
    const bool gone = is_control(code) || turns_direction(code) || code == 0xFFFE || code == 0xFFFF;
    result += keeps_lines ? bytes : is_blank(code) ? " " : gone ? kReplacement : bytes;
  });
  return result;
}

std::string markdown_text(std::string_view text) { return without_markup(text, false); }

std::string markdown_code(std::string_view text) {
  return text.empty() ? "" : "<code>" + without_markup(text, true) + "</code>";
}

std::string workflow_message(std::string_view text) { return percent_escaped(text, "%\r\n"); }

std::string workflow_property(std::string_view text) { return percent_escaped(text, "%\r\n:,"); }

std::string middle_cut(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  size_t head = bytes / 2, tail = text.size() - (bytes - head);
  while (head > 0 && continues(text[head])) --head;
  while (tail < text.size() && continues(text[tail])) ++tail;
  return fmt::format("{} .. {}", text.substr(0, head), text.substr(tail));
}

std::string short_name(std::string_view given, size_t bytes) {
  std::string name = valid_utf8(given);
  if (name.size() <= bytes) return name;
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{}#{:016x}", middle_cut(name, bytes - 24), hash);
}

}  // namespace halfmark::reports
