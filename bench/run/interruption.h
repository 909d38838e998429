// SIGINT, SIGTERM and SIGHUP during a run: it ends with what it has, or at once when asked a second time.
#pragma once

#include <array>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace halfmark::bench {

// Thrown out of the case under way. No std::exception: a catch for what goes wrong in a case must not take it.
struct Interrupted {};

bool interrupted();          // a signal has come; as cheap as reading an int
void stop_if_interrupted();  // throws Interrupted when one has come: for loops that take long
int interrupting_signal();   // 0 when none has come

// While one lives, the first signal only sets the flag above. When close() has not been called `patience` seconds
// later, the case under way does not look at the flag: `give_up`, on a thread of its own, saves what there is, and the
// process ends with 128 + signal (with 2 when give_up throws). A second signal prints `farewell` and ends the process
// at once. A signal that was ignored stays ignored (nohup). One at a time.
class Interruption {
 public:
  Interruption(double patience, std::string farewell, std::function<void()> give_up);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // The run ends by itself now. Does not return when give_up has begun.
  void close();

 private:
  void watch(double patience);

  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

  std::string farewell_;
  std::function<void()> give_up_;
  std::array<struct sigaction, kSignals.size()> before_{};
  int wake_[2] = {-1, -1};
  std::mutex ending_;  // held by whoever ends the run
  std::condition_variable closed_changed_;
  bool closed_ = false;
  std::thread watcher_;
};

}  // namespace halfmark::bench
