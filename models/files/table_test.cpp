// MNIST and CIFAR: small files written here byte by byte, and every way in which they can be wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/files_testing.h"
#include "models/files/idx.h"
#include "models/files/image_table.h"
#include "models/files/open.h"
#include "models/files/permutation.h"
#include "models/zoo.h"

namespace halfmark::models {
namespace {

std::vector<uint8_t> idx_bytes(uint8_t type, const std::vector<uint32_t>& extents, const std::vector<uint8_t>& data) {
  std::vector<uint8_t> bytes = {0, 0, type, static_cast<uint8_t>(extents.size())};
  for (const uint32_t extent : extents)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<uint8_t>(extent >> shift));
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

class TableFiles : public FilesTest {
 protected:
  // 6 training images and 4 for the test of 2 x 3 pixels. Image n has the label n % 10 and the pixels 10 n + place.
  void write_mnist(const std::string& separator = "-") {
    for (const auto& [part, count] : {std::pair{"train", 6}, {"t10k", 4}}) {
      std::vector<uint8_t> pixels, labels;
      for (int n = 0; n < count; ++n) {
        labels.push_back(static_cast<uint8_t>(n));
        for (int i = 0; i < 6; ++i) pixels.push_back(static_cast<uint8_t>(10 * n + i));
      }
      const auto images = static_cast<uint32_t>(count);
      write(part + std::string("-images") + separator + "idx3-ubyte", idx_bytes(8, {images, 2, 3}, pixels));
      write(part + std::string("-labels") + separator + "idx1-ubyte", idx_bytes(8, {images}, labels));
    }
  }
  // Two records in each file; `labels` before the pixels, which are all 50 (file number) + record.
  void write_cifar(const std::vector<std::string>& names, const std::vector<uint8_t>& labels) {
    for (size_t f = 0; f < names.size(); ++f) {
      std::vector<uint8_t> bytes;
      for (uint8_t record = 0; record < 2; ++record) {
        bytes.insert(bytes.end(), labels.begin(), labels.end());
        bytes.insert(bytes.end(), 3072, static_cast<uint8_t>(50 * f + record));
      }
      write(names[f], bytes);
    }
  }
};

TEST_F(TableFiles, MnistIsReadAndNormalisedByTheMeanAndDeviationOfItsTrainingImages) {
  for (const std::string separator : {"-", "."}) {
    write_mnist(separator);
    const auto data = open_data_set(folder_, DataKind::images);
    EXPECT_EQ(data->facts().kind, "mnist");
    EXPECT_EQ(data->facts().training, 6);
    EXPECT_EQ(data->facts().held_out, 4);
    const Shape input = {2, 1, 2, 3};
    double x[6], label = -1;
    data->sample(Split::held_out, 3, input, x, &label);
    EXPECT_EQ(label, 3);
    // numpy: a = numpy.add.outer(10 * numpy.arange(6), numpy.arange(6)) / 255; a.mean(), a.std()
    const double mean = 0.10784313725490197, deviation = 0.06730756908081269;
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(x[i], ((30 + i) / 255.0 - mean) / deviation, 1e-12) << i;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
}

TEST_F(TableFiles, AnEpochHasEverySampleOnceInAnOrderOfTheSeed) {
  write_mnist();
  const auto data = open_data_set(folder_, DataKind::points);
  const Shape input = {4, 6};
  std::set<std::vector<double>> orders;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    std::vector<double> labels;  // 3 batches of 4 are 2 epochs of 6
    for (int64_t step = 0; step < 3; ++step) {
      const Batch batch = training_batch(*data, DataKind::points, input, RandomKey(seed), step);
      EXPECT_EQ(batch.x.size(), 24u);
      labels.insert(labels.end(), batch.labels.begin(), batch.labels.end());
      EXPECT_EQ(batch.labels, training_batch(*data, DataKind::points, input, RandomKey(seed), step).labels);
    }
    for (int epoch = 0; epoch < 2; ++epoch) {
      std::vector<double> sorted(labels.begin() + 6 * epoch, labels.begin() + 6 * (epoch + 1));
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(sorted, (std::vector<double>{0, 1, 2, 3, 4, 5}));
      orders.emplace(labels.begin() + 6 * epoch, labels.begin() + 6 * (epoch + 1));
    }
  }
  EXPECT_EQ(orders.size(), 6u) << "epochs and seeds have orders of their own";
  std::vector<double> held = held_out_batch(*data, DataKind::points, {4, 6}, RandomKey(1), 0).labels;
  std::sort(held.begin(), held.end());
  EXPECT_EQ(held, (std::vector<double>{0, 1, 2, 3}));
}

TEST(Permutation, IsOneAndIsSpreadEvenly) {
  for (const int64_t count : {1, 2, 3, 5, 16, 17, 1000, 65537}) {
    std::vector<bool> seen(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t to = permuted(i, count, RandomKey(7));
      ASSERT_TRUE(to >= 0 && to < count && !seen[static_cast<size_t>(to)]) << count << " " << i;
      seen[static_cast<size_t>(to)] = true;
    }
  }
  // Where the first of five goes, over 5,000 keys: 1,000 each, standard deviation 28.
  std::map<int64_t, int> places;
  for (uint64_t seed = 0; seed < 5000; ++seed) ++places[permuted(0, 5, RandomKey(0).child(seed))];
  for (const auto& [place, found] : places) EXPECT_NEAR(found, 1000, 5 * 28) << place;
  // Neighbours do not stay neighbours: next to each other in 2 of 1000 places by chance.
  int together = 0;
  for (int64_t i = 0; i + 1 < 1000; ++i)
    together += std::abs(permuted(i, 1000, RandomKey(3)) - permuted(i + 1, 1000, RandomKey(3))) == 1;
  EXPECT_LT(together, 12);
}

TEST_F(TableFiles, CifarIsReadWithItsFineLabels) {
  write_cifar({"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin",
               "test_batch.bin"},
              {7});
  const auto ten = open_data_set(folder_, DataKind::images);
  EXPECT_EQ(ten->facts().kind, "cifar10");
  EXPECT_EQ(ten->facts().training, 10);
  EXPECT_EQ(ten->facts().held_out, 2);
  double x[3072], label = -1;
  ten->sample(Split::training, 9, {1, 3, 32, 32}, x, &label);
  EXPECT_EQ(label, 7);
  // numpy: v = numpy.array([50 * f + r for f in range(5) for r in range(2)]) / 255; (201 / 255 - v.mean()) / v.std()
  EXPECT_NEAR(x[3071], 1.4212490994016047, 1e-12);
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  write_cifar({"train.bin", "test.bin"}, {19, 99});
  const auto hundred = open_data_set(folder_, DataKind::images);
  EXPECT_EQ(hundred->facts().kind, "cifar100");
  hundred->sample(Split::held_out, 1, {1, 3, 32, 32}, x, &label);
  EXPECT_EQ(label, 99);
}

TEST_F(TableFiles, ChannelsOfCifarArePlanes) {
  std::vector<uint8_t> record(3073, 0);
  record[1] = 11, record[1 + 1024] = 22, record[1 + 2048 + 33] = 44;  // red (0, 0), green (0, 0), blue (1, 1)
  ImageTable table{.channels = 3, .height = 32, .width = 32, .pixels = {}, .labels = {}};
  add_cifar(Cifar::ten, record, "x", table);
  EXPECT_EQ(table.pixels[0], 11);
  EXPECT_EQ(table.pixels[1024], 22);
  EXPECT_EQ(table.pixels[2 * 1024 + 1 * 32 + 1], 44);
}

TEST_F(TableFiles, AnIdxFileThatIsNotWholeIsRefusedWithTheReason) {
  const auto refusal = [](const std::vector<uint8_t>& bytes) { return complaint([&] { parse_idx(bytes, "f"); }); };
  EXPECT_EQ(refusal({0x1F, 0x8B, 8, 0}), "f: is compressed with gzip; gunzip it first");
  EXPECT_EQ(refusal({0, 0, 8}), "f: has 3 bytes; the header of IDX alone has more");
  EXPECT_EQ(refusal(idx_bytes(0x0A, {1}, {0})),
            "f: begins with the bytes 00 00 0a 01, of which the third is no type of IDX");
  EXPECT_EQ(refusal({1, 0, 8, 1, 0, 0, 0, 1, 5}), "f: begins with the bytes 01 00 08 01, IDX with 00 00");
  EXPECT_EQ(complaint([&] {
              parse_idx(idx_bytes(8, {3}, {1, 2, 3}), "f", IdxForm{IdxType::u8, 3, "images of MNIST"});
            }),
            "f: begins with the bytes 00 00 08 01, images of MNIST with 00 00 08 03");
  EXPECT_EQ(refusal({0, 0, 8, 3, 0, 0, 0, 1, 5}), "f: ends within its header");
  EXPECT_EQ(refusal({0, 0, 8, 0}), "f: its fourth byte says 0 extents; 1 to 3 are read");
  EXPECT_EQ(refusal({0, 0, 8, 255}), "f: its fourth byte says 255 extents; 1 to 3 are read");
  EXPECT_EQ(refusal(idx_bytes(8, {4}, {1, 2, 3})),
            "f: its header says 4 bytes of numbers, the file has 3 after the header");
  EXPECT_EQ(refusal(idx_bytes(8, {2}, {1, 2, 3})),
            "f: its header says 2 bytes of numbers, the file has 3 after the header");
  EXPECT_EQ(refusal(idx_bytes(8, {0}, {})), "f: its header says that extent 0 of 1 is 0");
  // 2^24 + 2 x 2^16 + 3 x 2^8 + 4
  EXPECT_EQ(refusal(idx_bytes(8, {0x01020304}, {})),
            "f: its header says 16909060 bytes of numbers, the file has 0 after the header");
  // 2^31 x 2^31 x 4 = 2^64, which is 0 in 64 bits.
  EXPECT_EQ(refusal(idx_bytes(8, {0x80000000, 0x80000000, 4}, {})),
            "f: its header says more bytes of numbers than any file has");
  EXPECT_EQ(refusal(idx_bytes(0x0E, {0xFFFFFFFF, 0x40000000}, {})),
            "f: its header says more bytes of numbers than any file has");
  // Two elements of each type take this many bytes.
  for (const auto& [type, size] : {std::pair{0x08, 1}, {0x09, 1}, {0x0B, 2}, {0x0C, 4}, {0x0D, 4}, {0x0E, 8}})
    EXPECT_EQ(refusal(idx_bytes(static_cast<uint8_t>(type), {2}, std::vector<uint8_t>(static_cast<size_t>(2 * size)))),
              "");
}

TEST_F(TableFiles, WrongFilesAreOneLineWithTheFile) {
  const auto opened = [&] { return complaint([&] { open_data_set(folder_, DataKind::images); }); };
  EXPECT_EQ(opened(), folder_.string() +
                          ": holds nothing; for data of the kind 'images' these were looked for: MNIST "
                          "(train-images-idx3-ubyte, ...); CIFAR (data_batch_1.bin, ... or train.bin and test.bin, the "
                          "binary version); images in train/CLASS/ and val/CLASS/ or test/CLASS/ (.jpg, .jpeg, .png)");
  write("train-images-idx3-ubyte.gz", {0x1F, 0x8B});
  EXPECT_EQ(opened(), (folder_ / "train-images-idx3-ubyte.gz").string() + ": is compressed with gzip; gunzip it first");
  std::filesystem::remove(folder_ / "train-images-idx3-ubyte.gz");
  write_mnist();
  const std::string labels = (folder_ / "t10k-labels-idx1-ubyte").string();
  write("t10k-labels-idx1-ubyte", idx_bytes(8, {4}, {0, 1, 10, 3}));
  EXPECT_EQ(opened(), labels + ": the label of sample 2 is 10; MNIST has 0 to 9");
  // The images in place of the labels, and numbers of 16 bits: the first bytes say so before any size is compared.
  write("t10k-labels-idx1-ubyte", read_bytes(folder_ / "t10k-images-idx3-ubyte"));
  EXPECT_EQ(opened(), labels + ": begins with the bytes 00 00 08 03, labels of MNIST with 00 00 08 01");
  write("t10k-labels-idx1-ubyte", idx_bytes(0x0B, {4}, {0, 0, 0, 1, 0, 2, 0, 3}));
  EXPECT_EQ(opened(), labels + ": begins with the bytes 00 00 0b 01, labels of MNIST with 00 00 08 01");
  write("t10k-labels-idx1-ubyte", idx_bytes(8, {3}, {0, 1, 2}));
  EXPECT_EQ(opened(), (folder_ / "t10k-images-idx3-ubyte").string() + ": has 4 images, " + labels + " has 3 labels");
  std::filesystem::remove(labels);
  EXPECT_EQ(opened(), folder_.string() +
                          ": has train-images-idx3-ubyte and no t10k-labels-idx1-ubyte; all four files of MNIST are "
                          "needed");
  EXPECT_EQ(complaint([&] { open_data_set(folder_, DataKind::speech); }),
            folder_.string() +
                ": data of the kind 'speech' are always drawn and cannot be read from files; select "
                "other subjects");
  EXPECT_EQ(complaint([&] { open_data_set(folder_ / "no", DataKind::images); }),
            (folder_ / "no").string() + ": no such file or folder");
}

TEST_F(TableFiles, WrongRecordsOfCifarAreRefused) {
  ImageTable table;
  const auto refusal = [&](Cifar variant, std::vector<uint8_t> bytes) {
    return complaint([&] { add_cifar(variant, bytes, "f", table); });
  };
  EXPECT_EQ(refusal(Cifar::ten, std::vector<uint8_t>(3074)),
            "f: has 3074 bytes, which is no multiple of the 3073 of a record of CIFAR-10 (binary version)");
  EXPECT_EQ(refusal(Cifar::hundred, {}),
            "f: has 0 bytes, which is no multiple of the 3074 of a record of CIFAR-100 (binary version)");
  std::vector<uint8_t> bytes(2 * 3073);
  bytes[3073] = 10;
  EXPECT_EQ(refusal(Cifar::ten, bytes),
            "f: record 1 has the label 10, which CIFAR-10 does not have; download it again");
  bytes.assign(3074, 0);
  bytes[0] = 20;
  EXPECT_EQ(refusal(Cifar::hundred, bytes),
            "f: record 0 has the label 0 (coarse 20), which CIFAR-100 does not have; download it again");
  bytes[0] = 0, bytes[1] = 100;
  EXPECT_EQ(refusal(Cifar::hundred, bytes),
            "f: record 0 has the label 100 (coarse 0), which CIFAR-100 does not have; download it again");
  EXPECT_EQ(table.images(), 0) << "nothing of a wrong file is kept";
}

TEST_F(TableFiles, AMutatedFileIsReadOrRefusedInOneLine) {
  write_mnist();
  const std::vector<uint8_t> images = read_bytes(folder_ / "train-images-idx3-ubyte"),
                             labels = read_bytes(folder_ / "train-labels-idx1-ubyte");
  mutate(images, [&](const std::vector<uint8_t>& bytes) { mnist_table(bytes, "i", labels, "l"); });
  mutate(labels, [&](const std::vector<uint8_t>& bytes) { mnist_table(images, "i", bytes, "l"); });
  mutate(std::vector<uint8_t>(3073), [](const std::vector<uint8_t>& bytes) {
    ImageTable table;
    add_cifar(Cifar::ten, bytes, "f", table);
  });
}

TEST_F(TableFiles, ASubjectOfAnotherSizeIsToldWhichFits) {
  write_cifar({"train.bin", "test.bin"}, {1, 2});
  const auto data = open_data_set(folder_, DataKind::images);
  const auto refusal = [&](const std::string& id) { return complaint([&] { check_fits(*data, subject_named(id)); }); };
  const std::string has = " classes; " + data->facts().name + " has images [3, 32, 32] of 100 classes";
  EXPECT_EQ(refusal("lenet5/b2_c1_s28"),
            "subject lenet5/b2_c1_s28: takes [1, 28, 28] and has 10" + has + "; lenet5/b2_c3_s32_o100 fits");
  EXPECT_EQ(refusal("mlp/b2_i64_h128_o10"),
            "subject mlp/b2_i64_h128_o10: takes [64] and has 10" + has + "; mlp/b2_i3072_h128_o100 fits");
  EXPECT_EQ(refusal("resnet/b2_s32_o1000"), "") << "more classes than occur";
  EXPECT_EQ(refusal("resnet/b3_s32_o100"),
            "subject resnet/b3_s32_o100: a batch of 3 is more than the 2 training samples of " + data->facts().name +
                "; take a smaller batch");
  EXPECT_EQ(refusal("linear/b2_i16_o8"), "subject linear/b2_i16_o8 has no labels to learn from " + data->facts().name);
}

TEST_F(TableFiles, TheHashIsOfTheContents) {
  write_mnist();
  const std::string first = open_data_set(folder_, DataKind::images)->facts().hash;
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(open_data_set(folder_, DataKind::points)->facts().hash, first);
  std::vector<uint8_t> images = read_bytes(folder_ / "train-images-idx3-ubyte");
  images.back() ^= 1;
  write("train-images-idx3-ubyte", images);
  EXPECT_NE(open_data_set(folder_, DataKind::images)->facts().hash, first);
}

}  // namespace
}  // namespace halfmark::models
