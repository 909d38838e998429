// Resizing, cropping and channels of pictures.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/picture.h"

namespace halfmark::models {
namespace {

// Which pixels of a row make one result, and their weights.
struct Weights {
  int64_t first = 0;
  std::vector<double> of;
};

// A triangle as wide as the reduction, and at least one pixel to each side. As Pillow's Resample.c computes it.
std::vector<Weights> bilinear_weights(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  std::vector<Weights> all;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    // As (int)(... + 0.5) of C.
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(std::trunc(centre - reach + 0.5)));
    const auto last = std::min<int64_t>(from, static_cast<int64_t>(std::trunc(centre + reach + 0.5)));
    Weights one{.first = first, .of = {}};
    double sum = 0;
    for (int64_t at = first; at < last; ++at) {
      const double distance = std::fabs((static_cast<double>(at) + 0.5 - centre) / reach);
      one.of.push_back(std::max(0.0, 1 - distance));
      sum += one.of.back();
    }
    for (double& weight : one.of) weight /= sum;
    all.push_back(std::move(one));
  }
  return all;
}

// Rounded to nearest, ties up, as Pillow rounds after each direction.
uint8_t to_byte(double x) { return static_cast<uint8_t>(std::clamp(std::floor(x + 0.5), 0.0, 255.0)); }

Picture empty_picture(int64_t height, int64_t width, int64_t channels) {
  Picture made{.height = height, .width = width, .channels = channels, .pixels = {}};
  made.pixels.resize(static_cast<size_t>(height * width * channels));
  return made;
}

Picture resized_in_width(const Picture& picture, int64_t width) {
  if (width == picture.width) return picture;
  const std::vector<Weights> weights = bilinear_weights(picture.width, width);
  Picture made = empty_picture(picture.height, width, picture.channels);
  uint8_t* out = made.pixels.data();
  for (int64_t y = 0; y < picture.height; ++y)
    for (const Weights& one : weights)
      for (int64_t c = 0; c < picture.channels; ++c) {
        const uint8_t* in = picture.pixels.data() + (y * picture.width + one.first) * picture.channels + c;
        double sum = 0;
        for (const double weight : one.of) sum += weight * *in, in += picture.channels;
        *out++ = to_byte(sum);
      }
  return made;
}

Picture resized_in_height(const Picture& picture, int64_t height) {
  if (height == picture.height) return picture;
  const int64_t row = picture.width * picture.channels;
  Picture made = empty_picture(height, picture.width, picture.channels);
  uint8_t* out = made.pixels.data();
  std::vector<double> sums(static_cast<size_t>(row));
  for (const Weights& one : bilinear_weights(picture.height, height)) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const uint8_t* in = picture.pixels.data() + one.first * row;
    for (const double weight : one.of)
      for (double& sum : sums) sum += weight * *in++;
    for (const double sum : sums) *out++ = to_byte(sum);
  }
  return made;
}

}  // namespace

Picture with_channels(const Picture& picture, int64_t channels) {
  if (picture.channels == channels) return picture;
  Picture made = empty_picture(picture.height, picture.width, channels);
  const auto count = static_cast<size_t>(picture.height * picture.width);
  if (channels == 3) {
    for (size_t i = 0; i < count; ++i)
      std::fill_n(made.pixels.begin() + static_cast<std::ptrdiff_t>(3 * i), 3, picture.pixels[i]);
  } else {
    HM_CHECK(channels == 1 && picture.channels == 3, "pictures have 1 or 3 channels");
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* rgb = picture.pixels.data() + 3 * i;
      // 0.299, 0.587, 0.114 times 2^16, as in Pillow's Convert.c.
      made.pixels[i] = static_cast<uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
    }
  }
  return made;
}

Extent2 covering(const Picture& picture, int64_t height, int64_t width) {
  // The longer side is rounded down, as in torchvision's Resize.
  if (picture.width * height >= picture.height * width)
    return {height, std::max(width, picture.width * height / picture.height)};
  return {std::max(height, picture.height * width / picture.width), width};
}

Picture resized(const Picture& picture, Extent2 size) {
  return resized_in_height(resized_in_width(picture, size.width), size.height);
}

Picture resized_to_nearest(const Picture& picture, Extent2 size) {
  Picture made = empty_picture(size.height, size.width, picture.channels);
  uint8_t* out = made.pixels.data();
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x) {
      // floor((i + 1/2) from / to), in whole numbers.
      const int64_t row = (2 * y + 1) * picture.height / (2 * size.height),
                    column = (2 * x + 1) * picture.width / (2 * size.width);
      const uint8_t* in = picture.pixels.data() + (row * picture.width + column) * picture.channels;
      out = std::copy_n(in, picture.channels, out);
    }
  return made;
}

Picture centre_cropped(const Picture& picture, int64_t height, int64_t width) {
  HM_CHECK(height <= picture.height && width <= picture.width, "a crop is not larger than its picture");
  // Half-way to even, as Python's round in torchvision's CenterCrop.
  const auto margin = [](int64_t all, int64_t part) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(all - part) / 2));
  };
  const int64_t top = margin(picture.height, height), left = margin(picture.width, width);
  Picture made = empty_picture(height, width, picture.channels);
  uint8_t* out = made.pixels.data();
  for (int64_t y = 0; y < height; ++y)
    out = std::copy_n(picture.pixels.data() + ((top + y) * picture.width + left) * picture.channels,
                      width * picture.channels, out);
  return made;
}

}  // namespace halfmark::models
