#include "models/network/layer_makers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace halfmark::models {
namespace {

constexpr std::string_view kImages = "[batch, channels, height, width]";
constexpr std::string_view kSequences = "[batch, time, features]";
constexpr std::string_view kVolumes = "[batch, channels, depth, height, width]";

}  // namespace

namespace {

Start start_of(const LayerRequest& r) {
  constexpr std::pair<std::string_view, Start::Kind> kKinds[] = {{"torch", Start::Kind::torch},
                                                                 {"he_fan_in", Start::Kind::he_fan_in},
                                                                 {"he_fan_out", Start::Kind::he_fan_out},
                                                                 {"normal", Start::Kind::normal},
                                                                 {"mean", Start::Kind::mean}};
  Start start;
  const std::string& word = r.word("start");
  bool is_known = false;
  for (const auto& [name, kind] : kKinds)
    if (name == word) start.kind = kind, is_known = true;
  r.check(is_known, "start is \"" + word + "\"; known: torch, he_fan_in, he_fan_out, normal, mean");
  start.deviation = r.number("deviation");
  if (r.has("bias_start")) start.bias = r.number("bias_start");
  return start;
}

}  // namespace

LayerPtr make_linear(LayerRequest& r) {
  r.check(r.input.rank() == 2 || r.input.rank() == 3,
          "needs an input [batch, features] or [batch, time, features], not " + r.input.text() +
              "; a layer flatten makes vectors of images");
  return linear(r.init, r.name, r.input[r.input.rank() - 1], r.count("out"), r.flag("bias"), start_of(r),
                r.flag("weight_norm"));
}

LayerPtr make_tied_linear(LayerRequest& r) {
  const std::string& name = r.word("weight_of");
  const std::vector<Param*> params = r.earlier_layer(name).layer->params();
  r.check(!params.empty() && params[0]->value.shape().rank() == 2,
          "layer " + name + " has no weight of a linear layer");
  const Shape& weight = params[0]->value.shape();
  r.check(r.input.rank() >= 2 && r.input.rank() <= 3 && r.input[r.input.rank() - 1] == weight[1],
          "the weight of " + name + " is " + weight.text() + ", the input " + r.input.text());
  return tied_linear(r.name, *params[0]);
}

namespace {

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

}  // namespace

LayerPtr make_conv2d(LayerRequest& r) {
  const Size2d kernel = r.extent("kernel");
  const Window window = window_of(r, kernel, r.extent("stride"), r.extent("padding"), r.extent("dilation"));
  const int64_t in = r.input[1], out = r.count("out"), groups = r.count("groups");
  check_groups(r, groups, in, out);
  return conv2d(r.init, r.name, in, out, kernel, window, static_cast<int>(groups), r.flag("bias"), start_of(r),
                r.flag("weight_norm"));
}

namespace {

template <int rank>
LayerPtr batchnorm_of_rank(LayerRequest& r) {
  if constexpr (rank == 2)
    r.check(r.input.rank() == 2 || r.input.rank() == 3,
            "needs an input [batch, channels] or [batch, channels, time], not " + r.input.text());
  else
    r.need_rank(rank, rank == 4 ? kImages : kVolumes);
  const std::string& start = r.word("start");
  r.check(start == "torch" || start == "drawn", "start is \"" + start + "\"; known: torch, drawn");
  r.check(r.flag("frozen") || r.input.elements() > r.input[1],
          "in training needs more than one value of each channel, not " + r.input.text());
  return batchnorm(r.init, r.name, r.input[1],
                   {.momentum = r.has("momentum") ? r.number("momentum") : r.settings.batchnorm_momentum,
                    .epsilon = r.number("epsilon"),
                    .accumulate = r.settings.batchnorm_accumulate,
                    .affine = r.flag("affine"),
                    .frozen = r.flag("frozen"),
                    .drawn_start = start == "drawn"});
}

}  // namespace

