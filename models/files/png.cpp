// PNG through libpng.
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/picture.h"

#if HALFMARK_PNG
#include <png.h>
#endif

namespace halfmark::models {

#if HALFMARK_PNG
namespace {

// As for JPEG: errors jump back, because no exception may pass through C code. Only plain data lives here.
struct PngReader {
  png_structp png;
  png_infop info;
  const uint8_t* data;
  size_t size, at;
  char text[200];
  // Of the header.
  png_uint_32 width, height;
  int bits, colour;
};

void read_from_bytes(png_structp png, png_bytep to, size_t count) {
  auto* r = static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > r->size - r->at) png_error(png, "the file ends too early");
  std::memcpy(to, r->data + r->at, count);
  r->at += count;
}
[[noreturn]] void leave_png(png_structp png, png_const_charp text) {
  auto* r = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(r->text, sizeof r->text, "%s", text);
  png_longjmp(png, 1);
}
// Of chunks that no pixel depends on.
void ignore_warning(png_structp, png_const_charp) {}

bool begin_png(PngReader& r) {
  r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, leave_png, ignore_warning);
  if (!r.png) return false;
  if (setjmp(png_jmpbuf(r.png))) return false;
  r.info = png_create_info_struct(r.png);
  if (!r.info) png_error(r.png, "out of memory");
  png_set_read_fn(r.png, &r, read_from_bytes);
  png_set_user_limits(r.png, 0x7FFFFFFF, 0x7FFFFFFF);  // the number of pixels is limited below
  png_set_chunk_cache_max(r.png, 64);                  // text and other chunks
  png_set_chunk_malloc_max(r.png, png_alloc_size_t{1} << 24);
  png_read_info(r.png, r.info);
  png_get_IHDR(r.png, r.info, &r.width, &r.height, &r.bits, &r.colour, nullptr, nullptr, nullptr);
  return true;
}

// To 8 bits of grey or of red, green and blue. `pixels`: of all rows.
bool read_rows(PngReader& r, uint8_t* pixels, size_t row, uint8_t** rows) {
  if (setjmp(png_jmpbuf(r.png))) return false;
  if (r.bits == 16) png_set_scale_16(r.png);
  if (r.colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(r.png);
  if (r.colour == PNG_COLOR_TYPE_GRAY && r.bits < 8) png_set_expand_gray_1_2_4_to_8(r.png);
  png_set_strip_alpha(r.png);
  png_set_interlace_handling(r.png);
  png_read_update_info(r.png, r.info);
  if (png_get_rowbytes(r.png, r.info) != row) png_error(r.png, "its rows have an unexpected length");
  for (png_uint_32 y = 0; y < r.height; ++y) rows[y] = pixels + y * row;
  png_read_image(r.png, rows);
  png_read_end(r.png, nullptr);
  return true;
}

std::string read_png(PngReader& r, int64_t most_pixels, bool is_label, Picture& picture) {
  if (!begin_png(r)) return r.text[0] ? r.text : "out of memory";
  const auto height = static_cast<int64_t>(r.height), width = static_cast<int64_t>(r.width);
  if (height > most_pixels / width)
    return "its header says " + std::to_string(width) + " x " + std::to_string(height) + " pixels; at most " +
           std::to_string(most_pixels) + " are read";
  if (is_label && (r.colour != PNG_COLOR_TYPE_GRAY || r.bits != 8))
    return "its pixels are not 8-bit grey, so they are no labels (a picture of the labels in colours?)";
  const int64_t channels = (r.colour & PNG_COLOR_MASK_COLOR) ? 3 : 1;
  picture = {.height = height, .width = width, .channels = channels, .pixels = {}};
  picture.pixels.resize(static_cast<size_t>(height * width * channels));
  std::vector<uint8_t*> rows(static_cast<size_t>(height));
  return read_rows(r, picture.pixels.data(), static_cast<size_t>(width * channels), rows.data()) ? "" : r.text;
}

Picture png_of(Bytes file, const std::string& where, int64_t most_pixels, bool is_label) {
  HM_CHECK(!file.empty(), where + ": is empty");
  PngReader reader{};
  reader.data = file.data(), reader.size = file.size();
  Picture picture;
  std::string refused;
  try {
    refused = read_png(reader, most_pixels, is_label, picture);
  } catch (...) {
    png_destroy_read_struct(&reader.png, &reader.info, nullptr);
    throw;
  }
  png_destroy_read_struct(&reader.png, &reader.info, nullptr);
  HM_CHECK(refused.empty(), where + ": is no readable PNG: " + refused);
  return picture;
}

}  // namespace

std::string_view missing_for_png() { return ""; }
Picture decode_png(Bytes file, const std::string& where, int64_t most_pixels) {
  return png_of(file, where, most_pixels, false);
}
Picture decode_label_png(Bytes file, const std::string& where, int64_t most_pixels) {
  return png_of(file, where, most_pixels, true);
}
#else
std::string_view missing_for_png() {
  return "this build has no PNG decoder; install libpng-dev, configure and build again";
}
Picture decode_png(Bytes, const std::string& where, int64_t) {
  throw Error(where + ": " + std::string(missing_for_png()));
}
Picture decode_label_png(Bytes file, const std::string& where, int64_t most_pixels) {
  return decode_png(file, where, most_pixels);
}
#endif

Picture decode_picture(Bytes file, const std::string& where, int64_t most_pixels) {
  constexpr std::array<uint8_t, 4> kPng = {0x89, 'P', 'N', 'G'};
  const bool is_png = file.size() >= kPng.size() && std::equal(kPng.begin(), kPng.end(), file.begin());
  const bool is_jpeg = file.size() >= 2 && file[0] == 0xFF && file[1] == 0xD8;
  HM_CHECK(is_png || is_jpeg, where + ": begins neither as a JPEG nor as a PNG");
  return is_png ? decode_png(file, where, most_pixels) : decode_jpeg(file, where, most_pixels);
}

}  // namespace halfmark::models
