// Procedural data. Every sample appears with a random sign, so the mean of each class is zero and a linear model learns
// almost nothing: only the structure of a sample tells its class.
#include "models/data.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>

#include "kernels/cpu/thread_pool.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/draw.h"

namespace halfmark::models {
namespace {

constexpr DataRow kData[] = {
    {DataKind::normal, "normal", "N(0, 1) numbers, without labels", false, 0},
    {DataKind::images, "images", "images of shapes, one of up to ten classes each", true, 4},
    {DataKind::points, "points", "vectors of up to ten classes that no linear model separates", true, 2},
};

// The pattern of one class at (x, y), in coordinates -1 .. 1 around its centre: about +1 inside, about -1 outside.
double picture(int64_t kind, double x, double y, double phase, double frequency) {
  using std::numbers::pi;
  const double radius = std::hypot(x, y), diagonal = std::numbers::sqrt2 / 2;
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
      return std::cos(pi * frequency * radius);  // rings
    case 6:
      return radius < 0.55 ? 1 : -0.4;  // disc
    case 7:
      return std::min(std::fabs(x), std::fabs(y)) < 0.16 ? 1 : -0.5;  // cross
    case 8:
      return std::fabs(std::max(std::fabs(x), std::fabs(y)) - 0.6) < 0.14 ? 1 : -0.5;  // frame
    default:
      return (x > 0) == (y > 0) ? 1 : -1;  // quarters
  }
}

void draw_image(const Shape& shape, int64_t label, RandomKey key, double* pixels) {
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

// Each class has two opposite prototype vectors, the same for every seed: the seed changes the samples, not the task.
void draw_point(int64_t width, int64_t label, RandomKey key, double* x) {
  const RandomKey prototype = RandomKey(0x686D70).child(static_cast<uint64_t>(label));
  const double sign = key.uniform(0) < 0.5 ? -1 : 1;
  double norm = 0;
  for (int64_t i = 0; i < width; ++i) norm += std::pow(prototype.normal(static_cast<uint64_t>(i)), 2);
  const double reach = 5 * sign / std::sqrt(norm);
  for (int64_t i = 0; i < width; ++i)
    x[i] = reach * prototype.normal(static_cast<uint64_t>(i)) + key.normal(static_cast<uint64_t>(i + 1));
}

}  // namespace

std::span<const DataRow> data_rows() { return kData; }
const DataRow& data_named(std::string_view name) { return named("data", kData, name); }
const DataRow& row_of(DataKind kind) {
  for (const DataRow& row : kData)
    if (row.kind == kind) return row;
  throw Error("a kind of data has no row");
}

Batch draw_batch(DataKind kind, const Shape& shape, int64_t classes, RandomKey key, int64_t step) {
  const RandomKey stream = key.child(static_cast<uint64_t>(step));
  Batch batch;
  if (kind == DataKind::normal) {
    batch.x = draw_numbers(shape.elements(), [&](size_t i) { return stream.normal(i); });
    return batch;
  }
  HM_CHECK(classes >= 2 && classes <= 10,
           "labelled data has two to ten classes; " + std::to_string(classes) + " were requested");
  HM_CHECK(shape.rank() == (kind == DataKind::images ? 4 : 2),
           "cannot generate data of shape " + shape.text() + ": images need rank 4, points rank 2");
  const int64_t sample = shape[0] ? shape.elements() / shape[0] : 0;
  batch.x.resize(static_cast<size_t>(shape.elements()));
  batch.labels.resize(static_cast<size_t>(shape[0]));
  parallel_for(shape[0], std::max<int64_t>(1, kDrawnAtATime / std::max<int64_t>(1, sample)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t n = begin; n < end; ++n) {
                   const auto label =
                       static_cast<int64_t>(stream.below(static_cast<uint64_t>(n), static_cast<uint64_t>(classes)));
                   const RandomKey own = stream.child(static_cast<uint64_t>(n));
                   double* x = batch.x.data() + n * sample;
                   batch.labels[static_cast<size_t>(n)] = static_cast<double>(label);
                   if (kind == DataKind::images)
                     draw_image(shape, label, own, x);
                   else
                     draw_point(sample, label, own, x);
                 }
               });
  return batch;
}

}  // namespace halfmark::models
