// The table of subjects. To add a model, add a row.
#include "models/zoo.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <new>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "models/settings.h"

namespace halfmark::models {
namespace {

constexpr int64_t kClasses = 10;

// "b16_i32_h64"
std::string sizes_of(std::initializer_list<std::pair<const char*, int64_t>> parts) {
  std::string text;
  for (const auto& [letter, value] : parts) {
    if (!text.empty()) text += '_';
    text += letter;
    text += std::to_string(value);
  }
  return text;
}

template <class... Layers>
LayerPtr chain(std::string name, Layers... layers) {
  std::vector<LayerPtr> list;
  (list.push_back(std::move(layers)), ...);
  return sequential(std::move(name), std::move(list));
}

Subject linear_alone(int64_t batch, int64_t in, int64_t out) {
  return {
      .name = "linear",
      .sizes = sizes_of({{"b", batch}, {"i", in}, {"o", out}}),
      .input = {batch, in},
      .data = DataKind::normal,
      .classes = 0,
      .make = [=](const Init& init, const Settings&) { return linear(init, "linear", in, out); },
  };
}

struct ConvSizes {
  int64_t batch, in, out, size;
  int kernel;
  int stride = 1, groups = 1, dilation = 1;
};

// "same" padding: with stride 1 the image keeps its size.
Subject conv_alone(const ConvSizes& s) {
  std::string sizes = sizes_of({{"b", s.batch}, {"c", s.in}, {"o", s.out}, {"s", s.size}, {"k", s.kernel}});
  if (s.stride != 1) sizes += "_t" + std::to_string(s.stride);
  if (s.groups != 1) sizes += "_g" + std::to_string(s.groups);
  if (s.dilation != 1) sizes += "_d" + std::to_string(s.dilation);
  const int pad = s.dilation * (s.kernel - 1) / 2;
  const Window window{s.stride, s.stride, pad, pad, s.dilation, s.dilation};
  return {
      .name = "conv2d",
      .sizes = sizes,
      .input = {s.batch, s.in, s.size, s.size},
      .data = DataKind::normal,
      .classes = 0,
      .make = [=](const Init& init,
                  const Settings&) { return conv2d(init, "conv", s.in, s.out, s.kernel, window, s.groups); },
  };
}

std::string image_sizes(const Shape& image) { return sizes_of({{"b", image[0]}, {"c", image[1]}, {"s", image[2]}}); }

Subject batchnorm_alone(const Shape& image) {
  return {
      .name = "batchnorm2d",
      .sizes = image_sizes(image),
      .input = image,
      .data = DataKind::normal,
      .classes = 0,
      .make = [=](const Init& init,
                  const Settings& settings) { return batchnorm2d(init, "bn", image[1], settings.batchnorm_momentum); },
  };
}

Subject layer_alone(std::string name, const std::string& suffix, const Shape& image, std::function<LayerPtr()> make) {
  return {
      .name = std::move(name),
      .sizes = image_sizes(image) + suffix,
      .input = image,
      .data = DataKind::normal,
      .classes = 0,
      .make = [make = std::move(make)](const Init&, const Settings&) { return make(); },
  };
}

Subject mlp(int64_t batch, int64_t in, int64_t hidden) {
  return {
      .name = "mlp",
      .sizes = sizes_of({{"b", batch}, {"i", in}, {"h", hidden}, {"o", kClasses}}),
      .input = {batch, in},
      .data = DataKind::points,
      .classes = kClasses,
      .make =
          [=](const Init& init, const Settings&) {
            return chain("mlp", linear(init, "fc1", in, hidden), relu("relu1"), linear(init, "fc2", hidden, hidden),
                         relu("relu2"), linear(init, "fc3", hidden, kClasses));
          },
  };
}

// Softmax regression: a linear model, which the generated images are designed not to be learnable by.
Subject logistic(int64_t batch, int64_t channels, int64_t size) {
  const Shape image{batch, channels, size, size};
  return {
      .name = "logistic",
      .sizes = image_sizes(image),
      .input = image,
      .data = DataKind::images,
      .classes = kClasses,
      .make =
          [=](const Init& init, const Settings&) {
            return chain("logistic", flatten("flatten"), linear(init, "fc", channels * size * size, kClasses));
          },
  };
}

// conv-bn-relu, pool, a residual block of two convolutions, a strided conv-bn-relu, global average pool, a linear head.
Subject convnet(int64_t batch, int64_t channels, int64_t size, int64_t width) {
  const Shape image{batch, channels, size, size};
  return {
      .name = "convnet",
      .sizes = image_sizes(image) + "_w" + std::to_string(width),
      .input = image,
      .data = DataKind::images,
      .classes = kClasses,
      .make =
          [=](const Init& init, const Settings& settings) {
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
                         global_avg_pool2d("mean"), flatten("flatten"), linear(init, "fc", 2 * width, kClasses));
          },
  };
}

std::vector<Subject> subject_table() {
  return {
      // Small enough for reference and simulated devices.
      linear_alone(4, 16, 8),
      linear_alone(8, 32, 16),
      conv_alone({.batch = 2, .in = 4, .out = 6, .size = 6, .kernel = 3}),
      conv_alone({.batch = 2, .in = 4, .out = 8, .size = 5, .kernel = 1}),
      conv_alone({.batch = 2, .in = 4, .out = 4, .size = 7, .kernel = 3, .stride = 2}),
      conv_alone({.batch = 2, .in = 4, .out = 8, .size = 6, .kernel = 3, .groups = 2}),
      conv_alone({.batch = 1, .in = 3, .out = 4, .size = 8, .kernel = 3, .dilation = 2}),
      batchnorm_alone({4, 3, 4, 4}),
      layer_alone("relu", "", {2, 4, 5, 5}, [] { return relu("relu"); }),
      layer_alone("maxpool", "_k2", {2, 4, 6, 6}, [] { return max_pool2d("pool", 2, 2); }),
      layer_alone("maxpool", "_k3_t2", {2, 4, 7, 7}, [] { return max_pool2d("pool", 3, 2); }),  // windows overlap
      layer_alone("avgpool", "_k2", {2, 4, 6, 6}, [] { return avg_pool2d("pool", 2, 2); }),
      layer_alone("globalpool", "", {2, 4, 5, 5}, [] { return global_avg_pool2d("pool"); }),
      mlp(8, 16, 24),
      logistic(4, 1, 8),
      convnet(4, 1, 8, 4),

      // Models that learn in seconds.
      mlp(32, 64, 128),
      logistic(16, 3, 16),
      convnet(16, 3, 16, 16),

      // Large enough to measure throughput.
      linear_alone(64, 1024, 1024),
      linear_alone(512, 1024, 1024),
      conv_alone({.batch = 16, .in = 64, .out = 64, .size = 28, .kernel = 3}),
      conv_alone({.batch = 16, .in = 64, .out = 64, .size = 28, .kernel = 1}),
      conv_alone({.batch = 16, .in = 64, .out = 128, .size = 28, .kernel = 3, .stride = 2}),
      conv_alone({.batch = 16, .in = 64, .out = 64, .size = 28, .kernel = 3, .groups = 64}),
      batchnorm_alone({16, 64, 28, 28}),
      layer_alone("relu", "", {16, 64, 28, 28}, [] { return relu("relu"); }),
      layer_alone("maxpool", "_k2", {16, 64, 28, 28}, [] { return max_pool2d("pool", 2, 2); }),
      layer_alone("avgpool", "_k2", {16, 64, 28, 28}, [] { return avg_pool2d("pool", 2, 2); }),
      layer_alone("globalpool", "", {16, 64, 28, 28}, [] { return global_avg_pool2d("pool"); }),
      mlp(128, 256, 1024),
      convnet(32, 3, 32, 32),
  };
}

std::vector<Subject>& rows() {
  static std::vector<Subject> all = subject_table();
  return all;
}

}  // namespace

