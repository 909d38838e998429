#include "models/files/open.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/files/bytes.h"
#include "models/files/image_table.h"
#include "models/files/picture_folder.h"
#include "models/files/text.h"
#include "models/zoo.h"

namespace halfmark::models {
namespace {

// A layout of files, and the kinds of data that it can stand for.
struct Layout {
  std::vector<DataKind> kinds;
  std::string_view looked_for;
  std::shared_ptr<const DataSet> (*open)(const std::filesystem::path&);  // null: the path has none of its files
};
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {{DataKind::images, DataKind::points}, "MNIST (train-images-idx3-ubyte, ...)", open_mnist},
      {{DataKind::images, DataKind::points},
       "CIFAR (data_batch_1.bin, ... or train.bin and test.bin, the binary version)",
       open_cifar},
      {{DataKind::images},
       "images in train/CLASS/ and val/CLASS/ or test/CLASS/ (.jpg, .jpeg, .png)",
       open_image_folder},
      {{DataKind::streets}, "Cityscapes (leftImg8bit/train, leftImg8bit/val and gtFine)", open_cityscapes},
      {{DataKind::text}, "a .txt file, or a folder with input.txt or one .txt file", open_text},
  };
  return all;
}

std::vector<std::string> split_sizes(const std::string& sizes) {
  std::vector<std::string> parts(1);
  for (const char c : sizes)
    if (c == '_')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

std::vector<int64_t> sample_of(const Shape& input) { return {input.extents().begin() + 1, input.extents().end()}; }

bool fits(const DataSet::Needs& needs, const Subject& subject) {
  return subject.classes >= needs.classes && (needs.sample.empty() || sample_of(subject.input) == needs.sample);
}

// The letters of sizes (models/families.h) that say how large an image is, its channels, and how many classes there are.
std::vector<std::pair<char, std::string>> letters_for(const DataSet::Needs& needs, DataKind kind) {
  std::vector<std::pair<char, std::string>> letters;
  if (needs.sample.size() == 3) {
    const std::string h = std::to_string(needs.sample[1]), w = std::to_string(needs.sample[2]);
    letters = {{'c', std::to_string(needs.sample[0])}, {'s', h == w ? h : h + "x" + w}};
  } else if (kind == DataKind::points && needs.sample.size() == 1) {
    letters = {{'i', std::to_string(needs.sample[0])}};
  }
  letters.emplace_back(kind == DataKind::text ? 'v' : 'o', std::to_string(needs.classes));
  return letters;
}

// The id of the same family with the sizes that fit; empty: none is found.
std::string fitting_id(const DataSet::Needs& needs, const Subject& subject) {
  std::vector<std::string> parts = split_sizes(subject.sizes);
  const auto id = [&] {
    std::string text = subject.name + "/";
    for (size_t i = 0; i < parts.size(); ++i) text += (i ? "_" : "") + parts[i];
    return text;
  };
  const auto is_known = [&]() -> std::optional<std::string> {
    try {
      const Subject& other = subject_named(id());
      if (other.data == subject.data) return other.id();
    } catch (const Error&) {
    }
    return {};
  };
  for (const auto& [letter, value] : letters_for(needs, subject.data)) {
    const std::vector<std::string> before = parts;
    const auto named = [first = letter](const std::string& part) { return !part.empty() && part[0] == first; };
    bool found = false;
    for (std::string& part : parts)
      if (named(part)) part = letter + value, found = true;
    if (!found) parts.push_back(letter + value);
    if (!is_known()) parts = before;  // the family has no such letter
  }
  const std::optional<std::string> other = is_known();
  return other && fits(needs, subject_named(*other)) ? *other : "";
}

}  // namespace

std::shared_ptr<const DataSet> open_data_set(const std::filesystem::path& path, DataKind kind) {
  std::error_code error;
  HM_CHECK(std::filesystem::exists(path, error), path.string() + ": no such file or folder");
  std::string looked_for;
  for (const Layout& layout : layouts()) {
    bool of_kind = false;
    for (const DataKind one : layout.kinds) of_kind = of_kind || one == kind;
    if (!of_kind) continue;
    if (auto data = layout.open(path)) return data;
    looked_for += (looked_for.empty() ? "" : "; ") + std::string(layout.looked_for);
  }
  const std::string name(row_of(kind).name);
  HM_CHECK(!looked_for.empty(), path.string() + ": data of the kind '" + name +
                                    "' are always drawn and cannot be read from files; select other subjects");
  throw Error(path.string() + ": " +
              (std::filesystem::is_directory(path, error) ? "holds " + listing_of(path) : std::string("is a file")) +
              "; for data of the kind '" + name + "' these were looked for: " + looked_for);
}

void check_fits(const DataSet& data, const Subject& subject) {
  const std::string id = subject.id(), name = data.facts().name;
  HM_CHECK(subject.classes > 0, "subject " + id + " has no labels to learn from " + name);
  const DataSet::Needs needs = data.needs(subject.data, subject.input);
  if (!fits(needs, subject)) {
    const std::string other = fitting_id(needs, subject);
    throw Error("subject " + id + ": takes " + Shape(sample_of(subject.input)).text() + " and has " +
                std::to_string(subject.classes) + " classes; " + name + " has " + needs.what +
                (other.empty() ? "" : "; " + other + " fits"));
  }
  const int64_t training = data.samples(Split::training, subject.input),
                held_out = data.samples(Split::held_out, subject.input);
  HM_CHECK(training >= subject.input[0], "subject " + id + ": a batch of " + std::to_string(subject.input[0]) +
                                             " is more than the " + std::to_string(training) + " training samples of " +
                                             name + "; take a smaller batch");
  HM_CHECK(held_out > 0, "subject " + id + ": " + name + " has no held-out samples for it");
}

}  // namespace halfmark::models
