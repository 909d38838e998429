// A data set of images in memory.
#include "models/files/image_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

class TableDataSet : public DataSet {
 public:
  TableDataSet(ImageTable training, ImageTable held_out, int64_t classes, DataFacts facts)
      : training_(std::move(training)), held_out_(std::move(held_out)), classes_(classes), facts_(std::move(facts)) {
    HM_CHECK(training_.images() > 0 && held_out_.images() > 0, facts_.name + ": has no images");
    HM_CHECK(training_.channels == held_out_.channels && training_.height == held_out_.height &&
                 training_.width == held_out_.width,
             facts_.name + ": its training images and its test images differ in size");
    facts_.unit = "images", facts_.hashed = "contents";
    facts_.training = training_.images(), facts_.held_out = held_out_.images();
    normalise();
  }

  const DataFacts& facts() const override { return facts_; }

  Needs needs(DataKind kind, const Shape&) const override {
    const ImageTable& t = training_;
    Needs needs{.sample = {t.channels, t.height, t.width},
                .classes = classes_,
                .what = "images " + Shape{t.channels, t.height, t.width}.text() + " of " + std::to_string(classes_) +
                        " classes"};
    if (kind == DataKind::points) needs.sample = {t.channels * t.height * t.width};
    return needs;
  }

  int64_t samples(Split split, const Shape&) const override { return table(split).images(); }

  void sample(Split split, int64_t index, const Shape&, double* x, double* labels) const override {
    const ImageTable& from = table(split);
    const auto plane = static_cast<size_t>(from.height * from.width), all = plane * numbers_.size();
    const uint8_t* pixels = from.pixels.data() + static_cast<size_t>(index) * all;
    for (size_t i = 0; i < all; ++i) x[i] = numbers_[i / plane][pixels[i]];
    *labels = from.labels[static_cast<size_t>(index)];
  }

 private:
  const ImageTable& table(Split split) const { return split == Split::training ? training_ : held_out_; }

  void normalise() {
    const auto plane = static_cast<size_t>(training_.height * training_.width);
    std::string mean_text, deviation_text;
    for (int64_t c = 0; c < training_.channels; ++c) {
      uint64_t sum = 0, squares = 0;  // exact: 2^64 / 255^2 is more pixels than a file has
      for (int64_t n = 0; n < training_.images(); ++n) {
        const uint8_t* pixels = training_.pixels.data() + static_cast<size_t>(n * training_.channels + c) * plane;
        for (size_t i = 0; i < plane; ++i) sum += pixels[i], squares += uint64_t{pixels[i]} * pixels[i];
      }
      const double count = static_cast<double>(plane) * static_cast<double>(training_.images());
      const double mean = static_cast<double>(sum) / count / 255;
      const double variance = static_cast<double>(squares) / count / (255.0 * 255.0) - mean * mean;
      const double deviation = variance > 0 ? std::sqrt(variance) : 1;  // of one value only: nothing to scale
      std::array<double, 256> values{};
      for (size_t v = 0; v < values.size(); ++v) values[v] = (static_cast<double>(v) / 255 - mean) / deviation;
      numbers_.push_back(values);
      char text[32];
      std::snprintf(text, sizeof text, " %.4f", mean), mean_text += text;
      std::snprintf(text, sizeof text, " %.4f", deviation), deviation_text += text;
    }
    facts_.normalisation = "(x / 255 - mean) / deviation of each channel of the training images: mean" + mean_text +
                           ", deviation" + deviation_text;
  }

  ImageTable training_, held_out_;
  int64_t classes_;
  DataFacts facts_;
  std::vector<std::array<double, 256>> numbers_;  // of each channel: what a byte becomes
};

}  // namespace

std::shared_ptr<const DataSet> table_data_set(ImageTable training, ImageTable held_out, int64_t classes,
                                              DataFacts facts) {
  return std::make_shared<TableDataSet>(std::move(training), std::move(held_out), classes, std::move(facts));
}

}  // namespace halfmark::models
