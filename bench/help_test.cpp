// Tests of --help: README has the same list of commands, and every example works.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <wordexp.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/program.h"
#include "bench/run/program_testing.h"
#include "models/families.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

std::vector<CommandAbout> listed_commands() {
  Program unused;
  return command_line(unused).commands();
}

// Reads an example as a shell and the program would; does not run it.
void parse_example(const std::string& line) {
  wordexp_t words{};
  const std::string arguments = line.substr(0, line.find(" < "));
  // Unquoted special characters of the shell make wordexp fail: examples must quote them.
  ASSERT_EQ(::wordexp(arguments.c_str(), &words, WRDE_NOCMD), 0) << line;
  Program program;
  CommandLine parser = command_line(program);
  EXPECT_NO_THROW(parser.read(static_cast<int>(words.we_wordc), words.we_wordv)) << line;
  ::wordfree(&words);
}

TEST(Help, HasExamplesForEveryCommandThatParse) {
  for (const CommandAbout& command : listed_commands()) {
    EXPECT_GE(command.examples.size(), 2u) << command.name;
    EXPECT_LE(command.examples.size(), 4u) << command.name;
    for (const std::string& line : command.examples) {
      EXPECT_TRUE(line.starts_with("halfmark " + command.name)) << line;
      parse_example(line);
    }
  }
}

class HelpTest : public ProcessTest {
 protected:
  static constexpr const char* kReports[] = {"report.json", "base.json", "new.json", "a100.json", "h100.json"};

  // Creates the files that examples name.
  void make_samples() {
    ASSERT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear/b4_i16_o8 mlp convnet fp16 amp-fp16 "
                       "error range -o report.json")
                  .code,
              0);
    for (const char* name : kReports)
      if (std::string(name) != "report.json") std::filesystem::copy_file(folder_ / "report.json", folder_ / name);
    std::filesystem::create_directory(folder_ / "store");
    std::filesystem::copy_file(folder_ / "report.json", folder_ / "store" / "report.json");
    for (const char* part : {"1", "2"})
      ASSERT_EQ(halfmark(fmt::format("run --no-probes --suite smoke --device cpu linear error --shard {}/2 -o {}.json",
                                     part, part))
                    .code,
                0);
    std::ofstream(folder_ / "dot.csv") << "a,b,c\n3c00400000000000,3c00400000000000,3f800000\n";
    std::ofstream(folder_ / "dot_fp8.csv") << "a,b,c\n"
                                           << std::string(64, '0') << ',' << std::string(64, '0') << ",3f800000\n";
    std::ofstream(folder_ / "scalar.csv") << "x,y,z\n3c00,3c00,3c00\n";
    std::ofstream matrix(folder_ / "matrix.csv");
    matrix << "x\n";
    for (int i = 0; i < 64; ++i) matrix << "3f800000\n";
    for (std::ofstream text(folder_ / "plays.txt"); text.tellp() < 2000;) text << "to be, or not to be; ";
  }
};

#if HALFMARK_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class SlowHelpTest : public HelpTest {};

TEST_F(SlowHelpTest, EveryExampleRuns) {
  make_samples();
  for (const CommandAbout& command : listed_commands()) {
    if (command.name == "ab") continue;  // takes minutes and two builds; its examples are only parsed, above
    if (kSanitized && command.name == "probe") continue;  // takes minutes in a build with sanitizers
    for (const std::string& line : command.examples) {
      std::string arguments = line.substr(line.find(' ') + 1);
      if (command.name == "run") arguments += " --dry-run";
      const Result result = halfmark(arguments);
      EXPECT_EQ(result.code, 0) << line << "\n" << result.err;
      EXPECT_FALSE(result.out.empty() && arguments.find(" -o ") == arguments.npos) << line;
    }
  }
}

TEST_F(HelpTest, ListsEachCommandWithItsExamples) {
  const std::string program = halfmark("--help").out;
  for (const CommandAbout& command : listed_commands()) {
    EXPECT_NE(program.find("\n  " + command.name + " "), program.npos) << command.name;
    const std::string help = halfmark(command.name + " --help").out;
    EXPECT_NE(help.find("Usage: halfmark " + command.name + " "), help.npos) << help;
    for (const std::string& line : command.examples) EXPECT_NE(help.find("\n  " + line + "\n"), help.npos) << line;
  }
  EXPECT_EQ(program.find("\n  sample "), program.npos) << "a command for other programs is not listed";
  EXPECT_EQ(halfmark("sample --help").code, 0);
}

TEST_F(HelpTest, FitsTheTerminal) {
  std::vector<CommandAbout> commands = listed_commands();
  commands.push_back({"", "", {}});
  for (const CommandAbout& command : commands) {
    const Result help = shell(fmt::format("COLUMNS=80 \"$HALFMARK\" {} --help", command.name));
    EXPECT_EQ(help.code, 0) << help.err;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("  halfmark ")) continue;  // an example is not wrapped, so that it can be copied
      EXPECT_LE(line.size(), 80u) << command.name << ": " << line;
    }
  }
}

