// Planted changes of level must be found, and none in series without a change: many series with every kind of noise
// that stored benchmarks have.
#include "reports/statistics/change_points.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "reports/record/folder_testing.h"

namespace halfmark::reports {
namespace {

class Noisy {
 public:
  explicit Noisy(unsigned seed) : draw_(seed) {}
  std::vector<double> still(size_t points, double spread) {
    std::vector<double> series(points);
    for (double& x : series) x = spread * normal_(draw_);
    return series;
  }
  // A fifth of the points is 6 % slower: bimodal times, as from cache or memory placement.
  std::vector<double> bimodal(size_t points, double spread) {
    std::vector<double> series = still(points, spread);
    for (double& x : series)
      if (draw_() % 5 == 0) x += 0.06;
    return series;
  }

 private:
  std::mt19937 draw_;
  std::normal_distribution<double> normal_;
};

void step(std::vector<double>& series, size_t at, double by) {
  for (size_t i = at; i < series.size(); ++i) series[i] += by;
}

std::vector<size_t> places(const std::vector<double>& series) {
  std::vector<size_t> found;
  for (const ChangePoint& point : change_points(series)) found.push_back(point.at);
  return found;
}

TEST(ChangePoints, AreRarelyFoundInSeriesWithoutAChange) {
  // Expected of 300 series, by simulation: at most one, and 2.7 % of the bimodal ones.
  for (const size_t points : {20, 60, 200}) {
    int still = 0, bimodal = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
      still += !places(Noisy(seed).still(points, 0.01)).empty();
      bimodal += !places(Noisy(seed).bimodal(points, 0.01)).empty();
    }
    EXPECT_LE(still, 2) << points << " points";
    EXPECT_LE(bimodal, 15) << points << " points";
  }
}

TEST(ChangePoints, FindAStepAtItsPosition) {
  int found = 0, at_the_place = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::vector<double> series = Noisy(seed).still(60, 0.01);
    step(series, 40, 0.03);
    const std::vector<ChangePoint> points = change_points(series);
    ASSERT_LE(points.size(), 1u) << seed;
    if (points.empty()) continue;
    ++found;
    at_the_place += points[0].at >= 39 && points[0].at <= 41;
    EXPECT_NEAR(points[0].change(), 0.03, 0.012) << seed;
  }
  EXPECT_GE(found, 98);
  EXPECT_GE(at_the_place, 85);
}

TEST(ChangePoints, FindAStepOfFivePercentAfterThreePoints) {
  int found = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::vector<double> series = Noisy(seed).still(33, 0.01);
    step(series, 30, 0.05);
    found += places(series) == std::vector<size_t>{30};
  }
  EXPECT_GE(found, 85);
}

TEST(ChangePoints, FindTwoOppositeChangesInSeriesOfAnyLength) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::vector<double> series = Noisy(seed).still(300, 0.003);
    step(series, 140, 0.05), step(series, 155, -0.05);
    EXPECT_EQ(places(series), (std::vector<size_t>{140, 155})) << seed;
  }
}

TEST(ChangePoints, IgnoreEffectsBelowTheMinimum) {
  std::vector<double> series = Noisy(1).still(200, 0.001);
  step(series, 100, 0.015);
  EXPECT_TRUE(places(series).empty()) << "significant, but less than two per cent";
  step(series, 100, 0.01);
  EXPECT_EQ(places(series), std::vector<size_t>{100});
}

TEST(ChangePoints, IgnoreOutliers) {
  for (size_t at = 0; at < 40; ++at) {
    std::vector<double> series = Noisy(7).still(40, 0.003);
    series[at] += 0.5;
    EXPECT_TRUE(places(series).empty()) << at;
  }
}

TEST(ChangePoints, FindEveryChangeInASeriesWithoutNoise) {
  std::vector<double> series(12, 0.1);
  EXPECT_TRUE(places(series).empty());
  step(series, 9, std::log(2.0));
  EXPECT_EQ(places(series), std::vector<size_t>{9});
  step(series, 3, -1);
  EXPECT_EQ(places(series), (std::vector<size_t>{3, 9}));
  const std::vector<ChangePoint> points = change_points(series);
  EXPECT_EQ(points[1].p, 0);
  EXPECT_NEAR(points[1].before, 0.1 - 1, 1e-12);
  EXPECT_NEAR(points[1].change(), std::log(2.0), 1e-12);
}

TEST(ChangePoints, AreNotFoundInTooFewPoints) {
  for (size_t points = 0; points < 6; ++points) {
    std::vector<double> series(points, 0.0);
    step(series, points / 2, 1);
    EXPECT_TRUE(places(series).empty()) << points;
  }
}

TEST(ChangePoints, RefuseNonFiniteValues) {
  const std::vector<double> series{0, 0, NAN, 0};
  EXPECT_SAYS(complaint([&] { change_points(series); }), "not finite");
}

}  // namespace
}  // namespace halfmark::reports
