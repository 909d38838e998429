#include "models/files/read_ahead.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace halfmark::models {
namespace {

using ReadingClock = std::chrono::steady_clock;
double seconds_since(ReadingClock::time_point start) {
  return std::chrono::duration<double>(ReadingClock::now() - start).count();
}

}  // namespace

ReadAhead::ReadAhead(std::function<Batch(int64_t step)> read, int64_t first, size_t depth)
    : read_(std::move(read)), depth_(depth), next_(first), reading_(first), thread_([this] { run(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ReadAhead::run() {
  for (bool failed = false; !failed;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || ready_.size() < depth_; });
      if (stopped_) return;
    }
    Item item;
    const auto start = ReadingClock::now();
    try {
      item.batch = read_(reading_++);
    } catch (...) {
      item.error = std::current_exception(), failed = true;
    }
    item.seconds = seconds_since(start);
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(item));
    changed_.notify_all();
  }
}

Batch ReadAhead::take() {
  const auto start = ReadingClock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty(); });
  times_.waited += seconds_since(start);
  if (ready_.front().error) std::rethrow_exception(ready_.front().error);
  Item item = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  times_.batches.push_back(item.seconds);
  ++next_;
  return std::move(item.batch);
}

}  // namespace halfmark::models
