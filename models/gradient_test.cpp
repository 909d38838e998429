// Compares the gradients of every subject (parameters and input) with central finite differences in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/network/layer_kinds.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr int kSamples = 6;          // elements tried in each tensor
constexpr double kStep = 0x1p-17;    // 7.6e-6, near the cube root of 2^-52, where truncation and cancellation balance
constexpr double kFlopsLimit = 2e7;  // per training step; a larger subject is covered by a smaller size of its family
constexpr int64_t kElementsLimit = 20000;

bool small(const Subject& subject) {
  if (subject.input.elements() > kElementsLimit) return false;
  TrialSpec spec = test_spec(subject.id(), "fp64");
  return Trial(spec.oracle(Inputs::drawn)).step_flops() <= kFlopsLimit;
}

class Gradients : public testing::TestWithParam<std::string> {};

// (f(v + h) - f(v - h)) / 2h. Its error is h^2 f'''/6 (truncation) plus the rounding error of f divided by h.
double difference(Trial& trial, Tensor& tensor, std::vector<double>& values, size_t i, double h) {
  const double centre = values[i];
  const auto at = [&](double value) {
    values[i] = value;
    tensor.set_values(values);
    trial.forward();
    return trial.loss();
  };
  const double up = at(centre + h), down = at(centre - h);
  at(centre);
  return (up - down) / (2 * h);
}

void compare(Trial& trial, const std::string& name, Tensor tensor, const std::vector<double>& gradient, RandomKey key) {
  std::vector<double> values = tensor.values();
  double largest = 0;
  for (const double value : gradient) largest = std::max(largest, std::fabs(value));
  if (largest == 0) {  // as of a bias before batch norm: the loss must not depend on it
    const double rounding = 100 * std::numeric_limits<double>::epsilon() * std::fabs(trial.loss()) / kStep;
    EXPECT_NEAR(difference(trial, tensor, values, 0, kStep), 0, rounding) << name;
    return;
  }
  const auto by_size = [](double a, double b) { return std::fabs(a) < std::fabs(b); };
  int rejected = 0, zeros = 0;
  const auto samples = std::min<size_t>(kSamples, values.size());
  for (size_t s = 0; s < samples; ++s) {
    // The first sample is the element with the largest gradient, so that the samples cannot all be zero.
    const size_t i =
        s == 0 ? static_cast<size_t>(std::max_element(gradient.begin(), gradient.end(), by_size) - gradient.begin())
               : static_cast<size_t>(key.below(s, values.size()));
    const double wide = difference(trial, tensor, values, i, 2 * kStep),
                 close = difference(trial, tensor, values, i, kStep);
    // The loss is a sum of terms of order one or less. Each rounds to about 2^-52; a hundred of them are allowed for.
    const double rounding =
        100 * std::numeric_limits<double>::epsilon() * std::max(std::fabs(trial.loss()), largest) / kStep;
    // The results of the two steps differ by three times the truncation error of the smaller step. A larger difference
    // means that a kink of relu or max pooling lies between the points, so the quotient is not a derivative.
    // Such a sample is rejected and counted.
    if (std::fabs(wide - close) > 1e-5 * largest + 2 * rounding) {
      ++rejected;
      continue;
    }
    zeros += gradient[i] == 0;
    const double tolerance = rounding + 2 * std::fabs(wide - close) + 1e-9 * largest;
    EXPECT_NEAR(gradient[i], close, tolerance) << name << " element " << i;
  }
  EXPECT_LE(2 * rejected, static_cast<int>(samples)) << name << ": too many samples lie at kinks";
  EXPECT_LT(zeros, static_cast<int>(samples)) << name;
}

// Of all parameters and of the input.
void compare_all(const Subject& subject) {
  TrialSpec spec = test_spec("linear/b4_i16_o8", "fp64", 7);
  spec.subject = &subject;
  Trial trial(spec.oracle(Inputs::drawn));
  trial.load_batch(0), trial.forward(), trial.backward();

  // All gradients are read before any value is changed.
  std::vector<std::vector<double>> gradients;
  for (const Param* param : trial.params()) gradients.push_back(trial.gradient(*param));
  const std::vector<double> dx = trial.input_gradient();
  const RandomKey key(11);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Param& param = *trial.params()[i];
    compare(trial, param.name, param.value, gradients[i], key.child(param.name));
  }
  if (!dx.empty()) compare(trial, "input", trial.input(), dx, key.child("input"));
}

