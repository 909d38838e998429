#include "bench/commands/command_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <map>
#include <sstream>
#include <system_error>
#include <type_traits>
#include <utility>

#include "bench/namespaces.h"
#include "bench/run/program_name.h"
#include "bench/run/progress_line.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

// Parses a number into `value`; returns what is wrong with the text, or nothing. CLI11's own conversion reads "010" as
// eight and accepts "nan", and its range check prints limits of three hundred digits.
template <class Value>
std::string read_number(const std::string& text, Value& value, bool positive, Value least, Value most) {
  Value read{};
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, read);
  const bool is_number = error == std::errc() && next == end;
  constexpr bool kWhole = std::is_integral_v<Value>;
  if (is_number && std::isfinite(static_cast<double>(read)) && (positive ? read > 0 : read >= 0) && read >= least &&
      read <= most) {
    value = read;
    return {};
  }
  if constexpr (kWhole)
    return fmt::format("'{}' is not a whole number from {} to {}", text,
                       std::max(least, static_cast<Value>(positive ? 1 : 0)), most);
  return fmt::format("'{}' is not a {} number", text, positive ? "positive" : "finite, not negative");
}

std::string not_empty(const std::string& text) { return text.empty() ? "the value is empty" : ""; }

std::string not_dash(const std::string& text) {
  return text == "-" ? "'-' is not the name of a file; for a file of that name write ./-" : "";
}

CLI::App& app_of(void* app) { return *static_cast<CLI::App*>(app); }

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// `halfmark --help | head -1` is not an error: the reader may close the pipe early.
void print_to_readers(std::string_view text) {
  std::signal(SIGPIPE, SIG_IGN);
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE) return;
    if (count < 0)
      throw Error(fmt::format("standard output cannot be written: {}; send it elsewhere",
                              std::generic_category().message(errno)));
    text.remove_prefix(static_cast<size_t>(count));
  }
}

// CLI11 does not wrap lines: the terminal would break descriptions in the middle of words.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return broken(CLI::Formatter::make_option_desc(option), kHelpColumn);
  }
  std::string make_description(const CLI::App* app) const override {
    return app->get_description().empty() ? "" : broken(app->get_description(), 0) + "\n";
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream text;
    CLI::detail::format_help(text, command->get_name(), broken(command->get_description(), kHelpColumn), kHelpColumn);
    return text.str();
  }
  std::string make_footer(const CLI::App* app) const override {
    std::string text, paragraph;
    const auto end_paragraph = [&] {
      if (!paragraph.empty()) text += "\n" + broken(std::exchange(paragraph, {}), 0);
    };
    std::istringstream lines(app->get_footer());
    for (std::string line; std::getline(lines, line);) {
      const bool is_kept = line.empty() || line.starts_with("  ");  // indented text is a table or an example
      if (is_kept) end_paragraph(), text += "\n" + line;
      if (!is_kept) paragraph += (paragraph.empty() ? "" : " ") + line;
      if (line.ends_with('.') || line.ends_with(':')) end_paragraph();
    }
    end_paragraph();
    return text.empty() ? text : "\n" + text.substr(1) + "\n";
  }

 private:
  static constexpr size_t kHelpColumn = 30, kWidest = 100, kNarrowestText = 30;

  static std::string broken(const std::string& text, size_t column) {
    const size_t width = std::min(terminal_width(STDOUT_FILENO), kWidest);
    std::string lines = wrapped("", one_line(text), std::max(width - std::min(width, column), kNarrowestText));
    lines.pop_back();
    return lines;
  }
};

// Names and descriptions of the required options that the command line does not give.
std::string what_is_missing(const CLI::App& command, std::string in_short) {
  std::vector<std::string> missing;
  for (const CLI::Option* option : command.get_options())
    if (option->get_required() && option->count() == 0)
      missing.push_back(fmt::format("{} ({})", option->get_name(), option->get_description()));
  if (!missing.empty()) in_short = "missing: " + fmt::format("{}", fmt::join(missing, ", "));
  return fmt::format("{}; {} {} --help says more", in_short, program_name(), command.get_name());
}

