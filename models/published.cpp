#include "models/published.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace halfmark::models::published {
namespace {

using Layers = std::vector<LayerSpec>;

// Builds the layers of a network one after the other, with names that are unique in it.
class Writer {
 public:
  explicit Writer(std::string prefix = "") : prefix_(std::move(prefix)) {}

  Writer& layer(std::string_view kind, const std::string& name, Arguments arguments = {},
                std::vector<Layers> branches = {}) {
    layers_.push_back({std::string(kind), prefix_ + name, std::move(arguments), std::move(branches)});
    return *this;
  }
  Layers take() { return std::move(layers_); }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string prefix_;
  Layers layers_;
};

struct ConvForm {
  Extent kernel{1, 1};
  int64_t stride = 1;
  Extent padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;
  bool bias = false;
  const char* start = "torch";
};

Arguments conv(int64_t out, const ConvForm& form) {
  return {{"out", out},
          {"kernel", form.kernel},
          {"stride", form.stride},
          {"padding", form.padding},
          {"dilation", form.dilation},
          {"groups", form.groups},
          {"bias", form.bias},
          {"start", std::string(form.start)}};
}

ConvForm square(int64_t kernel, int64_t stride, const char* start) {
  return {
      .kernel = {kernel, kernel}, .stride = stride, .padding = {(kernel - 1) / 2, (kernel - 1) / 2}, .start = start};
}

Layers shortcut(const std::string& name, int64_t out, int64_t stride, const char* start) {
  return Writer(name).layer("conv2d", "conv", conv(out, square(1, stride, start))).layer("batchnorm2d", "bn").take();
}

// Global mean and a linear layer.
void classify(Writer& net, int64_t classes, const char* start) {
  net.layer("global_avg_pool2d", "mean").layer("flatten", "flatten");
  net.layer("linear", "fc", {{"out", classes}, {"start", std::string(start)}});
}

}  // namespace

Network lenet5(int64_t image, int64_t classes) {
  const ConvForm first{.kernel = {5, 5}, .padding = image == 28 ? Extent{2, 2} : Extent{0, 0}, .bias = true},
      second{.kernel = {5, 5}, .bias = true};
  const Arguments halves = {{"kernel", int64_t{2}}};
  Writer net;
  net.layer("conv2d", "conv1", conv(6, first)).layer("relu", "relu1").layer("max_pool2d", "pool1", halves);
  net.layer("conv2d", "conv2", conv(16, second)).layer("relu", "relu2").layer("max_pool2d", "pool2", halves);
  net.layer("flatten", "flatten");
  net.layer("linear", "fc1", {{"out", int64_t{120}}}).layer("relu", "relu3");
  net.layer("linear", "fc2", {{"out", int64_t{84}}}).layer("relu", "relu4");
  net.layer("linear", "fc3", {{"out", classes}});
  return {net.take()};
}

Network resnet(int64_t blocks, int64_t width, int64_t classes) {
  constexpr const char* kStart = "he_fan_in";
  Writer net;
  net.layer("conv2d", "conv1", conv(width, square(3, 1, kStart))).layer("batchnorm2d", "bn1").layer("relu", "relu1");
  for (int64_t stage = 1; stage <= 3; ++stage)
    for (int64_t i = 1; i <= blocks; ++i) {
      const int64_t out = width << (stage - 1), stride = stage > 1 && i == 1 ? 2 : 1;
      Writer body("stage" + std::to_string(stage) + ".block" + std::to_string(i) + ".");
      body.layer("conv2d", "conv1", conv(out, square(3, stride, kStart))).layer("batchnorm2d", "bn1");
      body.layer("relu", "relu1").layer("conv2d", "conv2", conv(out, square(3, 1, kStart))).layer("batchnorm2d", "bn2");
      const std::string name = body.prefix();
      Layers other = stride == 1 ? Layers() : shortcut(name + "shortcut.", out, stride, kStart);
      net.layer("add", name + "add", {}, {body.take(), std::move(other)}).layer("relu", name + "relu2");
    }
  classify(net, classes, kStart);
  return {net.take()};
}

