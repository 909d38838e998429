// Each thread has its own share of the pieces, always the same part of the whole, so that it finds in its cache what it
// wrote in the job before; then it takes pieces of the others' shares. The caller works too and ends the job. While the
// threads of a library's OpenMP still look for work, jobs are given to them: those of a second pool would wait for cores.
#include "kernels/cpu/thread_pool.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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

// How often a thread looks for work, or for the end of a job, before it sleeps: about 30 microseconds, in which the next
// job of a training step mostly comes. Waking a sleeping thread takes as long as a small job.
constexpr int kLooks = 700;

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The pieces of a job, in as many shares as there are threads.
class Job {
 public:
  Job(int64_t n, int64_t grain, thread_pool_detail::Body body, void* context, int threads)
      : n_(n), grain_(grain), body_(body), context_(context), shares_(static_cast<size_t>(threads)) {
    const int64_t pieces = (n + grain - 1) / grain;
    for (int64_t t = 0; t < threads; ++t) {
      Share& share = shares_[static_cast<size_t>(t)];
      share.next.store(pieces * t / threads, std::memory_order_relaxed);
      share.end = pieces * (t + 1) / threads;
    }
  }

  // By the thread with this number: its own share first. Returns when no piece is left to start.
  void take_pieces(size_t thread) {
    const InsideScope inside;
    try {
      for (size_t i = 0; i < shares_.size(); ++i) {
        Share& share = shares_[(thread + i) % shares_.size()];
        for (;;) {
          const int64_t piece = share.next.fetch_add(1, std::memory_order_relaxed);
          if (piece >= share.end) break;
          body_(context_, piece * grain_, std::min((piece + 1) * grain_, n_));
        }
      }
    } catch (...) {
      for (Share& share : shares_) share.next.store(share.end, std::memory_order_relaxed);
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  void rethrow() {  // after the last thread has returned
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  int64_t n_, grain_;
  thread_pool_detail::Body body_;
  void* context_;
  std::vector<Share> shares_;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

class Pool {
 public:
  // `looks`: before a thread sleeps.
  Pool(int threads, int looks) : looks_(looks) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(static_cast<size_t>(i)); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      ++number_;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  void run(Job& job) {
    bool wakes = false;
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      number_.fetch_add(1, std::memory_order_relaxed);
      wakes = sleeping_ > 0;
    }
    if (wakes) wake_.notify_all();
    job.take_pieces(0);
    {
      const std::lock_guard lock(mutex_);
      job_ = nullptr;  // a worker that wakes up late finds no job and never touches this one
    }
    for (int i = 0; i < looks_ && active_.load(std::memory_order_acquire) > 0; ++i) pause_briefly();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return active_.load(std::memory_order_relaxed) == 0; });
  }

 private:
  void work(size_t thread) {
    uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < looks_ && number_.load(std::memory_order_relaxed) == seen; ++i) pause_briefly();
      std::unique_lock lock(mutex_);
      if (const uint64_t last = number_.load(std::memory_order_relaxed); last != seen && !job_) {
        seen = last;  // came too late
        if (!stop_) continue;
      }
      ++sleeping_;
      wake_.wait(lock, [&] { return stop_ || (job_ && number_.load(std::memory_order_relaxed) != seen); });
      --sleeping_;
      if (stop_) return;
      seen = number_.load(std::memory_order_relaxed);
      Job& job = *job_;
      active_.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      job.take_pieces(thread);
      lock.lock();
      if (active_.fetch_sub(1, std::memory_order_release) == 1) done_.notify_one();
    }
  }

  const int looks_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  // Written under the mutex; read without it by threads that look.
  std::atomic<uint64_t> number_{0};  // of the last job
  std::atomic<int> active_{0};       // workers in the job
  Job* job_ = nullptr;               // that workers may enter
  int sleeping_ = 0;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

// The processors that this process may use. More threads than that wait for each other: with two on one processor
// (taskset), oneDNN's barriers made a training ten times slower.
int all_cores() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) == 0) return std::max(1, CPU_COUNT(&usable));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// The entries of GNU's OpenMP (the ABI of libgomp 4.0, which libomp has too), if a library has loaded it; halfmark is not
// compiled with OpenMP.
struct Team {
  void (*run)(void (*work)(void*), void* data, unsigned threads, unsigned flags);  // work(data) in as many threads
  int (*number_of_thread)();
};

const Team* loaded_team() {
  static const Team team{reinterpret_cast<decltype(Team::run)>(dlsym(RTLD_DEFAULT, "GOMP_parallel")),
                         reinterpret_cast<decltype(Team::number_of_thread)>(dlsym(RTLD_DEFAULT, "omp_get_thread_num"))};
  return team.run && team.number_of_thread ? &team : nullptr;
}

using Clock = std::chrono::steady_clock;

// Whether jobs are given to the team.
struct TeamState {
  // How long idle threads of the team look for work: libgomp looks 300,000 times, about 12 ms with the pause of this
  // machine; half of it, because other processors pause for a shorter time.
  static constexpr std::chrono::milliseconds kLooksFor{6};
  // On a busy machine a thread of the team may wait for a processor, and the end of each job for that thread. After a
  // wait that is long for a piece the team is left alone for a while; workers of our own that come late take no pieces.
  static constexpr std::chrono::microseconds kLongWait{500};
  static constexpr std::chrono::milliseconds kLeftAlone{200};

  std::atomic<Clock::rep> used{0}, left_alone_until{0};

  static Clock::rep now() { return Clock::now().time_since_epoch().count(); }
  static Clock::rep ticks(Clock::duration duration) { return duration.count(); }

  bool takes_jobs() const {
    const Clock::rep last = used.load(std::memory_order_relaxed), time = last ? now() : 0;
    return last && time - last < ticks(kLooksFor) && time > left_alone_until.load(std::memory_order_relaxed);
  }

  void run(const Team& team, Job& job, int threads) {
    struct Given {
      const Team* team;
      Job* job;
      Clock::rep finished;
    } given{&team, &job, 0};
    team.run(
        [](void* data) {
          auto& own = *static_cast<Given*>(data);
          const int number = own.team->number_of_thread();
          own.job->take_pieces(static_cast<size_t>(number));
          if (number == 0) own.finished = now();  // the caller
        },
        &given, static_cast<unsigned>(threads), 0);
    const Clock::rep end = now();
    if (end - given.finished > ticks(kLongWait)) left_alone_until.store(end + ticks(kLeftAlone));
  }
};

TeamState& team_state() {
  static TeamState instance;
  return instance;
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

void openmp_team_was_used() { team_state().used.store(TeamState::now(), std::memory_order_relaxed); }

void thread_pool_detail::run(int64_t n, int64_t grain, Body body, void* context) {
  grain = std::max<int64_t>(grain, 1);
  Shared& s = shared();
  if (n > grain && !inside_job && s.threads > 1) {
    if (const std::unique_lock lock(s.busy, std::try_to_lock); lock.owns_lock()) {
      Job job(n, grain, body, context, s.threads);
      const Team* team = team_state().takes_jobs() ? loaded_team() : nullptr;
      if (team) {
        team_state().run(*team, job, s.threads);
      } else {
        if (!s.pool) s.pool = std::make_unique<Pool>(s.threads, s.threads <= all_cores() ? kLooks : 0);
        s.pool->run(job);
      }
      return job.rethrow();
    }
  }
  const InsideScope inside;
  for (int64_t begin = 0; begin < n; begin += grain) body(context, begin, std::min(begin + grain, n));
}

}  // namespace halfmark::kernels
