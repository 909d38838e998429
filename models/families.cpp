// The table of families, with small models of our own. To add a model at any size, add a row.
#include "models/families.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/family_parts.h"

namespace halfmark::models {

using namespace family_parts;

namespace {

Subject mlp(const Sizes& s) {
  const int64_t in = s['i'], hidden = s['h'], classes = s['o'];
  s.check_elements("the input", {s['b'], in});
  s.check_elements("a weight", {std::max(in, hidden), hidden});
  return subject_of_network({s['b'], in}, DataKind::points, classes,
                            {{{"linear", "fc1", {{"out", hidden}}},
                              {"relu", "relu1"},
                              {"linear", "fc2", {{"out", hidden}}},
                              {"relu", "relu2"},
                              {"linear", "fc3", {{"out", classes}}}}});
}

constexpr int64_t kImageClasses = 10;

// Softmax regression: a linear model, which the generated images are designed not to be learnable by.
Subject logistic(const Sizes& s) {
  const Shape image = image_of(s);
  return subject_of_network(image, DataKind::images, kImageClasses,
                            {{{"flatten", "flatten"}, {"linear", "fc", {{"out", kImageClasses}}}}});
}

// conv-bn-relu, pool, a residual block of two convolutions, a strided conv-bn-relu, global average pool, a linear head.
Subject convnet(const Sizes& s) {
  const Shape image = image_of(s);
  const int64_t channels = image[1], width = s['w'];
  s.check(image[2] >= 2 && image[3] >= 2, "the first pool needs an image of at least 2 x 2");
  s.check_elements("a weight", {2 * width, std::max(channels, width), 9});
  s.check_elements("the activations", {image[0], width, image[2], image[3]});
  // A convolution before batch norm has no bias: the shift of the batch norm replaces it.
  const auto conv = [](const char* name, int64_t out, int64_t stride = 1) {
    return LayerSpec{
        "conv2d",
        name,
        {{"out", out}, {"kernel", int64_t{3}}, {"stride", stride}, {"padding", int64_t{1}}, {"bias", false}}};
  };
  return subject_of_network(image, DataKind::images, kImageClasses,
                            {{conv("conv1", width),
                              {"batchnorm2d", "bn1"},
                              {"relu", "relu1"},
                              {"max_pool2d", "pool1", {{"kernel", int64_t{2}}}},
                              {"add",
                               "block",
                               {},
                               {{conv("conv2", width),
                                 {"batchnorm2d", "bn2"},
                                 {"relu", "relu2"},
                                 conv("conv3", width),
                                 {"batchnorm2d", "bn3"}},
                                {}}},
                              {"relu", "relu3"},
                              conv("conv4", 2 * width, 2),
                              {"batchnorm2d", "bn4"},
                              {"relu", "relu4"},
                              {"global_avg_pool2d", "mean"},
                              {"flatten", "flatten"},
                              {"linear", "fc", {{"out", kImageClasses}}}}});
}

std::vector<Family> family_table() {
  const SizeLetter in = {.letter = 'i', .about = "inputs"};
  std::vector<Family> all = layer_families();
  std::vector<Family> models = {
      {.name = "mlp",
       .about = "three linear layers with ReLU between them; trains on drawn points",
       .letters = {kBatch, in, {.letter = 'h', .about = "hidden"}, kClasses},
       .example = "b32_i64_h128_o10",
       .make = mlp},
      {.name = "logistic",
       .about = "softmax regression, which the drawn images defeat",
       .letters = {kBatch, kChannels, kImage},
       .example = "b16_c3_s16",
       .make = logistic},
      {.name = "convnet",
       .about = "four convolutions with batch norm, one residual block; trains on drawn images",
       .letters = {kBatch, kChannels, kImage, {.letter = 'w', .about = "width"}},
       .example = "b16_c3_s16_w16",
       .make = convnet},
  };
  for (std::vector<Family> more : {sequence_families(), models, loss_families(), published_families()})
    for (Family& family : more) all.push_back(std::move(family));
  return all;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = family_table();
  return all;
}

const Family* family_named(std::string_view name) {
  const auto found =
      std::find_if(families().begin(), families().end(), [&](const Family& family) { return family.name == name; });
  return found == families().end() ? nullptr : &*found;
}

Subject subject_of(const Family& family, std::string_view text) {
  const Sizes sizes(family.name, family.letters, text);
  Subject subject = family.make(sizes);
  subject.name = family.name, subject.sizes = sizes.text(), subject.built_in = true;
  return subject;
}

}  // namespace halfmark::models
