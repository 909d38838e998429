// Small PNG and JPEG files, written by libpng and libjpeg-turbo.
#pragma once

#if HALFMARK_JPEG && HALFMARK_PNG
#include <jpeglib.h>
#include <png.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include "models/files/picture.h"
#include "models/namespaces.h"

namespace halfmark::models {

struct PngKind {
  int colour = PNG_COLOR_TYPE_RGB, bits = 8, interlace = PNG_INTERLACE_NONE;
};

// `rows`: the bytes of each row as the kind stores them. Of a palette: 0 is red, 1 green, 2 blue, 3 grey (9, 9, 9).
inline std::vector<uint8_t> png_file(uint32_t width, std::vector<std::vector<uint8_t>> rows, PngKind kind = {}) {
  std::vector<uint8_t> bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp from, png_bytep data, size_t count) {
        auto* to = static_cast<std::vector<uint8_t>*>(png_get_io_ptr(from));
        to->insert(to->end(), data, data + count);
      },
      nullptr);
  png_set_IHDR(png, info, width, static_cast<uint32_t>(rows.size()), kind.bits, kind.colour, kind.interlace,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  const png_color palette[] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {9, 9, 9}};
  if (kind.colour == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 4);
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  for (auto& row : rows) pointers.push_back(row.data());
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// The pixels of an 8-bit grey or colour picture as rows of a file.
inline std::vector<uint8_t> png_file(const Picture& picture, int interlace = PNG_INTERLACE_NONE) {
  std::vector<std::vector<uint8_t>> rows;
  const auto row = static_cast<std::ptrdiff_t>(picture.width * picture.channels);
  for (std::ptrdiff_t y = 0; y < picture.height; ++y)
    rows.emplace_back(picture.pixels.begin() + y * row, picture.pixels.begin() + (y + 1) * row);
  return png_file(static_cast<uint32_t>(picture.width), std::move(rows),
                  {picture.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, 8, interlace});
}

// `channels` of 4: CMYK.
inline std::vector<uint8_t> jpeg_file(const Picture& picture, int quality = 95, bool progressive = false) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(picture.width),
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = static_cast<int>(picture.channels);
  info.in_color_space = picture.channels == 1 ? JCS_GRAYSCALE : picture.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(picture.pixels.data() +
                                     info.next_scanline * static_cast<size_t>(picture.width * picture.channels));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::vector<uint8_t> bytes(memory, memory + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return bytes;
}

// pixel(y, x, c) of each.
inline Picture picture_of(int64_t height, int64_t width, int64_t channels,
                          const std::function<int64_t(int64_t, int64_t, int64_t)>& pixel) {
  Picture made{.height = height, .width = width, .channels = channels, .pixels = {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c) made.pixels.push_back(static_cast<uint8_t>(pixel(y, x, c)));
  return made;
}

}  // namespace halfmark::models
#endif
