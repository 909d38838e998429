#include "bench/run/planted_slow_down.h"

#include <utility>

namespace halfmark::bench {

namespace {
std::map<std::string, double>& planted() {
  static std::map<std::string, double> shares;
  return shares;
}
}  // namespace

void plant_slow_downs(std::map<std::string, double> shares) { planted() = std::move(shares); }

double planted_slow_down(const TrialSpec& spec) {
  if (planted().empty()) return 0;
  const auto found = planted().find(spec.subject->id() + "/" + spec.device->name() + "/" +
                                    std::string(spec.policy->name) + "/throughput");
  return found == planted().end() ? 0 : found->second;
}

void linger(std::chrono::steady_clock::time_point start, double share) {
  using Clock = std::chrono::steady_clock;
  const auto until = start + std::chrono::duration_cast<Clock::duration>((1 + share) * (Clock::now() - start));
  while (Clock::now() < until) {
  }
}

}  // namespace halfmark::bench