bool has_kink(const LayerSpec& layer) {
  return layer.kind == "relu" || layer.kind == "leaky_relu" || layer.kind == "max_pool2d";
}

int kinks_in(const std::vector<LayerSpec>& layers) {
  int count = 0;
  for (const LayerSpec& layer : layers) {
    count += has_kink(layer);
    for (const auto& branch : layer.branches) count += kinks_in(branch);
  }
  return count;
}

void replace_kinks(std::vector<LayerSpec>& layers) {
  for (LayerSpec& layer : layers) {
    if (has_kink(layer)) layer.kind = layer.kind == "max_pool2d" ? "avg_pool2d" : "silu";
    for (auto& branch : layer.branches) replace_kinks(branch);
  }
}

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  const Subject& subject = subject_named(GetParam());
  if (!small(subject)) {
    for (const Subject& other : subjects())
      if (other.name == subject.name && small(other)) GTEST_SKIP() << "covered by " << other.id();
    FAIL() << subject.id() << " is too large and no smaller size of it exists";
  }
  if (!subject.network || kinks_in(subject.network->layers) <= 8) return compare_all(subject);
  // Behind so many kinks few differences are derivatives: the same layers with smooth ones in place of those with kinks.
  Network smooth = *subject.network;
  replace_kinks(smooth.layers);
  Subject other = subject_of_network(subject.input, subject.data, subject.classes, std::move(smooth));
  other.name = subject.name, other.sizes = subject.sizes, other.loss = subject.loss;
  compare_all(other);
}

// Every kind of layer with every argument that changes its arithmetic, alone or behind a layer that gives it an input.
struct KindCase {
  const char* name;
  Shape input;
  std::vector<LayerSpec> layers;
  DataKind data = DataKind::normal;
  int64_t classes = 0;
};

