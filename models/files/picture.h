// Pictures of compressed files: decoded by libjpeg-turbo and libpng, resized and cropped here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/files/bytes.h"
#include "models/namespaces.h"

namespace halfmark::models {

// 8 bits of each channel: 1 is grey, 3 is red, green, blue.
struct Picture {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

// A file may claim any size; larger pictures are refused before memory is allocated. The largest of ImageNet has 61
// million pixels (9331 x 6530).
inline constexpr int64_t kMostPixels = int64_t{1} << 27;

// Empty, or which library this build lacks and how to get it.
std::string_view missing_for_jpeg();
std::string_view missing_for_png();

// The picture of a file as it is stored, without gamma or orientation (as Pillow and torchvision). `where` is the file's
// name in messages. Throws Error in one line: no such format, broken, truncated, too large, or a kind that is not read.
// JPEG: grey and YCbCr or RGB of 8 bits, sequential or progressive; not CMYK. PNG: all; 16 bits are rounded to 8, a palette
// becomes colours, transparency is left out.
Picture decode_jpeg(Bytes file, const std::string& where, int64_t most_pixels = kMostPixels);
Picture decode_png(Bytes file, const std::string& where, int64_t most_pixels = kMostPixels);
// Either, by its first bytes.
Picture decode_picture(Bytes file, const std::string& where, int64_t most_pixels = kMostPixels);
// A PNG whose bytes are numbers and not colours: grey with 8 bits only.
Picture decode_label_png(Bytes file, const std::string& where, int64_t most_pixels = kMostPixels);

// To 1 channel: the luma of ITU-R BT.601, as Pillow's "L"; to 3: grey three times.
Picture with_channels(const Picture& picture, int64_t channels);

// The size of a picture that covers [height, width] with the least loss: its shorter side fits, the other may be longer.
struct Extent2 {
  int64_t height = 0, width = 0;
};
Extent2 covering(const Picture& picture, int64_t height, int64_t width);
// Bilinear with antialiasing, as Pillow's and torchvision's: each result is a weighted mean of all pixels that it covers, so
// that a picture made much smaller does not depend on which of its pixels are hit.
Picture resized(const Picture& picture, Extent2 size);
// For labels: the pixel at the centre of each result, the lower or right one where it lies between two.
Picture resized_to_nearest(const Picture& picture, Extent2 size);
Picture centre_cropped(const Picture& picture, int64_t height, int64_t width);

}  // namespace halfmark::models
