// Where outputs go: open files are continued and not replaced, devices and pipes are written, a terminal gets no control
// characters.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/run/program_testing.h"
#include "reports/outputs/sample_report.h"
#include "reports/record/file.h"

namespace halfmark::bench {
namespace {

const std::string kOne = "run --no-probes --case linear/b4_i16_o8/cpu/fp32/error";

class OutputPaths : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    timed_report().save(folder_ / "timed.json");
    ASSERT_EQ(halfmark(kOne + " --shard 1/2 -o shard.json").code, 0);
    std::ofstream(folder_ / "log") << "earlier\n";
    std::filesystem::create_symlink("/dev/stdout", folder_ / "link");
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.insert(entry.path().filename());
    return found;
  }
  static unsigned long inode(const std::filesystem::path& path) {
    struct stat known = {};
    return ::stat(path.c_str(), &known) == 0 ? known.st_ino : 0;
  }
};

TEST_F(OutputPaths, AnOpenFileIsContinuedAndNotReplaced) {
  const auto before = inode(folder_ / "log");
  std::string expected = "earlier\n";
  for (const std::string& command :
       {kOne + " -o", std::string("export timed.json --to csv -o"), std::string("gate timed.json timed.json --json"),
        std::string("gate timed.json timed.json --markdown"), std::string("merge shard.json --partial -o")})
    for (const char* path : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1", "link"}) {
      const std::string text = fmt::format("{} {}", command, path);
      EXPECT_EQ(shell("\"$HALFMARK\" " + text + " >> log").code, 0) << text << "\n" << read(folder_ / "stderr");
      EXPECT_EQ(inode(folder_ / "log"), before) << text;
      const std::string now = read(folder_ / "log");
      EXPECT_TRUE(now.starts_with(expected)) << text << " has changed what was there";
      EXPECT_GT(now.size(), expected.size() + 50) << text;
      expected = now;
    }
  EXPECT_EQ(shell("\"$HALFMARK\" export timed.json --to bmf -o /dev/fd/7 7>> log").code, 0);
  EXPECT_TRUE(read(folder_ / "log").starts_with(expected));
  EXPECT_GT(read(folder_ / "log").size(), expected.size());
  EXPECT_EQ(names(), (std::set<std::string>{"link", "log", "shard.json", "stderr", "stdout", "timed.json"}));
}

TEST_F(OutputPaths, TheReportFollowsWhatIsInTheFileAndTheTableFollowsTheReport) {
  ASSERT_EQ(shell("{ echo before; \"$HALFMARK\" " + kOne + " -o /dev/stdout; echo after; } > out").code, 0);
  const std::string text = read(folder_ / "out");
  EXPECT_TRUE(text.starts_with("before\n{")) << text.substr(0, 40);
  EXPECT_TRUE(text.ends_with("after\n"));
  const size_t end = text.find("\n}\n");
  ASSERT_NE(end, text.npos);
  EXPECT_EQ(Report::parse(text.substr(7, end - 7 + 3), "out").records.size(), 1u);
  EXPECT_LT(end, text.find("fp32 ", end)) << "the table";
  // Text that is still in the buffer of standard output comes before what is written to the same file directly.
  ASSERT_EQ(shell("\"$HALFMARK\" gate timed.json timed.json --csv /dev/stdout > out").code, 0);
  EXPECT_LT(read(folder_ / "out").find("PASS"), read(folder_ / "out").find("case,question"));
}

TEST_F(OutputPaths, AnOpenFileOfAnotherProcessIsAppendedTo) {
  const int file = ::open((folder_ / "log").c_str(), O_WRONLY | O_APPEND);
  ASSERT_GE(file, 0);
  const auto before = inode(folder_ / "log");
  EXPECT_EQ(halfmark(fmt::format("export timed.json --to csv -o /proc/{}/fd/{}", ::getpid(), file)).code, 0);
  ::close(file);
  EXPECT_EQ(inode(folder_ / "log"), before);
  EXPECT_TRUE(read(folder_ / "log").starts_with("earlier\nid,"));
}

