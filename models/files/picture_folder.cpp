#include "models/files/picture_folder.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/bytes.h"
#include "models/files/picture.h"

namespace halfmark::models {
namespace {

using std::filesystem::path;

constexpr int64_t kMostPictureBytes = int64_t{1} << 28;  // of one file

// How a byte becomes a number: (x / 255 - mean) / deviation.
struct Normalisation {
  std::array<double, 3> mean, deviation;
  std::string_view text;
};
// torchvision, references/classification/presets.py.
constexpr Normalisation kImageNet = {{0.485, 0.456, 0.406},
                                     {0.229, 0.224, 0.225},
                                     "(x / 255 - mean) / deviation of ImageNet: mean 0.485 0.456 0.406, deviation "
                                     "0.229 0.224 0.225 (grey: their means)"};
// ERFNet's published training: torchvision's ToTensor alone (github.com/Eromera/erfnet_pytorch, train/main.py).
constexpr Normalisation kPlain = {{0, 0, 0}, {1, 1, 1}, "x / 255"};

// What is in a folder, in the order of the names. Hidden files are left out.
std::vector<path> entries_of(const path& folder) {
  std::error_code error;
  std::vector<path> found;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (!entry->path().filename().string().starts_with('.')) found.push_back(entry->path());
  HM_CHECK(!error, folder.string() + ": cannot be read: " + error.message());
  std::sort(found.begin(), found.end());
  return found;
}

bool is_folder(const path& place) {
  std::error_code error;
  return std::filesystem::is_directory(place, error);
}

bool is_picture(const path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

void add_file(FileHash& hash, const path& root, const path& file, std::string_view label) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(file, error);
  HM_CHECK(!error, file.string() + ": " + error.message());
  hash.add(file.lexically_relative(root).generic_string() + " " + std::string(label), size);
}

// Writes the picture, of the subject's size and channels, as [channels, height, width].
void write_normalised(const Picture& picture, const Normalisation& numbers, double* x) {
  const auto count = static_cast<size_t>(picture.height * picture.width),
             channels = static_cast<size_t>(picture.channels);
  for (size_t c = 0; c < channels; ++c) {
    const auto& [mean, deviation, text] = numbers;
    const double m = channels == 3 ? mean[c] : (mean[0] + mean[1] + mean[2]) / 3;
    const double d = channels == 3 ? deviation[c] : (deviation[0] + deviation[1] + deviation[2]) / 3;
    for (size_t i = 0; i < count; ++i) *x++ = (picture.pixels[i * channels + c] / 255.0 - m) / d;
  }
}

DataSet::Needs picture_needs(const std::string& name, const Shape& input, int64_t classes) {
  HM_CHECK(input[1] == 1 || input[1] == 3,
           name + ": images have 1 or 3 channels, the subject takes " + std::to_string(input[1]));
  return {.sample = {input[1], input[2], input[3]},  // of any size
          .classes = classes,
          .what = std::to_string(classes) + " classes"};
}

class ImageFolder : public DataSet {
 public:
  struct Image {
    path file;  // relative to the folder
    int64_t label = 0;
  };
  ImageFolder(path folder, std::vector<Image> training, std::vector<Image> held_out, int64_t classes, DataFacts facts)
      : folder_(std::move(folder)),
        training_(std::move(training)),
        held_out_(std::move(held_out)),
        classes_(classes),
        facts_(std::move(facts)) {}

  const DataFacts& facts() const override { return facts_; }
  Needs needs(DataKind, const Shape& input) const override { return picture_needs(facts_.name, input, classes_); }
  int64_t samples(Split split, const Shape&) const override { return static_cast<int64_t>(images(split).size()); }

  void sample(Split split, int64_t index, const Shape& input, double* x, double* labels) const override {
    const Image& image = images(split)[static_cast<size_t>(index)];
    const path file = folder_ / image.file;
    const Picture whole = with_channels(decode_picture(read_bytes(file, kMostPictureBytes), file.string()), input[1]);
    const Picture fitting = resized(whole, covering(whole, input[2], input[3]));
    write_normalised(centre_cropped(fitting, input[2], input[3]), kImageNet, x);
    *labels = static_cast<double>(image.label);
  }

