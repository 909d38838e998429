// The memory that is predicted from the description of a subject, compared with what a trial allocates.
#include "models/memory_prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/layers/loss.h"
#include "models/network/layer_kinds.h"
#include "models/optimizer.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr double kWithin = 0.01;

// A second step of a trial on a device of its own. The scale of the loss stays, so that no step is skipped.
struct Measured {
  size_t saved;
  MemoryUse peak;

  Measured(const Subject& subject, const Policy& policy, Settings settings) {
    TrialSpec spec;
    spec.subject = &subject, spec.policy = &policy, spec.seed = 1;
    spec.device = open_device("cpu");
    spec.settings = settings;
    MemoryLedger& ledger = spec.device->memory();
    Trial trial(spec);
    trial.train_step(0);
    ledger.reset_peak();
    trial.load_batch(1);
    trial.forward();
    saved = ledger.live().by_purpose[static_cast<size_t>(Purpose::saved)];
    trial.backward();
    trial.update();
    peak = ledger.tensor_peak();
  }
};

Settings with_fixed_scale(const Subject& subject, const Policy& policy) {
  Settings settings = subject.settings;
  settings.scaler = policy.scaler;
  if (policy.scaler.kind == ScalerSpec::Kind::dynamic) settings.scaler->kind = ScalerSpec::Kind::fixed;
  return settings;
}

std::string words_of(const MemoryUse& use) {
  std::string words = std::to_string(use.total) + ":";
  for (size_t i = 0; i < kPurposes; ++i)
    if (use.by_purpose[i])
      words += " " + std::string(name_of(static_cast<Purpose>(i))) + " " + std::to_string(use.by_purpose[i]);
  return words;
}

void expect_near(size_t predicted, size_t measured, const std::string& what) {
  const double difference = std::abs(static_cast<double>(predicted) - static_cast<double>(measured));
  EXPECT_LE(difference, kWithin * static_cast<double>(measured))
      << what << ": predicted " << predicted << ", measured " << measured;
}

void compare(const Subject& subject, const Policy& policy, const Settings& settings) {
  const MemoryPrediction predicted = predict_memory(subject, policy, settings);
  const Measured measured(subject, policy, settings);
  const std::string what = subject.id() + " " + std::string(policy.name);
  SCOPED_TRACE("predicted " + words_of(predicted.peak) + "\nmeasured " + words_of(measured.peak));
  expect_near(predicted.peak.total, measured.peak.total, what + " in all");
  expect_near(predicted.saved, measured.saved, what + " saved");
  for (const Purpose exact :
       {Purpose::weights, Purpose::master, Purpose::gradients, Purpose::optimizer, Purpose::state, Purpose::input})
    EXPECT_EQ(predicted.peak.by_purpose[static_cast<size_t>(exact)],
              measured.peak.by_purpose[static_cast<size_t>(exact)])
        << what << ": " << name_of(exact);
}

TEST(MemoryPrediction, CountsIndicesOf64BitsAndTheirConversion) {
  for (const char* id :
       {"mlp/b32_i64_h128_o10", "gpt/b8_t32_n2_h2_d32_v27", "lstm_classifier/b16_t16_n1_e32_h32_v64_o4",
        "speech/b16_f16_t32_h32", "erfnet/b4_s32x64_n1_w4_o4", "detector/b16_s64"})
    for (const char* policy : {"fp32", "amp-fp16"}) {
      const Subject& subject = subject_named(id);
      Settings settings = with_fixed_scale(subject, policy_named(policy));
      settings.indices = IndexType::i64;
      compare(subject, policy_named(policy), settings);
    }
}

double forward_flops(const Subject& subject) {
  double flops = 0;
  for (const LayerFacts& facts : layer_facts(*subject.network, subject.input)) flops += facts.forward_flops;
  return flops;
}

constexpr size_t kCommonPolicies = 9;  // the first rows of the table

