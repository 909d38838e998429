// Workers sleep until a job starts, take pieces through an atomic
// counter, and deregister. The caller works too and ends the job.
#include "kernels/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

thread_local bool inside_job = false;

struct InsideScope {
  bool outer = std::exchange(inside_job, true);
  ~InsideScope() { inside_job = outer; }
};

class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(int64_t n, int64_t grain, thread_pool_detail::Body body, void* context) {
    {
      const std::lock_guard lock(mutex_);
      n_ = n, grain_ = grain, body_ = body, context_ = context;
      failure_ = nullptr;
      next_.store(0, std::memory_order_relaxed);
      open_ = true;
      ++job_;
    }
    wake_.notify_all();
    take_pieces();
    std::unique_lock lock(mutex_);
    open_ = false;  // a worker that wakes up late finds no job and never touches this one
    done_.wait(lock, [this] { return active_ == 0; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void take_pieces() {
    const InsideScope inside;
    try {
      for (;;) {
        const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
        if (begin >= n_) return;
        body_(context_, begin, std::min(begin + grain_, n_));
      }
    } catch (...) {
      next_.store(n_, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  void work() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || (open_ && job_ != seen); });
      if (stop_) return;
      seen = job_;
      ++active_;
      lock.unlock();
      take_pieces();
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  // The job; written under the mutex while no worker is active.
  int64_t n_ = 0, grain_ = 1;
  thread_pool_detail::Body body_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int64_t> next_{0};
  std::exception_ptr failure_;
  bool open_ = false, stop_ = false;
  uint64_t job_ = 0;
  int active_ = 0;
  std::vector<std::thread> workers_;
};

// The processors that this process may use. More threads than that wait for each other: with two on one processor
// (taskset), oneDNN's barriers made a training ten times slower.
int all_cores() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) return std::max(1, CPU_COUNT(&usable));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

struct Shared {
  std::mutex busy;  // held by the one caller that uses the pool
  std::atomic<int> threads{all_cores()};
  std::unique_ptr<Pool> pool;  // created by the first job that needs it
};

Shared& shared() {
  static Shared instance;
  return instance;
}

}  // namespace

void set_host_threads(int threads) {
  HM_CHECK(threads >= 0, "the number of threads must not be negative: " + std::to_string(threads));
  Shared& s = shared();
  const std::lock_guard lock(s.busy);
  s.threads = threads ? threads : all_cores();
  if (s.pool && s.pool->threads() != s.threads) s.pool.reset();
}

int host_threads() { return shared().threads; }

void thread_pool_detail::run(int64_t n, int64_t grain, Body body, void* context) {
  grain = std::max<int64_t>(grain, 1);
  Shared& s = shared();
  if (n > grain && !inside_job && s.threads > 1) {
    if (const std::unique_lock lock(s.busy, std::try_to_lock); lock.owns_lock()) {
      if (!s.pool) s.pool = std::make_unique<Pool>(s.threads);
      return s.pool->run(n, grain, body, context);
    }
  }
  const InsideScope inside;
  for (int64_t begin = 0; begin < n; begin += grain) body(context, begin, std::min(begin + grain, n));
}

}  // namespace halfmark::kernels
