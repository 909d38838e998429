#include "bench/run/contention.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>

namespace halfmark::bench {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
// Shares of a core. Ten ticks of /proc/stat in a second are a tenth of a core.
constexpr double kOthers = 0.1;
constexpr double kWaiting = 0.05;

// The line "cpu user nice system idle iowait irq softirq steal ..." in seconds. `user` contains the time of guests.
std::array<double, 8> machine_times() {
  std::array<double, 8> seconds;
  seconds.fill(kUnknown);
  std::ifstream file("/proc/stat");
  std::string word;
  if (!(file >> word) || word != "cpu") return seconds;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (double& value : seconds) {
    if (!(file >> value)) return value = kUnknown, seconds;
    value /= ticks;
  }
  return seconds;
}

// The second number of schedstat: nanoseconds on a run queue. Threads that have ended are not counted.
double waiting_seconds() {
  std::error_code error;
  double sum = 0;
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    double running = 0, waiting = 0;
    if (!(file >> running >> waiting)) return kUnknown;
    sum += waiting / 1e9;
  }
  return error ? kUnknown : sum;
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345": microseconds.
double pressure_seconds() {
  std::ifstream file("/proc/pressure/cpu");
  for (std::string word; file >> word;) {
    if (!word.starts_with("total=")) continue;
    return std::strtod(word.c_str() + 6, nullptr) / 1e6;
  }
  return kUnknown;
}

double own_seconds() {
  timespec time{};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return kUnknown;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

ContentionMeter::Counters ContentionMeter::now() {
  const auto [user, nice, system, idle, iowait, irq, softirq, steal] = machine_times();
  return {.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
          .own = own_seconds(),
          .busy = user + nice + system + irq + softirq,
          .stolen = steal,
          .waiting = waiting_seconds(),
          .pressure = pressure_seconds()};
}

ContentionMeter::ContentionMeter() : begin_(now()) {}

Contention ContentionMeter::read() const {
  const Counters end = now();
  const double wall = end.wall - begin_.wall;
  // Ticks are coarser than the process's own clock, so a difference may be slightly below 0.
  const auto share = [&](double seconds) {
    return std::isnan(seconds) || wall <= 0 ? kUnknown : std::max(0.0, seconds) / wall;
  };
  return {.wall = wall,
          .cpu = share(end.own - begin_.own),
          .others = share(end.busy - begin_.busy - (end.own - begin_.own)),
          .stolen = share(end.stolen - begin_.stolen),
          .waiting = share(end.waiting - begin_.waiting),
          .pressure = share(end.pressure - begin_.pressure)};
}

std::optional<std::string> contention_reason(const Contention& found, int cores, int threads) {
  const int used = std::clamp(threads, 1, std::max(cores, 1));
  // Cores that the work does not use are free for others.
  const double taken = std::isnan(found.others) ? 0 : std::max(0.0, found.others - (cores - used));
  const double stolen = std::isnan(found.stolen) ? 0 : found.stolen;
  const double waited = std::isnan(found.waiting) ? 0 : found.waiting;
  if (taken + stolen > kOthers * used)
    return stolen > taken
               ? fmt::format("the host of this virtual machine took {:.2f} of {} cores while it was timed", stolen,
                             cores)
               : fmt::format("other processes kept {:.2f} of {} cores busy while it was timed", found.others, cores);
  if (waited > kWaiting && !std::isnan(found.others) && found.others > kOthers)
    return fmt::format(
        "its threads waited for a core during {:.0f} % of the timed seconds, other processes used {:.2f} cores",
        100 * waited, found.others);
  return std::nullopt;
}

int cores_of_machine() { return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))); }

}  // namespace halfmark::bench
