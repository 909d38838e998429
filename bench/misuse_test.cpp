// End-to-end tests of wrong use: existing files of the same name, closed standard streams, too little memory, invalid
// values.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/program.h"
#include "bench/run/program_testing.h"
#include "bench/run/record_store.h"
#include "kernels/number/error.h"
#include "reports/record/lock.h"
#include "reports/record/shell.h"

namespace halfmark::bench {
namespace {

const std::string kFew = "run --no-probes --suite smoke --device cpu linear fp16 error";

// Files beside the report that halfmark has not written.
class NamesThatAreTaken : public ProcessTest {
 protected:
  void write(const std::string& name) const { std::ofstream(folder_ / name) << "precious"; }
  void expect_refused(const std::string& about, const std::string& more = "") const {
    expect_complaint(kFew + more, about + ": is not a ");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json"));
  }
};

TEST_F(NamesThatAreTaken, AReportBesideALockFileOfAToolLeavesItAlone) {
  write("Cargo.lock");
  ASSERT_EQ(halfmark(kFew + " -o Cargo").code, 0);
  EXPECT_EQ(read(folder_ / "Cargo.lock"), "precious");
  EXPECT_EQ(Report::load(folder_ / "Cargo").records.size(), 1u);
}

TEST_F(NamesThatAreTaken, AFileInThePlaceOfTheJournalIsRefused) {
  write("report.json.journal");
  for (const char* more : {"", " --resume"}) expect_refused("report.json.journal", more);
  EXPECT_EQ(read(folder_ / "report.json.journal"), "precious");
}

TEST_F(NamesThatAreTaken, AFileInThePlaceOfTheOldJournalIsLeftAlone) {
  ASSERT_EQ(halfmark(kFew + " -o whole.json").code, 0);
  const Report whole = Report::load(folder_ / "whole.json");
  Report header = whole;
  header.records.clear();
  Journal::create(journal_of(folder_ / "report.json"), header).append(whole.records.at(0));
  const std::string journal = read(folder_ / "report.json.journal");
  write("report.json.journal.old");
  const Result result = halfmark(kFew);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.err, "is kept as report.json.journal.old2")) << result.err;
  EXPECT_EQ(read(folder_ / "report.json.journal.old"), "precious");
  EXPECT_EQ(read(folder_ / "report.json.journal.old2"), journal);
}

TEST_F(NamesThatAreTaken, LinksAreNotFollowed) {
  write("victim");
  for (const std::filesystem::path& name :
       {FileLock::path_of(folder_ / "report.json"), journal_of(folder_ / "report.json")}) {
    for (const char* target : {"victim", "absent"}) {
      std::filesystem::create_symlink(target, name);
      expect_refused(name.filename().string());
      EXPECT_TRUE(std::filesystem::is_symlink(name));
      std::filesystem::remove(name);
    }
  }
  EXPECT_EQ(read(folder_ / "victim"), "precious");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "absent"));
}

TEST_F(NamesThatAreTaken, AReadOnlyReportIsRefusedBeforeAnythingIsMeasured) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may write everywhere";
  write("report.json");
  std::filesystem::permissions(folder_ / "report.json", std::filesystem::perms::owner_read);
  expect_complaint(kFew, "report.json: cannot be written (Permission denied); name another file with -o");
  std::filesystem::remove(folder_ / "report.json");
  std::filesystem::create_directory(folder_ / "closed");
  std::filesystem::permissions(folder_ / "closed", std::filesystem::perms::owner_read);
  expect_complaint(kFew + " -o closed/report.json", "closed: cannot be written to");
}

class CommandLines : public ProcessTest {};

TEST_F(CommandLines, OfAReportRunAgainInAShell) {
  const std::string output = "my 'own' $HOME *.json";
  ASSERT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear fp16 'err*' -o " + shell_word(output)).code, 0);
  const Report report = Report::load(folder_ / output);
  std::filesystem::remove(folder_ / output);
  ASSERT_TRUE(report.run.command.starts_with("halfmark run ")) << report.run.command;
  std::ofstream(folder_ / "again.sh") << "\"$HALFMARK\" " << report.run.command.substr(9) << "\n";
  ASSERT_EQ(shell("sh again.sh").code, 0);
  EXPECT_EQ(Report::load(folder_ / output).run.command, report.run.command);
  const std::string repro = report.records.at(0).repro;
  ASSERT_TRUE(repro.starts_with("halfmark run --case ")) << repro;
  EXPECT_EQ(shell("\"$HALFMARK\" " + repro.substr(9)).code, 0);
}