LayerPtr make_batchnorm1d(LayerRequest& r) { return batchnorm_of_rank<2>(r); }
LayerPtr make_batchnorm2d(LayerRequest& r) { return batchnorm_of_rank<4>(r); }
LayerPtr make_batchnorm3d(LayerRequest& r) { return batchnorm_of_rank<5>(r); }

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
  r.check(2 * pad.h <= kernel.h && 2 * pad.w <= kernel.w, "padding is more than half the kernel");
  const Window window = window_of(r, kernel, r.has("stride") ? r.extent("stride") : kernel, pad, 1);
  r.check(kernel.h * kernel.w <= 256,
          "the kernel has " + std::to_string(kernel.h * kernel.w) +
              " places; 256 are the most, because the place of a maximum is kept in a byte");
  return max_pool2d(r.name, kernel, window);
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
LayerPtr make_channel_shuffle(LayerRequest& r) {
  r.need_rank(4, kImages);
  const int64_t groups = r.count("groups");
  r.check(r.input[1] % groups == 0,
          std::to_string(groups) + " groups do not divide " + std::to_string(r.input[1]) + " channels");
  return channel_shuffle(r.name, groups);
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
  AttentionOptions options{.causal = r.flag("causal"), .fused = r.flag("fused")};
  options.guarded = r.flag("guarded");
  if (r.has("lengths"))
    for (const double length : r.numbers("lengths")) {
      r.check(length <= static_cast<double>(r.input[1]) && length == std::floor(length),
              "lengths are whole numbers up to the " + std::to_string(r.input[1]) + " steps, not " + text_of(length));
      options.lengths.push_back(static_cast<int64_t>(length));
    }
  if (r.has("mask_value")) {
    r.check(!options.lengths.empty(), "mask_value is of the steps beyond \"lengths\", which are not given");
    options.mask_value = r.number("mask_value");
  }
  return self_attention(r.name, heads, options);
}
LayerPtr make_lstm(LayerRequest& r) {
  r.need_rank(3, kSequences);
  return lstm(r.init, r.name, r.input[2], r.count("hidden"), r.flag("bidirectional"));
}
LayerPtr make_lstm_cell(LayerRequest& r) {
  r.need_rank(2, "[batch, features + 2 hidden] of x, h and c");
  const int64_t hidden = r.count("hidden"), inputs = r.input[1] - 2 * hidden;
  r.check(inputs > 0, std::to_string(r.input[1]) + " numbers leave none for x beside h and c of " +
                          std::to_string(hidden) + " each");
  return lstm_cell(r.init, r.name, inputs, hidden);
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

namespace {

// "channels" or "last".
bool is_last_axis(const LayerRequest& r) {
  const std::string& word = r.word("axis");
  r.check(word == "channels" || word == "last", "axis is \"" + word + "\"; known: channels, last");
  return word == "last";
}

}  // namespace

LayerPtr make_concat(LayerRequest& r) {
  const bool last = is_last_axis(r);
  for (const Shape& shape : r.branch_outputs) {
    r.check(shape.rank() >= 2 && shape.rank() == r.branch_outputs[0].rank(),
            "its branches give the shapes " + r.branch_outputs[0].text() + " and " + shape.text());
    for (int axis = 0; axis < shape.rank(); ++axis)
      r.check(axis == (last ? shape.rank() - 1 : 1) || shape[axis] == r.branch_outputs[0][axis],
              "its branches give the shapes " + r.branch_outputs[0].text() + " and " + shape.text() +
                  ", which differ in more than their " + (last ? "last axis" : "channels"));
  }
  return concat(r.name, std::move(r.branches), last);
}

LayerPtr make_again(LayerRequest& r) {
  const EarlierLayer& one = r.earlier_layer(r.word("of"));
  // A second dropout would draw the same numbers, and what a side branch leaves has one name.
  r.check(one.kind != "dropout" && one.kind != "again" && one.branch_output.rank() == 0,
          "a layer " + one.kind + " cannot run again");
  r.check(r.input.rank() == one.input.rank() && r.input[1] == one.input[1] &&
              (r.input.rank() != 3 || r.input[2] == one.input[2]),
          "the layer has the input " + one.input.text() + ", not " + r.input.text());
  return again(r.name, *one.layer);
}

LayerPtr make_side(LayerRequest& r) {
  r.check(r.branches[0] != nullptr, "its branch is empty");
  return side(r.name, std::move(r.branches[0]));
}

LayerPtr make_join(LayerRequest& r) {
  const std::string &name = r.word("of"), &how = r.word("how");
  EarlierLayer& one = r.earlier_layer(name);
  r.check(one.kind == "side" && !one.is_joined,
          one.kind == "side" ? "the result of " + name + " is joined already" : "layer " + name + " is no side branch");
  r.check(how == "add" || how == "concat", "how is \"" + how + "\"; known: add, concat");
  const Shape& z = one.branch_output;
  const std::string shapes = "the input is " + r.input.text() + ", the result of " + name + " " + z.text();
  r.check(r.input.rank() >= 2 && r.input.rank() == z.rank(), shapes);
  for (int axis = 0; axis < z.rank(); ++axis)
    r.check(r.input[axis] == z[axis] || (axis == 1 && how == "concat"), shapes);
  one.is_joined = true;
  return join(r.name, name, z, how == "add");
}

LayerPtr make_upsample_nearest(LayerRequest& r) {
  r.need_rank(4, kImages);
  return upsample_nearest2d(r.name, static_cast<int>(r.count("scale")));
}

LayerPtr make_to_anchors(LayerRequest& r) {
  r.need_rank(4, kImages);
  const int64_t anchors = r.count("anchors");
  r.check(r.input[1] % anchors == 0,
          std::to_string(anchors) + " anchors do not divide " + std::to_string(r.input[1]) + " channels");
  return to_anchors(r.name, anchors);
}

LayerPtr make_checkpoint(LayerRequest& r) {
  r.check(r.branches[0] != nullptr, "its branch is empty");
  return checkpoint(r.name, std::move(r.branches[0]));
}

}  // namespace halfmark::models
