// Tests of the measured contention and of what it means for a time.
#include "bench/run/contention.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <limits>

namespace halfmark::bench {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool misleads(double others, double stolen, double waiting, int cores, int threads) {
  Contention found;
  found.others = others, found.stolen = stolen, found.waiting = waiting;
  return contention_reason(found, cores, threads).has_value();
}

TEST(Contention, CountsOnlyCoresThatTheWorkNeeds) {
  EXPECT_TRUE(misleads(1, 0, 0, 2, 2)) << "another process on one of two cores";
  EXPECT_FALSE(misleads(1, 0, 0, 2, 1)) << "the other core is free for it";
  EXPECT_TRUE(misleads(1.5, 0, 0, 2, 1));
  EXPECT_FALSE(misleads(40, 0, 0, 64, 16));
  EXPECT_TRUE(misleads(60, 0, 0, 64, 16));
  EXPECT_FALSE(misleads(0.15, 0, 0, 2, 2)) << "within the ticks of the counters";
}

TEST(Contention, CountsWhatTheHostTakes) {
  EXPECT_TRUE(misleads(0, 0.5, 0, 2, 2));
  EXPECT_FALSE(misleads(0, 0.1, 0, 2, 2));
}

TEST(Contention, CountsWaitingOnlyBesideOthers) {
  EXPECT_TRUE(misleads(0.15, 0, 0.1, 2, 2));
  EXPECT_FALSE(misleads(0.02, 0, 0.1, 2, 2)) << "the work's own threads wait for each other";
}

TEST(Contention, IsNoReasonWhereTheSystemTellsNothing) { EXPECT_FALSE(misleads(kNaN, kNaN, kNaN, 2, 2)); }

TEST(Contention, TheReasonNamesTheCause) {
  Contention found;
  found.others = 0.98;
  EXPECT_EQ(contention_reason(found, 2, 2), "other processes kept 0.98 of 2 cores busy while it was timed");
  found.others = 0, found.stolen = 1.2;
  EXPECT_EQ(contention_reason(found, 2, 2), "the host of this virtual machine took 1.20 of 2 cores while it was timed");
}

TEST(ContentionMeter, CountsTheCpuTimeOfThisProcessAsItsOwn) {
  const ContentionMeter meter;
  const auto start = std::chrono::steady_clock::now();
  volatile double x = 1;
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(30)) x = x + 1;
  const Contention found = meter.read();
  EXPECT_GE(found.wall, 0.03);
  EXPECT_GT(found.cpu, 0);
  if (!std::isnan(found.others)) {
    EXPECT_GE(found.others, 0);
    EXPECT_LE(found.others, cores_of_machine() + 1) << "ticks of 10 ms in at least 30 ms";
  }
}

}  // namespace
}  // namespace halfmark::bench
