// The numbers that parameters start from, beside the bounds and deviations that PyTorch documents and papers print. They
// are written out by hand for unequal numbers of inputs, outputs and hidden features, and for groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

Init init_of(const char* policy = "fp64") { return {*test_device(), policy_named(policy), RandomKey(5)}; }

double mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum / static_cast<double>(values.size());
}
double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::fabs(value));
  return most;
}

// U(-bound, bound): the mean square is bound^2 / 3 within six of its deviations, sqrt(4 / 45 / n) bound^2.
void expect_uniform(const std::vector<double>& values, double bound, const std::string& what) {
  EXPECT_LE(largest(values), bound) << what;
  EXPECT_NEAR(mean_square(values) / (bound * bound), 1.0 / 3,
              6 * std::sqrt(4.0 / 45 / static_cast<double>(values.size())))
      << what;
}
// N(0, deviation^2): the mean square is deviation^2 within six of its deviations, sqrt(2 / n) deviation^2, and one of some
// hundred numbers lies beyond the end of the uniform distribution with that mean square.
void expect_normal(const std::vector<double>& values, double deviation, const std::string& what) {
  EXPECT_NEAR(mean_square(values) / (deviation * deviation), 1, 6 * std::sqrt(2 / static_cast<double>(values.size())))
      << what;
  EXPECT_GT(largest(values), 1.8 * deviation) << what;
}
void expect_all(const std::vector<double>& values, double value, const std::string& what) {
  EXPECT_EQ(values, std::vector<double>(values.size(), value)) << what;
}