Network resnet50(int64_t image, int64_t bottlenecks, int64_t width, int64_t classes) {
  constexpr const char* kStart = "he_fan_out";
  constexpr int64_t kPublished[] = {3, 4, 6, 3};
  Writer net;
  const bool is_small = image < 64;
  net.layer("conv2d", "conv1", conv(width, is_small ? square(3, 1, kStart) : square(7, 2, kStart)));
  net.layer("batchnorm2d", "bn1").layer("relu", "relu1");
  if (!is_small)
    net.layer("max_pool2d", "pool1", {{"kernel", int64_t{3}}, {"stride", int64_t{2}}, {"padding", int64_t{1}}});
  int64_t in = width;
  for (int64_t stage = 1; stage <= 4; ++stage)
    for (int64_t i = 1; i <= (bottlenecks ? bottlenecks : kPublished[stage - 1]); ++i) {
      const int64_t inner = width << (stage - 1), out = 4 * inner, stride = stage > 1 && i == 1 ? 2 : 1;
      Writer body("stage" + std::to_string(stage) + ".block" + std::to_string(i) + ".");
      body.layer("conv2d", "conv1", conv(inner, square(1, 1, kStart)))
          .layer("batchnorm2d", "bn1")
          .layer("relu", "relu1");
      body.layer("conv2d", "conv2", conv(inner, square(3, stride, kStart)));
      body.layer("batchnorm2d", "bn2").layer("relu", "relu2");
      body.layer("conv2d", "conv3", conv(out, square(1, 1, kStart))).layer("batchnorm2d", "bn3");
      const std::string name = body.prefix();
      Layers other = in == out ? Layers() : shortcut(name + "shortcut.", out, stride, kStart);
      net.layer("add", name + "add", {}, {body.take(), std::move(other)}).layer("relu", name + "relu3");
      in = out;
    }
  classify(net, classes, "torch");
  return {net.take()};
}

namespace {

// A depthwise 3 x 3 and a 1 x 1 convolution, without anything between them, and batch norm.
void separable(Writer& net, const std::string& name, int64_t in, int64_t out) {
  ConvForm depthwise = square(3, 1, "torch");
  depthwise.groups = in;
  net.layer("conv2d", name + ".depthwise", conv(in, depthwise));
  net.layer("conv2d", name + ".pointwise", conv(out, square(1, 1, "torch"))).layer("batchnorm2d", name + ".bn");
}

struct XceptionBlock {
  int64_t in, out;
  int repetitions, stride;
  bool first_relu = true, widens_last = false;
};

void xception_block(Writer& net, const std::string& name, const XceptionBlock& block) {
  Writer body(name + ".");
  for (int i = 0; i < block.repetitions; ++i) {
    const int widening = block.widens_last ? block.repetitions - 1 : 0;
    if (i > 0 || block.first_relu) body.layer("relu", "relu" + std::to_string(i + 1));
    separable(body, "separable" + std::to_string(i + 1), i <= widening ? block.in : block.out,
              i >= widening ? block.out : block.in);
  }
  if (block.stride > 1)
    body.layer("max_pool2d", "pool", {{"kernel", int64_t{3}}, {"stride", int64_t{2}}, {"padding", int64_t{1}}});
  // The shortcut takes the input before the ReLU.
  Layers other = block.in == block.out && block.stride == 1
                     ? Layers()
                     : shortcut(name + ".shortcut.", block.out, block.stride, "torch");
  net.layer("add", name + ".add", {}, {body.take(), std::move(other)});
}

}  // namespace

Network xception(int64_t image, int64_t middle, int64_t width, int64_t classes) {
  // 32, 64, 128, 256, 728, 1024, 1536 and 2048 for width 32.
  const int64_t w128 = 4 * width, w256 = 8 * width, w728 = 91 * width / 4, w1024 = 32 * width;
  ConvForm first{.kernel = {3, 3}, .stride = 2}, second{.kernel = {3, 3}};
  if (image < 64) first.stride = 1, first.padding = second.padding = {1, 1};
  Writer net;
  net.layer("conv2d", "conv1", conv(width, first)).layer("batchnorm2d", "bn1").layer("relu", "relu1");
  net.layer("conv2d", "conv2", conv(2 * width, second)).layer("batchnorm2d", "bn2").layer("relu", "relu2");
  xception_block(net, "entry1", {2 * width, w128, 2, 2, false});
  xception_block(net, "entry2", {w128, w256, 2, 2});
  xception_block(net, "entry3", {w256, w728, 2, 2});
  for (int64_t i = 1; i <= middle; ++i) xception_block(net, "middle" + std::to_string(i), {w728, w728, 3, 1});
  xception_block(net, "exit1", {w728, w1024, 2, 2, true, true});
  separable(net, "exit2", w1024, 48 * width);
  net.layer("relu", "exit2.relu");
  separable(net, "exit3", 48 * width, 64 * width);
  net.layer("relu", "exit3.relu");
  classify(net, classes, "torch");
  return {net.take()};
}