// The command that the command line names, or the program.
const CLI::App& chosen_in(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

std::string with_help(const CLI::App& app, const std::string& complaint) {
  const CLI::App& command = chosen_in(app);
  return &command == &app
             ? fmt::format("{} ({} --help lists the commands)", complaint, program_name())
             : fmt::format("{} ({} {} --help lists the options)", complaint, program_name(), command.get_name());
}

std::string in_plain_words(const CLI::ArgumentMismatch& error) {
  std::string text = one_line(error.what());
  const std::string name = text.substr(0, text.find(':'));
  if (text.ends_with(" missing")) return name + " needs a value";
  if (const size_t at = text.find(" was given a disallowed flag override"); at != text.npos)
    return (text.starts_with('-') ? "" : "--") + text.substr(0, at) + " takes no value";
  if (text.find("At Most 1 ") != text.npos) return name + " is given more than once";
  return text;
}

// What to say about an argument that the command does not have; a mistyped option gets the names that resemble it.
std::string unexpected(const CLI::App& command, const std::string& argument) {
  if (!argument.starts_with("--")) return fmt::format("unexpected argument '{}'", argument);
  const std::string name = argument.substr(2, argument.find('=') - 2);
  std::vector<std::string> known, near;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty())
      for (const std::string& other : option->get_lnames()) known.push_back(other);
  for (const std::string& other : nearest_names(name, known)) near.push_back("--" + other);
  return fmt::format("unknown option --{}{}", name,
                     near.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(near, " or ")));
}

}  // namespace

namespace {

void apply(CLI::Option* option, unsigned rules) {
  if (rules & kRequired) option->required();
  if (rules & kHidden) option->group("");
}

}  // namespace

template <class Value>
Command& Command::number(const char* names, Value& value, const std::string& about, unsigned rules, Value most,
                         Value least) {
  const auto read = [names, &value, least, most, positive = (rules & kPositive) != 0](const std::string& text) {
    const std::string wrong = read_number(text, value, positive, least, most);
    if (!wrong.empty()) throw CLI::ValidationError(names, wrong);
  };
  CLI::Option* option = app_of(app_).add_option_function<std::string>(names, read, about);
  option->type_name(!std::is_integral_v<Value> ? "FLOAT" : std::is_signed_v<Value> ? "INT" : "UINT");
  if (rules & kShowsDefault) option->default_str(fmt::format("{}", value));
  apply(option, rules);
  return *this;
}

Command& Command::option(const char* names, std::string& value, const std::string& about, unsigned rules) {
  CLI::Option* option = app_of(app_).add_option(names, value, about)->check(not_empty);
  if (rules & kShowsDefault) option->capture_default_str();
  if (rules & kFile) option->check(not_dash);
  apply(option, rules);
  return *this;
}
Command& Command::option(const char* names, double& value, const std::string& about, unsigned rules) {
  return number(names, value, about, rules, std::numeric_limits<double>::max());
}
Command& Command::option(const char* names, int& value, const std::string& about, unsigned rules, int most, int least) {
  return number(names, value, about, rules, most, least);
}
Command& Command::option(const char* names, int64_t& value, const std::string& about, unsigned rules) {
  return number(names, value, about, rules, std::numeric_limits<int64_t>::max());
}
Command& Command::option(const char* names, uint64_t& value, const std::string& about, unsigned rules) {
  return number(names, value, about, rules, std::numeric_limits<uint64_t>::max());
}

Command& Command::choice(const char* names, std::string& value, const std::vector<std::string>& known, unsigned rules) {
  const std::string listed = fmt::format("{}", fmt::join(known, ", "));
  CLI::Option* option = app_of(app_).add_option(names, value, listed);
  option->check([listed, known](const std::string& text) {
    const bool found = std::find(known.begin(), known.end(), text) != known.end();
    return found ? std::string() : fmt::format("'{}' is not one of {}{}", text, listed, kernels::hint(text, known));
  });
  if (rules & kShowsDefault) option->capture_default_str();
  apply(option, rules);
  return *this;
}

Command& Command::list(const char* names, std::vector<std::string>& values, const std::string& about) {
  // Split here: CLI11's own delimiter drops empty elements, such as an unset variable in "$FIRST,$SECOND".
  const auto read = [names, &values](const std::vector<std::string>& given) {
    for (const std::string& text : given)
      for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        if (begin == end) throw CLI::ValidationError(names, fmt::format("'{}' has an empty element", text));
        values.push_back(text.substr(begin, end - begin));
        begin = end + 1;
      }
  };
  app_of(app_)
      .add_option_function<std::vector<std::string>>(names, read, about)
      ->allow_extra_args(false)
      ->check(not_empty);
  return *this;
}

Command& Command::files(const char* names, std::vector<std::string>& values, const std::string& about) {
  app_of(app_).add_option(names, values, about)->allow_extra_args(false)->check(not_empty);
  return *this;
}

