#include "bench/ab/sampler_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "bench/run/child_process.h"
#include "bench/run/interruption.h"
#include "kernels/number/error.h"

namespace halfmark::bench {

namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Error(fmt::format("cannot create a pipe to a build: {}", std::strerror(errno)));
    read = ends[0], write = ends[1];
  }
};

constexpr double kPollInterval = 0.2;  // seconds between two checks for a signal

// A write to a process that has ended must be an error and must not kill this process (SIGPIPE).
void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }

}  // namespace

std::vector<int> own_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

SamplerProcess::SamplerProcess(const std::vector<std::string>& command, double timeout, const std::vector<int>& cores)
    : timeout_(timeout) {
  ignore_broken_pipes();
  Pipe questions, answers;
  to_ = questions.write, from_ = answers.read;
  errors_ = ::memfd_create("errors", MFD_CLOEXEC);
  try {
    child_ = start_child(command, {.in = questions.read, .out = answers.write, .error = errors_});
  } catch (...) {
    for (const int end : {questions.read, answers.write, to_, from_, errors_}) ::close(end);
    throw;
  }
  ::close(questions.read), ::close(answers.write);
  if (!cores.empty()) {  // the child has just been started; its threads inherit the setting
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) CPU_SET(core, &set);
    ::sched_setaffinity(child_, sizeof(set), &set);
  }
}

SamplerProcess::~SamplerProcess() {
  ::close(to_), ::close(from_), ::close(errors_);
  if (child_ == 0) return;
  ::kill(child_, SIGKILL);  // it has no data to save, and its cleanup would only take time
  ::waitpid(child_, nullptr, 0);
}

ProcessSample SamplerProcess::ask(const std::string& id) {
  const std::string question = id + "\n";
  if (::write(to_, question.data(), question.size()) != static_cast<ssize_t>(question.size())) lose(id, false);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_);
  while (true) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      const std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      ProcessSample sample = sample_of(line);
      if (sample.id != id) throw ProcessLost("answered for " + sample.id + " when asked for " + id);
      return sample;
    }
    const double left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) lose(id, true);
    stop_if_interrupted();
    pollfd waiting{from_, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(std::min(left, kPollInterval) * 1000) + 1) <= 0) continue;
    char buffer[4096];
    const ssize_t count = ::read(from_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) lose(id, false);
    pending_.append(buffer, static_cast<size_t>(count));
  }
}

std::string SamplerProcess::complaint() const {
  char text[300] = {};
  const ssize_t count = ::pread(errors_, text, sizeof text - 1, 0);
  const std::string_view all(text, count > 0 ? static_cast<size_t>(count) : 0);
  return std::string(all.substr(0, all.find('\n')));
}

void SamplerProcess::lose(const std::string& id, bool too_slow) {
  if (too_slow) ::kill(child_, SIGKILL);
  int status = 0;
  ::waitpid(child_, &status, 0);
  child_ = 0;
  if (too_slow) throw ProcessLost(fmt::format("gave no answer for {} within {} s", id, timeout_));
  if (WIFSIGNALED(status))
    throw ProcessLost(fmt::format("died with signal {} ({}) at {}", WTERMSIG(status), strsignal(WTERMSIG(status)), id));
  throw ProcessLost(fmt::format("ended with exit code {} at {}: {}", WEXITSTATUS(status), id, complaint()));
}

}  // namespace halfmark::bench
