// Reading and writing whole files: the temporary files beside them, and files that must not be changed.
#include "reports/record/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "reports/record/folder_testing.h"

namespace halfmark::reports {
namespace {

namespace fs = std::filesystem;

class Files : public FolderTest {
 protected:
  const fs::path report_ = folder_ / "report.json";
  fs::path temporary(long writer, int number) const {
    return companion_of(report_, fmt::format("{}-{}.halfmark-tmp", writer, number));
  }
};

TEST_F(Files, ATemporaryFileIsNeverWrittenOverAnotherOrThroughALink) {
  const fs::path victim = folder_ / "victim";
  write_file(victim, "precious");
  fs::create_symlink("victim", temporary(::getpid(), 0));
  fs::create_directory(temporary(::getpid(), 1));
  write_file(report_, "text");
  EXPECT_EQ(read_file(report_), "text");
  EXPECT_EQ(read_file(victim), "precious");
  EXPECT_TRUE(fs::is_symlink(temporary(::getpid(), 0)));
  EXPECT_TRUE(fs::is_directory(temporary(::getpid(), 1)));
}

TEST_F(Files, AFileThatNobodyHasNamedReplacesALink) {
  const fs::path victim = folder_ / "victim", link = folder_ / "link";
  write_file(victim, "precious");
  fs::create_symlink("victim", link);
  replace_file(link, "text");
  EXPECT_FALSE(fs::is_symlink(link));
  EXPECT_EQ(read_file(link), "text");
  EXPECT_EQ(read_file(victim), "precious");
}

TEST_F(Files, LeftoversAreRemovedAndNothingElse) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const fs::path leftover = temporary(gone, 0), of_our_own = temporary(::getpid(), 0),
                 of_the_living = temporary(::getppid(), 0);
  const std::vector<fs::path> others = {of_the_living,
                                        folder_ / fmt::format("report.json.{}.tmp", gone),
                                        folder_ / fmt::format(".report.json.{}.halfmark-tmp", gone),
                                        folder_ / fmt::format(".report.json.{}-x.halfmark-tmp", gone),
                                        folder_ / fmt::format(".report.json.{}-0x.halfmark-tmp", gone),
                                        folder_ / fmt::format(".report.json.{}-0.x.halfmark-tmp", gone),
                                        folder_ / fmt::format(".report.json.{}x0.halfmark-tmp", gone),
                                        folder_ / fmt::format(".report.json.{}-0.halfmark-tmq", gone),
                                        folder_ / fmt::format(".report.json.-{}-0.halfmark-tmp", gone),
                                        folder_ / fmt::format(".other.json.{}-0.halfmark-tmp", gone),
                                        folder_ / ".report.json.halfmark-tmp",
                                        folder_ / "victim"};
  write_file(leftover, "half a repo");
  write_file(of_our_own, "half a repo");
  for (const fs::path& path : others) write_file(path, "not ours");
  fs::create_symlink("victim", temporary(gone, 1));
  fs::create_directory(temporary(gone, 2));
  remove_leftovers(report_);
  EXPECT_FALSE(fs::exists(leftover));
  EXPECT_FALSE(fs::exists(of_our_own)) << "another process had this number before";
  for (const fs::path& path : others) EXPECT_EQ(read_file(path), "not ours") << path;
  EXPECT_TRUE(fs::is_symlink(temporary(gone, 1)));
  EXPECT_TRUE(fs::is_directory(temporary(gone, 2)));
}

TEST_F(Files, LeftoversOfAnotherUserStay) {
  if (::geteuid() != 0) GTEST_SKIP() << "only the superuser can make a file of another user";
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  write_file(temporary(gone, 0), "half a repo");
  ASSERT_EQ(::chown(temporary(gone, 0).c_str(), 65534, 65534), 0);
  remove_leftovers(report_);
  EXPECT_EQ(read_file(temporary(gone, 0)), "half a repo");
}

TEST_F(Files, LeftoversLieBesideTheFileThatALinkNames) {
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  fs::create_symlink("report.json", folder_ / "latest.json");
  write_file(temporary(gone, 0), "half a repo");
  remove_leftovers(folder_ / "latest.json");
  EXPECT_FALSE(fs::exists(temporary(gone, 0)));
}

TEST_F(Files, AnOpenFileIsContinuedByWhateverNameItHas) {
  write_file(report_, "first\n");
  const int file = ::open(report_.c_str(), O_WRONLY | O_APPEND);
  ASSERT_GE(file, 0);
  fs::create_symlink(fmt::format("/dev/fd/{}", file), folder_ / "link");
  fs::create_symlink("link", folder_ / "link to link");
  fs::create_directory_symlink("/proc/self/fd", folder_ / "open");
  const std::vector<fs::path> paths = {fmt::format("/dev/fd/{}", file),
                                       fmt::format("/proc/self/fd/{}", file),
                                       fmt::format("/proc/{}/task/{}/fd/{}", ::getpid(), ::getpid(), file),
                                       fmt::format("/dev/../proc/self/fd/{}", file),
                                       folder_ / "link",
                                       folder_ / "link to link",
                                       folder_ / fmt::format("open/{}", file)};
  std::string expected = "first\n";
  for (const fs::path& path : paths) {
    EXPECT_TRUE(is_written_in_place(path)) << path;
    write_file(path, path.string() + "\n");
    expected += path.string() + "\n";
    EXPECT_EQ(read_file(report_), expected);
  }
  ::close(file);
  EXPECT_FALSE(is_written_in_place(report_));
  EXPECT_FALSE(is_written_in_place(folder_ / "absent"));
  fs::create_directory(folder_ / "fd");
  write_file(folder_ / "fd/1", "a folder of this name elsewhere");
  EXPECT_FALSE(is_written_in_place(folder_ / "fd/1"));
  const int reading = ::open(report_.c_str(), O_RDONLY);
  EXPECT_SAYS(complaint([&] { write_file(fmt::format("/dev/fd/{}", reading), "x"); }), "is not open for writing");
  ::close(reading);
  EXPECT_EQ(read_file(report_), expected);
}

TEST_F(Files, WhatHasNoEndIsRefused) {
  EXPECT_SAYS(complaint([] { read_file("/dev/zero"); }), "/dev/zero: cannot be read: it is longer than 1024 MiB");
  const fs::path sparse = folder_ / "sparse";
  write_file(sparse, "");
  fs::resize_file(sparse, kLongestFile + 1);
  EXPECT_SAYS(complaint([&] { read_regular_file(sparse); }), "it is longer than 1024 MiB");
}

TEST_F(Files, OnlyRegularFilesAreReadUnasked) {
  const fs::path pipe = folder_ / "pipe", link = folder_ / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_SAYS(complaint([&] { read_regular_file(pipe); }), "pipe: is not a regular file");
  EXPECT_SAYS(complaint([&] { read_regular_file(folder_); }), "is not a regular file");
  EXPECT_SAYS(complaint([&] { read_regular_file("/dev/zero"); }), "is not a regular file");
  fs::create_symlink("link", link);
  EXPECT_SAYS(complaint([&] { read_regular_file(link); }), "link: cannot be read: ");
  write_file(folder_ / "file", "text");
  EXPECT_EQ(read_regular_file(folder_ / "file"), "text");
}

}  // namespace
}  // namespace halfmark::reports