TEST_F(CommandLines, AreShownWithoutWhatDrivesATerminal) {
  const std::string hostile = "a\x1B[31mb\xC2\x9B\xE2\x80\xAE\xFF\nc";
  for (const std::string command :
       {"show ", "compare ", "gate report.json ", "history ", "run ", "run --case ", "run --suite ", "list ", "",
        "run --seed ", "run --shard ", "merge -o out ", "probe --types ", "run -o no/such/folder/"}) {
    const Result result = halfmark(command + shell_word(hostile));
    EXPECT_EQ(result.code, 2) << command << result.err;
    EXPECT_EQ(result.lines(), 1) << command << result.err;
    for (const char* part : {"\x1B", "\xC2\x9B", "\xE2\x80\xAE", "\xFF"})
      EXPECT_FALSE(says(result.err, part)) << command << result.err;
  }
}

class Streams : public ProcessTest {};

TEST_F(Streams, AClosedOneIsSaidOnWhatIsLeft) {
  for (const std::string& command : {std::string("list policies"), std::string("--help"), kFew}) {
    for (const char* in : {"", " <&-"}) {
      const Result out = halfmark(command + in + " >&-");
      EXPECT_EQ(out.code, 2) << command;
      EXPECT_EQ(out.err, "halfmark: closed: standard output; redirect unwanted output to /dev/null\n");
      const Result err = halfmark(command + in + " 2>&-");
      EXPECT_EQ(err.code, 2) << command;
      EXPECT_EQ(err.out, "halfmark: closed: standard error; redirect unwanted output to /dev/null\n");
      EXPECT_EQ(halfmark(command + in + " >&- 2>&-").code, 2) << command;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json"));
}

TEST_F(Streams, AClosedInputIsAnEmptyOne) {
  EXPECT_EQ(halfmark("list policies <&-").code, 0);
  expect_complaint("arithmetic --operation add <&-", "the input is empty");
  // The first file that is opened must not get the descriptor of standard input.
  ASSERT_EQ(halfmark(kFew + " <&-").code, 0);
  EXPECT_EQ(Report::load(folder_ / "report.json").records.size(), 1u);
}

TEST_F(Streams, WhoeverStopsReadingIsNoError) {
  for (const bool ignored : {false, true}) {
    for (const auto& [words, code] :
         std::vector<std::pair<std::vector<std::string>, int>>{{{"--help"}, 0},
                                                               {{"run", "--help"}, 0},
                                                               {{"--version"}, 0},
                                                               {{"list", "--json"}, 128 + SIGPIPE},
                                                               {{"list", "devices"}, 128 + SIGPIPE}}) {
      int ends[2] = {};
      ASSERT_EQ(::pipe(ends), 0);
      ::close(ends[0]);
      const pid_t child = ::fork();
      if (child == 0) {
        ::signal(SIGPIPE, ignored ? SIG_IGN : SIG_DFL);
        ::dup2(ends[1], STDOUT_FILENO);
        ::dup2(::open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        std::vector<char*> arguments{const_cast<char*>("halfmark")};
        for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
        arguments.push_back(nullptr);
        ::execv(program().c_str(), arguments.data());
        ::_exit(127);
      }
      ::close(ends[1]);
      const Result result = wait(child);
      EXPECT_EQ(result.code, code) << words.front() << " " << ignored;
      EXPECT_EQ(result.err, "") << words.front();
    }
  }
}

// A sanitizer reserves terabytes of address space.
#if !HALFMARK_SANITIZED
TEST_F(Streams, TooLittleMemoryEndsInOneLine) {
  int refused = 0, done = 0;
  for (const int limit : {128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 2048}) {  // MiB
    for (const std::string& command : {kFew, std::string("list")}) {
      const Result result =
          shell(fmt::format("ulimit -v {}; exec timeout -s KILL 60 \"$HALFMARK\" {}", limit << 10, command));
      const std::string what = fmt::format("{} with {} MiB: {}", command, limit, result.err);
      EXPECT_TRUE(result.code == 0 || result.code == 2) << result.code << " " << what;
      EXPECT_EQ(result.lines(), result.code == 0 ? 0 : 1) << what;
      // Which allocation is the first without room is chance near the limit that is enough.
      if (result.code == 2) {
        EXPECT_TRUE(result.err.starts_with("halfmark: ") && says(result.err, "raise the limit")) << what;
      }
      (result.code == 0 ? done : refused) += 1;
    }
  }
  // A limit on the data alone, too small for the buffers of any machine.
  const Result data = shell(fmt::format("ulimit -d {}; exec timeout -s KILL 60 \"$HALFMARK\" list", 256 << 10));
  EXPECT_EQ(data.code, 2) << data.err;
  EXPECT_TRUE(says(data.err, "halfmark: the limit on memory of 256 MiB (ulimit -v or -d)")) << data.err;
  EXPECT_GT(refused, 0);
  if (std::thread::hardware_concurrency() <= 4) {
    EXPECT_GT(done, 0) << "each thread takes memory, but not so much";
  }
}
#endif

// Every command with its numeric options, read from --help.
class Numbers : public ProcessTest {
 protected:
  struct Option {
    std::string command, name, kind;
  };
  std::vector<Option> numeric_options() const {
    std::vector<Option> options;
    std::istringstream commands(halfmark("--help").out);
    bool in_list = false;
    for (std::string line; std::getline(commands, line);) {
      if (line.starts_with("Subcommands:")) in_list = true;
      static const std::regex kCommand("^  ([a-z]+) .*");
      std::smatch command;
      if (!in_list || !std::regex_match(line, command, kCommand)) continue;
      std::istringstream help(halfmark(command[1].str() + " --help").out);
      static const std::regex kOption("^ .*(--[a-z-]+) (UINT|INT|FLOAT).*");
      for (std::string row; std::getline(help, row);) {
        std::smatch option;
        if (std::regex_match(row, option, kOption)) options.push_back({command[1], option[1], option[2]});
      }
    }
    return options;
  }
  // The error of parsing the command line; nothing is run.
  static std::string refusal(const std::vector<const char*>& words) {
    Program program;
    CommandLine line = command_line(program);
    try {
      line.read(static_cast<int>(words.size()), words.data());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Numbers, ThatMeanNothingAreRefusedByEveryOption) {
  const std::vector<Option> options = numeric_options();
  EXPECT_GE(options.size(), 18u) << "the help was not parsed";
  for (const Option& one : options) {
    std::vector<std::string> values = {"-1", "-0.5", "nan", "-nan", "inf",   "-inf", "",   " ",
                                       " 1", "1 ",   "1x",  "0x10", "1e999", "one",  "1,2"};
    if (one.kind != "FLOAT") {
      for (const char* more : {"1.5", "1e3", "18446744073709551616", "99999999999999999999999"}) values.push_back(more);
      if (one.kind == "INT") values.push_back("2147483648"), values.push_back("9223372036854775808");
    }
    for (const std::string& value : values) {
      const std::string said = refusal({"halfmark", one.command.c_str(), one.name.c_str(), value.c_str()});
      EXPECT_TRUE(says(said, one.name) && (value.empty() || says(said, fmt::format("'{}'", value))))
          << one.command << " " << one.name << " '" << value << "': " << said;
    }
  }
}

TEST_F(Numbers, AreRefusedByTheProgramInOneLine) {
  expect_complaint("run --seed -1", "--seed: '-1' is not a whole number from 0 to 18446744073709551615");
  expect_complaint("run --seed 18446744073709551616", "--seed: '18446744073709551616' is not a whole number");
  expect_complaint("run --processes -3", "--processes: '-3' is not a whole number from 1 to 10000");
  expect_complaint("run --processes 0", "--processes: '0' is not a whole number from 1 to 10000");
  expect_complaint("run --processes 1000000000", "--processes: '1000000000' is not a whole number from 1 to 10000");
  for (const char* value : {"nan", "inf", "-1", "0", "1e999"})
    expect_complaint(std::string("run --isolate --timeout ") + value, "is not a positive number");
  expect_complaint("run --output-descriptor 99", "--output-descriptor 99: is not open for writing");
  expect_complaint("run --output-descriptor 7 7< /dev/null", "--output-descriptor 7: is not open for writing");
  EXPECT_EQ(halfmark("run --dry-run --suite smoke --seed 18446744073709551615").code, 0);
  EXPECT_EQ(halfmark("run --dry-run --suite smoke --seed 010").code, 0);
}

TEST_F(Numbers, ASeedIsDecimalWhateverItBeginsWith) {
  ASSERT_EQ(halfmark(kFew + " --seed 010").code, 0);
  EXPECT_EQ(Report::load(folder_ / "report.json").run.seed, 10u);
}

TEST_F(Numbers, EmptyTextsAreRefused) {
  for (const char* arguments :
       {"run --case ''", "run --shard ''", "run --suite ''", "run --device ''", "run --policy ''", "run --harness ''",
        "run ''", "run -o ''", "show ''", "compare ''", "gate '' ''", "gate a b --rules ''", "merge -o '' a",
        "merge -o out ''", "history ''", "history . --anchor ''", "probe --device ''", "ab '' ''"})
    expect_complaint(arguments, "is empty");
}

TEST_F(Numbers, OfRecordsThatAreNoneAreRefused) {
  ASSERT_EQ(halfmark(kFew).code, 0);
  Report empty = Report::load(folder_ / "report.json");
  empty.records.clear();
  empty.save(folder_ / "empty.json");
  const std::string about = "empty.json: has no records";
  expect_complaint("gate empty.json report.json", about);
  expect_complaint("compare empty.json", about);
  expect_complaint("compare report.json empty.json", about);
  EXPECT_EQ(halfmark("show empty.json").code, 0);
  EXPECT_EQ(halfmark("gate report.json empty.json").code, 1) << "every case is lost";
}

}  // namespace
}  // namespace halfmark::bench
