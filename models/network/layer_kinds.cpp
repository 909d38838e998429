// The table of layer kinds. To make a layer available to models and model files, add a row.
#include "models/network/layer_kinds.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::models {
namespace {

constexpr std::string_view kImages = "[batch, channels, height, width]";
constexpr std::string_view kSequences = "[batch, time, features]";
constexpr std::string_view kVolumes = "[batch, channels, depth, height, width]";

ArgumentRow count(std::string_view name, std::string_view about, std::optional<Value> usual = {}) {
  return {.name = name, .about = about, .usual = std::move(usual)};
}
ArgumentRow extent(std::string_view name, std::string_view about, std::optional<Value> usual = {}) {
  return {.name = name, .about = about, .type = ArgumentType::extent, .usual = std::move(usual), .most = 1024};
}
ArgumentRow padding() {
  return {.name = "padding",
          .about = "rows and columns of zeros at each side",
          .type = ArgumentType::extent,
          .usual = int64_t{0},
          .least = 0,
          .most = 1024};
}
ArgumentRow flag(std::string_view name, std::string_view about, bool usual) {
  return {.name = name, .about = about, .type = ArgumentType::flag, .usual = usual};
}
ArgumentRow number(std::string_view name, std::string_view about, double usual, double least, double most) {
  return {.name = name, .about = about, .type = ArgumentType::number, .usual = usual, .least = least, .most = most};
}
ArgumentRow epsilon(double usual) { return number("epsilon", "added to the variance", usual, 0, 1); }

const ArgumentRow kStride = extent("stride", "of the window", int64_t{1});
const ArgumentRow kStrideOfPool = {.name = "stride",
                                   .about = "of the window; without it, the kernel",
                                   .type = ArgumentType::extent,
                                   .is_optional = true,
                                   .most = 1024};
const ArgumentRow kBias = flag("bias", "adds a bias", true);
const ArgumentRow kStart = {
    .name = "start",
    .about = "initial weights: torch (as PyTorch's layer), he_fan_in, he_fan_out (normal, He et al. 2015), normal",
    .type = ArgumentType::word,
    .usual = std::string("torch")};
const ArgumentRow kDeviation = number("deviation", "standard deviation of start normal", 0.02, 0, 100);
const ArgumentRow kBiasStart = {.name = "bias_start",
                                .about = "initial bias; without it, as PyTorch's layer",
                                .type = ArgumentType::number,
                                .is_optional = true,
                                .least = -1e6,
                                .most = 1e6};

Start start_of(const LayerRequest& r) {
  constexpr std::pair<std::string_view, Start::Kind> kKinds[] = {{"torch", Start::Kind::torch},
                                                                 {"he_fan_in", Start::Kind::he_fan_in},
                                                                 {"he_fan_out", Start::Kind::he_fan_out},
                                                                 {"normal", Start::Kind::normal}};
  Start start;
  const std::string& word = r.word("start");
  bool is_known = false;
  for (const auto& [name, kind] : kKinds)
    if (name == word) start.kind = kind, is_known = true;
  r.check(is_known, "start is \"" + word + "\"; known: torch, he_fan_in, he_fan_out, normal");
  start.deviation = r.number("deviation");
  if (r.has("bias_start")) start.bias = r.number("bias_start");
  return start;
}

LayerPtr make_linear(LayerRequest& r) {
  r.check(r.input.rank() == 2 || r.input.rank() == 3,
          "needs an input [batch, features] or [batch, time, features], not " + r.input.text() +
              "; a layer flatten makes vectors of images");
  return linear(r.init, r.name, r.input[r.input.rank() - 1], r.count("out"), r.flag("bias"), start_of(r));
}

LayerPtr make_tied_linear(LayerRequest& r) {
  const std::string& name = r.word("weight_of");
  const auto found = r.earlier->find(name);
  r.check(found != r.earlier->end(), "there is no layer \"" + name + "\" before this one");
  const std::vector<Param*> params = found->second->params();
  r.check(!params.empty() && params[0]->value.shape().rank() == 2,
          "layer " + name + " has no weight of a linear layer");
  const Shape& weight = params[0]->value.shape();
  r.check(r.input.rank() >= 2 && r.input.rank() <= 3 && r.input[r.input.rank() - 1] == weight[1],
          "the weight of " + name + " is " + weight.text() + ", the input " + r.input.text());
  return tied_linear(r.name, *params[0]);
}

int window_size(int64_t image, int kernel, int pad, int dilation, const LayerRequest& r) {
  const int64_t reach = static_cast<int64_t>(dilation) * (kernel - 1) + 1;
  r.check(reach <= image + 2 * pad, "the kernel reaches over " + std::to_string(reach) +
                                        " rows or columns, the padded image " + r.input.text() + " has " +
                                        std::to_string(image + 2 * pad));
  return kernel;
}

Window window_of(const LayerRequest& r, Size2d kernel, Size2d stride, Size2d pad, Size2d dilation) {
  r.need_rank(4, kImages);
  window_size(r.input[2], kernel.h, pad.h, dilation.h, r), window_size(r.input[3], kernel.w, pad.w, dilation.w, r);
  return {.stride_h = stride.h,
          .stride_w = stride.w,
          .pad_h = pad.h,
          .pad_w = pad.w,
          .dilation_h = dilation.h,
          .dilation_w = dilation.w};
}

void check_groups(const LayerRequest& r, int64_t groups, int64_t in, int64_t out) {
  r.check(in % groups == 0 && out % groups == 0, std::to_string(groups) + " groups do not divide " +
                                                     std::to_string(in) + " input channels and " + std::to_string(out) +
                                                     " output channels");
}

LayerPtr make_conv2d(LayerRequest& r) {
  const Size2d kernel = r.extent("kernel");
  const Window window = window_of(r, kernel, r.extent("stride"), r.extent("padding"), r.extent("dilation"));
  const int64_t in = r.input[1], out = r.count("out"), groups = r.count("groups");
  check_groups(r, groups, in, out);
  return conv2d(r.init, r.name, in, out, kernel, window, static_cast<int>(groups), r.flag("bias"), start_of(r));
}

template <int rank>
LayerPtr make_batchnorm(LayerRequest& r) {
  if constexpr (rank == 2)
    r.check(r.input.rank() == 2 || r.input.rank() == 3,
            "needs an input [batch, channels] or [batch, channels, time], not " + r.input.text());
  else
    r.need_rank(rank, rank == 4 ? kImages : kVolumes);
  r.check(r.flag("frozen") || r.input.elements() > r.input[1],
          "in training needs more than one value of each channel, not " + r.input.text());
  return batchnorm(r.init, r.name, r.input[1],
                   {.momentum = r.has("momentum") ? r.number("momentum") : r.settings.batchnorm_momentum,
                    .epsilon = r.number("epsilon"),
                    .affine = r.flag("affine"),
                    .frozen = r.flag("frozen")});
}

LayerPtr make_conv_transpose2d(LayerRequest& r) {
  r.need_rank(4, kImages);
  const Size2d kernel = r.extent("kernel"), stride = r.extent("stride"), pad = r.extent("padding"),
               dilation = r.extent("dilation"), more = r.extent("output_padding");
  const Window window{.stride_h = stride.h,
                      .stride_w = stride.w,
                      .pad_h = pad.h,
                      .pad_w = pad.w,
                      .dilation_h = dilation.h,
                      .dilation_w = dilation.w};
  r.check(more.h < std::max(stride.h, dilation.h) && more.w < std::max(stride.w, dilation.w),
          "output_padding is not less than stride or dilation");
  const int64_t in = r.input[1], out = r.count("out"), groups = r.count("groups");
  check_groups(r, groups, in, out);
  LayerPtr made = conv_transpose2d(r.init, r.name, in, out, kernel, window, more, static_cast<int>(groups),
                                   r.flag("bias"), start_of(r));
  const Shape output = made->output_shape(r.input);
  r.check(output[2] > 0 && output[3] > 0, "the padding leaves nothing of the result");
  return made;
}

LayerPtr make_upsample(LayerRequest& r) {
  r.need_rank(4, kImages);
  return upsample_bilinear2d(r.name, static_cast<int>(r.count("scale")), r.flag("align_corners"));
}
LayerPtr make_adaptive_avg_pool2d(LayerRequest& r) {
  r.need_rank(4, kImages);
  return adaptive_avg_pool2d(r.name, r.extent("size"));
}

LayerPtr make_layer_norm(LayerRequest& r) {
  r.check(r.input.rank() >= 2, "needs features after the batch, not " + r.input.text());
  return layer_norm(r.init, r.name, r.input[r.input.rank() - 1], r.number("epsilon"));
}
LayerPtr make_rms_norm(LayerRequest& r) {
  r.check(r.input.rank() >= 2, "needs features after the batch, not " + r.input.text());
  return rms_norm(r.init, r.name, r.input[r.input.rank() - 1], r.number("epsilon"));
}
LayerPtr make_group_norm(LayerRequest& r) {
  r.need_rank(4, kImages);
  const int64_t groups = r.count("groups");
  r.check(r.input[1] % groups == 0,
          std::to_string(groups) + " groups do not divide " + std::to_string(r.input[1]) + " channels");
  return group_norm(r.init, r.name, r.input[1], groups, r.number("epsilon"));
}

LayerPtr make_max_pool2d(LayerRequest& r) {
  const Size2d kernel = r.extent("kernel"), pad = r.extent("padding");
  r.check(kernel.h * kernel.w <= 256, "the kernel has more than 256 places, and a winner's place is kept in a byte");
  r.check(2 * pad.h <= kernel.h && 2 * pad.w <= kernel.w, "padding is more than half the kernel");
  return max_pool2d(r.name, kernel, window_of(r, kernel, r.has("stride") ? r.extent("stride") : kernel, pad, 1));
}
LayerPtr make_avg_pool2d(LayerRequest& r) {
  const Size2d kernel = r.extent("kernel"), pad = r.extent("padding");
  r.check(2 * pad.h <= kernel.h && 2 * pad.w <= kernel.w, "padding is more than half the kernel");
  return avg_pool2d(r.name, kernel, window_of(r, kernel, r.has("stride") ? r.extent("stride") : kernel, pad, 1));
}
LayerPtr make_global_avg_pool2d(LayerRequest& r) {
  r.need_rank(4, kImages);
  return global_avg_pool2d(r.name);
}
LayerPtr make_flatten(LayerRequest& r) { return flatten(r.name); }

LayerPtr make_add(LayerRequest& r) {
  r.check(r.branches.size() == 2, "adds two branches, not " + std::to_string(r.branches.size()));
  r.check(r.branch_outputs[0] == r.branch_outputs[1],
          "its branches give the shapes " + r.branch_outputs[0].text() + " and " + r.branch_outputs[1].text());
  r.check(r.branches[0] || r.branches[1], "both branches are empty");
  if (!r.branches[0]) std::swap(r.branches[0], r.branches[1]);
  return residual(r.name, std::move(r.branches[0]), std::move(r.branches[1]));
}

LayerPtr make_softmax(LayerRequest& r) {
  r.check(r.input.rank() >= 2 && r.input.rank() <= 3,
          "needs an input [batch, features] or [batch, time, features], not " + r.input.text());
  return softmax(r.name);
}
LayerPtr make_dropout(LayerRequest& r) {
  r.check(!r.flag("channels") || r.input.rank() >= 3, "needs channels, not " + r.input.text());
  return dropout(r.name, r.number("p"), r.flag("channels"));
}
LayerPtr make_embedding(LayerRequest& r) {
  r.need_rank(2, "[batch, time] of indices");
  const int64_t entries = r.count("entries"), padding = r.count("padding");
  r.check(padding < entries, "padding is " + std::to_string(padding) + ", beyond the table");
  return embedding(r.init, r.name, entries, r.count("features"), r.number("deviation"), padding);
}
LayerPtr make_position_embedding(LayerRequest& r) {
  r.need_rank(3, kSequences);
  const int64_t length = r.count("length");
  r.check(r.input[1] <= length,
          "the sequence has " + std::to_string(r.input[1]) + " steps, the table " + std::to_string(length));
  return position_embedding(r.init, r.name, length, r.input[2], r.number("deviation"));
}
LayerPtr make_self_attention(LayerRequest& r) {
  r.need_rank(3, "[batch, time, 3 features] of q, k and v");
  const int64_t heads = r.count("heads");
  r.check(r.input[2] % (3 * heads) == 0,
          std::to_string(r.input[2]) + " features are not q, k and v of " + std::to_string(heads) + " heads");
  return self_attention(r.name, heads, r.flag("causal"), r.flag("fused"));
}
LayerPtr make_lstm(LayerRequest& r) {
  r.need_rank(3, kSequences);
  return lstm(r.init, r.name, r.input[2], r.count("hidden"), r.flag("bidirectional"));
}
LayerPtr make_take_step(LayerRequest& r) {
  r.need_rank(3, kSequences);
  const int64_t step = r.count("step");
  r.check(step < r.input[1] && step >= -r.input[1], "the sequence has " + std::to_string(r.input[1]) + " steps");
  return take_step(r.name, step);
}
LayerPtr make_to_sequence(LayerRequest& r) {
  r.need_rank(4, kImages);
  return to_sequence(r.name);
}

LayerPtr make_concat(LayerRequest& r) {
  for (const Shape& shape : r.branch_outputs) {
    r.check(shape.rank() >= 2 && shape.rank() == r.branch_outputs[0].rank(),
            "its branches give the shapes " + r.branch_outputs[0].text() + " and " + shape.text());
    for (int axis = 0; axis < shape.rank(); ++axis)
      r.check(axis == 1 || shape[axis] == r.branch_outputs[0][axis],
              "its branches give the shapes " + r.branch_outputs[0].text() + " and " + shape.text() +
                  ", which differ in more than their channels");
  }
  return concat(r.name, std::move(r.branches));
}

LayerPtr make_checkpoint(LayerRequest& r) {
  r.check(r.branches[0] != nullptr, "its branch is empty");
  return checkpoint(r.name, std::move(r.branches[0]));
}

template <class Row>
LayerPtr make_activation(LayerRequest& r) {
  return activation(Row::name, r.name);
}
template <class Row>
LayerMemory memory_of_activation(const MemoryRequest& r) {
  return memory_rules::activation(r, Row::name, Row::kept == activations::Kept::output);
}

std::vector<LayerKind> kind_table() {
  const ArgumentRow kernel = extent("kernel", "of the window"), groups = count("groups", "of channels", int64_t{1});
  const ArgumentRow dilation = extent("dilation", "of the window", int64_t{1});
  const std::vector<ArgumentRow> batchnorm_rows = {
      {.name = "momentum",
       .about = "of the running statistics; without it, the setting of the trial",
       .type = ArgumentType::number,
       .is_optional = true,
       .least = 0,
       .most = 1},
      epsilon(1e-5),
      flag("affine", "with scale and shift", true),
      flag("frozen", "training uses the running statistics and leaves them", false)};
  std::vector<LayerKind> all = {
      {"linear",
       "a fully connected layer over the last axis",
       {count("out", "outputs"), kBias, kStart, kDeviation, kBiasStart},
       make_linear,
       memory_rules::linear},
      {"tied_linear",
       "a linear layer without bias, with the weight of another layer",
       {{.name = "weight_of", .about = "name of a layer before this one", .type = ArgumentType::word}},
       make_tied_linear,
       memory_rules::tied_linear},
      {"conv2d",
       "a convolution",
       {count("out", "output channels"), kernel, kStride, padding(), dilation, groups, kBias, kStart, kDeviation,
        kBiasStart},
       make_conv2d,
       memory_rules::conv2d},
      {"conv_transpose2d",
       "a transposed convolution",
       {count("out", "output channels"),
        kernel,
        kStride,
        padding(),
        {.name = "output_padding",
         .about = "rows and columns more at the far end",
         .type = ArgumentType::extent,
         .usual = int64_t{0},
         .least = 0,
         .most = 1024},
        dilation,
        groups,
        kBias,
        kStart,
        kDeviation,
        kBiasStart},
       make_conv_transpose2d,
       memory_rules::conv_transpose2d},
      {"batchnorm1d", "a batch norm over the samples, and the steps of time", batchnorm_rows, make_batchnorm<2>,
       memory_rules::batchnorm},
      {"batchnorm2d", "a batch norm over the images of the batch", batchnorm_rows, make_batchnorm<4>,
       memory_rules::batchnorm},
      {"batchnorm3d", "a batch norm over the volumes of the batch", batchnorm_rows, make_batchnorm<5>,
       memory_rules::batchnorm},
      {"layer_norm", "a layer norm over the last axis", {epsilon(1e-5)}, make_layer_norm, memory_rules::layer_norm},
      {"rms_norm", "an RMS norm over the last axis", {epsilon(0x1p-23)}, make_rms_norm, memory_rules::rms_norm},
      {"group_norm",
       "a group norm",
       {count("groups", "of channels"), epsilon(1e-5)},
       make_group_norm,
       memory_rules::group_norm},
      {"max_pool2d",
       "the largest value of each window",
       {kernel, kStrideOfPool, padding()},
       make_max_pool2d,
       memory_rules::max_pool2d},
      {"avg_pool2d",
       "the mean of each window; padding counts",
       {kernel, kStrideOfPool, padding()},
       make_avg_pool2d,
       memory_rules::avg_pool2d},
      {"global_avg_pool2d", "the mean of each channel", {}, make_global_avg_pool2d, memory_rules::adaptive_avg_pool2d},
      {"adaptive_avg_pool2d",
       "the means of windows that give the wanted size",
       {extent("size", "rows and columns of the result")},
       make_adaptive_avg_pool2d,
       memory_rules::adaptive_avg_pool2d},
      {"upsample_bilinear2d",
       "images a whole number of times as large",
       {{.name = "scale", .about = "factor", .most = 64}, flag("align_corners", "as in PyTorch", false)},
       make_upsample,
       memory_rules::upsample_bilinear2d},
      {"flatten", "images to vectors", {}, make_flatten, memory_rules::flatten},
      {"softmax", "a softmax over the last axis", {}, make_softmax, memory_rules::softmax},
      {"dropout",
       "zeros in training; identity in evaluation",
       {number("p", "probability of a zero", 0.5, 0, 1), flag("channels", "whole channels", false)},
       make_dropout,
       memory_rules::dropout},
      {"embedding",
       "rows of a table, by indices",
       {count("entries", "rows of the table"),
        count("features", "columns of the table"),
        number("deviation", "standard deviation of the initial values", 1, 0, 100),
        {.name = "padding", .about = "index without gradient; -1: none", .usual = int64_t{-1}, .least = -1}},
       make_embedding,
       memory_rules::embedding},
      {"position_embedding",
       "adds a row of a table to each step",
       {count("length", "rows of the table"),
        number("deviation", "standard deviation of the initial values", 1, 0, 100)},
       make_position_embedding,
       memory_rules::position_embedding},
      {"self_attention",
       "attention over q, k and v, which are the thirds of the features",
       {count("heads", "of attention"), flag("causal", "a step sees none after it", false),
        flag("fused", "as one operation", true)},
       make_self_attention,
       memory_rules::self_attention},
      {"lstm",
       "a long short-term memory",
       {count("hidden", "features of the result"), flag("bidirectional", "with a second one from the end", false)},
       make_lstm,
       memory_rules::lstm},
      {"to_sequence",
       "the columns of images as the steps of a sequence",
       {},
       make_to_sequence,
       memory_rules::rearranged},
      {"take_step",
       "one step of a sequence",
       {{.name = "step", .about = "-1 is the last", .usual = int64_t{-1}, .least = -0x1p24}},
       make_take_step,
       memory_rules::rearranged},
      {"add",
       "the sum of two branches; an empty one is the input",
       {},
       make_add,
       Joins::sum,
       LayerKind::Branches::several},
      {"concat",
       "the channels of two or more branches, one after the other; an empty one is the input",
       {},
       make_concat,
       Joins::channels,
       LayerKind::Branches::several},
      {"checkpoint",
       "its branch, of which backward computes forward again instead of keeping its tensors",
       {},
       make_checkpoint,
       Joins::again,
       LayerKind::Branches::one},
  };
  activations::All::each([&]<class Row>() {
    all.push_back({Row::name, Row::about, {}, make_activation<Row>, memory_of_activation<Row>});
  });
  return all;
}

}  // namespace

Size2d LayerRequest::extent(std::string_view argument) const {
  const Extent pair = given.extent(argument);
  return {static_cast<int>(pair.h), static_cast<int>(pair.w)};
}

void LayerRequest::check(bool holds, const std::string& what) const { HM_CHECK(holds, what); }

void LayerRequest::need_rank(int rank, std::string_view form) const {
  check(input.rank() == rank, "needs an input " + std::string(form) + ", not " + input.text());
}

const std::vector<LayerKind>& layer_kinds() {
  static const std::vector<LayerKind> all = kind_table();
  return all;
}

const LayerKind& layer_kind_named(std::string_view name) { return named("layer", layer_kinds(), name); }

}  // namespace halfmark::models
