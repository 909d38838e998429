#include "kernels/cpu/blas_room.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::kernels {

namespace {

// The smaller of the two limits in bytes; RLIM_INFINITY: none.
rlim_t memory_limit() {
  static const rlim_t least = [] {
    rlim_t found = RLIM_INFINITY;  // the largest value of rlim_t
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
    throw Error("the limit on memory of " + std::to_string(memory_limit() >> 20) +
                " MiB (ulimit -v or -d) leaves less than the " + std::to_string(bytes >> 20) +
                " MiB that the math libraries still need; raise the limit, or use fewer cores with taskset");
  ::munmap(room, bytes);
}

}  // namespace halfmark::kernels