std::vector<KindCase> kind_cases() {
  const auto kernel = [](int64_t h, int64_t w) { return Value(Extent{h, w}); };
  const auto whole = [](int64_t value) { return Value(value); };
  const LayerSpec silu{"silu", "silu"};
  const Shape image{2, 4, 6, 5};
  std::vector<KindCase> cases = {
      {"linear", {3, 5}, {{"linear", "fc", {{"out", whole(4)}}}}},
      {"linear without bias", {3, 5}, {{"linear", "fc", {{"out", whole(4)}, {"bias", false}}}}},
      {"linear with weight norm", {3, 5}, {{"linear", "fc", {{"out", whole(4)}, {"weight_norm", true}}}}},
      {"conv2d with weight norm",
       image,
       {{"conv2d",
         "conv",
         {{"out", whole(4)}, {"kernel", kernel(3, 1)}, {"groups", whole(2)}, {"weight_norm", true}}}}},
      {"conv2d", image, {{"conv2d", "conv", {{"out", whole(4)}, {"kernel", kernel(3, 1)}, {"padding", kernel(1, 0)}}}}},
      {"conv2d with groups, stride and dilation",
       image,
       {{"conv2d",
         "conv",
         {{"out", whole(6)},
          {"kernel", kernel(2, 3)},
          {"stride", kernel(2, 1)},
          {"dilation", kernel(1, 2)},
          {"padding", kernel(1, 2)},
          {"groups", whole(2)}}}}},
      {"conv_transpose2d", image, {{"conv_transpose2d", "up", {{"out", whole(3)}, {"kernel", whole(2)}}}}},
      {"conv_transpose2d with all arguments",
       image,
       {{"conv_transpose2d",
         "up",
         {{"out", whole(6)},
          {"kernel", kernel(3, 2)},
          {"stride", kernel(2, 3)},
          {"padding", kernel(1, 0)},
          {"output_padding", kernel(1, 2)},
          {"dilation", kernel(1, 2)},
          {"groups", whole(2)}}}}},
      {"batchnorm1d", {5, 4}, {{"batchnorm1d", "bn"}}},
      {"batchnorm1d over time", {3, 4, 5}, {{"batchnorm1d", "bn", {{"affine", false}}}}},
      {"batchnorm2d", image, {{"batchnorm2d", "bn", {{"epsilon", 0.01}}}}},
      {"batchnorm2d frozen", image, {{"batchnorm2d", "bn", {{"frozen", true}}}}},
      {"batchnorm3d", {2, 3, 2, 3, 2}, {{"batchnorm3d", "bn"}}},
      {"layer_norm", {3, 6}, {{"layer_norm", "norm"}}},
      {"rms_norm", {3, 6}, {{"rms_norm", "norm"}}},
      {"group_norm", image, {{"group_norm", "norm", {{"groups", whole(2)}}}}},
      {"max_pool2d",
       image,
       {{"max_pool2d", "pool", {{"kernel", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}}}}},
      {"avg_pool2d",
       image,
       {{"avg_pool2d", "pool", {{"kernel", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}}}}},
      {"global_avg_pool2d", image, {{"global_avg_pool2d", "pool"}}},
      {"adaptive_avg_pool2d", image, {{"adaptive_avg_pool2d", "pool", {{"size", kernel(4, 3)}}}}},
      {"upsample_bilinear2d", image, {{"upsample_bilinear2d", "up", {{"scale", whole(2)}}}}},
      {"upsample_bilinear2d with aligned corners",
       image,
       {{"upsample_bilinear2d", "up", {{"scale", whole(3)}, {"align_corners", true}}}}},
      {"upsample_nearest2d", image, {{"upsample_nearest2d", "up", {{"scale", whole(2)}}}}},
      {"to_anchors", image, {{"to_anchors", "anchors", {{"anchors", whole(2)}}}}},
      {"concat of the last axis",
       {2, 3, 5},
       {{"concat", "joined", {{"axis", std::string("last")}}, {{silu}, {}, {{"linear", "fc", {{"out", whole(2)}}}}}}}},
      {"side branches and a layer that runs again",
       image,
       {{"side", "rows", {}, {{{"conv2d", "conv", {{"out", whole(4)}, {"kernel", whole(1)}}}, silu}}},
        {"side", "added", {}, {{{"again", "conv_again", {{"of", std::string("conv")}}}}}},
        {"tanh", "tanh"},
        {"join", "sum", {{"of", std::string("added")}}},
        {"again", "conv_third", {{"of", std::string("conv")}}},
        {"join", "joined", {{"of", std::string("rows")}, {"how", std::string("concat")}}}}},
      // Two groups of two would be their own inverse.
      {"channel_shuffle", {2, 6, 3, 2}, {{"channel_shuffle", "shuffle", {{"groups", whole(2)}}}}},
      {"flatten", image, {{"flatten", "flatten"}}},
      {"add", image, {{"add", "sum", {}, {{silu}, {}}}}},
      {"concat",
       image,
       {{"concat", "joined", {}, {{silu}, {}, {{"conv2d", "conv", {{"out", whole(2)}, {"kernel", whole(1)}}}}}}}},
      {"softmax", {2, 3, 5}, {{"softmax", "softmax"}}},
      {"dropout", image, {{"dropout", "dropout", {{"p", 0.3}}}}},
      {"dropout of channels", image, {{"dropout", "dropout", {{"p", 0.3}, {"channels", true}}}}},
      {"linear over sequences", {2, 3, 5}, {{"linear", "fc", {{"out", whole(4)}}}}},
      {"self_attention", {2, 5, 12}, {{"self_attention", "attention", {{"heads", whole(2)}}}}},
      {"self_attention causal", {2, 5, 12}, {{"self_attention", "attention", {{"heads", whole(2)}, {"causal", true}}}}},
      {"self_attention padded",  // the last sample has no steps
       {3, 5, 12},
       {{"self_attention", "attention", {{"heads", whole(2)}, {"lengths", std::vector<double>{3, 5, 0}}}}}},
      {"self_attention padded in steps",
       {3, 5, 12},
       {{"self_attention",
         "attention",
         {{"heads", whole(2)}, {"lengths", std::vector<double>{3, 5, 0}}, {"fused", false}}}}},
      {"self_attention with a mask that leaks",
       {2, 5, 12},
       {{"self_attention",
         "attention",
         {{"heads", whole(2)}, {"causal", true}, {"lengths", std::vector<double>{3, 1}}, {"mask_value", -2.0}}}}},
      {"self_attention in steps",
       {2, 5, 12},
       {{"self_attention", "attention", {{"heads", whole(2)}, {"causal", true}, {"fused", false}}}}},
      {"lstm", {3, 4, 5}, {{"lstm", "lstm", {{"hidden", whole(6)}}}}},
      {"lstm in both directions", {3, 4, 5}, {{"lstm", "lstm", {{"hidden", whole(6)}, {"bidirectional", true}}}}},
      {"lstm_cell", {3, 17}, {{"lstm_cell", "cell", {{"hidden", whole(6)}}}}},
      {"take_step", {3, 4, 5}, {{"take_step", "last"}}},
      {"take_step first", {3, 4, 5}, {{"take_step", "first", {{"step", whole(0)}}}}},
      {"to_sequence", image, {{"to_sequence", "sequence"}}},
      {"position_embedding", {3, 4, 5}, {{"position_embedding", "place", {{"length", whole(6)}}}}},
      {"embedding with its weight in a linear layer",
       {3, 6},
       {{"embedding", "words", {{"entries", whole(64)}, {"features", whole(5)}}},
        {"position_embedding", "places", {{"length", whole(6)}}},
        {"silu", "silu"},
        {"tied_linear", "head", {{"weight_of", std::string("words")}}}},
       DataKind::text,
       64},
      {"embedding with padding",
       {4, 6},
       {{"embedding", "words", {{"entries", whole(64)}, {"features", whole(5)}, {"padding", whole(3)}}},
        {"lstm", "lstm", {{"hidden", whole(4)}}},
        {"take_step", "last"}},
       DataKind::tokens,
       4},
      {"checkpoint",
       image,
       {{"checkpoint", "again", {}, {{{"conv2d", "conv", {{"out", whole(2)}, {"kernel", whole(3)}}}, silu}}}}},
      {"checkpoint of dropout",  // the second forward draws what the first drew
       image,
       {{"checkpoint",
         "again",
         {},
         {{{"conv2d", "conv", {{"out", whole(3)}, {"kernel", whole(3)}}}, {"dropout", "dropout", {{"p", 0.4}}}}}}}},
  };
  activations::All::each([&]<class Row>() {
    cases.push_back({Row::name.data(), image, {{std::string(Row::name), "f"}}});
  });
  return cases;
}

