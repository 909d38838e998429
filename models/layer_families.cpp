// Single layers at any size. To add one, add a row.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/families.h"
#include "models/family_parts.h"

namespace halfmark::models {

using namespace family_parts;

namespace {

Extent as_kernel(const Sizes& s) { return s.extent('k'); }

const SizeLetter kMode = {.letter = 'm',
                          .about = "statistics; 0: of the batch, 1: fixed, as in evaluation, in backward too",
                          .usual = "0",
                          .usual_value = none,
                          .least = 0,
                          .most = 1};
const SizeLetter kAffine = {
    .letter = 'a', .about = "1: with scale and shift", .usual = "1", .usual_value = one, .least = 0, .most = 1};
const SizeLetter kKernel = {.letter = 'k', .about = "kernel", .is_pair = true, .most = 1024};

// Rows or columns that a window reaches over.
int64_t reach(int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; }

Subject linear_alone(const Sizes& s) {
  const int64_t in = s['i'], out = s['o'];
  s.check_elements("the input", {s['b'], in});
  s.check_elements("the weight", {in, out});
  return alone({s['b'], in}, {"linear", "linear", {{"out", out}, {"weight_norm", s['w'] == 1}}});
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
  return alone(image_of(s), {"conv2d",
                             "conv",
                             {{"out", out},
                              {"kernel", kernel},
                              {"stride", stride},
                              {"padding", pad},
                              {"dilation", dilation},
                              {"groups", groups},
                              {"weight_norm", s['w'] == 1}}});
}

LayerSpec batchnorm_layer(const Sizes& s, std::string kind, const Shape& input) {
  const bool is_frozen = s['m'] == 1;
  s.check(is_frozen || input.elements() > input[1],
          "a batch norm in training needs more than one value of each channel");
  return {std::move(kind),
          "bn",
          {{"affine", s['a'] == 1}, {"frozen", is_frozen}, {"start", std::string(is_frozen ? "drawn" : "torch")}}};
}
Subject batchnorm1d_alone(const Sizes& s) {
  s.check_elements("the input", {s['b'], s['c'], std::max<int64_t>(s['t'], 1)});
  const Shape input = s['t'] ? Shape{s['b'], s['c'], s['t']} : Shape{s['b'], s['c']};
  return alone(input, batchnorm_layer(s, "batchnorm1d", input));
}
Subject batchnorm2d_alone(const Sizes& s) {
  const Shape image = image_of(s);
  return alone(image, batchnorm_layer(s, "batchnorm2d", image));
}
Subject batchnorm3d_alone(const Sizes& s) {
  const Extent size = s.extent('s');
  s.check_elements("the input", {s['b'], s['c'], s['d'], size.h, size.w});
  const Shape input{s['b'], s['c'], s['d'], size.h, size.w};
  return alone(input, batchnorm_layer(s, "batchnorm3d", input));
}

Subject layer_norm_alone(const Sizes& s) {
  const int64_t features = s['d'];
  s.check_elements("the input", {s['b'], features});
  return alone({s['b'], features}, {"layer_norm", "norm"});
}

Subject rms_norm_alone(const Sizes& s) {
  const int64_t features = s['d'];
  s.check_elements("the input", {s['b'], features});
  return alone({s['b'], features}, {"rms_norm", "norm"});
}

Subject group_norm_alone(const Sizes& s) {
  const int64_t channels = s['c'], groups = s['g'];
  s.check(channels % groups == 0,
          std::to_string(groups) + " groups do not divide " + std::to_string(channels) + " channels");
  return alone(image_of(s), {"group_norm", "norm", {{"groups", groups}}});
}

template <class Row>
Subject activation_alone(const Sizes& s) {
  return alone(image_of(s), {std::string(Row::name), std::string(Row::name)});
}

Subject pool_alone(const Sizes& s, std::string kind) {
  const Extent size = s.extent('s'), kernel = s.extent('k');
  s.check(kernel.h <= size.h && kernel.w <= size.w, "the kernel is larger than the image");
  return alone(image_of(s), {std::move(kind), "pool", {{"kernel", kernel}, {"stride", s.extent('t')}}});
}

Subject max_pool_alone(const Sizes& s) {
  const Extent window = s.extent('k');
  s.check(window.h * window.w <= 256, "the kernel has more than 256 places, and a winner's place is kept in a byte");
  return pool_alone(s, "max_pool2d");
}
Subject avg_pool_alone(const Sizes& s) { return pool_alone(s, "avg_pool2d"); }
Subject global_pool_alone(const Sizes& s) { return alone(image_of(s), {"global_avg_pool2d", "pool"}); }

Subject conv_transpose_alone(const Sizes& s) {
  const Extent size = s.extent('s'), kernel = s.extent('k'), stride = s.extent('t');
  s.check(s['c'] % s['g'] == 0 && s['o'] % s['g'] == 0, "the groups do not divide the channels");
  // As much padding as keeps the size times the stride, with the rest at the far end.
  const auto padding = [](int64_t k, int64_t t) { return k > t ? (k - t + 1) / 2 : 0; };
  const auto more = [&](int64_t k, int64_t t) { return std::clamp<int64_t>(t - k + 2 * padding(k, t), 0, t - 1); };
  s.check_elements("the output", {s['b'], s['o'], size.h * stride.h + kernel.h, size.w * stride.w + kernel.w});
  return alone(image_of(s), {"conv_transpose2d",
                             "conv",
                             {{"out", s['o']},
                              {"kernel", kernel},
                              {"stride", stride},
                              {"padding", Extent{padding(kernel.h, stride.h), padding(kernel.w, stride.w)}},
                              {"output_padding", Extent{more(kernel.h, stride.h), more(kernel.w, stride.w)}},
                              {"groups", s['g']}}});
}
Subject upsample_alone(const Sizes& s) {
  const Extent size = s.extent('s');
  s.check_elements("the output", {s['b'], s['c'], size.h * s['f'], size.w * s['f']});
  return alone(image_of(s), {"upsample_bilinear2d", "upsample", {{"scale", s['f']}}});
}
Subject upsample_nearest_alone(const Sizes& s) {
  const Extent size = s.extent('s');
  s.check_elements("the output", {s['b'], s['c'], size.h * s['f'], size.w * s['f']});
  return alone(image_of(s), {"upsample_nearest2d", "upsample", {{"scale", s['f']}}});
}
Subject to_anchors_alone(const Sizes& s) {
  s.check(s['c'] % s['a'] == 0, "the anchors do not divide the channels");
  return alone(image_of(s), {"to_anchors", "anchors", {{"anchors", s['a']}}});
}
Subject adaptive_pool_alone(const Sizes& s) {
  return alone(image_of(s), {"adaptive_avg_pool2d", "pool", {{"size", s.extent('o')}}});
}
Subject channel_shuffle_alone(const Sizes& s) {
  s.check(s['c'] % s['g'] == 0, "the groups do not divide the channels");
  return alone(image_of(s), {"channel_shuffle", "shuffle", {{"groups", s['g']}}});
}

Subject dropout_alone(const Sizes& s) {
  return alone(image_of(s),
               {"dropout", "dropout", {{"p", static_cast<double>(s['p']) / 100}, {"channels", s['m'] == 1}}});
}
Subject to_sequence_alone(const Sizes& s) { return alone(image_of(s), {"to_sequence", "sequence"}); }
Subject flatten_alone(const Sizes& s) { return alone(image_of(s), {"flatten", "flatten"}); }
Subject add_alone(const Sizes& s) { return alone(image_of(s), {"add", "add", {}, {{{"relu", "relu"}}, {}}}); }
Subject concat_alone(const Sizes& s) {
  s.check_elements("the output", {s['b'], 2 * s['c'], s.extent('s').h, s.extent('s').w});
  return alone(image_of(s), {"concat", "concat", {}, {{{"relu", "relu"}}, {}}});
}
Subject checkpoint_alone(const Sizes& s) {
  const int64_t features = s['d'], hidden = s['h'];
  s.check_elements("the input", {s['b'], features});
  s.check_elements("a weight", {features, hidden});
  return alone({s['b'], features},
               {"checkpoint",
                "checkpoint",
                {},
                {{{"linear", "fc1", {{"out", hidden}}}, {"gelu", "gelu"}, {"linear", "fc2", {{"out", features}}}}}});
}

}  // namespace

std::vector<Family> layer_families() {
  const SizeLetter in = {.letter = 'i', .about = "inputs"}, out = {.letter = 'o', .about = "outputs"};
  const SizeLetter weight_norm = {
      .letter = 'w', .about = "1: weight norm", .usual = "0", .usual_value = none, .least = 0, .most = 1};
  const SizeLetter stride = {
      .letter = 't', .about = "stride", .is_pair = true, .usual = "1", .usual_value = one, .most = 1024};
  const SizeLetter stride_of_pool = {
      .letter = 't', .about = "stride", .is_pair = true, .usual = "k", .usual_value = as_kernel, .most = 1024};
  std::vector<Family> all = {
      {.name = "linear",
       .about = "a fully connected layer with bias",
       .letters = {kBatch, in, out, weight_norm},
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
             .most = 1024},
            weight_norm},
       .example = "b16_c64_o128_s28_k3_t2",
       .make = conv_alone},
      {.name = "batchnorm1d",
       .about = "a batch norm over samples, and over the steps of a sequence",
       .letters = {kBatch,
                   kChannels,
                   {.letter = 't',
                    .about = "steps of time; 0: [batch, channels]",
                    .usual = "0",
                    .usual_value = none,
                    .least = 0},
                   kMode,
                   kAffine},
       .example = "b512_c256",
       .make = batchnorm1d_alone},
      {.name = "batchnorm2d",
       .about = "a batch norm over images",
       .letters = {kBatch, kChannels, kImage, kMode, kAffine},
       .example = "b16_c64_s28",
       .make = batchnorm2d_alone},
      {.name = "batchnorm3d",
       .about = "a batch norm over volumes",
       .letters = {kBatch, kChannels, {.letter = 'd', .about = "depth"}, kImage, kMode, kAffine},
       .example = "b4_c32_d8_s16",
       .make = batchnorm3d_alone},
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
      {.name = "convtranspose2d",
       .about = "a transposed convolution whose result has the size times the stride where the kernel allows it",
       .letters = {kBatch,
                   {.letter = 'c', .about = "input channels"},
                   {.letter = 'o', .about = "output channels"},
                   kImage,
                   kKernel,
                   stride,
                   {.letter = 'g', .about = "groups", .usual = "1", .usual_value = one}},
       .example = "b16_c64_o32_s14_k3_t2",
       .make = conv_transpose_alone},
      {.name = "upsample",
       .about = "bilinear upsampling",
       .letters = {kBatch, kChannels, kImage, {.letter = 'f', .about = "factor", .most = 64}},
       .example = "b16_c64_s28_f2",
       .make = upsample_alone},
      {.name = "upsample_nearest",
       .about = "upsampling that repeats each pixel",
       .letters = {kBatch, kChannels, kImage, {.letter = 'f', .about = "factor", .most = 64}},
       .example = "b16_c64_s28_f2",
       .make = upsample_nearest_alone},
      {.name = "to_anchors",
       .about = "channels of images to rows of anchors",
       .letters = {kBatch, kChannels, kImage, {.letter = 'a', .about = "anchors of each place"}},
       .example = "b16_c63_s28_a9",
       .make = to_anchors_alone},
      {.name = "adaptivepool",
       .about = "adaptive average pooling",
       .letters =
           {kBatch, kChannels, kImage, {.letter = 'o', .about = "size of the result", .is_pair = true, .most = 1024}},
       .example = "b16_c64_s28_o7",
       .make = adaptive_pool_alone},
      {.name = "channelshuffle",
       .about = "the channels dealt out to groups in turn",
       .letters = {kBatch, kChannels, kImage, {.letter = 'g', .about = "groups"}},
       .example = "b16_c64_s28_g4",
       .make = channel_shuffle_alone},
      {.name = "dropout",
       .about = "a dropout",
       .letters =
           {kBatch,
            kChannels,
            kImage,
            {.letter = 'p',
             .about = "percent that become 0",
             .usual = "50",
             .usual_value =
                 [](const Sizes&) {
                   return Extent{50, 50};
                 },
             .least = 0,
             .most = 99},
            {.letter = 'm', .about = "1: whole channels", .usual = "0", .usual_value = none, .least = 0, .most = 1}},
       .example = "b16_c64_s28",
       .make = dropout_alone},
      {.name = "to_sequence",
       .about = "the columns of images as steps",
       .letters = {kBatch, kChannels, kImage},
       .example = "b16_c64_s28",
       .make = to_sequence_alone},
      {.name = "flatten",
       .about = "images to vectors",
       .letters = {kBatch, kChannels, kImage},
       .example = "b16_c64_s28",
       .make = flatten_alone},
      {.name = "add",
       .about = "x + relu(x), as the end of a residual block",
       .letters = {kBatch, kChannels, kImage},
       .example = "b16_c64_s28",
       .make = add_alone},
      {.name = "concat",
       .about = "the channels of relu(x) and of x",
       .letters = {kBatch, kChannels, kImage},
       .example = "b16_c64_s28",
       .make = concat_alone},
      {.name = "checkpoint",
       .about = "two linear layers with a GELU between them, of which only the input is kept for backward",
       .letters = {kTokens, kFeatures, {.letter = 'h', .about = "hidden"}},
       .example = "b512_d256_h1024",
       .make = checkpoint_alone},
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

}  // namespace halfmark::models