Command& Command::words(const char* name, std::vector<std::string>& values, const std::string& about, unsigned rules) {
  apply(app_of(app_).add_option(name, values, about)->check(not_empty), rules);
  return *this;
}

Command& Command::flag(const char* names, bool& value, const std::string& about) {
  app_of(app_).add_flag(names, value, about)->disable_flag_override();  // --resume=1 is a mistake
  return *this;
}

Command& Command::footer(const std::string& text) {
  app_of(app_).footer(text);
  return *this;
}

Command& Command::examples(const std::vector<std::string>& lines) {
  examples_ = lines;
  constexpr std::string_view kProgram = "halfmark ";
  for (std::string& line : examples_)
    if (line.starts_with(kProgram)) line.replace(0, kProgram.size(), program_name() + " ");
  std::string text = app_of(app_).get_footer();
  if (!text.empty()) text += "\n";
  app_of(app_).footer(fmt::format("{}Examples:\n  {}", text, fmt::join(examples_, "\n  ")));
  return *this;
}

Command& Command::action(std::function<void()> run) {
  app_of(app_).callback([&chosen = chosen_, run = std::move(run)] { chosen = run; });
  return *this;
}

std::function<bool()> Command::has(const char* name) const {
  return [option = app_of(app_).get_option(name)] { return option->count() > 0; };
}

struct CommandLine::Parser {
  CLI::App app;
  std::function<void()> chosen = [] {};
  std::map<std::string, std::vector<std::string>> examples;
};

CommandLine::CommandLine(const std::string& about, const std::string& version, const std::string& footer)
    : parser_(std::make_unique<Parser>()) {
  CLI::App& app = parser_->app;
  app.name(program_name());
  app.description(about);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  app.footer(footer);
}

CommandLine::CommandLine(CommandLine&&) noexcept = default;
CommandLine::~CommandLine() = default;

Command CommandLine::add(const char* name, const std::string& about) {
  CLI::App* command = parser_->app.add_subcommand(name, about);
  command->footer("");  // otherwise it inherits that of the program
  return Command(command, parser_->chosen, parser_->examples[name]);
}

Command CommandLine::add_internal(const char* name, const std::string& about) {
  const Command command = add(name, about);
  parser_->app.get_subcommand(name)->group("");
  return command;
}

std::vector<CommandAbout> CommandLine::commands() const {
  std::vector<CommandAbout> all;
  for (const CLI::App* command :
       parser_->app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    all.push_back({command->get_name(), command->get_description(), parser_->examples.at(command->get_name())});
  return all;
}

std::function<void()> CommandLine::read(int argc, const char* const* argv) {
  CLI::App& app = parser_->app;
  // `halfmark help run` is `halfmark run --help`.
  std::vector<const char*> words(argv, argv + argc);
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    words.erase(words.begin() + 1);
    const auto is_named = [&](const CommandAbout& one) { return argc > 2 && one.name == argv[2]; };
    if (argc == 2 || std::ranges::any_of(commands(), is_named)) words.push_back("--help");
  }
  // CLI11 takes the next argument as the value: `claims --json=$UNSET S0-2` would measure every claim.
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1)
      throw Error(fmt::format("{} needs a value", argument.substr(0, argument.size() - 1)));
  }
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::Success& request) {  // --help, --version
    std::ostringstream text;
    app.exit(request, text, text);
    print_to_readers(text.str());
  } catch (const CLI::RequiredError& error) {
    if (!app.get_subcommands().empty()) throw Error(what_is_missing(*app.get_subcommands().front(), error.what()));
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({}))
      if (!command->get_group().empty()) names.push_back(command->get_name());
    const bool named = words.size() > 1 && words[1][0] != '-';
    throw Error(fmt::format("{}; commands: {} ({} --help says more)",
                            named ? fmt::format("unknown command '{}'", words[1]) : "a command is needed",
                            fmt::join(names, ", "), program_name()));
  } catch (const CLI::ArgumentMismatch& error) {
    throw Error(with_help(app, in_plain_words(error)));
  } catch (const CLI::ExtrasError& error) {
    const CLI::App& command = chosen_in(app);
    const std::vector<std::string> arguments = command.remaining();
    throw Error(with_help(app, arguments.empty() ? one_line(error.what()) : unexpected(command, arguments.front())));
  } catch (const CLI::ParseError& error) {
    throw Error(with_help(app, one_line(error.what())));
  }
  return parser_->chosen;
}

}  // namespace halfmark::bench
