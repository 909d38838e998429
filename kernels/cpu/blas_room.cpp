#include "kernels/cpu/blas_room.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

#include "kernels/number/error.h"

namespace halfmark {

namespace {

// The smaller of the two limits in bytes; RLIM_INFINITY: none.
rlim_t memory_limit() {
  static const rlim_t least = [] {
    rlim_t found = RLIM_INFINITY;  // the largest number
    for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
      rlimit one = {};
      if (::getrlimit(resource, &one) == 0) found = std::min(found, one.rlim_cur);
    }
    return found;
  }();
  return least;
}

}  // namespace

bool memory_is_limited() { return memory_limit() != RLIM_INFINITY; }

void require_blas_room(int buffers, size_t more) {
  if (!memory_is_limited()) return;
  const size_t bytes = static_cast<size_t>(buffers) * kBlasBuffer + more;
  void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw Error(
        fmt::format("the limit on memory of {} MiB (ulimit -v or -d) leaves less than the {} MiB that the math "
                    "libraries still need; "
                    "raise the limit, or use fewer cores with taskset",
                    memory_limit() >> 20, bytes >> 20));
  ::munmap(room, bytes);
}

}  // namespace halfmark