 private:
  const std::vector<Image>& images(Split split) const { return split == Split::training ? training_ : held_out_; }

  path folder_;
  std::vector<Image> training_, held_out_;
  int64_t classes_;
  DataFacts facts_;
};

// The images below a split of an image folder. A class of the held-out part must be one of the training part.
std::vector<ImageFolder::Image> images_of(const path& folder, const path& split, std::vector<std::string>& classes,
                                          FileHash& hash) {
  const bool is_first = classes.empty();
  std::vector<ImageFolder::Image> images;
  for (const path& place : entries_of(folder / split)) {
    if (!is_folder(place)) continue;
    const std::string name = place.filename().string();
    if (is_first) classes.push_back(name);
    const auto known = std::find(classes.begin(), classes.end(), name);
    HM_CHECK(known != classes.end(), place.string() + ": is a class that train does not have");
    size_t found = 0;
    for (const path& file : entries_of(place)) {
      if (!is_picture(file)) continue;
      images.push_back({.file = file.lexically_relative(folder), .label = known - classes.begin()});
      add_file(hash, folder, file, name);
      ++found;
    }
    HM_CHECK(found > 0 || !is_first, place.string() + ": has no .jpg, .jpeg or .png file");
  }
  HM_CHECK(!images.empty(), (folder / split).string() + ": has no folder of a class with .jpg, .jpeg or .png files");
  return images;
}

class Cityscapes : public DataSet {
 public:
  struct Street {
    path image, labels;
    bool has_train_ids = false;
  };
  Cityscapes(std::vector<Street> training, std::vector<Street> held_out, DataFacts facts)
      : training_(std::move(training)), held_out_(std::move(held_out)), facts_(std::move(facts)) {}

  const DataFacts& facts() const override { return facts_; }
  Needs needs(DataKind, const Shape& input) const override {
    return picture_needs(facts_.name, input, kCityscapesClasses);
  }
  int64_t samples(Split split, const Shape&) const override { return static_cast<int64_t>(streets(split).size()); }

  void sample(Split split, int64_t index, const Shape& input, double* x, double* labels) const override {
    const Street& street = streets(split)[static_cast<size_t>(index)];
    const std::string name = street.labels.string();
    const Picture image =
        with_channels(decode_picture(read_bytes(street.image, kMostPictureBytes), street.image.string()), input[1]);
    const Picture ids = decode_label_png(read_bytes(street.labels, kMostPictureBytes), name);
    HM_CHECK(ids.height == image.height && ids.width == image.width,
             name + ": has " + std::to_string(ids.width) + " x " + std::to_string(ids.height) +
                 " pixels and its image has " + std::to_string(image.width) + " x " + std::to_string(image.height));
    const Extent2 size = covering(image, input[2], input[3]);
    const Picture fitting = centre_cropped(resized_to_nearest(ids, size), input[2], input[3]);
    for (size_t i = 0; i < fitting.pixels.size(); ++i) {
      const int64_t id = fitting.pixels[i];
      const int64_t label = !street.has_train_ids                          ? train_id(id)
                            : id < kCityscapesClasses || id == kUnlabelled ? id
                                                                           : -1;
      HM_CHECK(label >= 0, name + ": has a pixel " + std::to_string(id) + ", which is no " +
                               (street.has_train_ids ? "trainId" : "labelId") + " of Cityscapes");
      labels[i] = static_cast<double>(label);
    }
    write_normalised(centre_cropped(resized(image, size), input[2], input[3]), kPlain, x);
  }

 private:
  const std::vector<Street>& streets(Split split) const { return split == Split::training ? training_ : held_out_; }

