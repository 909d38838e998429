#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace halfmark::kernels {
namespace {

// Restores the number of threads.
struct Threads {
  int before = host_threads();
  explicit Threads(int threads) { set_host_threads(threads); }
  ~Threads() { set_host_threads(before); }
};

TEST(ThreadPool, DoesEveryElementOnce) {
  for (const int threads : {1, 2, 4}) {
    const Threads scope(threads);
    EXPECT_EQ(host_threads(), threads);
    for (const int64_t n : {0, 1, 7, 1000, 12345})
      for (const int64_t grain : {1, 10, 5000}) {
        std::vector<int> seen(static_cast<size_t>(n), 0);
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), int64_t{0}), n);
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), n);
      }
  }
}

TEST(ThreadPool, PiecesDependOnSizeAndGrainAlone) {
  std::set<std::pair<int64_t, int64_t>> first;
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    std::set<std::pair<int64_t, int64_t>> pieces;
    std::mutex mutex;
    parallel_for(103, 10, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      pieces.emplace(begin, end);
    });
    EXPECT_EQ(pieces.size(), 11u);
    if (first.empty()) first = pieces;
    EXPECT_EQ(pieces, first);
  }
}

TEST(ThreadPool, ACallFromInsideRunsSerially) {
  const Threads scope(3);
  std::atomic<int> sum{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(100, 10, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      sum += static_cast<int>(end - begin);
    });
  });
  EXPECT_EQ(sum, 800);
}

TEST(ThreadPool, AnExceptionComesOutAndThePoolGoesOn) {
  const Threads scope(3);
  for (int round = 0; round < 20; ++round)
    EXPECT_THROW(parallel_for(100, 1,
                              [](int64_t begin, int64_t) {
                                if (begin == 37) throw std::runtime_error("37");
                              }),
                 std::runtime_error);
  std::atomic<int64_t> sum{0};
  parallel_for(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
  EXPECT_EQ(sum, 4950);
}

TEST(ThreadPool, TwoCallersAtOnceBothFinish) {
  const Threads scope(2);
  std::atomic<int64_t> sum{0};
  const auto work = [&] {
    for (int i = 0; i < 200; ++i) parallel_for(50, 1, [&](int64_t begin, int64_t) { sum += begin; });
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(sum, 2 * 200 * 1225);
}

TEST(ThreadPool, ManySmallJobsInARow) {
  const Threads scope(4);
  int64_t total = 0;
  for (int i = 0; i < 5000; ++i) {
    std::atomic<int64_t> sum{0};
    parallel_for(16, 2, [&](int64_t begin, int64_t end) { sum += end - begin; });
    total += sum;
  }
  EXPECT_EQ(total, 80000);
}

// The threads of OpenMP, where a library has loaded it; else this is the pool again.
TEST(ThreadPool, JobsOfAnOpenMpTeamHaveTheSamePiecesAndExceptions) {
  for (const int threads : {2, 3}) {
    const Threads scope(threads);
    for (int round = 0; round < 50; ++round) {
      openmp_team_was_used();
      std::set<std::pair<int64_t, int64_t>> pieces;
      std::mutex mutex;
      int64_t inner = 0;
      parallel_for(103, 10, [&](int64_t begin, int64_t end) {
        std::atomic<int64_t> sum{0};
        parallel_for(9, 2, [&](int64_t from, int64_t to) { sum += to - from; });
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(pieces.emplace(begin, end).second);
        inner += sum;
      });
      EXPECT_EQ(pieces.size(), 11u);
      EXPECT_EQ(*pieces.rbegin(), (std::pair<int64_t, int64_t>(100, 103)));
      EXPECT_EQ(inner, 99);
      openmp_team_was_used();
      EXPECT_THROW(parallel_for(50, 1,
                                [](int64_t begin, int64_t) {
                                  if (begin == 31) throw std::runtime_error("31");
                                }),
                   std::runtime_error);
    }
  }
}

// As under taskset or in a container: two threads on one processor wait for each other.
TEST(ThreadPool, HasAsManyThreadsAsTheProcessMayUseProcessors) {
  const Threads after(0);
  cpu_set_t before, first;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(host_threads(), CPU_COUNT(&before));
  CPU_ZERO(&first);
  for (size_t cpu = 0; CPU_COUNT(&first) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &first);
  ASSERT_EQ(::sched_setaffinity(0, sizeof first, &first), 0);
  set_host_threads(0);
  const int found = host_threads();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace halfmark::kernels
