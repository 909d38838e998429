// Anchors, matching and scores of detectors, by hand.
#include "models/anchors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/number/error.h"
#include "models/data.h"
#include "models/layers/detection_loss.h"
#include "models/score.h"

namespace halfmark::models {
namespace {

void expect_box(const Box& box, const Box& expected) {
  EXPECT_NEAR(box.left, expected.left, 1e-12);
  EXPECT_NEAR(box.top, expected.top, 1e-12);
  EXPECT_NEAR(box.right, expected.right, 1e-12);
  EXPECT_NEAR(box.bottom, expected.bottom, 1e-12);
}

TEST(Boxes, OverlapByTheIntersectionOverTheUnion) {
  EXPECT_DOUBLE_EQ(overlap({0, 0, 4, 4}, {2, 0, 6, 4}), 8.0 / 24);
  EXPECT_EQ(overlap({0, 0, 4, 4}, {0, 0, 4, 4}), 1);
  EXPECT_EQ(overlap({0, 0, 4, 4}, {4, 0, 8, 4}), 0) << "they touch";
  EXPECT_EQ(overlap({0, 0, 0, 4}, {0, 0, 4, 4}), 0) << "one is empty";
  EXPECT_EQ(overlap({0, 0, NAN, 4}, {0, 0, 4, 4}), 0);
}

TEST(Anchors, ComeByLevelRowColumnAndRatio) {
  const std::vector<Box> all = anchors_of(32, 64);
  ASSERT_EQ(all.size(), 3u * (4 * 8 + 2 * 4 + 1 * 2));
  const double root = std::sqrt(2.0);
  expect_box(all[0], {4 - 8 * root, 4 - 4 * root, 4 + 8 * root, 4 + 4 * root});  // ratio 1/2: wide
  expect_box(all[1], {-4, -4, 12, 12});
  expect_box(all[2], {4 - 4 * root, 4 - 8 * root, 4 + 4 * root, 4 + 8 * root});
  expect_box(all[3 + 1], {4, -4, 20, 12});             // the next column
  expect_box(all[8 * 3 + 1], {-4, 4, 12, 20});         // the next row
  expect_box(all[32 * 3 + 1], {-8, -8, 24, 24});       // the next level
  expect_box(all[40 * 3 + 3 + 1], {16, -16, 80, 48});  // the last place
  EXPECT_THROW(anchors_of(32, 40), Error);
}

TEST(Anchors, StandForWhatTheyOverlapMost) {
  const std::vector<Box> anchors = {{0, 0, 10, 10},     // the first object
                                    {0, 0, 10, 20},     // half of it
                                    {0, 0, 10, 22.5},   // 0.444 of it
                                    {0, 0, 10, 30},     // a third
                                    {20, 20, 30, 50},   // a third of the second, which has no better
                                    {60, 60, 70, 70}};  // nothing
  const std::vector<Box> objects = {{0, 0, 10, 10}, {20, 20, 30, 30}};
  EXPECT_EQ(matched(anchors, objects), (std::vector<int64_t>{0, 0, kBetween, kBackground, 1, kBackground}));
  EXPECT_EQ(matched(anchors, {}), std::vector<int64_t>(6, kBackground));
}

TEST(Anchors, EncodeBoxesRelativeToTheirOwn) {
  const Box anchor{0, 0, 10, 20}, object{5, 10, 15, 50};
  const std::array<double, 4> numbers = encoded(anchor, object);
  EXPECT_EQ(numbers, (std::array<double, 4>{0.5, 1, 0, std::log(2.0)}));
  expect_box(decoded(anchor, numbers), object);
  const Box wide = decoded(anchor, std::array<double, 4>{0, 0, 100, 0});
  EXPECT_NEAR(wide.width(), 625, 1e-9) << "at most 1000 / 16 times the anchor";
}

// Two images of 32 x 32 with 3 classes; the second has no object.
std::vector<double> labels_of_two() {
  std::vector<double> labels(2 * kMostObjects * kNumbersOfObject, 0.0);
  for (size_t i = 0; i < labels.size(); i += kNumbersOfObject) labels[i] = -1;
  labels[0] = 2, labels[1] = 4, labels[2] = 4, labels[3] = 20, labels[4] = 20;
  return labels;
}
constexpr int64_t kAnchors = 3 * (16 + 4 + 1);

TEST(DetectionTargets, WeighEachImageByItsAnchorsWithObjects) {
  const std::vector<double> all = detection_targets(labels_of_two(), 2, 3, 32, 32);
  ASSERT_EQ(all.size(), static_cast<size_t>(2 * kAnchors * 14));
  const std::vector<Box> anchors = anchors_of(32, 32);
  const std::vector<Box> objects = {{4, 4, 20, 20}};
  const std::vector<int64_t> match = matched(anchors, objects);
  const auto positives = static_cast<double>(std::count(match.begin(), match.end(), 0));
  const auto between = static_cast<double>(std::count(match.begin(), match.end(), kBetween));
  ASSERT_GT(positives, 1);
  double classes = 0, boxes = 0, ones = 0, background = 0;
  for (int64_t row = 0; row < 2 * kAnchors; ++row) {
    const double* values = all.data() + row * 14;
    for (int i = 0; i < 3; ++i) (row < kAnchors ? classes : background) += values[7 + i], ones += values[i];
    for (int i = 3; i < 7; ++i) boxes += values[7 + i];
    EXPECT_EQ(values[0] + values[1], 0) << "the object is of class 2";
  }
  EXPECT_EQ(ones, positives);
  EXPECT_NEAR(boxes, 4.0 / 2, 1e-12);
  EXPECT_NEAR(classes, (kAnchors - between) * 3 / positives / 2, 1e-12);
  EXPECT_NEAR(background, kAnchors * 3 / 2.0, 1e-12) << "an image without objects is divided by 1";
}

// An output that says "nothing" everywhere but at the anchors that are set.
struct Prediction {
  std::vector<double> values = std::vector<double>(static_cast<size_t>(2 * kAnchors * 7), -5.0);
  Prediction() {
    for (int64_t row = 0; row < 2 * kAnchors; ++row)
      for (int i = 3; i < 7; ++i) values[static_cast<size_t>(row * 7 + i)] = 0;
  }
  void set(size_t anchor, int64_t kind, double score, const Box& box) {
    const std::array<double, 4> numbers = encoded(anchors_of(32, 32)[anchor], box);
    values[anchor * 7 + static_cast<size_t>(kind)] = score;
    std::copy(numbers.begin(), numbers.end(), values.begin() + static_cast<int64_t>(anchor) * 7 + 3);
  }
  double accuracy() const {
    return score_of(DataKind::boxes, {2, 3, 32, 32}, {2, kAnchors, 7}, values, labels_of_two()).share();
  }
};

TEST(ScoreOfBoxes, IsTheShareOfObjectsThatAreFound) {
  const Box object{4, 4, 20, 20}, half{4, 4, 20, 12.1}, less{4, 4, 20, 11.9};
  Prediction right, wrong_class, beaten, too_small, nan;
  right.set(7, 2, 1, half);  // overlaps by just above 0.5
  EXPECT_EQ(right.accuracy(), 1);
  wrong_class.set(7, 1, 1, object);
  EXPECT_EQ(wrong_class.accuracy(), 0);
  beaten.set(7, 2, 1, object), beaten.set(9, 0, 2, object);
  EXPECT_EQ(beaten.accuracy(), 0) << "another class has a larger number at the same place";
  beaten.set(9, 0, 2, {20, 20, 32, 32});
  EXPECT_EQ(beaten.accuracy(), 1) << "a false box elsewhere costs nothing";
  for (size_t anchor = 0; anchor < static_cast<size_t>(kAnchors); ++anchor) too_small.set(anchor, 2, 1, less);
  EXPECT_EQ(too_small.accuracy(), 0);
  for (double& value : nan.values) value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(nan.accuracy(), 0);
}

TEST(DataOfBoxes, HaveOneToThreeDisjointObjectsInTheImage) {
  const Batch batch = draw_batch(DataKind::boxes, {64, 3, 64, 96}, 3, RandomKey(5), 0);
  std::array<int, 4> by_count{}, by_class{};
  for (int64_t n = 0; n < 64; ++n) {
    const LabelledBoxes objects = boxes_of(batch.labels, n);
    ASSERT_GE(objects.boxes.size(), 1u);
    ++by_count[objects.boxes.size()];
    for (size_t i = 0; i < objects.boxes.size(); ++i) {
      const Box& box = objects.boxes[i];
      ++by_class[static_cast<size_t>(objects.classes[i])];
      EXPECT_TRUE(box.left >= 0 && box.top >= 0 && box.right <= 96 && box.bottom <= 64);
      EXPECT_TRUE(box.width() >= 12 && box.height() >= 8);
      for (size_t other = 0; other < i; ++other) EXPECT_EQ(overlap(box, objects.boxes[other]), 0);
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_GT(by_class[static_cast<size_t>(i)], 10) << i;
  for (int i = 1; i < 4; ++i) EXPECT_GT(by_count[static_cast<size_t>(i)], 5) << i;
}

// Every drawn object has an anchor that stands for it.
TEST(DataOfBoxes, AreSeenByTheAnchors) {
  const Batch batch = draw_batch(DataKind::boxes, {64, 3, 64, 64}, 3, RandomKey(6), 0);
  const std::vector<Box> anchors = anchors_of(64, 64);
  for (int64_t n = 0; n < 64; ++n) {
    const LabelledBoxes objects = boxes_of(batch.labels, n);
    const std::vector<int64_t> match = matched(anchors, objects.boxes);
    for (size_t i = 0; i < objects.boxes.size(); ++i)
      EXPECT_TRUE(std::count(match.begin(), match.end(), static_cast<int64_t>(i)) > 0) << n << " " << i;
  }
}

}  // namespace
}  // namespace halfmark::models
