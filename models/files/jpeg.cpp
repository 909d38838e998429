// JPEG through libjpeg-turbo.
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/picture.h"

#if HALFMARK_JPEG
#include <jerror.h>
#include <jpeglib.h>
#endif

namespace halfmark::models {

#if HALFMARK_JPEG
namespace {

// The library reports an error by a function that must not return. It is C code, through which no exception may pass, so
// the function jumps back here with the message.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: the library gets a pointer to it
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->manager.format_message(info, errors->text);
  std::longjmp(errors->back, 1);
}

// A warning says that the data are damaged and that the library made something up, apart from these, which change no pixel:
// bytes before a marker, another version of JFIF, an unknown transform of Adobe.
void on_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  const bool is_harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM;
  if (level < 0 && !is_harmless) leave(info);
}

// A progressive file may have any number of scans, each of which costs a pass over the picture.
void on_progress(j_common_ptr info) {
  constexpr int kMostScans = 100;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->text, sizeof errors->text, "more than %d scans", kMostScans);
  std::longjmp(errors->back, 1);
}

struct JpegResult {
  std::string refused;  // empty: decoded
  Picture picture;
};

// All variables live in the caller, so that none is lost at the jump.
struct JpegReader {
  jpeg_decompress_struct info;
  JpegErrors errors;
  jpeg_progress_mgr progress;
};

// Between the first line and the last no C++ object may be created: the jump would skip its destructor.
bool begin_jpeg(JpegReader& r, Bytes file) {
  if (setjmp(r.errors.back)) return false;
  jpeg_create_decompress(&r.info);
  r.progress = {};
  r.progress.progress_monitor = on_progress;
  r.info.progress = &r.progress;
  jpeg_mem_src(&r.info, file.data(), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&r.info, TRUE);
  return true;
}
bool decode_rows(JpegReader& r, uint8_t* pixels, size_t row) {
  if (setjmp(r.errors.back)) return false;
  jpeg_start_decompress(&r.info);
  while (r.info.output_scanline < r.info.output_height) {
    JSAMPROW line = pixels + r.info.output_scanline * row;
    jpeg_read_scanlines(&r.info, &line, 1);
  }
  jpeg_finish_decompress(&r.info);
  return true;
}

JpegResult read_jpeg(JpegReader& r, Bytes file, int64_t most_pixels) {
  JpegResult result;
  if (!begin_jpeg(r, file)) return result.refused = r.errors.text, result;
  const int64_t height = r.info.image_height, width = r.info.image_width;
  if (height > most_pixels / width)
    return result.refused = "its header says " + std::to_string(width) + " x " + std::to_string(height) +
                            " pixels; at most " + std::to_string(most_pixels) + " are read",
           result;
  switch (r.info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      r.info.out_color_space = JCS_GRAYSCALE;
      break;
    case JCS_YCbCr:
    case JCS_RGB:
      r.info.out_color_space = JCS_RGB;
      break;
    case JCS_CMYK:
    case JCS_YCCK:
      return result.refused = "has the colours CMYK, which have no one meaning as red, green and blue; convert it",
             result;
    default:
      return result.refused =
                 "has " + std::to_string(r.info.num_components) + " channels of an unknown colour space; convert it",
             result;
  }
  const int64_t channels = r.info.out_color_space == JCS_GRAYSCALE ? 1 : 3;
  result.picture = {.height = height, .width = width, .channels = channels, .pixels = {}};
  result.picture.pixels.resize(static_cast<size_t>(height * width * channels));
  if (!decode_rows(r, result.picture.pixels.data(), static_cast<size_t>(width * channels)))
    result.refused = r.errors.text;
  return result;
}

}  // namespace

std::string_view missing_for_jpeg() { return ""; }

Picture decode_jpeg(Bytes file, const std::string& where, int64_t most_pixels) {
  HM_CHECK(!file.empty(), where + ": is empty");
  JpegReader reader{};
  reader.info.err = jpeg_std_error(&reader.errors.manager);
  reader.errors.manager.error_exit = leave;
  reader.errors.manager.emit_message = on_message;
  JpegResult result;
  try {
    result = read_jpeg(reader, file, most_pixels);
  } catch (...) {
    jpeg_destroy_decompress(&reader.info);
    throw;
  }
  jpeg_destroy_decompress(&reader.info);
  HM_CHECK(result.refused.empty(), where + ": is no readable JPEG: " + result.refused);
  return std::move(result.picture);
}
#else
std::string_view missing_for_jpeg() {
  return "this build has no JPEG decoder; install libjpeg-dev, configure and build again";
}
Picture decode_jpeg(Bytes, const std::string& where, int64_t) {
  throw Error(where + ": " + std::string(missing_for_jpeg()));
}
#endif

}  // namespace halfmark::models
