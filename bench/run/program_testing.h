// Fixture for tests that run halfmark as a child process under signals, SIGKILL, file locks and full disks.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/namespaces.h"
#include "reports/record/folder_testing.h"
#include "reports/record/journal.h"
#include "reports/record/paths_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class ProcessTest : public FolderTest {
 protected:
  void TearDown() override {
    for (const pid_t child : running_) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  }

  static std::string program() { return test_folders::binary() + "/halfmark"; }

  static std::string read(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  struct Result {
    int code = -1;  // exit code, or 128 + signal
    std::string out, err;
    long lines() const { return std::count(err.begin(), err.end(), '\n'); }
  };

  // Quoted for the shell: the path may contain spaces.
  static std::string quoted(const std::string& word) { return "'" + word + "'"; }

  // Runs a shell command in the test's folder; "$HALFMARK" is the program.
  Result shell(const std::string& command) const {
    const int status = std::system(("cd " + quoted(folder_.string()) + " && export HALFMARK=" + quoted(program()) +
                                    " && { " + command + " ; } > stdout 2> stderr")
                                       .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder_ / "stdout"), read(folder_ / "stderr")};
  }
  Result halfmark(const std::string& arguments) const { return shell("\"$HALFMARK\" " + arguments); }

  // Expects a user error: one line that starts with the program's name, and exit code 2.
  void expect_complaint(const std::string& arguments, const std::string& about) const {
    expect_complaint(halfmark(arguments), arguments, about);
  }
  static void expect_complaint(const Result& result, const std::string& arguments, const std::string& about) {
    EXPECT_EQ(result.code, 2) << arguments << "\n" << result.err;
    EXPECT_EQ(result.lines(), 1) << arguments << "\n" << result.err;
    EXPECT_TRUE(result.err.starts_with("halfmark: ")) << result.err;
    EXPECT_NE(result.err.find(about), std::string::npos) << result.err;
  }

  // Starts `words` in the test's folder, its standard error in the file "stderr".
  pid_t start(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const std::string out = (folder_ / "stdout").string(), err = (folder_ / "stderr").string();
    const pid_t child = ::fork();
    if (child == 0) {
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);  // a shell may have ignored them
      if (::chdir(folder_.c_str()) != 0) ::_exit(126);
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    running_.push_back(child);
    return child;
  }
  pid_t start_halfmark(const std::string& arguments) {
    std::vector<std::string> words = {program()};
    std::istringstream text(arguments);
    for (std::string word; text >> word;) words.push_back(word);
    return start(words);
  }

  Result wait(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    std::erase(running_, child);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(folder_ / "stdout"),
            read(folder_ / "stderr")};
  }

  static bool has_ended(pid_t child) {
    siginfo_t info = {};
    return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child;
  }

  // Polls every millisecond; false after a minute, which only a bug can cause.
  template <class Condition>
  static bool wait_until(Condition condition) {
    for (int i = 0; i < 60'000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static size_t lines_in(const std::filesystem::path& path) {
    const std::string text = read(path);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

 private:
  std::vector<pid_t> running_;
};

// A report without the times and dates, which differ between runs of one build on one machine.
inline nlohmann::ordered_json times_aside(const Report& report) {
  nlohmann::ordered_json records = nlohmann::ordered_json::array();
  for (Record record : report.records) {
    record.seconds = 0;
    std::erase_if(record.measurements, [](const Measurement& one) {
      return one.kind == Kind::sampled || one.metric.starts_with("timing.");
    });
    records.push_back(to_json(record));
  }
  return {{"seed", report.run.seed},
          {"suite", report.run.suite},
          {"complete", report.run.complete},
          {"planned", report.run.planned},
          {"plan", {report.run.plan.cases, report.run.plan.hash}},
          {"records", records}};
}

}  // namespace halfmark::bench
