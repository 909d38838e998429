// Quoted words, read back by a shell.
#include "reports/record/shell.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

namespace halfmark::reports {
namespace {

// The arguments that `sh -c` passes to a command, each ended by a zero byte.
std::string words_seen_by_sh(const std::string& words) {
  const std::string script = "printf '%s\\0' " + words;
  std::string quoted = "'";  // by a different rule than the tested one: every byte as an octal number
  for (const unsigned char c : script) {
    char octal[8];
    std::snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned>(c));
    quoted += octal;
  }
  std::string seen;
  FILE* const pipe = ::popen(("printf " + quoted + "' | sh").c_str(), "r");
  if (!pipe) return "no shell";
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) seen += static_cast<char>(c);
  ::pclose(pipe);
  return seen;
}

TEST(ShellWord, IsReadBackByAShellAsItWas) {
  std::vector<std::string> texts = {"mlp/b8_i16/cpu/fp16/error/eval=half",
                                    "",
                                    "two words",
                                    " ",
                                    "it's",
                                    "''",
                                    "'",
                                    "amp-*",
                                    "~",
                                    "~root",
                                    "$HOME",
                                    "$(echo no)",
                                    "`echo no`",
                                    "a;b",
                                    "a&b",
                                    "a|b",
                                    "<a>",
                                    "\\",
                                    "\\'",
                                    "\"",
                                    "#no",
                                    "!1",
                                    "{a,b}",
                                    "[ab]",
                                    "two\nlines",
                                    "tab\tbed",
                                    "=ls",
                                    "-n",
                                    "caf\xC3\xA9"};
  for (int c = 1; c < 256; ++c) texts.push_back(std::string("x") + static_cast<char>(c));
  std::string words, expected;
  for (const std::string& text : texts) {
    words += " " + shell_word(text);
    expected += text + '\0';
  }
  EXPECT_EQ(words_seen_by_sh(words), expected);
}

TEST(ShellWord, LeavesAnIdAsItIs) {
  EXPECT_EQ(shell_word("mlp/b8_i16_h24_o10/sim:hopper/amp-fp16/error/eval=half"),
            "mlp/b8_i16_h24_o10/sim:hopper/amp-fp16/error/eval=half");
  EXPECT_EQ(shell_word("amp-*"), "'amp-*'");
  EXPECT_EQ(shell_word("a!1"), "'a!1'") << "a shell with a history would put a command there";
  EXPECT_EQ(shell_word("=ls"), "'=ls'") << "zsh would put the path of ls there";
}

}  // namespace
}  // namespace halfmark::reports
