// The table of layer kinds. To make a layer available to models and model files, add a row.
#include "models/network/layer_kinds.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/network/layer_makers.h"

namespace halfmark::models {
namespace {

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
const ArgumentRow kWeightNorm =
    flag("weight_norm", "the weight is g v / |v| for each output, g and v are trained", false);
const ArgumentRow kStart = {.name = "start",
                            .about =
                                "initial weights: torch (as PyTorch's layer), he_fan_in, he_fan_out (normal, He et al. "
                                "2015), normal, mean (all "
                                "1 / inputs of an output)",
                            .type = ArgumentType::word,
                            .usual = std::string("torch")};
const ArgumentRow kDeviation = [] {
  ArgumentRow row = number("deviation", "standard deviation of start normal", 0.02, 0, 100);
  row.only_with = ArgumentCondition{"start", std::string("normal")};
  return row;
}();
const ArgumentRow kBiasStart = {.name = "bias_start",
                                .about = "initial bias; without it, as PyTorch's layer",
                                .type = ArgumentType::number,
                                .is_optional = true,
                                .least = -1e6,
                                .most = 1e6,
                                .only_with = ArgumentCondition{"bias", true}};

template <class Row>
LayerPtr make_activation(LayerRequest& r) {
  return activation(Row::name, r.name);
}
template <class Row>
LayerMemory memory_of_activation(const MemoryRequest& r) {
  return memory_rules::activation(r, activations::operation_of<Row>(), Row::kept == activations::Kept::output);
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
      flag("frozen", "training uses the running statistics and leaves them", false),
      {.name = "start",
       .about = "torch (scale 1, shift 0, mean 0, variance 1) or drawn (as after a training)",
       .type = ArgumentType::word,
       .usual = std::string("torch")}};
  std::vector<LayerKind> all = {
      {"linear",
       "a fully connected layer over the last axis",
       {count("out", "outputs"), kBias, kStart, kDeviation, kBiasStart, kWeightNorm},
       make_linear,
       memory_rules::linear,
       LayerKind::Branches::none,
       true},
      {"tied_linear",
       "a linear layer without bias, with the weight of another layer",
       {{.name = "weight_of", .about = "name of a layer before this one", .type = ArgumentType::word}},
       make_tied_linear,
       memory_rules::tied_linear},
      {"conv2d",
       "a convolution",
       {count("out", "output channels"), kernel, kStride, padding(), dilation, groups, kBias, kStart, kDeviation,
        kBiasStart, kWeightNorm},
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
      {"batchnorm1d", "a batch norm over the samples, and the steps of time", batchnorm_rows, make_batchnorm1d,
       memory_rules::batchnorm},
      {"batchnorm2d", "a batch norm over the images of the batch", batchnorm_rows, make_batchnorm2d,
       memory_rules::batchnorm},
      {"batchnorm3d", "a batch norm over the volumes of the batch", batchnorm_rows, make_batchnorm3d,
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
      {"upsample_nearest2d",
       "images a whole number of times as large, each pixel repeated",
       {{.name = "scale", .about = "factor", .most = 64}},
       make_upsample_nearest,
       memory_rules::upsample_nearest2d},
      {"channel_shuffle",
       "the channels dealt out to the groups in turn, as in ShuffleNet",
       {count("groups", "of channels")},
       make_channel_shuffle,
       memory_rules::rearranged},
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
       {count("heads", "of attention"),
        flag("causal", "a step sees none after it", false),
        flag("fused", "as one operation", true),
        {.name = "guarded",
         .about = "a step that attends to none gets 0; else NaN, as a softmax of -infinity alone",
         .type = ArgumentType::flag,
         .usual = true,
         .only_with = ArgumentCondition{"fused", false}},
        {.name = "lengths",
         .about = "sample i attends to its first lengths[i mod count] steps, so lengths beyond the batch are not used; "
                  "without it, to all",
         .type = ArgumentType::numbers,
         .is_optional = true,
         .least = 0},
        {.name = "mask_value",
         .about = "added to the scores of the steps beyond lengths; without it, they are left out",
         .type = ArgumentType::number,
         .is_optional = true,
         .least = -0x1p127,
         .most = 0}},
       make_self_attention,
       memory_rules::self_attention},
      {"lstm",
       "a long short-term memory",
       {count("hidden", "features of the result"), flag("bidirectional", "with a second one from the end", false)},
       make_lstm,
       memory_rules::lstm},
      {"lstm_cell",
       "one step of a long short-term memory: x, h and c side by side to the new h and c",
       {count("hidden", "features of h and of c")},
       make_lstm_cell,
       memory_rules::lstm_cell},
      {"to_sequence",
       "the columns of images as the steps of a sequence",
       {},
       make_to_sequence,
       memory_rules::rearranged},
      {"to_anchors",
       "[n, anchors f, h, w] to [n, h w anchors, f]",
       {count("anchors", "of each place")},
       make_to_anchors,
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
       {{.name = "axis",
         .about = "channels (axis 1) or last",
         .type = ArgumentType::word,
         .usual = std::string("channels")}},
       make_concat,
       Joins::concat,
       LayerKind::Branches::several},
      {"side",
       "the input; the result of its branch waits for a layer join",
       {},
       make_side,
       Joins::side,
       LayerKind::Branches::one},
      {"join",
       "the input with the result of a side branch",
       {{.name = "of", .about = "name of a layer side before this one", .type = ArgumentType::word},
        {.name = "how",
         .about = "add, or concat along axis 1",
         .type = ArgumentType::word,
         .usual = std::string("add")}},
       make_join,
       Joins::join},
      {"again",
       "an earlier layer once more, with the same parameters",
       {{.name = "of", .about = "name of a layer before this one", .type = ArgumentType::word}},
       make_again,
       Joins::same_layer},
      {"checkpoint",
       "its branch, of which backward computes forward again instead of keeping its tensors",
       {},
       make_checkpoint,
       Joins::recomputed,
       LayerKind::Branches::one},
  };
  activations::All::each([&]<class Row>() {
    all.push_back({Row::name, Row::about, {}, make_activation<Row>, memory_of_activation<Row>});
  });
  return all;
}

}  // namespace

const std::vector<LayerKind>& layer_kinds() {
  static const std::vector<LayerKind> all = kind_table();
  return all;
}

const LayerKind& layer_kind_named(std::string_view name) { return named("layer", layer_kinds(), name); }

}  // namespace halfmark::models
