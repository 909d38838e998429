#include "bench/run/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "bench/namespaces.h"
#include "bench/run/interruption.h"
#include "kernels/number/error.h"
#include "reports/record/memory_file.h"

namespace halfmark::bench {

namespace {

// Between fork and exec, no call may take a lock or allocate memory: another thread may have held the lock at the fork.
[[noreturn]] void become(char* const* arguments, char* const* environment, const ChildStreams& streams, pid_t parent,
                         int told) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const auto put = [nowhere](int given, int place) { return ::dup2(given < 0 ? nowhere : given, place) >= 0; };
  if (put(streams.in, STDIN_FILENO) && put(streams.out, STDOUT_FILENO) && put(streams.error, STDERR_FILENO) &&
      (streams.kept < 0 || ::fcntl(streams.kept, F_SETFD, 0) == 0))
    ::execvpe(arguments[0], arguments, environment);
  const int error = errno;
  const ssize_t ignored = ::write(told, &error, sizeof error);
  (void)ignored;
  ::_exit(127);
}

}  // namespace

// fork instead of posix_spawn: only the child itself can request
// to be killed when its parent ends; exec does not cancel the request.
pid_t start_child(const std::vector<std::string>& words, const ChildStreams& streams,
                  const std::vector<std::string>& added) {
  std::vector<char*> arguments, environment;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  for (char** variable = environ; *variable; ++variable) environment.push_back(*variable);
  for (const std::string& variable : added) environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  const auto fail = [&](int error) {
    throw Error(fmt::format("{}: cannot be started: {}", words.front(), std::strerror(error)));
  };
  int told[2] = {};  // closed by a successful exec; a failed exec writes its errno
  if (::pipe2(told, O_CLOEXEC) != 0) fail(errno);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(arguments.data(), environment.data(), streams, parent, told[1]);
  int error = child < 0 ? errno : 0;
  ::close(told[1]);
  while (child > 0 && ::read(told[0], &error, sizeof error) < 0 && errno == EINTR) continue;
  ::close(told[0]);
  if (error == 0) return child;
  if (child > 0) ::waitpid(child, nullptr, 0);
  fail(error);
  return child;
}

ChildEnd wait_for_child(pid_t child, double timeout) {
  const auto begin = std::chrono::steady_clock::now();
  ChildEnd end;
  rusage used = {};
  while (::wait4(child, &end.status, WNOHANG, &used) != child) {
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    end.timed_out = timeout > 0 && waited > timeout;
    if (end.timed_out || interrupted()) {
      ::kill(child, SIGKILL);
      ::wait4(child, &end.status, 0, &used);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // A terminal also sends its signal to the child. If the child still ended normally, its result counts.
  if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) > 1) stop_if_interrupted();
  // The kernel's peak includes the memory that the child shared with this process before exec. The child's own peak is
  // therefore known only if it is larger than the peak of this process.
  rusage own = {};
  ::getrusage(RUSAGE_SELF, &own);
  if (used.ru_maxrss > own.ru_maxrss) end.peak = used.ru_maxrss;
  return end;
}

Ended run_program(const std::vector<std::string>& command) {
  const MemoryFile out("out"), err("err");
  const int status = wait_for_child(start_child(command, {.out = out.descriptor(), .error = err.descriptor()})).status;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), out.text(), err.text()};
}

}  // namespace halfmark::bench
