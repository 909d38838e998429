// MNIST: two IDX files for training, two for the test.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/idx.h"
#include "models/files/image_table.h"

namespace halfmark::models {
namespace {

constexpr int64_t kDigits = 10;

// The file of this name, also with a dot before "idx" as some archives unpack it; empty: there is none.
std::filesystem::path idx_file(const std::filesystem::path& folder, const std::string& part, const char* kind) {
  for (const char* separator : {"-", "."}) {
    std::filesystem::path path = folder / (part + separator + kind);
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
    path += ".gz";
    HM_CHECK(!std::filesystem::exists(path, error), path.string() + ": is compressed with gzip; gunzip it first");
  }
  return {};
}

}  // namespace

ImageTable mnist_table(Bytes images, const std::string& images_name, Bytes labels, const std::string& labels_name) {
  const IdxArray pixels = parse_idx(images, images_name, IdxForm{IdxType::u8, 3, "images of MNIST"}),
                 classes = parse_idx(labels, labels_name, IdxForm{IdxType::u8, 1, "labels of MNIST"});
  HM_CHECK(pixels.extents[0] == classes.extents[0], images_name + ": has " + std::to_string(pixels.extents[0]) +
                                                        " images, " + labels_name + " has " +
                                                        std::to_string(classes.extents[0]) + " labels");
  for (size_t i = 0; i < classes.data.size(); ++i)
    HM_CHECK(classes.data[i] < kDigits, labels_name + ": the label of sample " + std::to_string(i) + " is " +
                                            std::to_string(classes.data[i]) + "; MNIST has 0 to 9");
  ImageTable table{.channels = 1, .height = pixels.extents[1], .width = pixels.extents[2], .pixels = {}, .labels = {}};
  table.pixels.assign(pixels.data.begin(), pixels.data.end());
  table.labels.assign(classes.data.begin(), classes.data.end());
  return table;
}

std::shared_ptr<const DataSet> open_mnist(const std::filesystem::path& folder) {
  constexpr const char* kParts[] = {"train", "t10k"};
  if (idx_file(folder, "train-images", "idx3-ubyte").empty()) return nullptr;
  FileHash hash;
  ImageTable tables[2];
  for (size_t i = 0; i < 2; ++i) {
    const std::string part = kParts[i];
    std::filesystem::path paths[2];
    std::vector<uint8_t> files[2];
    const std::pair<const char*, const char*> kinds[] = {{"-images", "idx3-ubyte"}, {"-labels", "idx1-ubyte"}};
    for (size_t k = 0; k < 2; ++k) {
      paths[k] = idx_file(folder, part + kinds[k].first, kinds[k].second);
      HM_CHECK(!paths[k].empty(), folder.string() + ": has train-images-idx3-ubyte and no " + part + kinds[k].first +
                                      "-" + kinds[k].second + "; all four files of MNIST are needed");
      files[k] = read_bytes(paths[k]);
      hash.add(part + kinds[k].first, files[k]);
    }
    tables[i] = mnist_table(files[0], paths[0].string(), files[1], paths[1].string());
  }
  DataFacts facts;
  facts.kind = "mnist", facts.name = own_name(folder), facts.hash = hash.text();
  return table_data_set(std::move(tables[0]), std::move(tables[1]), kDigits, std::move(facts));
}

}  // namespace halfmark::models
