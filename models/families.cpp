// The table of families. To add a layer or a model at any size, add a row.
#include "models/families.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace halfmark::models {
namespace {

Extent one(const Sizes&) { return {1, 1}; }
Extent as_kernel(const Sizes& s) { return s.extent('k'); }

const SizeLetter kBatch = {.letter = 'b', .about = "batch"};
const SizeLetter kChannels = {.letter = 'c', .about = "channels"};
const SizeLetter kTokens = {.letter = 'b', .about = "tokens, batch times length"};
const SizeLetter kFeatures = {.letter = 'd', .about = "features"};
const SizeLetter kImage = {.letter = 's', .about = "image size", .is_pair = true};
const SizeLetter kKernel = {.letter = 'k', .about = "kernel", .is_pair = true, .most = 1024};
const SizeLetter kClasses = {.letter = 'o', .about = "classes", .least = 2, .most = 10};  // those of the drawn data

int as_int(int64_t value) { return static_cast<int>(value); }  // of letters whose `most` fits

template <class... Layers>
LayerPtr chain(std::string name, Layers... layers) {
  std::vector<LayerPtr> list;
  (list.push_back(std::move(layers)), ...);
  return sequential(std::move(name), std::move(list));
}

// Rows or columns that a window reaches over.
int64_t reach(int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; }

// A subject without labels: a single layer.
Subject alone(const Shape& input, std::function<LayerPtr(const Init&, const Settings&)> make) {
  return {.name = "", .sizes = "", .input = input, .data = DataKind::normal, .classes = 0, .make = std::move(make)};
}

Shape image_of(const Sizes& s) {
  const Extent size = s.extent('s');
  s.check_elements("the input", {s['b'], s['c'], size.h, size.w});
  return {s['b'], s['c'], size.h, size.w};
}

Subject linear_alone(const Sizes& s) {
  const int64_t in = s['i'], out = s['o'];
  s.check_elements("the input", {s['b'], in});
  s.check_elements("the weight", {in, out});
  return alone({s['b'], in}, [=](const Init& init, const Settings&) { return linear(init, "linear", in, out); });
}

// Half of the rows that the window reaches beyond one: with stride 1 and an odd kernel the image keeps its size.
Extent same_padding(const Sizes& s) {
  const Extent kernel = s.extent('k'), dilation = s.extent('d');
  return {(reach(kernel.h, dilation.h) - 1) / 2, (reach(kernel.w, dilation.w) - 1) / 2};
}

Subject conv_alone(const Sizes& s) {
  const int64_t in = s['c'], out = s['o'], groups = s['g'];
  const Extent size = s.extent('s'), kernel = s.extent('k'), stride = s.extent('t'), dilation = s.extent('d'),
               pad = s.extent('p');
  s.check(in % groups == 0 && out % groups == 0, std::to_string(groups) + " groups do not divide " +
                                                     std::to_string(in) + " input channels and " + std::to_string(out) +
                                                     " output channels");
  for (const auto& [image, reached] : {std::pair{size.h + 2 * pad.h, reach(kernel.h, dilation.h)},
                                       std::pair{size.w + 2 * pad.w, reach(kernel.w, dilation.w)}})
    s.check(reached <= image, "the kernel reaches over " + std::to_string(reached) +
                                  " rows or columns, the padded image has " + std::to_string(image));
  s.check_elements("the weight", {out, in / groups, kernel.h, kernel.w});
  s.check_elements("the output",
                   {s['b'], out, (size.h + 2 * pad.h) / stride.h + 1, (size.w + 2 * pad.w) / stride.w + 1});
  const Window window{.stride_h = as_int(stride.h),
                      .stride_w = as_int(stride.w),
                      .pad_h = as_int(pad.h),
                      .pad_w = as_int(pad.w),
                      .dilation_h = as_int(dilation.h),
                      .dilation_w = as_int(dilation.w)};
  const Size2d window_kernel{as_int(kernel.h), as_int(kernel.w)};
  return alone(image_of(s), [=](const Init& init, const Settings&) {
    return conv2d(init, "conv", in, out, window_kernel, window, as_int(groups));
  });
}

Subject batchnorm_alone(const Sizes& s) {
  const Shape image = image_of(s);
  s.check(image.elements() > image[1], "a batch norm in training needs more than one value of each channel");
  return alone(image, [channels = image[1]](const Init& init, const Settings& settings) {
    return batchnorm2d(init, "bn", channels, settings.batchnorm_momentum);
  });
}

Subject layer_norm_alone(const Sizes& s) {
  const int64_t features = s['d'];
  s.check_elements("the input", {s['b'], features});
  return alone({s['b'], features},
               [=](const Init& init, const Settings&) { return layer_norm(init, "norm", features); });
}

Subject rms_norm_alone(const Sizes& s) {
  const int64_t features = s['d'];
  s.check_elements("the input", {s['b'], features});
  return alone({s['b'], features}, [=](const Init& init, const Settings&) { return rms_norm(init, "norm", features); });
}

Subject group_norm_alone(const Sizes& s) {
  const int64_t channels = s['c'], groups = s['g'];
  s.check(channels % groups == 0,
          std::to_string(groups) + " groups do not divide " + std::to_string(channels) + " channels");
  return alone(image_of(s),
               [=](const Init& init, const Settings&) { return group_norm(init, "norm", channels, groups); });
}

template <class Row>
Subject activation_alone(const Sizes& s) {
  return alone(image_of(s), [](const Init&, const Settings&) { return activation(Row::name, std::string(Row::name)); });
}

template <class Make>
Subject pool_alone(const Sizes& s, Make make) {
  const Extent size = s.extent('s'), kernel = s.extent('k'), stride = s.extent('t');
  s.check(kernel.h <= size.h && kernel.w <= size.w, "the kernel is larger than the image");
  const Size2d window{as_int(kernel.h), as_int(kernel.w)}, steps{as_int(stride.h), as_int(stride.w)};
  return alone(image_of(s), [=](const Init&, const Settings&) { return make(window, steps); });
}

Subject max_pool_alone(const Sizes& s) {
  const Extent window = s.extent('k');
  s.check(window.h * window.w <= 256, "the kernel has more than 256 places, and a winner's place is kept in a byte");
  return pool_alone(s, [](Size2d kernel, Size2d stride) { return max_pool2d("pool", kernel, stride); });
}
Subject avg_pool_alone(const Sizes& s) {
  return pool_alone(s, [](Size2d kernel, Size2d stride) { return avg_pool2d("pool", kernel, stride); });
}
Subject global_pool_alone(const Sizes& s) {
  return alone(image_of(s), [](const Init&, const Settings&) { return global_avg_pool2d("pool"); });
}

Subject mlp(const Sizes& s) {
  const int64_t in = s['i'], hidden = s['h'], classes = s['o'];
  s.check_elements("the input", {s['b'], in});
  s.check_elements("a weight", {std::max(in, hidden), hidden});
  return {.name = "",
          .sizes = "",
          .input = {s['b'], in},
          .data = DataKind::points,
          .classes = classes,
          .make = [=](const Init& init, const Settings&) {
            return chain("mlp", linear(init, "fc1", in, hidden), relu("relu1"), linear(init, "fc2", hidden, hidden),
                         relu("relu2"), linear(init, "fc3", hidden, classes));
          }};
}

constexpr int64_t kImageClasses = 10;

// Softmax regression: a linear model, which the generated images are designed not to be learnable by.
Subject logistic(const Sizes& s) {
  const Shape image = image_of(s);
  const int64_t features = image.elements() / image[0];
  return {.name = "",
          .sizes = "",
          .input = image,
          .data = DataKind::images,
          .classes = kImageClasses,
          .make = [=](const Init& init, const Settings&) {
            return chain("logistic", flatten("flatten"), linear(init, "fc", features, kImageClasses));
          }};
}

// conv-bn-relu, pool, a residual block of two convolutions, a strided conv-bn-relu, global average pool, a linear head.
Subject convnet(const Sizes& s) {
  const Shape image = image_of(s);
  const int64_t channels = image[1], width = s['w'];
  s.check(image[2] >= 2 && image[3] >= 2, "the first pool needs an image of at least 2 x 2");
  s.check_elements("a weight", {2 * width, std::max(channels, width), 9});
  s.check_elements("the activations", {image[0], width, image[2], image[3]});
  return {.name = "",
          .sizes = "",
          .input = image,
          .data = DataKind::images,
          .classes = kImageClasses,
          .make = [=](const Init& init, const Settings& settings) {
            const Window same{.pad_h = 1, .pad_w = 1}, half{.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
            // A convolution before batch norm has no bias: the shift of the batch norm replaces it.
            const auto conv = [&](const char* name, int64_t in, int64_t out, const Window& window) {
              return conv2d(init, name, in, out, 3, window, 1, false);
            };
            const auto bn = [&](const char* name, int64_t c) {
              return batchnorm2d(init, name, c, settings.batchnorm_momentum);
            };
            return chain("convnet", conv("conv1", channels, width, same), bn("bn1", width), relu("relu1"),
                         max_pool2d("pool1", 2, 2),
                         residual("block", chain("body", conv("conv2", width, width, same), bn("bn2", width),
                                                 relu("relu2"), conv("conv3", width, width, same), bn("bn3", width))),
                         relu("relu3"), conv("conv4", width, 2 * width, half), bn("bn4", 2 * width), relu("relu4"),
                         global_avg_pool2d("mean"), flatten("flatten"), linear(init, "fc", 2 * width, kImageClasses));
          }};
}

std::vector<Family> family_table() {
  const SizeLetter in = {.letter = 'i', .about = "inputs"}, out = {.letter = 'o', .about = "outputs"};
  const SizeLetter stride = {
      .letter = 't', .about = "stride", .is_pair = true, .usual = "1", .usual_value = one, .most = 1024};
  const SizeLetter stride_of_pool = {
      .letter = 't', .about = "stride", .is_pair = true, .usual = "k", .usual_value = as_kernel, .most = 1024};
  std::vector<Family> all = {
      {.name = "linear",
       .about = "a fully connected layer with bias",
       .letters = {kBatch, in, out},
       .example = "b64_i1024_o1024",
       .make = linear_alone},
      {.name = "conv2d",
       .about = "a convolution with bias",
       .letters =
           {kBatch,
            {.letter = 'c', .about = "input channels"},
            {.letter = 'o', .about = "output channels"},
            kImage,
            kKernel,
            stride,
            {.letter = 'g', .about = "groups", .usual = "1", .usual_value = one},
            {.letter = 'd', .about = "dilation", .is_pair = true, .usual = "1", .usual_value = one, .most = 1024},
            {.letter = 'p',
             .about = "padding",
             .is_pair = true,
             .usual = "d (k - 1) / 2 rounded down: stride 1 keeps the size if k is odd",
             .usual_value = same_padding,
             .least = 0,
             .most = 1024}},
       .example = "b16_c64_o128_s28_k3_t2",
       .make = conv_alone},
      {.name = "batchnorm2d",
       .about = "a batch norm in training mode",
       .letters = {kBatch, kChannels, kImage},
       .example = "b16_c64_s28",
       .make = batchnorm_alone},
      {.name = "layernorm",
       .about = "a layer norm over the features of each token",
       .letters = {kTokens, kFeatures},
       .example = "b512_d768",
       .make = layer_norm_alone},
      {.name = "rmsnorm",
       .about = "an RMS norm over the features of each token",
       .letters = {kTokens, kFeatures},
       .example = "b512_d768",
       .make = rms_norm_alone},
      {.name = "groupnorm",
       .about = "a group norm",
       .letters = {kBatch, kChannels, kImage, {.letter = 'g', .about = "groups"}},
       .example = "b16_c64_s28_g8",
       .make = group_norm_alone},
      {.name = "maxpool",
       .about = "the largest value of each window",
       .letters = {kBatch, kChannels, kImage, kKernel, stride_of_pool},
       .example = "b16_c64_s28_k3_t2",
       .make = max_pool_alone},
      {.name = "avgpool",
       .about = "the mean of each window",
       .letters = {kBatch, kChannels, kImage, kKernel, stride_of_pool},
       .example = "b16_c64_s28_k2",
       .make = avg_pool_alone},
      {.name = "globalpool",
       .about = "the mean of each channel",
       .letters = {kBatch, kChannels, kImage},
       .example = "b16_c64_s28",
       .make = global_pool_alone},
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
  activations::All::each([&]<class Row>() {
    all.push_back({.name = Row::name,
                   .about = Row::about,
                   .letters = {kBatch, kChannels, kImage},
                   .example = "b16_c64_s28",
                   .make = activation_alone<Row>});
  });
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
