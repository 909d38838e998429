// Reading ahead: order, bound, exceptions, times and stopping.
#include "models/files/read_ahead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "kernels/number/error.h"
#include "models/files/files_testing.h"

namespace halfmark::models {
namespace {

Batch batch_of(int64_t step) { return {.x = {static_cast<double>(step)}, .labels = {}}; }
void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST(ReadAhead, BatchesComeInOrderWhicheverSideIsSlower) {
  for (const int slow_reader : {0, 1}) {
    ReadAhead ahead(
        [&](int64_t step) {
          pause(slow_reader);
          return batch_of(step);
        },
        5);
    for (int64_t step = 5; step < 25; ++step) {
      EXPECT_EQ(ahead.next_step(), step);
      EXPECT_EQ(ahead.take().x, batch_of(step).x);
      pause(1 - slow_reader);
    }
    EXPECT_EQ(ahead.times().batches.size(), 20u);
  }
}

TEST(ReadAhead, NoMoreThanTheDepthAreReadBeforeTheyAreTaken) {
  std::atomic<int64_t> read = 0;
  ReadAhead ahead(
      [&](int64_t step) {
        ++read;
        return batch_of(step);
      },
      0, 3);
  pause(50);
  EXPECT_EQ(read, 3);
  ahead.take();
  pause(50);
  EXPECT_EQ(read, 4);
}

TEST(ReadAhead, AnErrorComesWithItsBatchAndNotBefore) {
  ReadAhead ahead(
      [](int64_t step) {
        if (step == 2) throw Error("cat.jpg: is empty");
        return batch_of(step);
      },
      0);
  EXPECT_EQ(ahead.take().x[0], 0);
  EXPECT_EQ(ahead.take().x[0], 1);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(complaint([&] { ahead.take(); }), "cat.jpg: is empty");
}

TEST(ReadAhead, TimesTellReadingFromWaiting) {
  ReadAhead slow(
      [](int64_t step) {
        pause(20);
        return batch_of(step);
      },
      0);
  for (int i = 0; i < 5; ++i) slow.take();
  EXPECT_GE(slow.times().waited, 0.09) << "five batches of 20 ms were waited for";
  for (const double seconds : slow.times().batches) EXPECT_GE(seconds, 0.019);
  ReadAhead fast(batch_of, 0);
  for (int i = 0; i < 5; ++i) pause(20), fast.take();
  EXPECT_LT(fast.times().waited, slow.times().waited) << "every batch was ready";
}

TEST(ReadAhead, StopsWithFullAndWithEmptyQueue) {
  for (int i = 0; i < 50; ++i) ReadAhead(batch_of, 0, 2);
  for (int i = 0; i < 20; ++i) {
    ReadAhead ahead(batch_of, 0, 1);
    ahead.take();
  }
}

}  // namespace
}  // namespace halfmark::models