namespace {

const Arguments kErfnetNorm = {{"epsilon", 1e-3}};

void downsample(Writer& net, const std::string& name, int64_t in, int64_t out) {
  ConvForm form = square(3, 2, "torch");
  form.bias = true;
  net.layer(
      "concat", name + ".concat", {},
      {{{"conv2d", name + ".conv", conv(out - in, form)}}, {{"max_pool2d", name + ".pool", {{"kernel", int64_t{2}}}}}});
  net.layer("batchnorm2d", name + ".bn", kErfnetNorm).layer("relu", name + ".relu");
}

// Two pairs of 3 x 1 and 1 x 3 convolutions, the second pair dilated.
void bottleneck_1d(Writer& net, const std::string& name, int64_t channels, double dropped, int64_t dilation) {
  Writer body(name + ".");
  const auto pair = [&](int64_t number, int64_t d) {
    const std::string n = std::to_string(number);
    body.layer("conv2d", "conv3x1_" + n,
               conv(channels, {.kernel = {3, 1}, .padding = {d, 0}, .dilation = {d, 1}, .bias = true}));
    body.layer("relu", "relu" + std::to_string(2 * number - 1));
    body.layer("conv2d", "conv1x3_" + n,
               conv(channels, {.kernel = {1, 3}, .padding = {0, d}, .dilation = {1, d}, .bias = true}));
    body.layer("batchnorm2d", "bn" + n, kErfnetNorm);
  };
  pair(1, 1);
  body.layer("relu", "relu2");
  pair(2, dilation);
  if (dropped > 0) body.layer("dropout", "dropout", {{"p", dropped}, {"channels", true}});
  net.layer("add", name + ".add", {}, {body.take(), {}}).layer("relu", name + ".relu");
}

void upsample(Writer& net, const std::string& name, int64_t out) {
  net.layer("conv_transpose2d", name + ".conv",
            {{"out", out},
             {"kernel", int64_t{3}},
             {"stride", int64_t{2}},
             {"padding", int64_t{1}},
             {"output_padding", int64_t{1}}});
  net.layer("batchnorm2d", name + ".bn", kErfnetNorm).layer("relu", name + ".relu");
}

}  // namespace

Network erfnet(int64_t depth, int64_t width, int64_t classes) {
  const bool is_full = depth >= 2;
  Writer net;
  downsample(net, "down1", 3, width);
  downsample(net, "down2", width, 4 * width);
  for (int64_t i = 1; i <= (is_full ? 5 : 1); ++i)
    bottleneck_1d(net, "encoder1." + std::to_string(i), 4 * width, 0.03, 1);
  downsample(net, "down3", 4 * width, 8 * width);
  const std::vector<int64_t> dilations =
      is_full ? std::vector<int64_t>{2, 4, 8, 16, 2, 4, 8, 16} : std::vector<int64_t>{2, 4};
  for (size_t i = 0; i < dilations.size(); ++i)
    bottleneck_1d(net, "encoder2." + std::to_string(i + 1), 8 * width, 0.3, dilations[i]);
  upsample(net, "up1", 4 * width);
  for (int64_t i = 1; i <= (is_full ? 2 : 1); ++i) bottleneck_1d(net, "decoder1." + std::to_string(i), 4 * width, 0, 1);
  upsample(net, "up2", width);
  for (int64_t i = 1; i <= (is_full ? 2 : 1); ++i) bottleneck_1d(net, "decoder2." + std::to_string(i), width, 0, 1);
  net.layer("conv_transpose2d", "output", {{"out", classes}, {"kernel", int64_t{2}}, {"stride", int64_t{2}}});
  return {net.take()};
}

namespace {

Arguments normal_linear(int64_t out, double deviation) {
  return {{"out", out}, {"start", std::string("normal")}, {"deviation", deviation}, {"bias_start", 0.0}};
}
constexpr double kDeviation = 0.02;

}  // namespace

