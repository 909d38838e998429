// Models that people know have the published numbers of parameters and multiply-adds, and the shape of their output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/data.h"
#include "models/detector.h"
#include "models/network/network.h"
#include "models/trial_testing.h"
#include "models/zoo.h"

namespace halfmark::models {
namespace {

struct Published {
  const char* id;  // with a batch of one
  int64_t parameters, multiply_adds;
  Shape output;
};

// Counted with PyTorch 2.15.0 and its hooks (multiply-adds of convolutions, linear layers and attention in forward) for the
// models of torchvision 0.29.2 (ResNet-50), timm 1.0.31 (Xception), erfnet_pytorch d4a46fa, nanoGPT 3adf61e and
// transformers' BERT-base, and for the modules written out in their papers (LeNet-5, ResNet-20).
const Published kPublished[] = {
    {"lenet5/b1_c1_s28", 61'706, 416'520, {1, 10}},
    {"lenet5/b1_c3_s32", 62'006, 651'720, {1, 10}},
    {"resnet/b1_s32", 272'474, 40'813'184, {1, 10}},  // ResNet-20 with option B
    {"resnet50/b1_s224", 25'557'032, 4'089'184'256, {1, 1000}},
    {"xception/b1_s299", 22'855'952, 8'357'403'496, {1, 1000}},
    {"erfnet/b1_s512x1024", 2'064'256, 26'612'727'808, {1, 20, 512, 1024}},
    {"gpt/b1_t1024_n12_h12_d768_v50304", 124'475'904, 145'861'115'904, {1, 1024, 50304}},
    {"gpt/b1_t256_n6_h6_d384_v65", 10'770'816, 3'026'288'640, {1, 256, 65}},
    // BERT-base with a pooler and two classes has 109,483,778, of which 2 x 768 are the embedding of segments and 384 x 768
    // positions beyond 128.
    {"bert/b1_t128_n12_h12_d768_v30522", 109'483'778 - 2 * 768 - 384 * 768, 11'174'217'216, {1, 2}},
    {"lstm_classifier/b1_t100_n2_e128_h256_v10000", 2'202'114, 91'750'912, {1, 2}},
    {"speech/b1_f40_t100_h64", 101'515, 5'011'200, {1, 50, 11}},
    {"detector/b1_s64", 25'269, 2'081'856, {1, 252, 7}},  // counted with PyTorch for the same modules written out
};

// The same modules at the sizes that suites train, counted likewise. ResNet-8, a ResNet-50 with one bottleneck in each stage,
// and the others with small widths.
const Published kReduced[] = {
    {"resnet/b1_s32_n1_w8", 19'954, 3'170'624 + 2 * 32'768, {1, 10}},  // option A, and its two shortcuts of 1 x 1
    {"resnet50/b1_s32_n1_w8_o10", 130'002, 7'105'024, {1, 10}},
    {"gpt/b1_t64_n2_h4_d64_v64", 108'288, 7'602'176, {1, 64, 64}},
    {"bert/b1_t32_n2_h4_d64_v64_o4", 110'788 - 2 * 64, 3'412'224, {1, 4}},  // less the embedding of segments
    {"lstm_classifier/b1_t32_n1_e32_h64_v64_o4", 27'396, 786'688, {1, 4}},
    {"speech/b1_f16_t64_h32", 25'419, 792'576, {1, 32, 11}},
};

class PublishedModels : public testing::TestWithParam<Published> {};

TEST_P(PublishedModels, HaveThePublishedCounts) {
  const Published& one = GetParam();
  const Subject& subject = subject_named(one.id);
  const std::vector<LayerFacts> layers = layer_facts(*subject.network, subject.input);
  int64_t parameters = 0;
  double flops = 0;
  for (const LayerFacts& layer : layers) parameters += layer.parameters, flops += layer.forward_flops;
  EXPECT_EQ(parameters, one.parameters);
  EXPECT_EQ(flops, 2.0 * static_cast<double>(one.multiply_adds));
  EXPECT_EQ(layers.back().output, one.output);
  EXPECT_NO_THROW(check_output(subject.data, subject.input, subject.classes, layers.back().output));
}

std::string test_name(const testing::TestParamInfo<Published>& one) {
  std::string name = one.param.id;
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Zoo, PublishedModels, testing::ValuesIn(kPublished), test_name);
INSTANTIATE_TEST_SUITE_P(Reduced, PublishedModels, testing::ValuesIn(kReduced), test_name);

// A block of BERT-base has 7,087,872 parameters and 931,135,488 multiply-adds for 128 tokens.
TEST(PublishedModels, ABlockOfBertHasThePublishedCounts) {
  const auto counts_of = [](const char* id) {
    const Subject& subject = subject_named(id);
    int64_t parameters = 0;
    double flops = 0;
    for (const LayerFacts& layer : layer_facts(*subject.network, subject.input))
      parameters += layer.parameters, flops += layer.forward_flops;
    return std::pair(parameters, flops);
  };
  const auto one = counts_of("bert/b1_t128_n1_h12_d768_v64"), two = counts_of("bert/b1_t128_n2_h12_d768_v64");
  EXPECT_EQ(two.first - one.first, 7'087'872);
  EXPECT_EQ(two.second - one.second, 2 * 931'135'488.0);
}

// Of torchvision 0.29.2: retinanet_resnet50_fpn has 4,248,115 parameters in head.classification_head (91 classes) and
// 2,443,300 in head.regression_head. A second level runs the same head again.
TEST(PublishedModels, TheHeadOfRetinanetHasThePublishedParameters) {
  Network net{published::retinanet_head("3", "3", 256, 4, 9, 91)};
  int64_t scores = 0, boxes = 0;
  for (const LayerFacts& layer : layer_facts(net, {1, 256, 4, 6}))
    (layer.layer->name.starts_with("scores") ? scores : boxes) += layer.parameters;
  EXPECT_EQ(scores, 4'248'115);
  EXPECT_EQ(boxes, 2'443'300);
  EXPECT_EQ(output_shape(net, {1, 256, 4, 6}), Shape({1, 216, 95}));
  net.layers.insert(net.layers.begin(), {"side", "coarse", {}, {published::retinanet_head("4", "4", 256, 4, 9, 91)}});
  net.layers[1] = published::retinanet_head("3", "4", 256, 4, 9, 91)[0];
  net.layers.push_back({"join", "levels", {{"of", std::string("coarse")}, {"how", std::string("concat")}}});
  int64_t all = 0;
  for (const LayerFacts& layer : layer_facts(net, {1, 256, 4, 6})) all += layer.parameters;
  EXPECT_EQ(all, 4'248'115 + 2'443'300);
}

// The stages of ResNet-50 (torchvision 0.29.2), which a wrong bottleneck could keep in sum.
TEST(PublishedModels, TheStagesOfResnet50HaveTheirParameters) {
  const Subject& subject = subject_named("resnet50/b1_s224");
  std::vector<int64_t> stages(4);
  for (const LayerFacts& layer : layer_facts(*subject.network, subject.input))
    if (layer.layer->name.starts_with("stage"))
      stages[static_cast<size_t>(layer.layer->name[5] - '1')] += layer.parameters;
  EXPECT_EQ(stages, (std::vector<int64_t>{215'808, 1'219'584, 7'098'368, 14'964'736}));
}

// f(layer) for all layers in their order, those of branches before the one that joins them.
void each_layer(const std::vector<LayerSpec>& layers, const auto& f) {
  for (const LayerSpec& layer : layers) {
    for (const auto& branch : layer.branches) each_layer(branch, f);
    f(layer);
  }
}
const std::vector<LayerSpec>& layers_of(const char* id) { return subject_named(id).network->layers; }

// erfnet_pytorch d4a46fa, erfnet.py.
TEST(PublishedModels, ErfnetHasItsEpsilonDropoutAndDilations) {
  std::vector<double> dropped;
  std::vector<Extent> dilations;
  each_layer(layers_of("erfnet/b1_s512x1024"), [&](const LayerSpec& layer) {
    if (layer.kind == "batchnorm2d") {
      EXPECT_EQ(std::get<double>(layer.arguments.at("epsilon")), 1e-3) << layer.name;
    }
    if (layer.kind == "dropout") {
      dropped.push_back(std::get<double>(layer.arguments.at("p")));
      EXPECT_TRUE(std::get<bool>(layer.arguments.at("channels"))) << layer.name;
    }
    if (layer.kind == "conv2d" && layer.name.starts_with("encoder2"))
      dilations.push_back(std::get<Extent>(layer.arguments.at("dilation")));
  });
  EXPECT_EQ(dropped, (std::vector<double>{0.03, 0.03, 0.03, 0.03, 0.03, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3}));
  std::vector<Extent> wanted;  // the second pair of each block is dilated
  for (int i = 0; i < 2; ++i)
    for (const int64_t d : {2, 4, 8, 16}) wanted.insert(wanted.end(), {{1, 1}, {1, 1}, {d, 1}, {1, d}});
  ASSERT_EQ(dilations.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(dilations[i].h, wanted[i].h) << i;
    EXPECT_EQ(dilations[i].w, wanted[i].w) << i;
  }
}

// google-research/bert, modeling.py: epsilon 1e-12 of every norm, dropout 0.1, no mask of later tokens.
TEST(PublishedModels, BertHasItsEpsilonAndDropout) {
  int norms = 0, dropouts = 0;
  each_layer(layers_of("bert/b1_t128_n12_h12_d768_v30522"), [&](const LayerSpec& layer) {
    if (layer.kind == "layer_norm") {
      ++norms;
      EXPECT_EQ(std::get<double>(layer.arguments.at("epsilon")), 1e-12) << layer.name;
    }
    if (layer.kind == "dropout") {
      ++dropouts;
      EXPECT_EQ(std::get<double>(layer.arguments.at("p")), 0.1) << layer.name;
    }
  });
  EXPECT_EQ(norms, 1 + 2 * 12);
  EXPECT_EQ(dropouts, 1 + 2 * 12);
}

// Places of the output that change with token `place` of eight.
std::vector<int> places_that_depend_on(const char* id, size_t place) {
  Trial trial(test_spec(id, "fp64"));
  trial.load_batch(0);
  const std::vector<double> before = trial.infer().values();
  Tensor tokens = trial.input();
  std::vector<double> values = tokens.values();
  values[place] = values[place] == 0 ? 1 : values[place] - 1;
  tokens.set_values(values);
  const std::vector<double> after = trial.infer().values();
  std::vector<int> places;
  const size_t width = before.size() / 8;
  for (size_t t = 0; t < 8; ++t)
    if (!std::equal(before.begin() + static_cast<std::ptrdiff_t>(t * width),
                    before.begin() + static_cast<std::ptrdiff_t>((t + 1) * width),
                    after.begin() + static_cast<std::ptrdiff_t>(t * width)))
      places.push_back(static_cast<int>(t));
  return places;
}

TEST(PublishedModels, GptSeesNoLaterToken) {
  EXPECT_EQ(places_that_depend_on("gpt/b1_t8_n2_h2_d16_v27", 7), (std::vector<int>{7}));
  EXPECT_EQ(places_that_depend_on("gpt/b1_t8_n2_h2_d16_v27", 3), (std::vector<int>{3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace halfmark::models
