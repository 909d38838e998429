// The lock of a report: it has one holder, errors name it, and it ends with its process.
#include "reports/record/lock.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "reports/record/file.h"
#include "reports/record/folder_testing.h"
#include "reports/record/report.h"

namespace halfmark::reports {
namespace {

namespace fs = std::filesystem;

class Lock : public FolderTest {
 protected:
  std::string refusal(const fs::path& target) const {
    try {
      const FileLock lock(target);
    } catch (const ReportError& error) {
      return error.what();
    }
    return "";
  }

  // A process that takes the lock, reports it, and waits to be killed.
  pid_t holder() const {
    int told[2] = {};
    EXPECT_EQ(::pipe(told), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const FileLock lock(report_);
      if (::write(told[1], "!", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char said = 0;
    EXPECT_EQ(::read(told[0], &said, 1), 1);
    ::close(told[0]), ::close(told[1]);
    return child;
  }

  static void kill(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  const fs::path report_ = folder_ / "report.json";
};

TEST_F(Lock, NamesTheProcessThatHasIt) {
  const pid_t child = holder();
  const std::string message = refusal(report_);
  kill(child);
  EXPECT_TRUE(message.starts_with(fmt::format("{}: is being written by process {} since 2", report_.string(), child)))
      << message;
  EXPECT_NE(message.find("-o"), message.npos) << message;
  EXPECT_EQ(message.find('\n'), message.npos) << message;
}

TEST_F(Lock, OfAKilledProcessHindersNobody) {
  kill(holder());
  EXPECT_TRUE(fs::exists(FileLock::path_of(report_))) << "the test needs a lock file that was left behind";
  EXPECT_EQ(refusal(report_), "");
}

TEST_F(Lock, GoesAndItsFileWithIt) {
  {
    const FileLock lock(report_);
    EXPECT_NE(refusal(report_), "");
  }
  EXPECT_EQ(refusal(report_), "");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Lock, IsTheSameBehindASymbolicLink) {
  fs::create_symlink("report.json", folder_ / "latest.json");
  const FileLock lock(report_);
  EXPECT_NE(refusal(folder_ / "latest.json"), "");
  EXPECT_EQ(refusal(folder_ / "another.json"), "");
}

// A process that opens the file just before its holder removes it must not get a lock on a removed file.
TEST_F(Lock, HasOneHolderHoweverManyTryAtOnce) {
  constexpr int kProcesses = 4, kTurns = 200;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int taken = 0;
      while (taken < kTurns) {
        try {
          const FileLock lock(report_);
          if (::mkdir((folder_ / "busy").c_str(), 0700) != 0) ::_exit(1);  // two inside
          if (::rmdir((folder_ / "busy").c_str()) != 0) ::_exit(1);
          ++taken;
        } catch (const ReportError&) {
        }
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "two processes held the lock at once";
  }
}

TEST_F(Lock, LeavesAFileWithAnotherContentAsItIs) {
  const fs::path path = FileLock::path_of(report_);
  write_file(path, "[[package]]");
  EXPECT_SAYS(refusal(report_), ".report.json.halfmark-lock: is not a lock file of halfmark; move it away");
  EXPECT_EQ(read_file(path), "[[package]]");
}

TEST_F(Lock, LeavesALinkItsTargetAndAPipeAsTheyAre) {
  const fs::path path = FileLock::path_of(report_), victim = folder_ / "victim";
  write_file(victim, "precious");
  for (const fs::path& target : {victim, folder_ / "absent", folder_}) {
    fs::create_symlink(target, path);
    EXPECT_SAYS(refusal(report_), "is not a lock file of halfmark");
    EXPECT_TRUE(fs::is_symlink(path));
    fs::remove(path);
  }
  EXPECT_EQ(read_file(victim), "precious");
  EXPECT_FALSE(fs::exists(folder_ / "absent"));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_SAYS(refusal(report_), "is not a lock file of halfmark");
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_SAYS(refusal(report_), "is not a lock file of halfmark");
  fs::remove(path);
  ASSERT_EQ(::mknod(path.c_str(), S_IFSOCK | 0600, 0), 0);
  EXPECT_SAYS(refusal(report_), "is not a lock file of halfmark");
  EXPECT_TRUE(fs::is_socket(path));
}

TEST_F(Lock, TakesAFileThatItsMakerCouldNotWriteTo) {
  write_file(FileLock::path_of(report_), "");
  EXPECT_EQ(refusal(report_), "");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Lock, RemovesOnlyTheFileThatItHolds) {
  const fs::path path = FileLock::path_of(report_);
  {
    const FileLock lock(report_);
    fs::rename(path, folder_ / "moved");
    write_file(path, "of somebody else");
  }
  EXPECT_EQ(read_file(path), "of somebody else");
}

TEST_F(Lock, IsNoFileThatAToolNamesSo) {
  write_file(folder_ / "Cargo.lock", "[[package]]");
  { const FileLock lock(folder_ / "Cargo"); }
  EXPECT_EQ(read_file(folder_ / "Cargo.lock"), "[[package]]");
}

TEST_F(Lock, SaysWhereItCannotStand) {
  EXPECT_NE(refusal(folder_ / "none" / "r.json").find("none/r.json: cannot be written: No such file"),
            std::string::npos);
}

}  // namespace
}  // namespace halfmark::reports
