// Drawn images of one to three coloured objects of three classes, with a box around each.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/number/error.h"
#include "models/anchors.h"
#include "models/data.h"
#include "models/data_draw.h"

namespace halfmark::models {

LabelledBoxes boxes_of(const std::vector<double>& labels, int64_t sample) {
  LabelledBoxes found;
  for (int64_t i = 0; i < kMostObjects; ++i) {
    const double* one = labels.data() + (sample * kMostObjects + i) * kNumbersOfObject;
    if (one[0] < 0) continue;
    found.classes.push_back(static_cast<int64_t>(one[0]));
    found.boxes.push_back({one[1], one[2], one[3], one[4]});
  }
  return found;
}

namespace data_draw {
namespace {

// Whether the object of a class covers a place, in coordinates -1 ... 1 of its box.
bool covers(int64_t kind, double x, double y) {
  switch (kind) {
    case 0:
      return std::hypot(x, y) < 1;  // disc
    case 1:
      return std::max(std::fabs(x), std::fabs(y)) > 0.5;  // frame
    default:
      return std::fabs(x) < (y + 1) / 2;  // triangle
  }
}

}  // namespace

void boxes(const Shape& shape, int64_t classes, RandomKey key, double* pixels, double* labels) {
  const int64_t h = shape[2], w = shape[3];
  const auto rows = static_cast<double>(h), columns = static_cast<double>(w), size = std::min(rows, columns);
  const RandomKey own = key.child("objects"), noise = key.child("noise");
  uint64_t n = 0;
  const auto between = [&](double low, double high) { return low + (high - low) * own.uniform(n++); };
  const auto wanted = static_cast<int64_t>(1 + own.below(n++, kMostObjects));
  std::vector<Box> drawn;
  std::fill_n(labels, kMostObjects * kNumbersOfObject, 0.0);
  for (int64_t i = 0; i < kMostObjects; ++i) labels[i * kNumbersOfObject] = -1;
  for (int64_t i = 0; i < shape[1] * h * w; ++i) pixels[i] = 0.3 * noise.normal(static_cast<uint64_t>(i));
  // An object that would overlap another is drawn elsewhere, or not at all after some attempts; the first always fits.
  for (int attempt = 0; attempt < 20 && static_cast<int64_t>(drawn.size()) < wanted; ++attempt) {
    const double width = between(0.2, 0.45) * size, height = width * between(0.7, 1.4);
    const double left = between(0, columns - width), top = between(0, rows - height);
    const auto kind = static_cast<int64_t>(own.below(n++, static_cast<uint64_t>(classes)));
    const double colour = between(0.7, 1.5) * (own.uniform(n++) < 0.5 ? -1 : 1);
    const Box box{left, top, left + width, top + height};
    if (std::any_of(drawn.begin(), drawn.end(), [&](const Box& other) { return overlap(other, box) > 0; })) continue;
    double* label = labels + static_cast<int64_t>(drawn.size()) * kNumbersOfObject;
    label[0] = static_cast<double>(kind);
    label[1] = box.left, label[2] = box.top, label[3] = box.right, label[4] = box.bottom;
    const RandomKey tint = own.child(static_cast<uint64_t>(drawn.size()));
    drawn.push_back(box);
    for (int64_t c = 0; c < shape[1]; ++c) {
      const double shade = colour * (0.7 + 0.6 * tint.uniform(static_cast<uint64_t>(c)));
      for (int64_t i = 0; i < h; ++i)
        for (int64_t j = 0; j < w; ++j) {
          const double x = (2 * (static_cast<double>(j) + 0.5) - box.left - box.right) / width,
                       y = (2 * (static_cast<double>(i) + 0.5) - box.top - box.bottom) / height;
          if (std::fabs(x) < 1 && std::fabs(y) < 1 && covers(kind, x, y)) pixels[(c * h + i) * w + j] += shade;
        }
    }
  }
}

}  // namespace data_draw
}  // namespace halfmark::models