TEST_F(OutputPaths, DevicesAndPipesAreWritten) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(shell("cat pipe > copy & \"$HALFMARK\" export timed.json --to csv -o pipe && wait").code, 0);
  EXPECT_TRUE(read(folder_ / "copy").starts_with("id,"));
  EXPECT_TRUE(std::filesystem::is_fifo(folder_ / "pipe"));
  EXPECT_EQ(halfmark(kOne + " -o /dev/null").code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(shell("\"$HALFMARK\" export timed.json --to csv -o /dev/stdout | cat > copy").code, 0);
  EXPECT_TRUE(read(folder_ / "copy").starts_with("id,"));
}

TEST_F(OutputPaths, AFullDeviceIsOneLine) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  for (const std::string& command :
       {kOne + " -o", std::string("export timed.json --to csv -o"), std::string("gate timed.json timed.json --json"),
        std::string("merge shard.json --partial -o")})
    expect_complaint(command + " /dev/full", "/dev/full: cannot be written: No space left on device");
}

TEST_F(OutputPaths, ADescriptorThatIsNotForWritingIsRefusedBeforeAnythingIsMeasured) {
  for (const std::string& command : {kOne + " -o", std::string("gate timed.json timed.json --json")})
    expect_complaint(command + " /dev/fd/5 5< log", "/dev/fd/5: is not open for writing");
  EXPECT_EQ(read(folder_ / "log"), "earlier\n");
}

// What the program writes to this descriptor, if that is a terminal of so many columns. Nothing without terminals.
std::optional<std::string> shown_on_terminal(int descriptor, unsigned short columns, const std::string& own,
                                             const std::vector<std::string>& arguments, int& code) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return {};
  const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  std::vector<char*> words = {const_cast<char*>(own.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int end = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
    ::ioctl(end, TIOCSWINSZ, &size);
    ::dup2(end, descriptor);
    ::execv(own.c_str(), words.data());
    ::_exit(127);
  }
  std::string shown;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(terminal, buffer, sizeof buffer)) > 0;)  // EIO when the child has ended
    shown.append(buffer, static_cast<size_t>(count));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  code = WEXITSTATUS(status);
  return shown;
}

TEST_F(OutputPaths, ATerminalGetsNoControlCharacters) {
  Report report = timed_report();
  report.records[0].measurements[0].at = "a\x1B[31mb\xC2\x9B\xE2\x80\xAE\rc";
  report.save(folder_ / "hostile.json");
  int code = 0;
  const auto shown = shown_on_terminal(STDOUT_FILENO, 0, program(),
                                       {"export", (folder_ / "hostile.json").string(), "--to", "csv"}, code);
  if (!shown) GTEST_SKIP() << "no terminals here";
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(says(*shown, "a\uFFFD[31mb\uFFFD\uFFFD c")) << shown->substr(0, 500);
  EXPECT_EQ(shown->find('\x1B'), shown->npos);
  // Programs get the name as it is.
  EXPECT_TRUE(says(halfmark("export hostile.json --to csv").out, report.records[0].measurements[0].at));
}

// A long error is one line for programs, and broken between words on a terminal.
TEST_F(OutputPaths, ATerminalGetsNoLongerLinesThanItHasColumns) {
  const std::vector<std::string> wrong = {"run", "--policy", "fp23"};
  const Result one = halfmark("run --policy fp23");
  EXPECT_EQ(one.code, 2);
  EXPECT_EQ(one.lines(), 1);
  ASSERT_GT(one.err.size(), 200u);
  int code = 0;
  const auto shown = shown_on_terminal(STDERR_FILENO, 60, program(), wrong, code);
  if (!shown) GTEST_SKIP() << "no terminals here";
  EXPECT_EQ(code, 2);
  std::istringstream lines(*shown);
  std::string joined;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    EXPECT_LE(line.size(), 60u) << line;
    joined += (joined.empty() ? "" : " ") + line.substr(line.find_first_not_of(' '));
  }
  EXPECT_EQ(joined + "\n", one.err) << "the same words";
}

}  // namespace
}  // namespace halfmark::bench
