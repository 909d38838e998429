#include "kernels/cuda/software_gpu/calls.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <ios>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu {
namespace {

struct Request {
  uint64_t at;  // number of the call
  int status;
  uintptr_t place = 0;  // not 0: of the calls from this place only
  uint64_t seen = 0;    // calls from there
};
struct Place {
  uint64_t first = 0, last = 0, calls = 0;  // numbers of its first and last call among those of the function
};
struct Calls {
  std::mutex mutex;
  std::map<std::string, uint64_t> count;
  std::map<std::pair<std::string, const void*>, Place> places;
  std::map<std::string, std::vector<Request>> requests;
  std::string file;
};

// Whether this is the process that the variables were set for. Those that it starts inherit the mark.
bool is_first_process() {
  constexpr const char* kMark = "HALFMARK_SOFTWARE_GPU_PROCESS";
  const std::string own = std::to_string(::getpid());
  if (const char* marked = std::getenv(kMark)) return own == marked;
  ::setenv(kMark, own.c_str(), 1);
  return true;
}

// Where in its file a call comes from.
uintptr_t offset_of(const void* place) {
  Dl_info where{};
  if (!::dladdr(place, &where)) return 0;
  return reinterpret_cast<uintptr_t>(place) - reinterpret_cast<uintptr_t>(where.dli_fbase);
}

// HALFMARK_SOFTWARE_GPU_FAIL=name[@place]:nth:status,...
void read_requests(const std::string& all, bool is_first, Calls& calls) {
  for (size_t start = 0; start < all.size();) {
    const size_t end = std::min(all.find(',', start), all.size());
    const std::string one = all.substr(start, end - start);
    start = end + 1;
    const size_t first = one.find(':'), second = one.find(':', first + 1);
    if (second == std::string::npos)
      throw std::runtime_error("HALFMARK_SOFTWARE_GPU_FAIL: '" + one + "' is not NAME:NUMBER:STATUS");
    if (!is_first && !one.ends_with(":always")) continue;
    const std::string what = one.substr(0, first);
    const size_t name_end = std::min(what.find('@'), what.size());
    Request request{std::stoull(one.substr(first + 1, second - first - 1)), std::stoi(one.substr(second + 1))};
    if (name_end < what.size()) request.place = std::stoull(what.substr(name_end + 1), nullptr, 16);
    calls.requests[what.substr(0, name_end)].push_back(request);
  }
}

void write_calls();

Calls& calls() {
  static Calls* all = [] {
    auto* made = new Calls;
    const char *fail = std::getenv("HALFMARK_SOFTWARE_GPU_FAIL"), *file = std::getenv("HALFMARK_SOFTWARE_GPU_CALLS");
    if (!fail && !file) return made;
    const bool is_first = is_first_process();
    if (fail) read_requests(fail, is_first, *made);
    if (file && is_first) made->file = file, std::atexit(write_calls);
    return made;
  }();
  return *all;
}

// "call cudaMalloc halfmark_cuda.so+1a2b 1 30 12": name, place, numbers of the first and the last call from there, calls.
void write_calls() {
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  std::ofstream file(all.file, std::ios::app);  // the stand-in of NVML has calls of its own
  for (const auto& [what, place] : all.places) {
    Dl_info where{};
    const bool is_known = ::dladdr(what.second, &where) != 0;
    const std::string image = is_known && where.dli_fname ? where.dli_fname : "?";
    file << "call " << what.first << " " << image.substr(image.rfind('/') + 1) << "+" << std::hex
         << offset_of(what.second) << std::dec << " " << place.first << " " << place.last << " " << place.calls << "\n";
  }
}

}  // namespace

std::optional<int> called_from(const char* function, const void* place) {
  Calls& all = calls();
  const std::lock_guard lock(all.mutex);
  const uint64_t number = ++all.count[function];
  if (!all.file.empty()) {
    Place& one = all.places[{function, place}];
    if (one.calls++ == 0) one.first = number;
    one.last = number;
  }
  const auto requests = all.requests.find(function);
  if (requests == all.requests.end()) return {};
  for (Request& request : requests->second) {
    const bool is_here = request.place == 0 || request.place == offset_of(place);
    if (is_here && (request.place == 0 ? number : ++request.seen) == request.at) return request.status;
  }
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
