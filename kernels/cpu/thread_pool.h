// A small persistent pool of threads for halfmark's own kernels. A new std::thread per call would be slow: for
// milliseconds it runs on the core of the thread that created it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace halfmark::kernels {

// Number of threads of the process for every host kernel and library, including the caller. 0 = all cores this process
// may use. Must not be called while a parallel_for runs.
void set_host_threads(int threads);
int host_threads();

// After a library's work on the threads of GNU's OpenMP. They look for more work for some milliseconds; parallel_for uses
// them for that time instead of its own threads, which would share their cores with them.
void openmp_team_was_used();

namespace thread_pool_detail {
using Body = void (*)(void* context, int64_t begin, int64_t end);
void run(int64_t n, int64_t grain, Body body, void* context);
}  // namespace thread_pool_detail

// Calls f(begin, end) for consecutive pieces of `grain` of 0 .. n - 1 (the last may be shorter).
// The pieces depend only on n and grain, so a result computed per piece does not depend on the
// number of threads or on timing. Which thread takes a piece is unspecified. A call from inside f,
// or from a second thread at the same time, runs serially in the same pieces. The first exception
// of f is rethrown here once no piece is running; pieces not started by then are skipped.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  using Function = std::remove_reference_t<F>;
  thread_pool_detail::run(
      n, grain, [](void* context, int64_t begin, int64_t end) { (*static_cast<Function*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace halfmark::kernels
