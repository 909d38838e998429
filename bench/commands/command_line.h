// The command line: commands and their options, implemented with CLI11. Its header takes ten seconds to compile, so
// only command_line.cpp includes it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace halfmark::bench {

// Properties of an option, combined with |.
enum OptionRule : unsigned {
  kOptional = 0,
  kRequired = 1,      // the command line must have it
  kShowsDefault = 2,  // --help prints the current value of the variable as the default
  kPositive = 4,      // must not be zero
  kHidden = 8,        // not in --help: used by the program itself
  kFile = 16,         // a file to write: "-" is refused, because other programs mean standard output by it
};

// One command. Parsing writes the values to the referenced variables before the action runs, so the variables belong to
// a shared_ptr that the action holds. Names: "--seed", "-o,--output", or "words" for arguments without a name.
// Rejected: empty text, which is usually an unset shell variable; numbers that are negative, not finite, too large for
// the variable, or followed by other characters.
class Command {
 public:
  Command(void* app, std::function<void()>& chosen, std::vector<std::string>& examples)
      : app_(app), chosen_(chosen), examples_(examples) {}

  Command& option(const char* names, std::string& value, const std::string& about, unsigned rules = kOptional);
  Command& option(const char* names, double& value, const std::string& about, unsigned rules = kOptional);
  Command& option(const char* names, int& value, const std::string& about, unsigned rules = kOptional,
                  int most = std::numeric_limits<int>::max(), int least = 0);  // kPositive: at least 1
  Command& option(const char* names, int64_t& value, const std::string& about, unsigned rules = kOptional);
  Command& option(const char* names, uint64_t& value, const std::string& about, unsigned rules = kOptional);
  // The value must be one of these names.
  Command& choice(const char* names, std::string& value, const std::vector<std::string>& known,
                  unsigned rules = kOptional);
  // Each use has one value or several separated by commas; the next arguments are words again.
  Command& list(const char* names, std::vector<std::string>& values, const std::string& about);
  // Each use names one file; the next arguments are words again.
  Command& files(const char* names, std::vector<std::string>& values, const std::string& about);
  // All arguments without a name.
  Command& words(const char* name, std::vector<std::string>& values, const std::string& about,
                 unsigned rules = kOptional);
  Command& flag(const char* names, bool& value, const std::string& about);
  Command& footer(const std::string& text);  // printed at the end of --help
  // Command lines that work; printed after the footer. A test runs each of them.
  Command& examples(const std::vector<std::string>& lines);
  Command& action(std::function<void()> run);
  // Says, after parsing, whether the command line has this option: "--seed".
  std::function<bool()> has(const char* name) const;

 private:
  template <class Value>
  Command& number(const char* names, Value& value, const std::string& about, unsigned rules, Value most,
                  Value least = {});

  void* app_;  // CLI::App, owned by the CommandLine
  std::function<void()>& chosen_;
  std::vector<std::string>& examples_;  // owned by the CommandLine
};

// The text of --help of a command.
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
  std::vector<CommandAbout> commands() const;  // the commands that --help lists, in its order
  // Parses the arguments, writes the variables and returns the action of the command. The action does nothing if --help
  // or --version was requested, which have then been printed. Throws Error with one line for an invalid command line.
  std::function<void()> read(int argc, const char* const* argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace halfmark::bench
