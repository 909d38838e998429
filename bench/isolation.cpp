// Starts the program anew for one case, waits, kills it when it takes too long.
#include "bench/isolation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/interruption.h"
#include "kernels/number/error.h"
#include "reports/memory_file.h"
#include "reports/table.h"

namespace halfmark {

namespace {

// fork rather than posix_spawn: only the child itself can ask to be killed when its parent dies, and it keeps that
// through exec.
pid_t start(const std::vector<std::string>& words, const MemoryFile& report, const MemoryFile& complaints) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto fail = [&](int error) { throw Error("cannot start " + words.front() + ": " + std::strerror(error)); };
  int told[2] = {};  // an exec that succeeds closes it, one that fails writes why
  if (::pipe2(told, O_CLOEXEC) != 0) fail(errno);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    // Between fork and exec nothing that takes a lock or memory: another thread may have held it.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // died before the line above
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (::dup2(nowhere, STDOUT_FILENO) >= 0 && ::dup2(complaints.descriptor(), STDERR_FILENO) >= 0 &&
        ::fcntl(report.descriptor(), F_SETFD, 0) == 0)  // stays open under its number
      ::execv(arguments[0], arguments.data());
    const int error = errno;
    const ssize_t ignored = ::write(told[1], &error, sizeof error);
    (void)ignored;
    ::_exit(127);
  }
  int error = child < 0 ? errno : 0;
  ::close(told[1]);
  while (child > 0 && ::read(told[0], &error, sizeof error) < 0 && errno == EINTR) continue;
  ::close(told[0]);
  if (error == 0) return child;
  if (child > 0) ::waitpid(child, nullptr, 0);
  fail(error);
  return child;
}

struct Ending {
  int status = 0;
  bool timed_out = false;
  std::string memory;  // ", peak memory 1.2 GiB"
};

// Throws Interrupted when this process is to end. The child is gone in every case.
Ending wait_for(pid_t child, double timeout) {
  const auto begin = std::chrono::steady_clock::now();
  Ending ending;
  rusage used = {};
  while (::wait4(child, &ending.status, WNOHANG, &used) != child) {
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ending.timed_out = timeout > 0 && waited > timeout;
    if (ending.timed_out || interrupted()) {
      ::kill(child, SIGKILL);
      ::wait4(child, &ending.status, 0, &used);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  // A terminal sends its signal to the child too. One that ended well all the same counts.
  if (!WIFEXITED(ending.status) || WEXITSTATUS(ending.status) > 1) stop_if_interrupted();
  // The kernel counts what the child had of this process before it became another program: a peak is known only when
  // it lies above our own.
  rusage own = {};
  ::getrusage(RUSAGE_SELF, &own);
  if (used.ru_maxrss > own.ru_maxrss)
    ending.memory = ", peak memory " + human(1024.0 * static_cast<double>(used.ru_maxrss), "B");
  return ending;
}

}  // namespace

IsolatedRun run_isolated(const std::string& program, const std::string& id, uint64_t seed, double timeout) {
  const auto begin = std::chrono::steady_clock::now();
  const MemoryFile report("report"), complaints("complaints");
  const std::string output = fmt::format("/proc/self/fd/{}", report.descriptor());
  const pid_t child = start({program, "run", "--case", id, "--seed", std::to_string(seed), "--no-probes", "-o", output},
                            report, complaints);  // its environment is that of the parent, which has asked
  const Ending ending = wait_for(child, timeout);
  const int status = ending.status;
  IsolatedRun run;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (ending.timed_out) {
    run.reason = fmt::format("killed after {} s (--timeout){}", timeout, ending.memory);
  } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    // Nobody of ours has sent it; the kernel sends it to the largest process when memory runs out.
    run.reason = fmt::format("killed with signal 9, often for want of memory{}", ending.memory);
  } else if (WIFSIGNALED(status)) {
    run.reason =
        fmt::format("crashed with signal {} ({}){}", WTERMSIG(status), strsignal(WTERMSIG(status)), ending.memory);
  } else if (WEXITSTATUS(status) > 1) {
    const std::string said = complaints.text();
    run.reason = fmt::format("exit code {}: {}", WEXITSTATUS(status), said.substr(0, said.find('\n')));
  } else if (const std::string text = report.text(); text.empty()) {
    run.reason = "wrote no report";
  } else {
    try {
      Report written = Report::parse(text, "the report of " + id);
      if (written.records.size() == 1) return run.record = std::move(written.records.front()), run;
      run.reason = fmt::format("wrote {} records instead of one", written.records.size());
    } catch (const ReportError& error) {
      run.reason = error.what();
    }
  }
  return run;
}

}  // namespace halfmark