TEST(MemoryPrediction, AgreesWithEverySmallSubjectUnderEveryPolicy) {
  int compared = 0;
  for (const Subject& subject : subjects()) {
    // The others have the same layers; the harness memory compares them too.
    if (subject.input.elements() > 10'000 || forward_flops(subject) > 2e7) continue;
    for (const Policy& policy : policies()) {
      // The recipes of single frameworks have the casts and the storage of others.
      const bool is_common = place_of(policy) < kCommonPolicies;
      if (!is_common && subject.input.elements() > 1000) continue;
      compare(subject, policy, with_fixed_scale(subject, policy)), ++compared;
    }
  }
  EXPECT_GT(compared, 200);
}

// Layouts and blocks of a library are as in large models.
TEST(MemoryPrediction, AgreesWithLargerSubjects) {
  for (const char* id :
       {"conv2d/b16_c64_o64_s28_k3", "batchnorm2d/b16_c64_s28", "groupnorm/b16_c64_s28_g8", "convnet/b16_c3_s16_w16",
        "resnet/b8_s16_n1_w8", "erfnet/b1_s64x128_n1_w8_o4", "xception/b2_s32_n1_w8_o10", "gpt/b4_t64_n2_h4_d64_v64",
        "bert/b8_t32_n2_h4_d64_v64_o4", "detector/b4_s64"})
    for (const char* policy : {"fp32", "amp-bf16"}) {
      const Subject& subject = subject_named(id);
      compare(subject, policy_named(policy), with_fixed_scale(subject, policy_named(policy)));
    }
}

int64_t whole(int64_t value) { return value; }

// Kinds and forms of layers that no small subject of the list has.
TEST(MemoryPrediction, AgreesWithEveryKindOfLayer) {
  const Shape image{4, 8, 12, 10}, sequence{4, 6, 12};
  const auto conv = [](const char* name, int64_t out) {
    return LayerSpec{"conv2d", name, {{"out", out}, {"kernel", int64_t{3}}, {"padding", int64_t{1}}}};
  };
  const LayerSpec silu{"silu", "silu"}, last_silu{"silu", "last_silu"};
  const LayerSpec pool{"global_avg_pool2d", "pool"}, flat{"flatten", "flat"},
      head{"linear", "head", {{"out", int64_t{10}}}};
  LayerSpec normalised = conv("conv", 16);
  normalised.arguments["weight_norm"] = true;
  const LayerSpec side{"side", "side", {}, {{conv("a", 8), silu}}};
  const auto joined = [](const char* how) {
    return LayerSpec{"join", "join", {{"of", std::string("side")}, {"how", std::string(how)}}};
  };
  const auto masked = [](bool fused, std::optional<double> value) {
    LayerSpec layer{"self_attention",
                    "attention",
                    {{"heads", whole(2)}, {"fused", fused}, {"lengths", std::vector<double>{20, 32}}}};
    if (value) layer.arguments["mask_value"] = *value;
    return layer;
  };
  struct Form {
    Shape input;
    std::vector<LayerSpec> layers;
    DataKind data = DataKind::normal;
    int64_t classes = 0;
  };
  const Form forms[] = {
      {image, {conv("conv1", 16), {"batchnorm2d", "bn", {{"frozen", true}}}, {"relu", "relu"}, conv("conv2", 8)}},
      {image, {conv("conv1", 16), {"batchnorm2d", "bn", {{"affine", false}}}, silu, conv("conv2", 8)}},
      {{64, 48}, {{"linear", "fc1", {{"out", whole(32)}, {"bias", false}}}, {"batchnorm1d", "bn"}, silu}},
      {{4, 8, 3, 6, 5}, {{"batchnorm3d", "bn"}, silu}},
      {image, {conv("conv1", 16), {"dropout", "drop", {{"channels", true}}}, conv("conv2", 16), {"dropout", "drop2"}}},
      {image, {{"concat", "joined", {}, {{silu}, {}, {conv("conv", 16)}}}, last_silu}},
      {sequence, {{"concat", "joined", {}, {{{"softmax", "softmax"}}, {}, {silu}}}, last_silu}},
      {image, {conv("conv", 16), {"add", "sum", {}, {{conv("a", 16), silu}, {conv("b", 16)}}}, last_silu}},
      {sequence, {{"layer_norm", "norm"}, {"add", "sum", {}, {{{"softmax", "softmax"}}, {}}}, silu}},
      {image, {conv("conv", 16), {"checkpoint", "again", {}, {{conv("a", 32), silu, conv("b", 16)}}}, last_silu}},
      {sequence, {{"self_attention", "attention", {{"heads", whole(2)}, {"fused", false}}}}},
      {{4, 24, 48}, {{"linear", "qkv", {{"out", whole(48)}}}, {"self_attention", "attention", {{"heads", whole(2)}}}}},
      {{2, 32, 12}, {{"self_attention", "attention", {{"heads", whole(2)}, {"fused", false}}}, silu}},
      // What is kept is released before the gradient of q, k and v gets the dtype of the sum.
      {{2, 8, 96},
       {{"position_embedding", "place", {{"length", whole(8)}}},
        {"self_attention", "attention", {{"heads", whole(32)}}}}},
      {sequence, {{"lstm", "lstm", {{"hidden", whole(16)}, {"bidirectional", true}}}, {"take_step", "last"}}},
      {sequence, {{"position_embedding", "place", {{"length", whole(9)}}}, silu}},
      {image, {{"to_sequence", "sequence"}, {"lstm", "lstm", {{"hidden", whole(8)}}}}},
      {{16, 24},
       {{"linear", "fc", {{"out", whole(32)}, {"weight_norm", true}}}, silu, {"linear", "fc2", {{"out", whole(8)}}}}},
      {image, {normalised, silu, conv("conv2", 8)}},
      {{16, 40}, {{"lstm_cell", "cell", {{"hidden", whole(12)}}}, silu}},
      {image, {conv("conv", 8), side, conv("middle", 8), joined("add"), last_silu}},
      {image, {conv("conv", 8), side, conv("middle", 8), joined("concat"), last_silu}},
      {image, {conv("conv", 8), silu, {"again", "twice", {{"of", std::string("conv")}}}, last_silu}},
      {{2, 36, 6, 5}, {conv("conv", 36), {"to_anchors", "anchors", {{"anchors", whole(9)}}}, silu}},
      {image, {conv("conv", 8), {"upsample_nearest2d", "large", {{"scale", whole(2)}}}, {"leaky_relu", "leaky"}}},
      {image, {conv("conv", 8), {"channel_shuffle", "shuffle", {{"groups", whole(2)}}}, conv("conv2", 8)}},
      {sequence,
       {{"concat", "joined", {{"axis", std::string("last")}}, {{{"softmax", "softmax"}}, {silu}}}, last_silu}},
      {{2, 32, 12}, {masked(true, {}), silu}},
      {{2, 32, 12}, {masked(false, -1e4), silu}},
      {{2, 512, 6}, {masked(true, -1e4)}},  // a mask that is large beside the features
      {{8, 6},
       {{"embedding", "words", {{"entries", whole(64)}, {"features", whole(24)}}},
        {"position_embedding", "places", {{"length", whole(6)}}},
        silu,
        {"tied_linear", "head", {{"weight_of", std::string("words")}}}},
       DataKind::text,
       64},
      // The input of a classifier is fp32 under cast rules: what the first layer casts, and what it does not.
      {image, {{"batchnorm2d", "bn"}, pool, flat, head}, DataKind::images, 10},
      {image, {pool, flat, head}, DataKind::images, 10},
      {image, {flat, head}, DataKind::images, 10},
      {image, {{"concat", "joined", {}, {{silu}, {}}}, pool, flat, head}, DataKind::images, 10},
      {image, {{"add", "sum", {}, {{silu}, {}}}, pool, flat, head}, DataKind::images, 10},
      {image, {side, {"dropout", "drop"}, joined("concat"), pool, flat, head}, DataKind::images, 10},
      // A weight that two layers share, large beside everything else: the second gradient waits to be added to the first.
      {{1, 2},
       {{"embedding", "words", {{"entries", whole(4096)}, {"features", whole(64)}}},
        {"tied_linear", "head", {{"weight_of", std::string("words")}}}},
       DataKind::text,
       4096},
  };
  std::set<std::string_view> covered;
  const auto cover = [&](const auto& self, const std::vector<LayerSpec>& layers) -> void {
    for (const LayerSpec& layer : layers) {
      covered.insert(layer_kind_named(layer.kind).name);
      for (const std::vector<LayerSpec>& branch : layer.branches) self(self, branch);
    }
  };
  for (const Form& form : forms) {
    Subject subject = subject_of_network(form.input, form.data, form.classes, {form.layers});
    subject.name = form.layers[0].kind + "+" + form.layers.back().kind, subject.sizes = "form";
    cover(cover, form.layers);
    for (const char* policy : {"fp32", "fp16-bn32", "amp-fp16", "amp-bf16", "keras-mixed-float16", "apex-o2"})
      compare(subject, policy_named(policy), with_fixed_scale(subject, policy_named(policy)));
  }
  for (const Subject& subject : subjects())
    if (subject.input.elements() <= 10'000) cover(cover, subject.network->layers);
  for (const LayerKind& kind : layer_kinds()) EXPECT_TRUE(covered.contains(kind.name)) << kind.name;
}

TEST(MemoryPrediction, AgreesWithEveryLoss) {
  for (const LossRow& row : loss_rows()) {
    Subject subject = subject_named(row.targets == TargetKind::sequences ? "speech/b2_f4_t16_h6"
                                    : row.targets == TargetKind::boxes   ? "detector/b2_s32_w4"
                                                                         : "mlp/b8_i16_h24_o10");
    subject.loss.kind = row.kind;
    if (row.kind == LossKind::cross_entropy) subject.loss.class_weights = std::vector<double>(10, 0.5);
    for (const char* name : {"fp32", "fp16", "amp-fp16", "amp-bf16"}) {
      const Policy& policy = policy_named(name);
      SCOPED_TRACE(row.name);
      if (policy.rules && policy.rules->of(row.name) == CastRule::refused)
        EXPECT_THROW((void)predict_memory(subject, policy), Unsupported);
      else
        compare(subject, policy, with_fixed_scale(subject, policy));
    }
  }
}

// Bytes of a parameter, counted by hand: weights, master copy, gradient, state of the optimizer.
TEST(MemoryPrediction, HasTheBytesOfAParameterThatAreKnownForEveryOptimizer) {
  struct Known {
    const char* policy;
    bool master;
    OptimizerKind optimizer;
    double momentum;
    Storage storage;
    size_t bytes;
  };
  using enum OptimizerKind;
  const Known table[] = {
      {"fp32", false, adam, 0, Storage::nearest, 16},
      {"fp32", false, sgd, 0.9, Storage::nearest, 12},
      {"fp32", false, sgd, 0, Storage::nearest, 8},
      {"amp-fp16", false, adamw, 0, Storage::nearest, 16},  // and copies of weights, which are counted apart
      {"fp16", true, adam, 0, Storage::nearest, 16},        // ZeRO's account: gradients in half
      {"fp16", true, sgd, 0.9, Storage::nearest, 12},
      {"bf16", false, adam, 0, Storage::nearest, 8},
      {"bf16", false, adam_keras, 0, Storage::kahan, 10},
      {"bf16", false, sgd, 0.9, Storage::nearest, 6},
      {"bf16", false, sgd, 0, Storage::nearest, 4},
  };
  const Subject& subject = subject_named("mlp/b8_i16_h24_o10");
  constexpr size_t kParameters = 16 * 24 + 24 + 24 * 24 + 24 + 24 * 10 + 10;
  for (const Known& known : table) {
    Policy policy = policy_named(known.policy);
    policy.master = known.master;
    Settings settings = with_fixed_scale(subject, policy);
    settings.momentum = known.momentum, settings.rate = 1e-3;
    settings.optimizer.kind = known.optimizer, settings.optimizer.storage = known.storage;
    size_t bytes = 0;
    const MemoryPrediction predicted = predict_memory(subject, policy, settings);
    for (const Purpose purpose : {Purpose::weights, Purpose::master, Purpose::gradients, Purpose::optimizer})
      bytes += predicted.peak.by_purpose[static_cast<size_t>(purpose)];
    EXPECT_EQ(bytes, known.bytes * kParameters) << known.policy << " " << row_of(known.optimizer).name;
    compare(subject, policy, settings);
  }
}

// Bytes of floating tensors that PyTorch 2.15.0 keeps for backward, without parameters, copies of weights and the input:
// torch.autograd.graph.saved_tensors_hooks around forward and cross-entropy of the networks of scripts/peers/torch_network.py,
// each storage once. amp-bf16: torch.autocast("cpu", torch.bfloat16), so with the lists for CPUs. It keeps in addition
// the number of labels (4 bytes); the input of a max pool, where nothing else needs it; and a factor for each channel that
// dropout may drop, where halfmark keeps a byte. Not in the numbers are the places of max pools, 64 bit there and a byte here.
TEST(MemoryPrediction, HasTheBytesThatPyTorchKeeps) {
  struct Known {
    const char* id;
    size_t fp32, amp_bf16;
    size_t places, pool_inputs, channels;  // entries of max pools' results, of such inputs, and of dropout
  };
  const Known table[] = {
      {"mlp/b32_i64_h128_o10", 34'052, 21'764, 0, 0, 0},
      {"resnet/b2_s32_n1_w8", 640'660, 333'332, 0, 0, 0},
      {"resnet50/b2_s64_n1_w8_o10", 736'788, 422'420, 4'096, 0, 0},
      {"xception/b2_s32_n1_w8_o10", 3'910'116, 1'979'364, 32'448, 129'792, 0},
      {"erfnet/b1_s64x128_n1_w8_o4", 2'298'756, 1'643'076, 14'336, 0, 160},
      {"gpt/b2_t32_n2_h4_d64_v64", 578'052, 340'484, 0, 0, 0},
  };
  Policy autocast = policy_named("amp-bf16");
  autocast.rules = &cast_rules_named("torch-cpu");
  for (const Known& known : table) {
    const auto expected = [&](size_t kept, size_t bytes_of_a_number) {
      return kept - 4 - bytes_of_a_number * (known.pool_inputs + known.channels) + known.channels + known.places;
    };
    const Subject& subject = subject_named(known.id);
    EXPECT_EQ(predict_memory(subject, policy_named("fp32")).saved, expected(known.fp32, 4)) << known.id;
    EXPECT_EQ(predict_memory(subject, autocast).saved, expected(known.amp_bf16, 2)) << known.id;
  }
}

// conv 3 -> 8, batch norm, ReLU, linear of 10 classes, b = 2, 4 x 4 pixels: kept are the results of the convolution (for
// batch norm), two statistics of 8 channels, and the ReLU's result, once although the linear layer needs it too.
TEST(MemoryPrediction, NamesWhatEachLayerKeeps) {
  Subject subject = subject_of_network({2, 3, 4, 4}, DataKind::images, 10,
                                       {{{"conv2d", "conv", {{"out", whole(8)}, {"kernel", whole(1)}}},
                                         {"batchnorm2d", "bn"},
                                         {"relu", "relu"},
                                         {"flatten", "flatten"},
                                         {"linear", "fc", {{"out", whole(10)}}}}});
  subject.name = "net", subject.sizes = "b2";
  const auto kept = [&](const char* policy) {
    std::vector<size_t> bytes;
    for (const KeptByLayer& layer : predict_memory(subject, policy_named(policy)).layers) bytes.push_back(layer.bytes);
    return bytes;
  };
  constexpr size_t kPixels = 2 * 4 * 4;
  EXPECT_EQ(kept("fp32"), (std::vector<size_t>{0, 4 * kPixels * 8 + 4 * 2 * 8, 4 * kPixels * 8, 0, 0}));
  // Under autocast the convolution keeps its copy of the input.
  EXPECT_EQ(kept("amp-fp16"),
            (std::vector<size_t>{2 * kPixels * 3, 2 * kPixels * 8 + 4 * 2 * 8, 2 * kPixels * 8, 0, 0}));
}

}  // namespace
}  // namespace halfmark::models
