// SIGINT, SIGTERM and SIGHUP during a run: the first signal ends it with a partial report, the second ends it at once.
#pragma once

#include <array>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace halfmark::bench {

inline constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP};

// Thrown out of the current case. Not a std::exception, so that handlers for errors of a case do not catch it.
struct Interrupted {};

bool interrupted();          // true after a signal; as cheap as reading an int
void stop_if_interrupted();  // throws Interrupted after a signal: for long loops
int interrupting_signal();   // 0 = none

// While an object exists and until the first Interruption, a signal prints "stopped (Terminated) before the first case" and ends
// the process with 128 + signal: for reading and planning, where there is nothing to save. A signal that was ignored before
// stays ignored.
class EarlyInterruption {
 public:
  EarlyInterruption();
  ~EarlyInterruption();
  EarlyInterruption(const EarlyInterruption&) = delete;
  EarlyInterruption& operator=(const EarlyInterruption&) = delete;

 private:
  std::array<struct sigaction, kEndingSignals.size()> before_{};
};

// While an object exists, the first signal only sets the flag above. If close() is not called within `patience`
// seconds, the current case does not check the flag. Then `give_up` saves the finished records on a separate thread,
// and the process ends with 128 + signal (with 2 if give_up throws). A second signal prints `farewell` and ends the
// process at once. A signal that was ignored before stays ignored (nohup). Only one object may exist at a time.
class Interruption {
 public:
  Interruption(double patience, std::string farewell, std::function<void()> give_up);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Call when the run ends by itself. Does not return if give_up has started.
  void close();

 private:
  void watch(double patience);

  std::string farewell_;
  std::function<void()> give_up_;
  std::array<struct sigaction, kEndingSignals.size()> before_{};
  int wake_[2] = {-1, -1};
  std::mutex ending_;  // held by the thread that ends the run
  std::condition_variable closed_changed_;
  bool closed_ = false;
  std::thread watcher_;
};

}  // namespace halfmark::bench
