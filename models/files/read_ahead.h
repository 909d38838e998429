// Reads the next batches in a thread of its own while a training computes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "models/data.h"
#include "models/namespaces.h"

namespace halfmark::models {

// Seconds of a training's reading.
struct ReadingTimes {
  std::vector<double> batches;  // to read, decode and normalise each batch that was taken
  double waited = 0;            // that the caller waited for a batch, in all
};

class ReadAhead {
 public:
  // `read` gives the batch of a step and is called from the thread, for `first`, first + 1, ..., at most `depth` steps
  // before they are taken.
  ReadAhead(std::function<Batch(int64_t step)> read, int64_t first, size_t depth = 2);
  ~ReadAhead();  // waits until the batch that is being read is finished
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  int64_t next_step() const { return next_; }
  // The batch of next_step(), which is one more afterwards. An exception of `read` for this step is thrown here; the thread
  // has then ended, and every later call throws it again.
  Batch take();
  const ReadingTimes& times() const { return times_; }

 private:
  struct Item {
    Batch batch;
    double seconds = 0;
    std::exception_ptr error;
  };
  void run();

  std::function<Batch(int64_t)> read_;
  size_t depth_;
  int64_t next_, reading_;  // the step that is taken next; that the thread reads next
  ReadingTimes times_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Item> ready_;
  bool stopped_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace halfmark::models
