#include "bench/commands/command_line.h"

#include <fmt/format.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "bench/namespaces.h"
#include "bench/run/progress_line.h"
#include "kernels/number/error.h"
#include "reports/text/table.h"

namespace halfmark::bench {

namespace {

// CLI11's own check names the range with three hundred digits.
std::string positive(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  return is_number && value > 0 ? "" : fmt::format("'{}' is no positive number", text);
}

CLI::App& app_of(void* app) { return *static_cast<CLI::App*>(app); }

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// CLI11 breaks no lines: descriptions would be broken by the terminal, in the middle of words.
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
    std::string text;
    std::istringstream lines(app->get_footer());
    for (std::string line; std::getline(lines, line);)  // what is indented is a table or an example
      text += "\n" + (line.starts_with("  ") ? line : broken(line, 0));
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
  return fmt::format("{}; halfmark {} --help says more", in_short, command.get_name());
}

}  // namespace

template <class Value>
Command& Command::add(const char* names, Value& value, const std::string& about, unsigned rules) {
  CLI::Option* option = app_of(app_).add_option(names, value, about);
  if (rules & kRequired) option->required();
  if (rules & kShowsDefault) option->capture_default_str();
  if (rules & kPositive) option->check(positive);
  return *this;
}

Command& Command::option(const char* names, std::string& value, const std::string& about, unsigned rules) {
  return add(names, value, about, rules);
}
Command& Command::option(const char* names, double& value, const std::string& about, unsigned rules) {
  return add(names, value, about, rules);
}
Command& Command::option(const char* names, int& value, const std::string& about, unsigned rules) {
  return add(names, value, about, rules);
}
Command& Command::option(const char* names, int64_t& value, const std::string& about, unsigned rules) {
  return add(names, value, about, rules);
}
Command& Command::option(const char* names, uint64_t& value, const std::string& about, unsigned rules) {
  return add(names, value, about, rules);
}

Command& Command::choice(const char* names, std::string& value, const std::vector<std::string>& known, unsigned rules) {
  const std::string listed = fmt::format("{}", fmt::join(known, ", "));
  add(names, value, listed, rules);
  app_of(app_).get_options().back()->check([listed, known](const std::string& text) {
    const bool found = std::find(known.begin(), known.end(), text) != known.end();
    return found ? std::string() : fmt::format("'{}' is none of {}", text, listed);
  });
  return *this;
}

Command& Command::list(const char* names, std::vector<std::string>& values, const std::string& about) {
  app_of(app_).add_option(names, values, about)->delimiter(',')->allow_extra_args(false);
  return *this;
}

Command& Command::words(const char* name, std::vector<std::string>& values, const std::string& about, unsigned rules) {
  return add(name, values, about, rules);
}

Command& Command::flag(const char* names, bool& value, const std::string& about) {
  app_of(app_).add_flag(names, value, about);
  return *this;
}

Command& Command::footer(const std::string& text) {
  app_of(app_).footer(text);
  return *this;
}

Command& Command::examples(const std::vector<std::string>& lines) {
  examples_ = lines;
  std::string text = app_of(app_).get_footer();
  if (!text.empty()) text += "\n";
  app_of(app_).footer(fmt::format("{}Examples:\n  {}", text, fmt::join(lines, "\n  ")));
  return *this;
}

Command& Command::action(std::function<void()> run) {
  app_of(app_).callback([&chosen = chosen_, run = std::move(run)] { chosen = run; });
  return *this;
}

struct CommandLine::Parser {
  CLI::App app;
  std::function<void()> chosen = [] {};
  std::map<std::string, std::vector<std::string>> examples;
};

CommandLine::CommandLine(const std::string& about, const std::string& version, const std::string& footer)
    : parser_(std::make_unique<Parser>()) {
  CLI::App& app = parser_->app;
  app.name("halfmark");
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
  command->footer("");  // it would inherit that of the program
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    app.exit(request);
  } catch (const CLI::RequiredError& error) {
    if (!app.get_subcommands().empty()) throw Error(what_is_missing(*app.get_subcommands().front(), error.what()));
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({}))
      if (!command->get_group().empty()) names.push_back(command->get_name());
    const bool named = argc > 1 && argv[1][0] != '-';
    throw Error(fmt::format("{}; commands: {} (halfmark --help says more)",
                            named ? fmt::format("unknown command '{}'", argv[1]) : "a command is needed",
                            fmt::join(names, ", ")));
  } catch (const CLI::ParseError& error) {
    throw Error(fmt::format("{} (halfmark --help lists commands and options)", one_line(error.what())));
  }
  return parser_->chosen;
}

}  // namespace halfmark::bench
