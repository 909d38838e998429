#include "reports/record/shell.h"

#include <algorithm>
#include <filesystem>

namespace halfmark::reports {

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "-_./:=,+@%";
  const auto is_plain = [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || kPlain.find(c) != kPlain.npos;
  };
  // In zsh, a leading "=" is replaced by the path of a command.
  if (!text.empty() && text[0] != '=' && std::all_of(text.begin(), text.end(), is_plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  }
  return word + "'";
}

std::string shell_path(const std::string& path) {
  return shell_word(std::filesystem::absolute(path).lexically_normal().string());
}

}  // namespace halfmark::reports
