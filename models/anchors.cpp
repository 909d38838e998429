#include "models/anchors.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/number/error.h"

namespace halfmark::models {

double overlap(const Box& a, const Box& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left),
               height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (!(width > 0) || !(height > 0)) return 0;
  const double both = width * height;
  return both / (a.width() * a.height() + b.width() * b.height() - both);
}

std::vector<Box> anchors_of(int64_t rows, int64_t columns) {
  HM_CHECK(rows > 0 && columns > 0 && rows % kAnchorMultiple == 0 && columns % kAnchorMultiple == 0,
           "boxes need images whose size is a multiple of " + std::to_string(kAnchorMultiple) + ", not " +
               std::to_string(rows) + " x " + std::to_string(columns));
  std::vector<Box> all;
  for (const int64_t stride : kAnchorStrides)
    for (int64_t row = 0; row < rows / stride; ++row)
      for (int64_t column = 0; column < columns / stride; ++column)
        for (const double ratio : kAnchorRatios) {
          const auto step = static_cast<double>(stride);
          const double x = (static_cast<double>(column) + 0.5) * step, y = (static_cast<double>(row) + 0.5) * step;
          const double width = 2 * step / std::sqrt(ratio), height = 2 * step * std::sqrt(ratio);
          all.push_back({x - width / 2, y - height / 2, x + width / 2, y + height / 2});
        }
  return all;
}

std::vector<int64_t> matched(std::span<const Box> anchors, std::span<const Box> objects) {
  std::vector<double> best_of_object(objects.size(), 0);
  std::vector<int64_t> nearest(anchors.size(), kBackground), result(anchors.size(), kBackground);
  for (size_t a = 0; a < anchors.size(); ++a) {
    double best = -1;
    for (size_t o = 0; o < objects.size(); ++o) {
      const double common = overlap(anchors[a], objects[o]);
      best_of_object[o] = std::max(best_of_object[o], common);
      if (common > best) best = common, nearest[a] = static_cast<int64_t>(o);
    }
    if (best >= 0.5)
      result[a] = nearest[a];
    else if (best >= 0.4)
      result[a] = kBetween;
  }
  for (size_t a = 0; a < anchors.size(); ++a)
    for (size_t o = 0; o < objects.size(); ++o)
      if (best_of_object[o] > 0 && overlap(anchors[a], objects[o]) == best_of_object[o]) result[a] = nearest[a];
  return result;
}

std::array<double, 4> encoded(const Box& anchor, const Box& object) {
  return {(object.left + object.right - anchor.left - anchor.right) / 2 / anchor.width(),
          (object.top + object.bottom - anchor.top - anchor.bottom) / 2 / anchor.height(),
          std::log(object.width() / anchor.width()), std::log(object.height() / anchor.height())};
}

Box decoded(const Box& anchor, std::span<const double, 4> numbers) {
  const double most = std::log(1000.0 / 16);
  const double x = (anchor.left + anchor.right) / 2 + numbers[0] * anchor.width(),
               y = (anchor.top + anchor.bottom) / 2 + numbers[1] * anchor.height();
  const double width = anchor.width() * std::exp(std::min(numbers[2], most)),
               height = anchor.height() * std::exp(std::min(numbers[3], most));
  return {x - width / 2, y - height / 2, x + width / 2, y + height / 2};
}

}  // namespace halfmark::models