const std::vector<Subject>& subjects() { return rows(); }

bool is_built_in(const Subject& subject) {
  static const std::vector<Subject> own = subject_table();
  return std::any_of(own.begin(), own.end(), [&](const Subject& row) { return row.id() == subject.id(); });
}

void add_subjects(const std::vector<Subject>& more) { rows().insert(rows().end(), more.begin(), more.end()); }

namespace {

template <class T>
void check_names(const Subject& subject, std::string_view what, const std::vector<T*>& items) {
  std::set<std::string_view> names;
  for (const T* item : items)
    HM_CHECK(names.insert(item->name).second,
             "subject " + subject.id() + ": two " + std::string(what) + " are named '" + item->name + "'");
}

}  // namespace

LayerPtr make_model(const Subject& subject, const Init& init, const Settings& settings) {
  LayerPtr model;
  try {
    model = subject.make(init, settings);
  } catch (const Unsupported&) {  // the device lacks an operation or a dtype: no error of the subject
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error("subject " + subject.id() + ": " + error.what());
  }
  HM_CHECK(model, "subject " + subject.id() + ": its function `make` returns no layer");
  check_names(subject, "parameters", model->params());
  check_names(subject, "states", model->states());
  return model;
}

const Subject& subject_named(const std::string& id) {
  std::vector<std::string> families, of_family;
  const std::string family = id.substr(0, id.find('/'));
  for (const Subject& subject : subjects()) {
    if (subject.id() == id) return subject;
    if (subject.name == family) of_family.push_back(subject.id());
    if (std::find(families.begin(), families.end(), subject.name) == families.end()) families.push_back(subject.name);
  }
  throw_unknown_name("subject", id, of_family.empty() ? families : of_family);
}

}  // namespace halfmark::models
