#include "kernels/cuda/software_gpu/calls.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu {
namespace {

struct Request {
  uint64_t at;  // number of the call
  int status;
};
struct Calls {
  std::mutex mutex;
  std::map<std::string, uint64_t> count;
  std::map<std::string, std::vector<Request>> requests;
};

// HALFMARK_SOFTWARE_GPU_FAIL=name:nth:status,...
void read_environment(Calls& calls) {
  const char* text = std::getenv("HALFMARK_SOFTWARE_GPU_FAIL");
  if (!text) return;
  const std::string all = text;
  for (size_t start = 0; start < all.size();) {
    const size_t end = std::min(all.find(',', start), all.size());
    const std::string one = all.substr(start, end - start);
    const size_t first = one.find(':'), second = one.find(':', first + 1);
    if (second == std::string::npos)
      throw std::runtime_error("HALFMARK_SOFTWARE_GPU_FAIL: '" + one + "' is not NAME:NUMBER:STATUS");
    calls.requests[one.substr(0, first)].push_back(
        {std::stoull(one.substr(first + 1, second - first - 1)), std::stoi(one.substr(second + 1))});
    start = end + 1;
  }
}

Calls& calls() {
  static Calls* all = [] {
    auto* made = new Calls;
    read_environment(*made);
    return made;
  }();
  return *all;
}

}  // namespace

std::optional<int> called(const char* function) {
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  const uint64_t number = ++all.count[function];
  const auto requests = all.requests.find(function);
  if (requests == all.requests.end()) return {};
  for (const Request& request : requests->second)
    if (request.at == number) return request.status;
  return {};
}

void fail_call(const std::string& function, uint64_t nth, int status) {
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  all.requests[function].push_back({all.count[function] + nth, status});
}

void fail_no_call() {
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  all.requests.clear();
}

std::vector<std::pair<std::string, uint64_t>> counted_calls() {
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  return {all.count.begin(), all.count.end()};
}

}  // namespace halfmark::kernels::software_gpu
