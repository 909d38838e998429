// One small persistent pool of threads for our own kernels: a fresh std::thread shares its creator's core for
// milliseconds.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace halfmark::kernels {

// Threads of the process for every host kernel and library, the caller included. 0 = all cores this process may use.
// Not to be called while a parallel_for runs.
void set_host_threads(int threads);
int host_threads();

namespace thread_pool_detail {
using Body = void (*)(void* context, int64_t begin, int64_t end);
void run(int64_t n, int64_t grain, Body body, void* context);
}  // namespace thread_pool_detail

// Calls f(begin, end) for the consecutive pieces of `grain` of 0 .. n - 1 (the last may be shorter). The pieces depend
// on n and grain alone, so a result that is right for each piece is the same for any number of threads and any timing;
// which thread takes a piece is open. A call from inside f, or from a second thread meanwhile, runs serially in the
// same pieces. The first exception of f is thrown again here, when no piece is running any more; pieces not begun by
// then are left out.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  using Function = std::remove_reference_t<F>;
  thread_pool_detail::run(
      n, grain, [](void* context, int64_t begin, int64_t end) { (*static_cast<Function*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace halfmark::kernels