std::vector<double> values_of(const LayerPtr& layer, const std::string& name) {
  for (const Param* param : layer->params())
    if (param->name == name) return param->value.values();
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

Start he(Start::Kind kind) {
  Start start;
  start.kind = kind;
  return start;
}

// torch.nn.Linear and the nn.Conv classes: weight and bias U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)). torch.nn.init
// .kaiming_normal_ with relu: deviation sqrt(2 / fan). torch.nn.init._calculate_fan_in_and_fan_out: fan_in is axis 1 of the
// weight times the area of the kernel, fan_out is axis 0 times the area.
TEST(InitialValues, OfWeightsHaveTheFansOfTorch) {
  struct Case {
    const char* name;
    LayerPtr torch, he_fan_in, he_fan_out;
    double fan_in, fan_out;
  };
  const auto three = [](const char* name, double fan_in, double fan_out, auto make) {
    return Case{name,   make(Start{}), make(he(Start::Kind::he_fan_in)), make(he(Start::Kind::he_fan_out)),
                fan_in, fan_out};
  };
  std::vector<Case> cases;
  cases.push_back(three("linear", 300, 70, [](const Start& s) { return linear(init_of(), "l", 300, 70, true, s); }));
  // 24 inputs and 64 outputs in two groups, 3 x 5: weight [64, 12, 3, 5].
  cases.push_back(three("conv2d", 12 * 15, 64 * 15, [](const Start& s) {
    return conv2d(init_of(), "l", 24, 64, {3, 5}, {}, 2, true, s);
  }));
  // 32 inputs and 48 outputs in two groups: weight [32, 24, 3, 5].
  cases.push_back(three("conv_transpose2d", 24 * 15, 32 * 15, [](const Start& s) {
    return conv_transpose2d(init_of(), "l", 32, 48, {3, 5}, {}, 0, 2, true, s);
  }));
  for (const Case& one : cases) {
    expect_uniform(values_of(one.torch, "l.weight"), 1 / std::sqrt(one.fan_in), one.name);
    expect_normal(values_of(one.he_fan_in, "l.weight"), std::sqrt(2 / one.fan_in), one.name);
    expect_normal(values_of(one.he_fan_out, "l.weight"), std::sqrt(2 / one.fan_out), one.name);
    for (const LayerPtr* layer : {&one.torch, &one.he_fan_in, &one.he_fan_out})
      expect_uniform(values_of(*layer, "l.bias"), 1 / std::sqrt(one.fan_in), std::string(one.name) + " bias");
  }
  Start given = he(Start::Kind::normal);
  given.deviation = 0.25, given.bias = -4.5;
  const LayerPtr fixed = linear(init_of(), "l", 30, 70, true, given);
  expect_normal(values_of(fixed, "l.weight"), 0.25, "normal");
  expect_all(values_of(fixed, "l.bias"), -4.5, "fixed bias");
  const LayerPtr mean = conv2d(init_of(), "l", 24, 64, {3, 5}, {}, 2, true, he(Start::Kind::mean));
  expect_all(values_of(mean, "l.weight"), 1.0 / (12 * 15), "mean");
}

// torch.nn.LSTM and LSTMCell: everything U(-1 / sqrt(hidden), 1 / sqrt(hidden)).
TEST(InitialValues, OfAnLstmDependOnItsHiddenFeaturesOnly) {
  const LayerPtr both = lstm(init_of(), "lstm", 7, 50, true), cell = lstm_cell(init_of(), "cell", 7, 50);
  EXPECT_EQ(both->params().size(), 8u);
  EXPECT_EQ(cell->params().size(), 4u);
  for (const LayerPtr* layer : {&both, &cell})
    for (const Param* param : (*layer)->params())
      expect_uniform(param->value.values(), 1 / std::sqrt(50.0), param->name);
}

// torch.nn.Embedding: N(0, 1), and zeros in the row of the padding.
TEST(InitialValues, OfAnEmbeddingHaveARowOfZerosForThePadding) {
  for (const char* policy : {"fp64", "fp16-master"}) {
    const LayerPtr layer = embedding(init_of(policy), "words", 40, 30, 0.5, 3);
    const Param& table = *layer->params()[0];
    std::vector<std::vector<double>> copies = {table.value.values()};
    if (!table.master.empty()) copies.push_back(table.master.values());
    for (const std::vector<double>& values : copies) {
      const auto row = values.begin() + 3 * 30;
      expect_all({row, row + 30}, 0, "padding");
      std::vector<double> others(values.begin(), row);
      others.insert(others.end(), row + 30, values.end());
      expect_normal(others, 0.5, policy);
      EXPECT_EQ(std::count(others.begin(), others.end(), 0.0), 0) << policy;
    }
  }
  expect_normal(values_of(embedding(init_of(), "words", 40, 30), "words.weight"), 1, "embedding");
  expect_normal(values_of(position_embedding(init_of(), "p", 40, 30, 0.5), "p.weight"), 0.5, "position_embedding");
}

TEST(InitialValues, OfNormsAreTheIdentity) {
  for (const LayerPtr& layer : {layer_norm(init_of(), "n", 6), group_norm(init_of(), "n", 6, 2),
                                batchnorm(init_of(), "n", 6), rms_norm(init_of(), "n", 6)}) {
    expect_all(values_of(layer, "n.scale"), 1, "scale");
    if (layer->params().size() == 2) expect_all(values_of(layer, "n.shift"), 0, "shift");
  }
  const LayerPtr bn = batchnorm(init_of(), "n", 6);
  ASSERT_EQ(bn->states().size(), 2u);
  expect_all(bn->states()[0]->value.values(), 0, "running mean");
  expect_all(bn->states()[1]->value.values(), 1, "running variance");
}

// torch.nn.utils.parametrizations.weight_norm: g is the norm of v over all axes but the first.
TEST(InitialValues, OfWeightNormAreALayersWeightAndTheLengthsOfItsRows) {
  struct Case {
    LayerPtr normalised, plain;
    size_t outputs;
  };
  Case cases[] = {
      {linear(init_of(), "l", 30, 20, true, {}, true), linear(init_of(), "l", 30, 20), 20},
      {conv2d(init_of(), "l", 6, 8, {3, 5}, {}, 2, true, {}, true), conv2d(init_of(), "l", 6, 8, {3, 5}, {}, 2), 8}};
  for (const Case& one : cases) {
    const std::vector<double> v = values_of(one.normalised, "l.weight_v"), g = values_of(one.normalised, "l.weight_g");
    EXPECT_EQ(v, values_of(one.plain, "l.weight"));
    ASSERT_EQ(g.size(), one.outputs);
    const size_t width = v.size() / g.size();
    for (size_t row = 0; row < g.size(); ++row) {
      double sum = 0;
      for (size_t i = 0; i < width; ++i) sum += v[row * width + i] * v[row * width + i];
      EXPECT_NEAR(g[row], std::sqrt(sum), 1e-14) << row;
    }
  }
}

// f(name, values, shape) for every parameter of a subject.
void each_parameter(const char* subject, auto&& f) {
  const LayerPtr model = make_model(subject_named(subject), init_of(), {});
  for (const Param* param : model->params()) f(param->name, param->value.values(), param->value.shape());
}
bool ends_with(const std::string& name, std::string_view end) { return std::string_view(name).ends_with(end); }
double area_of(const Shape& weight) { return static_cast<double>(weight.elements() / weight[0] / weight[1]); }

// nanoGPT 3adf61e, model.py: N(0, 0.02^2); the two projections before a residual sum 0.02 / sqrt(2 layers); biases 0.
TEST(InitialValues, OfGptAreThoseOfItsPaper) {
  int projections = 0;
  each_parameter("gpt/b1_t8_n3_h2_d48_v64", [&](const std::string& name, const std::vector<double>& v, const Shape&) {
    if (ends_with(name, ".scale")) return expect_all(v, 1, name);
    if (ends_with(name, ".bias") || ends_with(name, ".shift")) return expect_all(v, 0, name);
    const bool before_sum = ends_with(name, "projection.weight");
    projections += before_sum;
    expect_normal(v, before_sum ? 0.02 / std::sqrt(6.0) : 0.02, name);
  });
  EXPECT_EQ(projections, 6);
}

// Devlin et al. 2018 (google-research/bert, modeling.py): initializer_range 0.02 everywhere, biases 0.
TEST(InitialValues, OfBertAreThoseOfItsPaper) {
  each_parameter("bert/b1_t8_n2_h2_d48_v64_o4",
                 [](const std::string& name, const std::vector<double>& v, const Shape&) {
                   if (ends_with(name, ".scale")) return expect_all(v, 1, name);
                   if (ends_with(name, ".bias") || ends_with(name, ".shift")) return expect_all(v, 0, name);
                   expect_normal(v, 0.02, name);
                 });
}

// He et al. 2015, arXiv:1502.01852: deviation sqrt(2 / fan_in), of ResNet-20 also in the linear layer
// (github.com/akamaster/pytorch_resnet_cifar10); sqrt(2 / fan_out) in the convolutions of torchvision's ResNet-50.
TEST(InitialValues, OfResnetsAreThoseOfHe) {
  each_parameter("resnet/b1_s8_n1_w8", [](const std::string& name, const std::vector<double>& v, const Shape& shape) {
    if (ends_with(name, ".scale")) return expect_all(v, 1, name);
    if (ends_with(name, ".shift")) return expect_all(v, 0, name);
    if (ends_with(name, ".bias")) return expect_uniform(v, 1 / std::sqrt(32.0), name);  // of 32 channels
    expect_normal(v, std::sqrt(2 / (static_cast<double>(shape[1]) * area_of(shape))), name);
  });
  each_parameter("resnet50/b1_s16_n1_w8_o10",
                 [](const std::string& name, const std::vector<double>& v, const Shape& shape) {
                   if (ends_with(name, ".scale")) return expect_all(v, 1, name);
                   if (ends_with(name, ".shift")) return expect_all(v, 0, name);
                   if (name.starts_with("fc")) return expect_uniform(v, 1 / std::sqrt(256.0), name);  // 4 x 64 channels
                   expect_normal(v, std::sqrt(2 / (static_cast<double>(shape[0]) * area_of(shape))), name);
                 });
}

// Lin et al. 2017, arXiv:1708.02002, section 4.1: the convolutions of the head N(0, 0.01^2) with bias 0, the bias of the
// last of the classes -log((1 - 0.01) / 0.01).
TEST(InitialValues, OfADetectorHaveThePriorOfRetinanet) {
  int priors = 0;
  each_parameter("detector/b1_s64", [&](const std::string& name, const std::vector<double>& v, const Shape&) {
    const bool is_scores = name.starts_with("scores"), is_box = name.starts_with("boxes");
    if (!is_scores && !is_box) return;
    if (ends_with(name, ".weight")) return expect_normal(v, 0.01, name);
    const bool is_last = name.starts_with("scores_");
    priors += is_last;
    if (!is_last) return expect_all(v, 0, name);
    for (const double bias : v) EXPECT_NEAR(bias, -4.59511985013459, 1e-14) << name;  // log 99
  });
  EXPECT_EQ(priors, 1);
}

}  // namespace
}  // namespace halfmark::models
