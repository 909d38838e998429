// Starts the program anew for one case, waits, kills it when it takes too long.
#include "bench/isolation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark {

namespace {

// Removed with all that is in it.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "halfmark-case-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw Error("no temporary directory for an isolated case: " + std::string(std::strerror(errno)));
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

pid_t start(const std::vector<std::string>& words, const std::filesystem::path& complaints) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, complaints.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, words.front().c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Error("cannot start " + words.front() + ": " + std::strerror(error));
  return child;
}

// False when the time was up; the child is then gone all the same.
bool wait_for(pid_t child, double timeout, int& status) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    if (::waitpid(child, &status, timeout > 0 ? WNOHANG : 0) == child) return true;
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > timeout) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::string first_line(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char text[300] = {};
  const ssize_t count = file < 0 ? 0 : ::read(file, text, sizeof(text) - 1);
  if (file >= 0) ::close(file);
  const std::string_view all(text, count > 0 ? static_cast<size_t>(count) : 0);
  return std::string(all.substr(0, all.find('\n')));
}

}  // namespace

IsolatedRun run_isolated(const std::string& program, const std::string& id, uint64_t seed, double timeout) {
  const auto begin = std::chrono::steady_clock::now();
  const Folder folder;
  const std::filesystem::path output = folder.path() / "report.json", complaints = folder.path() / "complaints";
  const pid_t child =
      start({program, "run", "--case", id, "--seed", std::to_string(seed), "--no-probes", "-o", output.string()},
            complaints);  // its environment is that of the parent, which has asked
  int status = 0;
  const bool ended = wait_for(child, timeout, status);
  IsolatedRun run;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!ended) {
    run.reason = fmt::format("killed after {} s (--timeout)", timeout);
  } else if (WIFSIGNALED(status)) {
    run.reason = fmt::format("crashed with signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) > 1) {
    run.reason = fmt::format("exit code {}: {}", WEXITSTATUS(status), first_line(complaints));
  } else {
    try {
      Report report = Report::load(output);
      if (report.records.size() == 1) return run.record = std::move(report.records.front()), run;
      run.reason = fmt::format("wrote {} records instead of one", report.records.size());
    } catch (const ReportError& error) {
      run.reason = error.what();
    }
  }
  return run;
}

}  // namespace halfmark