// README.md repeats the list of `halfmark --help`; this keeps the two the same.
TEST(Help, TheReadmeListsTheCommandsInTheSameWords) {
  std::ifstream readme(test_folders::source() + "/README.md");
  std::vector<std::string> found, expected;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line == "<!-- commands of halfmark --help -->")
      inside = true;
    else if (inside && line.starts_with("halfmark "))
      found.push_back(line);
    else if (inside && line == "```" && !found.empty())
      break;
  }
  for (const CommandAbout& command : listed_commands())
    expected.push_back(fmt::format("halfmark {:<11} {}", command.name, command.about));
  EXPECT_EQ(found, expected);
}

// What --scaler takes, list explains.
TEST_F(HelpTest, ScalersWithNumbersAreListed) {
  const auto rows = nlohmann::json::parse(halfmark("list scalers torch:1024:100 static:3 keras --json").out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["name"], "keras");
  EXPECT_EQ(rows[1]["name"], "torch:1024:100");
  EXPECT_EQ(rows[1]["initial"], 1024);
  EXPECT_EQ(rows[1]["interval"], 100);
  EXPECT_EQ(rows[2]["name"], "static:3");
  EXPECT_EQ(rows[2]["initial"], 3);
  EXPECT_TRUE(rows[2]["interval"].is_null());
  for (const char* wrong : {"torch:1024:x", "torc:1024", "none:1", "torch:1:2:3"}) {
    const Result result = halfmark(std::string("list scalers ") + wrong);
    EXPECT_EQ(result.code, 2) << wrong;
    EXPECT_EQ(result.lines(), 1) << result.err;
  }
}

TEST_F(HelpTest, IsAWordToo) {
  for (const CommandAbout& command : listed_commands()) {
    const Result word = halfmark("help " + command.name), option = halfmark(command.name + " --help");
    EXPECT_EQ(word.code, 0) << command.name;
    EXPECT_EQ(word.out, option.out) << command.name;
  }
  EXPECT_EQ(halfmark("help").out, halfmark("--help").out);
  expect_complaint("help nothing", "unknown command");
}

// A terminal of 60 columns breaks a paragraph once, not also where the source does.
TEST_F(HelpTest, BreaksParagraphsAtTheWidthOfTheTerminal) {
  const std::string text = halfmark("check --help").out;
  const size_t at = text.find("\nMatrix instructions are compared");
  ASSERT_NE(at, text.npos) << text;
  const size_t end = text.find("\nExit codes:", at);
  ASSERT_NE(end, text.npos) << text;
  std::istringstream lines(text.substr(at + 1, end - at - 1));
  std::string line, next;
  for (std::getline(lines, line); std::getline(lines, next); line = next)
    EXPECT_GT(line.size() + 1 + next.substr(0, next.find(' ')).size(), 80u) << "broken early: " << line;
}

TEST_F(HelpTest, CutsNothingOfAListThatIsPiped) {
  const std::string text = halfmark("list policies").out;
  const auto policies = nlohmann::json::parse(halfmark("list policies --json").out);
  for (const auto& policy : policies)
    EXPECT_NE(text.find(policy["about"].get<std::string>()), text.npos) << policy["about"];
  EXPECT_EQ(text.find(".."), text.npos) << text;
  const std::string harnesses = halfmark("list harnesses").out;
  for (const auto& harness : nlohmann::json::parse(halfmark("list harnesses --json").out))
    for (const auto& metric : harness["metrics"])
      EXPECT_NE(harnesses.find(metric["formula"].get<std::string>()), text.npos) << metric;
}

TEST_F(HelpTest, AsksTheTerminalOrColumnsForTheWidth) {
  for (const char* what : {"subjects", "families", "policies", "devices", "harnesses", "kernels"}) {
    const Result list = shell(fmt::format("COLUMNS=80 \"$HALFMARK\" list {}", what));
    EXPECT_EQ(list.code, 0) << list.err;
    std::istringstream lines(list.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << what << ": " << line;
  }
}

TEST_F(HelpTest, ListsFamiliesWithAGapAfterEachName) {
  for (const size_t width : {50u, 80u, 200u}) {
    const Result list = shell(fmt::format("COLUMNS={} \"$HALFMARK\" list families", width));
    ASSERT_EQ(list.code, 0) << list.err;
    std::set<std::string> first_words;
    std::istringstream lines(list.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), width) << line;
      first_words.insert(line.substr(0, line.find(' ')));
    }
    for (const Family& family : families())
      EXPECT_TRUE(first_words.contains(std::string(family.name))) << family.name << " at " << width;
  }
}

}  // namespace
}  // namespace halfmark::bench
