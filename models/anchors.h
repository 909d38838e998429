// Boxes on images: the anchors of a detector, which object each stands for, and the numbers that a detector predicts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "models/namespaces.h"

namespace halfmark::models {

struct Box {  // in pixels; x to the right, y downwards
  double left = 0, top = 0, right = 0, bottom = 0;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
};
double overlap(const Box& a, const Box& b);  // intersection over union; 0 for empty boxes

// Strides of the three levels of the pyramid, in pixels. Each location has one anchor for each ratio of height to width, of area
// (2 stride)^2. halfmark's own choice, for objects of 12 ... 30 pixels.
inline constexpr std::array<int64_t, 3> kAnchorStrides = {8, 16, 32};
inline constexpr std::array<double, 3> kAnchorRatios = {0.5, 1, 2};
inline constexpr int64_t kAnchorMultiple = 32;  // what rows and columns of an image are multiples of

// In the order of a detector's output: level, row, column, ratio. Throws Error for an image that is no multiple.
std::vector<Box> anchors_of(int64_t rows, int64_t columns);

// The object of each anchor: a number, or one of these.
inline constexpr int64_t kBackground = -1;  // overlaps each object by less than 0.4
inline constexpr int64_t kBetween = -2;     // does not count: by less than 0.5
// As torchvision's RetinaNet (models/detection/retinanet.py: Matcher(0.5, 0.4, allow_low_quality_matches=True)): the object
// with the largest overlap, and for the anchors that overlap an object most, whatever the overlap, that too.
std::vector<int64_t> matched(std::span<const Box> anchors, std::span<const Box> objects);

// What a detector predicts for an object at an anchor (torchvision's BoxCoder with weights 1): the distance of the centres
// in sizes of the anchor, and the logarithm of the ratio of the sizes, which decoding limits to log(1000 / 16).
std::array<double, 4> encoded(const Box& anchor, const Box& object);
Box decoded(const Box& anchor, std::span<const double, 4> numbers);

}  // namespace halfmark::models
