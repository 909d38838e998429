// Drawn images: shapes of ten classes, and street scenes with a label for each pixel. Every shape appears with a random
// sign, so the mean of each class is zero and a linear model learns almost nothing.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "models/data_draw.h"

namespace halfmark::models::data_draw {
namespace {

// The pattern of one class at (x, y), in coordinates -1 .. 1 around its centre: about +1 inside, about -1 outside.
double picture(int64_t kind, double x, double y, double phase, double frequency) {
  using std::numbers::pi;
  constexpr double diagonal = std::numbers::sqrt2 / 2;
  const auto wave = [&](double u) { return std::sin(pi * frequency * u + phase); };
  switch (kind) {
    case 0:
      return wave(y);  // horizontal bars
    case 1:
      return wave(x);  // vertical bars
    case 2:
      return wave((x + y) * diagonal);  // diagonal bars
    case 3:
      return wave((x - y) * diagonal);  // the other diagonal
    case 4:
      return wave(x) * std::sin(pi * frequency * y - phase) * 1.4;  // checks
    case 5:
      return std::cos(pi * frequency * std::hypot(x, y));  // rings
    case 6:
      return std::hypot(x, y) < 0.55 ? 1 : -0.4;  // disc
    case 7:
      return std::min(std::fabs(x), std::fabs(y)) < 0.16 ? 1 : -0.5;  // cross
    case 8:
      return std::fabs(std::max(std::fabs(x), std::fabs(y)) - 0.6) < 0.14 ? 1 : -0.5;  // frame
    default:
      return (x > 0) == (y > 0) ? 1 : -1;  // quarters
  }
}

// What is drawn at a pixel of a street scene, from the back to the front.
enum Street : int64_t { kRoad, kBuilding, kSky, kCar, kPole, kPerson };

struct Box {  // in parts of the image, 0 .. 1
  double left, top, right, bottom;
  Street kind;
  bool holds(double y, double x) const { return x >= left && x < right && y >= top && y < bottom; }
};

}  // namespace

void image(const Shape& shape, int64_t label, RandomKey key, double* pixels) {
  // Drawn per sample: position, phase, frequency, contrast with its sign, brightness; below, a weight per channel.
  const double centre_x = 0.6 * (key.uniform(0) - 0.5), centre_y = 0.6 * (key.uniform(1) - 0.5);
  const double phase = 2 * std::numbers::pi * key.uniform(2), frequency = 2.2 + 1.2 * key.uniform(3);
  const double contrast = (0.5 + key.uniform(4)) * (key.uniform(5) < 0.5 ? -1 : 1), brightness = 0.5 * key.normal(6);
  const RandomKey noise = key.child("noise");
  uint64_t drawn = 0;
  for (int64_t c = 0; c < shape[1]; ++c) {
    const double colour = 0.4 + 0.6 * key.uniform(static_cast<uint64_t>(8 + c));
    for (int64_t i = 0; i < shape[2]; ++i)
      for (int64_t j = 0; j < shape[3]; ++j) {
        const double x = 2 * (static_cast<double>(j) + 0.5) / static_cast<double>(shape[3]) - 1 - centre_x;
        const double y = 2 * (static_cast<double>(i) + 0.5) / static_cast<double>(shape[2]) - 1 - centre_y;
        *pixels++ =
            contrast * colour * picture(label, x, y, phase, frequency) + brightness + 0.4 * noise.normal(drawn++);
      }
  }
}

void street(const Shape& shape, int64_t classes, RandomKey key, double* pixels, double* labels) {
  const int64_t h = shape[2], w = shape[3];
  const double horizon = 0.35 + 0.15 * key.uniform(0);
  std::vector<Box> boxes;
  const auto between = [](double low, double high, double u) { return low + (high - low) * u; };
  const RandomKey own = key.child("boxes");
  uint64_t n = 0;
  const auto u = [&] { return own.uniform(n++); };
  for (double left = 0; left < 1;) {  // a row of buildings and gaps
    const double width = between(0.1, 0.3, u()), top = horizon * between(0.1, 0.9, u());
    if (u() < 0.75) boxes.push_back({left, top, left + width, horizon + 0.02, kBuilding});
    left += width;
  }
  const auto object = [&](Street kind, double least, double most, double ratio) {  // its foot on the road
    const double foot = between(horizon + 0.05, 0.95, u()), height = between(least, most, u()) * (0.3 + foot - horizon);
    const double left = u(), width = height * ratio * static_cast<double>(h) / static_cast<double>(w);
    boxes.push_back({left, foot - height, left + width, foot, kind});
  };
  for (int i = 0; i < 3; ++i) object(kCar, 0.25, 0.6, 1.6);
  for (int i = 0; i < 3; ++i) object(kPole, 0.8, 1.4, 0.08);
  for (int i = 0; i < 3; ++i) object(kPerson, 0.3, 0.6, 0.35);
  // A kind has a colour in every image, changed by the light of the image; its surface is noisy.
  const double light = between(0.6, 1.4, key.uniform(1));
  const RandomKey noise = key.child("noise");
  const int64_t shown = std::min<int64_t>(classes, kPerson + 1);
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x) {
      const double py = (static_cast<double>(y) + 0.5) / static_cast<double>(h),
                   px = (static_cast<double>(x) + 0.5) / static_cast<double>(w);
      int64_t kind = py < horizon ? kSky : kRoad;
      for (const Box& box : boxes)
        if (box.kind < shown && box.holds(py, px)) kind = box.kind;
      if (kind >= shown) kind = kRoad;
      const RandomKey colour = RandomKey(0x686D73).child(static_cast<uint64_t>(kind));
      for (int64_t c = 0; c < shape[1]; ++c) {
        const auto place = static_cast<uint64_t>((c * h + y) * w + x);
        pixels[place] = light * colour.normal(static_cast<uint64_t>(c)) + 0.3 * noise.normal(place);
      }
      // The lowest rows show the car that carries the camera; they have no label, like "ego vehicle" of Cityscapes.
      labels[y * w + x] = py > 0.95 ? static_cast<double>(kUnlabelled) : static_cast<double>(kind);
    }
}

}  // namespace halfmark::models::data_draw
