// The command line: commands and their options. CLI11 does the work behind it; its header takes ten seconds to compile
// and is included in command_line.cpp alone.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace halfmark::bench {

// What an option asks for, joined with |.
enum OptionRule : unsigned {
  kOptional = 0,
  kRequired = 1,      // without it the command line is wrong
  kShowsDefault = 2,  // --help prints the value that the variable has now
  kPositive = 4,      // zero is wrong
  kHidden = 8,        // not in --help: for the program itself
};

// One command. Values are written where the references point while the command line is read, before the action runs,
// so the variables live in a shared_ptr that the action holds. Names: "--seed", "-o,--output", or "words" for what
// stands without a name. Refused: an empty text, which is most often a shell variable that is not set; of numbers all
// that is negative, not finite, too large for the variable, or followed by more.
class Command {
 public:
  Command(void* app, std::function<void()>& chosen, std::vector<std::string>& examples)
      : app_(app), chosen_(chosen), examples_(examples) {}

  Command& option(const char* names, std::string& value, const std::string& about, unsigned rules = kOptional);
  Command& option(const char* names, double& value, const std::string& about, unsigned rules = kOptional);
  Command& option(const char* names, int& value, const std::string& about, unsigned rules = kOptional,
                  int most = std::numeric_limits<int>::max());
  Command& option(const char* names, int64_t& value, const std::string& about, unsigned rules = kOptional);
  Command& option(const char* names, uint64_t& value, const std::string& about, unsigned rules = kOptional);
  // One of these names, any other is wrong.
  Command& choice(const char* names, std::string& value, const std::vector<std::string>& known,
                  unsigned rules = kOptional);
  // One value each time or several with commas; what stands after them are words again.
  Command& list(const char* names, std::vector<std::string>& values, const std::string& about);
  // All that stands without a name.
  Command& words(const char* name, std::vector<std::string>& values, const std::string& about,
                 unsigned rules = kOptional);
  Command& flag(const char* names, bool& value, const std::string& about);
  Command& footer(const std::string& text);  // printed at the end of --help
  // Command lines that work; printed after the footer. A test runs each of them.
  Command& examples(const std::vector<std::string>& lines);
  Command& action(std::function<void()> run);

 private:
  template <class Value>
  Command& number(const char* names, Value& value, const std::string& about, unsigned rules, Value most);

  void* app_;  // CLI::App, owned by the CommandLine
  std::function<void()>& chosen_;
  std::vector<std::string>& examples_;  // owned by the CommandLine
};

// What --help says about a command.
struct CommandAbout {
  std::string name, about;
  std::vector<std::string> examples;
};

class CommandLine {
 public:
  CommandLine(const std::string& about, const std::string& version, const std::string& footer);
  CommandLine(CommandLine&&) noexcept;
  ~CommandLine();

  Command add(const char* name, const std::string& about);
  // A command that other programs call: --help of the program does not list it.
  Command add_internal(const char* name, const std::string& about);
  std::vector<CommandAbout> commands() const;  // those that --help lists, in its order
  // Reads the arguments and returns the action of the command, its variables written; nothing is left to do where it
  // has printed the help or the version that was asked for, to whoever still reads it. Throws Error for a command line
  // that is wrong, in one line.
  std::function<void()> read(int argc, const char* const* argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace halfmark::bench