Network gpt(int64_t length, int64_t layers, int64_t heads, int64_t width, int64_t vocabulary) {
  const double before_sum = kDeviation / std::sqrt(2 * static_cast<double>(layers));
  Writer net;
  net.layer("embedding", "wte", {{"entries", vocabulary}, {"features", width}, {"deviation", kDeviation}});
  net.layer("position_embedding", "wpe", {{"length", length}, {"deviation", kDeviation}});
  for (int64_t i = 1; i <= layers; ++i) {
    const std::string name = "layer" + std::to_string(i) + ".";
    Writer attention(name + "attention."), feed_forward(name + "mlp.");
    attention.layer("layer_norm", "norm").layer("linear", "qkv", normal_linear(3 * width, kDeviation));
    attention.layer("self_attention", "heads", {{"heads", heads}, {"causal", true}});
    attention.layer("linear", "projection", normal_linear(width, before_sum));
    feed_forward.layer("layer_norm", "norm").layer("linear", "fc", normal_linear(4 * width, kDeviation));
    feed_forward.layer("gelu", "gelu").layer("linear", "projection", normal_linear(width, before_sum));
    net.layer("add", name + "add1", {}, {attention.take(), {}})
        .layer("add", name + "add2", {}, {feed_forward.take(), {}});
  }
  net.layer("layer_norm", "norm").layer("tied_linear", "head", {{"weight_of", std::string("wte")}});
  return {net.take()};
}

Network bert(int64_t length, int64_t layers, int64_t heads, int64_t width, int64_t vocabulary, int64_t classes) {
  const Arguments norm = {{"epsilon", 1e-12}}, dropped = {{"p", 0.1}};
  Writer net;
  net.layer("embedding", "words", {{"entries", vocabulary}, {"features", width}, {"deviation", kDeviation}});
  net.layer("position_embedding", "positions", {{"length", length}, {"deviation", kDeviation}});
  net.layer("layer_norm", "norm", norm).layer("dropout", "dropout", dropped);
  for (int64_t i = 1; i <= layers; ++i) {
    const std::string name = "layer" + std::to_string(i) + ".";
    Writer attention(name + "attention."), feed_forward(name + "mlp.");
    attention.layer("linear", "qkv", normal_linear(3 * width, kDeviation));
    attention.layer("self_attention", "heads", {{"heads", heads}});
    attention.layer("linear", "projection", normal_linear(width, kDeviation)).layer("dropout", "dropout", dropped);
    feed_forward.layer("linear", "fc", normal_linear(4 * width, kDeviation)).layer("gelu", "gelu");
    feed_forward.layer("linear", "projection", normal_linear(width, kDeviation)).layer("dropout", "dropout", dropped);
    net.layer("add", name + "add1", {}, {attention.take(), {}}).layer("layer_norm", name + "norm1", norm);
    net.layer("add", name + "add2", {}, {feed_forward.take(), {}}).layer("layer_norm", name + "norm2", norm);
  }
  net.layer("take_step", "first", {{"step", int64_t{0}}}).layer("linear", "pooler", normal_linear(width, kDeviation));
  net.layer("tanh", "tanh").layer("linear", "classifier", normal_linear(classes, kDeviation));
  return {net.take()};
}

Network lstm_classifier(int64_t layers, int64_t embedded, int64_t hidden, int64_t vocabulary, int64_t classes) {
  Writer net;
  net.layer("embedding", "words", {{"entries", vocabulary}, {"features", embedded}, {"padding", int64_t{0}}});
  for (int64_t i = 1; i <= layers; ++i) net.layer("lstm", "lstm" + std::to_string(i), {{"hidden", hidden}});
  net.layer("take_step", "last").layer("linear", "fc", {{"out", classes}});
  return {net.take()};
}

Network speech(int64_t hidden, int64_t classes) {
  Writer net;
  for (const int64_t stride : {2, 1}) {
    const std::string number = stride == 2 ? "1" : "2";
    Arguments over_time = conv(hidden, {.kernel = {1, 5}, .padding = {0, 2}});
    over_time["stride"] = Extent{1, stride};
    net.layer("conv2d", "conv" + number, over_time).layer("batchnorm2d", "bn" + number).layer("relu", "relu" + number);
  }
  net.layer("to_sequence", "sequence").layer("lstm", "lstm", {{"hidden", hidden}, {"bidirectional", true}});
  net.layer("linear", "fc", {{"out", classes}});
  return {net.take()};
}

}  // namespace halfmark::models::published