  std::vector<Street> training_, held_out_;
  DataFacts facts_;
};

std::vector<Cityscapes::Street> streets_of(const path& folder, const path& split, FileHash& hash) {
  constexpr std::string_view kImage = "_leftImg8bit.png";
  std::vector<Cityscapes::Street> streets;
  for (const path& city : entries_of(folder / "leftImg8bit" / split)) {
    if (!is_folder(city)) continue;
    for (const path& image : entries_of(city)) {
      const std::string name = image.filename().string();
      if (!name.ends_with(kImage)) continue;
      const path labels = folder / "gtFine" / split / city.filename();
      const std::string frame = name.substr(0, name.size() - kImage.size());
      Cityscapes::Street street{.image = image, .labels = labels / (frame + "_gtFine_labelTrainIds.png")};
      std::error_code error;
      street.has_train_ids = std::filesystem::exists(street.labels, error);
      if (!street.has_train_ids) street.labels = labels / (frame + "_gtFine_labelIds.png");
      HM_CHECK(std::filesystem::exists(street.labels, error),
               street.labels.string() + ": no such file, and " + name + " needs it for its labels");
      add_file(hash, folder, street.image, ""), add_file(hash, folder, street.labels, "");
      streets.push_back(std::move(street));
    }
  }
  HM_CHECK(!streets.empty(), (folder / "leftImg8bit" / split).string() + ": has no CITY/*_leftImg8bit.png");
  return streets;
}

DataFacts folder_facts(std::string kind, const path& folder, const FileHash& hash, const Normalisation& numbers,
                       size_t training, size_t held_out) {
  return {.kind = std::move(kind),
          .name = own_name(folder),
          .hash = hash.text(),
          .hashed = "names and sizes",
          .normalisation = std::string(numbers.text),
          .unit = "images",
          .training = static_cast<int64_t>(training),
          .held_out = static_cast<int64_t>(held_out)};
}

}  // namespace

std::shared_ptr<const DataSet> open_image_folder(const path& folder) {
  const path split = is_folder(folder / "val") ? "val" : "test";
  if (!is_folder(folder / "train") || !is_folder(folder / split)) return nullptr;
  std::vector<std::string> classes;
  FileHash hash;
  auto training = images_of(folder, "train", classes, hash), held_out = images_of(folder, split, classes, hash);
  DataFacts facts = folder_facts("images", folder, hash, kImageNet, training.size(), held_out.size());
  return std::make_shared<ImageFolder>(folder, std::move(training), std::move(held_out),
                                       static_cast<int64_t>(classes.size()), std::move(facts));
}

std::shared_ptr<const DataSet> open_cityscapes(const path& folder) {
  if (!is_folder(folder / "leftImg8bit" / "train") || !is_folder(folder / "leftImg8bit" / "val") ||
      !is_folder(folder / "gtFine"))
    return nullptr;
  HM_CHECK(missing_for_png().empty(), folder.string() + ": " + std::string(missing_for_png()));
  FileHash hash;
  auto training = streets_of(folder, "train", hash), held_out = streets_of(folder, "val", hash);
  DataFacts facts = folder_facts("cityscapes", folder, hash, kPlain, training.size(), held_out.size());
  return std::make_shared<Cityscapes>(std::move(training), std::move(held_out), std::move(facts));
}

int64_t train_id(int64_t label_id) {
  // github.com/mcordts/cityscapesScripts, cityscapesscripts/helpers/labels.py. labelId -1, the licence plate, is stored in no
  // file of 8 bits.
  constexpr int64_t no = kUnlabelled;
  constexpr std::array<int64_t, 34> kTrainIds = {
      no, no, no, no, no, no, no,  // unlabeled, ego vehicle, rectification border, out of roi, static, dynamic, ground
      0,  1,  no, no,              // road, sidewalk, parking, rail track
      2,  3,  4,  no, no, no,      // building, wall, fence, guard rail, bridge, tunnel
      5,  no, 6,  7,               // pole, polegroup, traffic light, traffic sign
      8,  9,  10,                  // vegetation, terrain, sky
      11, 12,                      // person, rider
      13, 14, 15, no, no, 16, 17, 18,  // car, truck, bus, caravan, trailer, train, motorcycle, bicycle
  };
  return label_id >= 0 && label_id < static_cast<int64_t>(kTrainIds.size()) ? kTrainIds[static_cast<size_t>(label_id)]
                                                                            : -1;
}

}  // namespace halfmark::models
