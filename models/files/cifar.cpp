// CIFAR-10 and CIFAR-100, binary version.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/image_table.h"

namespace halfmark::models {
namespace {

constexpr size_t kCifarPixels = 3 * 32 * 32;

struct CifarRow {
  std::string_view name, kind;
  size_t labels = 0;   // bytes before the pixels; the last one is used
  int64_t coarse = 0;  // classes of the first of two
  int64_t classes = 0;
  std::vector<std::string> training;  // files
  std::string held_out;
};
const CifarRow& row_of_cifar(Cifar variant) {
  static const CifarRow ten{
      .name = "CIFAR-10",
      .kind = "cifar10",
      .labels = 1,
      .coarse = 0,
      .classes = 10,
      .training = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      .held_out = "test_batch.bin"};
  static const CifarRow hundred{.name = "CIFAR-100",
                                .kind = "cifar100",
                                .labels = 2,
                                .coarse = 20,
                                .classes = 100,
                                .training = {"train.bin"},
                                .held_out = "test.bin"};
  return variant == Cifar::ten ? ten : hundred;
}

ImageTable empty_cifar() { return {.channels = 3, .height = 32, .width = 32, .pixels = {}, .labels = {}}; }

}  // namespace

void add_cifar(Cifar variant, Bytes file, const std::string& where, ImageTable& table) {
  const CifarRow& row = row_of_cifar(variant);
  const size_t record = row.labels + kCifarPixels;
  HM_CHECK(!file.empty() && file.size() % record == 0,
           where + ": has " + std::to_string(file.size()) + " bytes, which is no multiple of the " +
               std::to_string(record) + " of a record of " + std::string(row.name) + " (binary version)" +
               (file.size() >= 2 && file[0] == 0x1F && file[1] == 0x8B ? "; it is compressed with gzip" : ""));
  // All labels before anything is added: the file has no header, so they are what tells one format from another.
  for (size_t n = 0; n < file.size() / record; ++n) {
    const uint8_t* labels = file.data() + n * record;
    const bool fine = (row.labels == 1 || labels[0] < row.coarse) && labels[row.labels - 1] < row.classes;
    HM_CHECK(fine, where + ": record " + std::to_string(n) + " has the label " +
                       std::to_string(labels[row.labels - 1]) +
                       (row.labels == 2 ? " (coarse " + std::to_string(labels[0]) + ")" : "") + ", which " +
                       std::string(row.name) + " does not have; download it again");
  }
  for (size_t n = 0; n < file.size() / record; ++n) {
    const Bytes one = file.subspan(n * record, record);
    table.labels.push_back(one[row.labels - 1]);
    table.pixels.insert(table.pixels.end(), one.begin() + static_cast<std::ptrdiff_t>(row.labels), one.end());
  }
}

std::shared_ptr<const DataSet> open_cifar(const std::filesystem::path& folder) {
  for (const Cifar variant : {Cifar::ten, Cifar::hundred}) {
    const CifarRow& row = row_of_cifar(variant);
    std::error_code error;
    if (!std::filesystem::exists(folder / row.training.front(), error)) continue;
    FileHash hash;
    ImageTable training = empty_cifar(), held_out = empty_cifar();
    const auto add = [&](const std::string& name, ImageTable& table) {
      HM_CHECK(std::filesystem::exists(folder / name, error), folder.string() + ": has " + row.training.front() +
                                                                  " and no " + name + "; all files of " +
                                                                  std::string(row.name) + " are needed");
      const std::vector<uint8_t> file = read_bytes(folder / name);
      add_cifar(variant, file, (folder / name).string(), table);
      hash.add(name, file);
    };
    for (const std::string& name : row.training) add(name, training);
    add(row.held_out, held_out);
    DataFacts facts;
    facts.kind = row.kind, facts.name = own_name(folder), facts.hash = hash.text();
    return table_data_set(std::move(training), std::move(held_out), row.classes, std::move(facts));
  }
  return nullptr;
}

}  // namespace halfmark::models
