// Images of equal size with a class each, held in memory as bytes: MNIST and CIFAR.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/files/bytes.h"
#include "models/files/data_set.h"
#include "models/namespaces.h"

namespace halfmark::models {

struct ImageTable {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> pixels;  // [images, channels, height, width]
  std::vector<uint8_t> labels;
  int64_t images() const { return static_cast<int64_t>(labels.size()); }
};

// Of files of one format, for images and, with one value per pixel in a row, for points. Each channel is normalised to
// (x / 255 - mean) / deviation with the mean and the standard deviation of its pixels in the training images.
std::shared_ptr<const DataSet> table_data_set(ImageTable training, ImageTable held_out, int64_t classes,
                                              DataFacts facts);

// MNIST and data sets in its form, as Fashion-MNIST. Both files are whole. Throws Error that names the one that is wrong.
ImageTable mnist_table(Bytes images, const std::string& images_name, Bytes labels, const std::string& labels_name);

// The binary version of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html): records of a label, or of
// a coarse and a fine label of which the fine one is used, and 3 x 32 x 32 bytes. Adds the file's images.
enum class Cifar : uint8_t { ten, hundred };
void add_cifar(Cifar variant, Bytes file, const std::string& where, ImageTable& table);

// The data set of a folder that holds its files; null: it holds none of them. Throws Error where some are missing or wrong.
std::shared_ptr<const DataSet> open_mnist(const std::filesystem::path& folder);
std::shared_ptr<const DataSet> open_cifar(const std::filesystem::path& folder);

}  // namespace halfmark::models
