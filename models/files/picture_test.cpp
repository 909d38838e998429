// Decoding, resizing and the data sets of pictures. The files are written by libpng and libjpeg-turbo.
#include "models/files/picture.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "models/files/files_testing.h"
#include "models/files/open.h"
#include "models/files/picture_folder.h"
#include "models/files/pictures_testing.h"
#include "models/zoo.h"

namespace halfmark::models {
namespace {

#if HALFMARK_JPEG && HALFMARK_PNG

int64_t pattern(int64_t y, int64_t x, int64_t) { return (37 * y * y + 91 * x + 53 * x * y) % 256; }

Picture colours(int64_t height, int64_t width) {
  return picture_of(height, width, 3, [](int64_t y, int64_t x, int64_t c) { return (20 * y + 7 * x + 50 * c) % 256; });
}

TEST(Png, EveryKindBecomesEightBitsOfGreyOrColour) {
  const auto pixels = [](const std::vector<uint8_t>& file) { return decode_png(file, "f").pixels; };
  using Pixels = std::vector<uint8_t>;
  const Picture rgb = colours(9, 14);
  for (const int interlace : {PNG_INTERLACE_NONE, PNG_INTERLACE_ADAM7}) {
    const Picture read = decode_png(png_file(rgb, interlace), "f");
    EXPECT_EQ(read.pixels, rgb.pixels);
    EXPECT_EQ(read.height, 9);
    EXPECT_EQ(read.width, 14);
  }
  EXPECT_EQ(pixels(png_file(3, {{0, 128, 255}}, {PNG_COLOR_TYPE_GRAY, 8})), (Pixels{0, 128, 255}));
  EXPECT_EQ(pixels(png_file(4, {{0b00011011}}, {PNG_COLOR_TYPE_GRAY, 2})), (Pixels{0, 85, 170, 255}));
  EXPECT_EQ(pixels(png_file(8, {{0b10000001}}, {PNG_COLOR_TYPE_GRAY, 1})), (Pixels{255, 0, 0, 0, 0, 0, 0, 255}));
  // 16 bits are rounded: 0x00FF / 257 is 0.99, 0x8080 / 257 is 128, 0xFF00 / 257 is 254.007.
  EXPECT_EQ(pixels(png_file(3, {{0x00, 0xFF, 0x80, 0x80, 0xFF, 0x00}}, {PNG_COLOR_TYPE_GRAY, 16})),
            (Pixels{1, 128, 254}));
  EXPECT_EQ(pixels(png_file(4, {{0b00011011}}, {PNG_COLOR_TYPE_PALETTE, 2})),
            (Pixels{255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9}));
  EXPECT_EQ(pixels(png_file(1, {{1, 2, 3, 0}}, {PNG_COLOR_TYPE_RGBA, 8})), (Pixels{1, 2, 3})) << "alpha is left out";
  EXPECT_EQ(pixels(png_file(2, {{7, 0, 8, 255}}, {PNG_COLOR_TYPE_GRAY_ALPHA, 8})), (Pixels{7, 8}));
}

TEST(Png, LabelsAreEightBitGreyOnly) {
  EXPECT_EQ(decode_label_png(png_file(3, {{0, 33, 255}}, {PNG_COLOR_TYPE_GRAY, 8}), "f").pixels,
            (std::vector<uint8_t>{0, 33, 255}));
  for (const PngKind kind : {PngKind{PNG_COLOR_TYPE_GRAY, 16}, {PNG_COLOR_TYPE_RGB, 8}, {PNG_COLOR_TYPE_PALETTE, 8}})
    EXPECT_EQ(complaint([&] {
                decode_label_png(png_file(1, {{0, 0, 0}}, kind), "f");
              }),
              "f: is no readable PNG: its pixels are not 8-bit grey, so they are no labels (a picture of the labels in "
              "colours?)");
}

TEST(Jpeg, GreyAndColourAreReadSequentialOrProgressive) {
  for (const bool progressive : {false, true}) {
    const Picture smooth =
        picture_of(20, 30, 3, [](int64_t y, int64_t x, int64_t c) { return 40 + 3 * y + 2 * x + 20 * c; });
    const Picture read = decode_picture(jpeg_file(smooth, 100, progressive), "f");
    ASSERT_EQ(read.pixels.size(), smooth.pixels.size());
    EXPECT_EQ(read.channels, 3);
    for (size_t i = 0; i < read.pixels.size(); ++i) ASSERT_NEAR(read.pixels[i], smooth.pixels[i], 4) << i;
    const Picture grey = decode_picture(
        jpeg_file(picture_of(8, 8, 1, [](int64_t, int64_t x, int64_t) { return 20 * x; }), 100, progressive), "f");
    EXPECT_EQ(grey.channels, 1);
    for (size_t x = 0; x < 8; ++x) EXPECT_NEAR(grey.pixels[x], 20.0 * static_cast<double>(x), 2);
  }
}

TEST(Jpeg, CmykIsRefusedWithTheReason) {
  const auto file = jpeg_file(picture_of(4, 4, 4, [](int64_t, int64_t, int64_t c) { return 10 * c; }));
  EXPECT_EQ(
      complaint([&] { decode_jpeg(file, "f"); }),
      "f: is no readable JPEG: has the colours CMYK, which have no one meaning as red, green and blue; convert it");
}

TEST(Jpeg, ATruncatedFileIsRefusedAndNotFilledWithGrey) {
  std::vector<uint8_t> file = jpeg_file(colours(64, 64));
  file.resize(file.size() / 2);
  EXPECT_EQ(complaint([&] { decode_jpeg(file, "f"); }), "f: is no readable JPEG: Premature end of JPEG file");
  EXPECT_EQ(complaint([&] { decode_jpeg({}, "f"); }), "f: is empty");
}

TEST(Png, ATruncatedOrDamagedFileIsRefused) {
  std::vector<uint8_t> file = png_file(colours(64, 64));
  std::vector<uint8_t> damaged = file;
  damaged[file.size() - 20] ^= 1;
  EXPECT_NE(complaint([&] { decode_png(damaged, "f"); }), "");
  file.resize(file.size() / 2);
  EXPECT_EQ(complaint([&] { decode_png(file, "f"); }), "f: is no readable PNG: the file ends too early");
}

TEST(Pictures, AHeaderThatClaimsHugeSizesIsRefusedBeforeMemoryIsAllocated) {
  // An IHDR of 2^31 - 1 by 2^31 - 1 with its check sum (zlib.crc32 in Python).
  std::vector<uint8_t> png = {0x89, 'P',  'N',  'G',  13,   10,   26,   10,   0,    0,    0,   13,  'I', 'H',
                              'D',  'R',  0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 8,   2,   0,   0,
                              0,    0x9B, 0xAB, 0x9C, 0x31, 0,    0,    0,    1,    'I',  'D', 'A', 'T'};
  EXPECT_EQ(complaint([&] { decode_png(png, "f"); }),
            "f: is no readable PNG: its header says 2147483647 x 2147483647 pixels; at most 134217728 are read");
  std::vector<uint8_t> jpeg = jpeg_file(colours(8, 8));
  for (size_t i = 0; i + 9 < jpeg.size(); ++i)
    if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xC0) jpeg[i + 5] = 0xFF, jpeg[i + 7] = 0xFF;  // height and width
  EXPECT_EQ(complaint([&] { decode_jpeg(jpeg, "f"); }),
            "f: is no readable JPEG: its header says 65288 x 65288 pixels; at most 134217728 are read");
  EXPECT_EQ(complaint([&] { decode_png(png_file(colours(8, 8)), "f", 63); }),
            "f: is no readable PNG: its header says 8 x 8 pixels; at most 63 are read");
  EXPECT_EQ(complaint([&] {
              decode_picture(std::vector<uint8_t>{'G', 'I', 'F', '8'}, "f");
            }),
            "f: begins neither as a JPEG nor as a PNG");
}

TEST(Pictures, AMutatedFileIsReadOrRefusedInOneLine) {
  const auto read = [](const std::vector<uint8_t>& bytes) { decode_picture(bytes, "f", 1 << 20); };
  mutate(jpeg_file(colours(24, 17)), read);
  mutate(jpeg_file(colours(24, 17), 90, true), read);
  mutate(png_file(colours(24, 17)), read);
  mutate(png_file(4, {{0b00011011}}, {PNG_COLOR_TYPE_PALETTE, 2}), read);
  mutate(png_file(3, {{0, 33, 255}}, {PNG_COLOR_TYPE_GRAY, 8}),
         [](const std::vector<uint8_t>& bytes) { decode_label_png(bytes, "f", 1 << 20); });
}

// Numbers of Pillow 13.0.0: y, x = numpy.mgrid[0:9, 0:14]; Image.fromarray(((37 * y * y + 91 * x + 53 * x * y) %
// 256).astype(numpy.uint8)).resize(size, Image.BILINEAR or Image.NEAREST). Pillow's weights have 22 bits, these 53, so a
// value that is half-way may differ by 1.
TEST(Pictures, ResizingGivesTheNumbersOfPillow) {
  const Picture picture = picture_of(9, 14, 1, pattern);
  const auto expect_near = [](const Picture& found, const std::vector<int>& expected) {
    ASSERT_EQ(found.pixels.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found.pixels[i], expected[i], 1) << i;
  };
  expect_near(resized(picture, {4, 5}),
              {101, 136, 127, 125, 147, 97, 100, 97, 85, 109, 117, 127, 146, 131, 145, 118, 105, 128, 110, 142});
  expect_near(resized(picture, {9, 5}), {81,  106, 122, 138, 140, 118, 157, 120, 118, 160, 104, 145, 149, 116, 130,
                                         70,  55,  38,  21,  76,  135, 108, 130, 151, 124, 88,  126, 157, 122, 148,
                                         143, 157, 151, 144, 158, 149, 107, 155, 109, 172, 68,  75,  84,  92,  99});
  const Picture larger = resized(picture, {13, 20});
  EXPECT_NEAR(std::accumulate(larger.pixels.begin(), larger.pixels.end(), 0), 30814, 13);
  const int first[] = {0, 50, 114, 177, 75, 49, 113, 176, 125, 48, 111, 175, 175, 59, 110, 174, 225, 109, 109, 159};
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(larger.pixels[i], first[i], 1) << i;
  // To a width at which no centre lies between two pixels: there Pillow's sums of steps fall to either side.
  EXPECT_EQ(resized_to_nearest(picture, {4, 4}).pixels,
            (std::vector<uint8_t>{181, 245, 165, 229, 71, 47, 29, 5, 1, 145, 189, 77, 227, 27, 133, 189}));
}

TEST(Pictures, GreyOfColoursIsPillowsLuma) {
  // Image.fromarray(numpy.stack([p, p[::-1], 255 - p], -1)).convert("L") of the pattern p of 2 x 3.
  const Picture rgb = picture_of(2, 3, 3, [](int64_t y, int64_t x, int64_t c) {
    return c == 0 ? pattern(y, x, 0) : c == 1 ? pattern(1 - y, x, 0) : 255 - pattern(y, x, 0);
  });
  EXPECT_EQ(with_channels(rgb, 1).pixels, (std::vector<uint8_t>{51, 152, 103, 36, 116, 149}));
  EXPECT_EQ(with_channels(picture_of(1, 2, 1, pattern), 3).pixels, (std::vector<uint8_t>{0, 0, 0, 91, 91, 91}));
}

TEST(Pictures, TheShorterSideFitsAndTheCentreIsTaken) {
  // torchvision.transforms.functional.resize(.., 32) of 375 x 500 gives 32 x 42, and of 500 x 375 42 x 32.
  const Picture wide{.height = 375, .width = 500, .channels = 1, .pixels = {}},
      high{.height = 500, .width = 375, .channels = 1, .pixels = {}};
  EXPECT_EQ(covering(wide, 32, 32).width, 42);
  EXPECT_EQ(covering(wide, 32, 32).height, 32);
  EXPECT_EQ(covering(high, 32, 32).height, 42);
  EXPECT_EQ(covering(high, 32, 32).width, 32);
  EXPECT_EQ(covering(wide, 10, 40).height, 30);
  EXPECT_EQ(covering(wide, 10, 40).width, 40);
  // Python: round((7 - 2) / 2) is 2, round((5 - 2) / 2) is 2.
  const Picture cropped =
      centre_cropped(picture_of(7, 5, 1, [](int64_t y, int64_t x, int64_t) { return 10 * y + x; }), 2, 2);
  EXPECT_EQ(cropped.pixels, (std::vector<uint8_t>{22, 23, 32, 33}));
}

class PictureFolders : public FilesTest {
 protected:
  static Picture plain(int64_t height, int64_t width, int64_t value) {
    return picture_of(height, width, 3, [&](int64_t, int64_t, int64_t c) { return value + 10 * c; });
  }
  void write_classes() const {
    write("train/dog/2.png", png_file(plain(20, 40, 100)));
    write("train/cat/1.JPEG", jpeg_file(plain(8, 8, 60), 100));
    write("train/dog/notes.txt", {'x'});
    write("val/dog/3.png", png_file(plain(8, 8, 30)));
  }
};

TEST_F(PictureFolders, TheFoldersOfTrainAreTheClassesInTheOrderOfTheirNames) {
  write_classes();
  const auto data = open_data_set(folder_, DataKind::images);
  EXPECT_EQ(data->facts().kind, "images");
  EXPECT_EQ(data->facts().training, 2);
  EXPECT_EQ(data->facts().held_out, 1);
  const Shape input = {1, 3, 8, 8};
  EXPECT_EQ(data->needs(DataKind::images, input).classes, 2);
  std::vector<double> x(3 * 64);
  double label = -1;
  data->sample(Split::training, 1, input, x.data(), &label);
  EXPECT_EQ(label, 1) << "cat is 0, dog is 1";
  EXPECT_NEAR(x[0], (100 / 255.0 - 0.485) / 0.229, 1e-12);
  EXPECT_NEAR(x[64], (110 / 255.0 - 0.456) / 0.224, 1e-12);
  EXPECT_NEAR(x[191], (120 / 255.0 - 0.406) / 0.225, 1e-12);
  data->sample(Split::training, 0, input, x.data(), &label);
  EXPECT_EQ(label, 0);
  EXPECT_NEAR(x[0], (60 / 255.0 - 0.485) / 0.229, 2.1 / 255 / 0.229) << "JPEG loses a little";
  data->sample(Split::held_out, 0, input, x.data(), &label);
  EXPECT_EQ(label, 1);
  EXPECT_NEAR(x[0], (30 / 255.0 - 0.485) / 0.229, 1e-12);
  std::vector<double> grey(16);
  data->sample(Split::held_out, 0, {1, 1, 4, 4}, grey.data(), &label);
  // 0.299 30 + 0.587 40 + 0.114 50 is 38.15; the means of ImageNet are 0.449 and 0.226.
  EXPECT_NEAR(grey[0], (38 / 255.0 - 0.449) / 0.226, 1e-12);
  EXPECT_EQ(complaint([&] { check_fits(*data, subject_named("resnet/b1_s8_w2_o2")); }), "");
}

TEST_F(PictureFolders, ABrokenPictureIsOneLineWithItsName) {
  write_classes();
  write("train/dog/2.png", {0x89, 'P', 'N', 'G'});
  const auto data = open_data_set(folder_, DataKind::images);
  std::vector<double> x(3 * 64);
  double label;
  const std::string said = complaint([&] { data->sample(Split::training, 1, {1, 3, 8, 8}, x.data(), &label); });
  EXPECT_TRUE(said.starts_with((folder_ / "train/dog/2.png").string() + ": is no readable PNG: ")) << said;
  write("val/cow/1.png", png_file(plain(8, 8, 1)));
  EXPECT_EQ(complaint([&] { open_data_set(folder_, DataKind::images); }),
            (folder_ / "val/cow").string() + ": is a class that train does not have");
}

class StreetFolders : public FilesTest {
 protected:
  // One street for each split. The image has the value 10 in its left half and 20 in its right half; of the labels the left
  // half is `left`, the right half `right`.
  void write_streets(const std::string& ending, uint8_t left, uint8_t right, int64_t width = 8) const {
    for (const std::string split : {"train", "val"}) {
      const auto halves = [&](int64_t a, int64_t b, int64_t channels, int64_t w) {
        return png_file(picture_of(4, w, channels, [&](int64_t, int64_t x, int64_t) { return x < w / 2 ? a : b; }));
      };
      write("leftImg8bit/" + split + "/ulm/ulm_000000_000019_leftImg8bit.png", halves(10, 20, 3, 8));
      write("gtFine/" + split + "/ulm/ulm_000000_000019_gtFine_" + ending + ".png", halves(left, right, 1, width));
    }
  }
  std::string read(std::vector<double>& x, std::vector<double>& labels) const {
    x.assign(3 * 8, 0), labels.assign(8, 0);
    const auto data = open_data_set(folder_, DataKind::streets);
    return complaint([&] { data->sample(Split::held_out, 0, {1, 3, 2, 4}, x.data(), labels.data()); });
  }
};

TEST_F(StreetFolders, LabelIdsAreMappedAndTrainIdsAreNot) {
  std::vector<double> x, labels;
  write_streets("labelIds", 26, 9);  // car, parking
  EXPECT_EQ(read(x, labels), "");
  EXPECT_EQ(labels, (std::vector<double>{13, 13, 255, 255, 13, 13, 255, 255}));
  EXPECT_DOUBLE_EQ(x[0], 10 / 255.0);
  EXPECT_DOUBLE_EQ(x[3], 20 / 255.0);
  write_streets("labelTrainIds", 11, 255);
  EXPECT_EQ(read(x, labels), "");
  EXPECT_EQ(labels, (std::vector<double>{11, 11, 255, 255, 11, 11, 255, 255}));
}

TEST_F(StreetFolders, WrongLabelsAreRefused) {
  std::vector<double> x, labels;
  const std::string file = "gtFine/val/ulm/ulm_000000_000019_gtFine_";
  write_streets("labelIds", 26, 34);
  EXPECT_EQ(read(x, labels),
            (folder_ / (file + "labelIds.png")).string() + ": has a pixel 34, which is no labelId of Cityscapes");
  write_streets("labelIds", 26, 26, 6);
  EXPECT_EQ(read(x, labels),
            (folder_ / (file + "labelIds.png")).string() + ": has 6 x 4 pixels and its image has 8 x 4");
  write_streets("labelTrainIds", 18, 19);
  EXPECT_EQ(read(x, labels),
            (folder_ / (file + "labelTrainIds.png")).string() + ": has a pixel 19, which is no trainId of Cityscapes");
}

TEST_F(StreetFolders, ASubjectNeedsNineteenClasses) {
  write_streets("labelIds", 26, 9);
  const auto data = open_data_set(folder_, DataKind::streets);
  EXPECT_EQ(complaint([&] { check_fits(*data, subject_named("erfnet/b1_s32x64_n1_o20")); }), "");
  EXPECT_NE(complaint([&] { check_fits(*data, subject_named("erfnet/b1_s32x64_n1_o6")); }), "");
}

TEST(Cityscapes, TrainIdsAreThoseOfItsScripts) {
  // The labelIds of the trainIds 0 ... 18, from the table in cityscapesScripts.
  const int64_t ids[] = {7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33};
  int64_t trained = 0;
  for (int64_t id = 0; id <= 33; ++id) trained += train_id(id) != kUnlabelled;
  EXPECT_EQ(trained, 19);
  for (int64_t i = 0; i < 19; ++i) EXPECT_EQ(train_id(ids[i]), i);
  EXPECT_EQ(train_id(34), -1);
  EXPECT_EQ(train_id(255), -1);
}

#else
TEST(Pictures, NeedTheirLibraries) {
  EXPECT_FALSE(missing_for_jpeg().empty() && missing_for_png().empty());
  GTEST_SKIP() << missing_for_jpeg() << " " << missing_for_png();
}
#endif

}  // namespace
}  // namespace halfmark::models
