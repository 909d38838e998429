#include "models/detector.h"

#include <cmath>
#include <utility>

#include "models/anchors.h"

namespace halfmark::models::published {
namespace {

using Layers = std::vector<LayerSpec>;

Arguments conv(int64_t out, int64_t kernel, int64_t stride = 1) {
  return {{"out", out}, {"kernel", kernel}, {"stride", stride}, {"padding", (kernel - 1) / 2}};
}

Arguments conv_of_head(int64_t out, double bias) {
  Arguments all = conv(out, 3);
  all.insert_or_assign("start", std::string("normal"));
  all.insert_or_assign("deviation", 0.01);
  all.insert_or_assign("bias_start", bias);
  return all;
}

}  // namespace

std::vector<LayerSpec> retinanet_head(const std::string& suffix, const std::string& first, int64_t channels,
                                      int64_t convolutions, int64_t anchors, int64_t classes) {
  const auto tower = [&](const std::string& name, int64_t numbers, double bias) {
    Layers layers;
    const auto convolution = [&](const std::string& part, int64_t out, double start) {
      if (suffix == first)
        layers.push_back({"conv2d", name + part + suffix, conv_of_head(out, start)});
      else
        layers.push_back({"again", name + part + suffix, {{"of", name + part + first}}});
    };
    for (int64_t i = 1; i <= convolutions; ++i) {
      convolution(std::to_string(i) + "_", channels, 0);
      layers.push_back({"relu", name + "_relu" + std::to_string(i) + "_" + suffix});
    }
    convolution("_", anchors * numbers, bias);
    layers.push_back({"to_anchors", name + "_anchors_" + suffix, {{"anchors", anchors}}});
    return layers;
  };
  return {{"concat",
           "head_" + suffix,
           {{"axis", std::string("last")}},
           {tower("scores", classes, -std::log(99.0)), tower("boxes", 4, 0)}}};
}

Network detector(int64_t width, int64_t convolutions, int64_t classes) {
  const auto anchors = static_cast<int64_t>(kAnchorRatios.size());
  Layers net;
  const auto level = [&](const std::string& name) {  // the convolution of a level of the pyramid, and the head
    Layers layers = {{"conv2d", "smooth" + name, conv(width, 3)}};
    for (LayerSpec& layer : retinanet_head(name, "5", width, convolutions, anchors, classes))
      layers.push_back(std::move(layer));
    return layers;
  };
  for (int i = 1; i <= 5; ++i) {
    const std::string name = std::to_string(i);
    Arguments arguments = conv(width, 3, 2);
    arguments.insert_or_assign("bias", false);
    net.push_back({"conv2d", "conv" + name, std::move(arguments)});
    net.push_back({"batchnorm2d", "bn" + name});
    net.push_back({"relu", "relu" + name});
    if (i == 3 || i == 4) net.push_back({"side", "side" + name, {}, {{{"conv2d", "lateral" + name, conv(width, 1)}}}});
  }
  net.push_back({"conv2d", "lateral5", conv(width, 1)});
  for (const std::string finer : {"4", "3"}) {
    const std::string name = finer == "4" ? "5" : "4";
    net.push_back({"side", "level" + name, {}, {level(name)}});
    net.push_back({"upsample_nearest2d", "up" + name, {{"scale", int64_t{2}}}});
    net.push_back({"join", "sum" + finer, {{"of", "side" + finer}, {"how", std::string("add")}}});
  }
  for (LayerSpec& layer : level("3")) net.push_back(std::move(layer));
  net.push_back({"join", "levels4", {{"of", std::string("level4")}, {"how", std::string("concat")}}});
  net.push_back({"join", "levels5", {{"of", std::string("level5")}, {"how", std::string("concat")}}});
  return {std::move(net)};
}

}  // namespace halfmark::models::published
