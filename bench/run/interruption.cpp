// The signal handler writes one byte. A thread waits for it and does what a handler must not do.
#include "bench/run/interruption.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <utility>

#include "bench/namespaces.h"
#include "bench/run/program_name.h"
#include "kernels/number/error.h"
#include "reports/record/printable.h"

namespace halfmark::bench {

namespace {

// Process managers send a signal to the process and to its group: two signals within this time count as one.
constexpr int64_t kEcho = 300'000'000;  // ns

// Everything that the handler accesses.
std::atomic<int64_t> first_time{0};
std::atomic<int> first_signal{0};
std::atomic<int> wake_end{-1};
std::atomic<const char*> farewell_text{""};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

int64_t now() {
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void write_text(int descriptor, const char* text, size_t size) {
  const ssize_t ignored = ::write(descriptor, text, size);
  (void)ignored;
}

void on_signal(int signal) {
  const int error = errno;
  int64_t none = 0;
  if (first_time.compare_exchange_strong(none, now())) {
    first_signal = signal;
    write_text(wake_end, "!", 1);
  } else if (now() - first_time > kEcho) {
    const char* const text = farewell_text;
    write_text(STDERR_FILENO, text, std::strlen(text));
    ::_exit(128 + signal);
  }
  errno = error;
}

// Before the first Interruption. The texts are made before the handler is set, because it must not allocate.
std::atomic<bool> is_early{false};
std::array<std::string, kEndingSignals.size()> early_texts;

void on_early_signal(int signal) {
  for (size_t i = 0; i < kEndingSignals.size(); ++i)
    if (kEndingSignals[i] == signal && is_early)
      write_text(STDERR_FILENO, early_texts[i].data(), early_texts[i].size());
  ::_exit(128 + signal);
}

// Sets the handler of each signal that is not ignored, and keeps what was there before.
void handle(void (*handler)(int), std::array<struct sigaction, kEndingSignals.size()>& before) {
  for (size_t i = 0; i < kEndingSignals.size(); ++i) {
    ::sigaction(kEndingSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigaction(kEndingSignals[i], &action, nullptr);
  }
}

void restore(const std::array<struct sigaction, kEndingSignals.size()>& before) {
  for (size_t i = 0; i < kEndingSignals.size(); ++i) ::sigaction(kEndingSignals[i], &before[i], nullptr);
}

}  // namespace

EarlyInterruption::EarlyInterruption() {
  for (size_t i = 0; i < kEndingSignals.size(); ++i)
    early_texts[i] = fmt::format("{}: stopped ({}) before the first case was finished; nothing is written\n",
                                 program_name(), ::strsignal(kEndingSignals[i]));
  is_early = true;
  handle(on_early_signal, before_);
}

EarlyInterruption::~EarlyInterruption() {
  restore(before_);
  is_early = false;
}

bool interrupted() { return first_signal.load(std::memory_order_relaxed) != 0; }

void stop_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

int interrupting_signal() { return first_signal; }

Interruption::Interruption(double patience, std::string farewell, std::function<void()> give_up)
    : farewell_(std::move(farewell)), give_up_(std::move(give_up)) {
  if (::pipe2(wake_, O_CLOEXEC) != 0)
    throw Error("cannot create a pipe for signals: " + std::string(std::strerror(errno)));
  first_time = 0, first_signal = 0, wake_end = wake_[1], farewell_text = farewell_.c_str();
  watcher_ = std::thread([this, patience] { watch(patience); });
  handle(on_signal, before_);
  is_early = false;
}

Interruption::~Interruption() {
  close();
  restore(before_);
  write_text(wake_[1], "?", 1);  // wakes the watcher thread if no signal has done so
  watcher_.join();
  wake_end = -1, farewell_text = "";
  ::close(wake_[0]), ::close(wake_[1]);
}

void Interruption::close() {
  const std::lock_guard lock(ending_);
  closed_ = true;
  closed_changed_.notify_all();
}

void Interruption::watch(double patience) {
  char byte = 0;
  while (::read(wake_[0], &byte, 1) < 0 && errno == EINTR) continue;
  std::unique_lock lock(ending_);
  if (closed_changed_.wait_for(lock, std::chrono::duration<double>(patience), [&] { return closed_; })) return;
  int code = 128 + first_signal;
  try {
    give_up_();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program_name(), printable(error.what()));
    code = 2;
  }
  ::_exit(code);  // with the lock held: another thread that wants to end the run blocks until the process is gone
}

}  // namespace halfmark::bench