class KindGradients : public testing::TestWithParam<KindCase> {};

TEST_P(KindGradients, AgreeWithFiniteDifferences) {
  const KindCase& one = GetParam();
  Subject subject = subject_of_network(one.input, one.data, one.classes, Network{one.layers});
  subject.name = "network", subject.sizes = "b" + std::to_string(one.input[0]);
  compare_all(subject);
}

void kinds_in(const std::vector<LayerSpec>& layers, std::set<std::string>& kinds) {
  for (const LayerSpec& layer : layers) {
    kinds.insert(layer.kind);
    for (const auto& branch : layer.branches) kinds_in(branch, kinds);
  }
}

TEST(KindGradients, CoverEveryKindOfLayer) {
  std::set<std::string> covered;
  for (const KindCase& one : kind_cases()) kinds_in(one.layers, covered);
  for (const LayerKind& kind : layer_kinds()) EXPECT_TRUE(covered.contains(std::string(kind.name))) << kind.name;
}

std::string as_test_name(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Zoo, KindGradients, testing::ValuesIn(kind_cases()),
                         [](const auto& one) { return as_test_name(one.param.name); });
std::vector<std::string> ids() {
  std::vector<std::string> ids;
  for (const Subject& subject : subjects()) ids.push_back(subject.id());
  return ids;
}

INSTANTIATE_TEST_SUITE_P(Zoo, Gradients, testing::ValuesIn(ids()),
                         [](const auto& one) { return as_test_name(one.param); });

}  // namespace
}  // namespace halfmark::models
