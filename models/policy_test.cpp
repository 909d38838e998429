#include "models/policy.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

TEST(CastRules, MatchTorchAutocastOnCuda) {
  const CastRules& rules = cast_rules_named("torch-cuda");
  for (const char* lower : {"linear", "conv2d", "conv_transpose3d", "matmul", "prelu", "scaled_dot_product_attention"})
    EXPECT_EQ(rules.of(lower), CastRule::lower) << lower;
  for (const char* wide : {"layer_norm", "group_norm", "exp", "pow", "nll_loss", "mse_loss", "upsample_bilinear2d"})
    EXPECT_EQ(rules.of(wide), CastRule::fp32) << wide;
  for (const char* out : {"softmax", "log_softmax", "sum", "cumsum", "norm"})
    EXPECT_EQ(rules.of(out), CastRule::fp32_out) << out;
  for (const char* widest : {"addcmul", "dot", "scatter_add"}) EXPECT_EQ(rules.of(widest), CastRule::widest) << widest;
  EXPECT_EQ(rules.of("binary_cross_entropy"), CastRule::refused);
  EXPECT_EQ(rules.of("binary_cross_entropy_with_logits"), CastRule::fp32);
}

TEST(CastRules, LeaveUnlistedOperationsInTheDtypeOfTheirInput) {
  for (const char* plain : {"batch_norm", "relu", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "add", "cat",
                            "mean", "cross_entropy_loss", "", "conv", "fp32", "linear matmul"})
    EXPECT_EQ(cast_rules_named("torch-cuda").of(plain), CastRule::as_is) << plain;
}

TEST(CastRules, DifferBetweenCpuAndCuda) {
  const CastRules& cpu = cast_rules_named("torch-cpu");
  EXPECT_EQ(cpu.of("conv2d"), CastRule::lower);
  EXPECT_EQ(cpu.of("softmax"), CastRule::as_is);
  EXPECT_EQ(cpu.of("layer_norm"), CastRule::as_is);
  EXPECT_EQ(cpu.of("binary_cross_entropy"), CastRule::fp32);
  EXPECT_EQ(cpu.of("cross_entropy_loss"), CastRule::fp32);
  EXPECT_EQ(cpu.of("cat"), CastRule::widest);
}

// The operations for which the dispatcher of PyTorch 2.15.0 has a kernel of AutocastCUDA and of AutocastCPU, without
// their overloads, as torch._C._dispatch_get_registrations_for_dispatch_key lists them. On a CPU also cholesky and qr,
// which only older versions have.
constexpr size_t kCountOfTorchCuda = 113, kCountOfTorchCpu = 114 + 2;
// How many our lists have, so that none is lost: apex's of torch_overrides.py and functional_overrides.py, and for Keras all operations of the zoo
// that have a name in a framework.
constexpr size_t kCountOfApexO1 = 83, kCountOfKeras = 25;

TEST(CastRules, AreAsManyAsThoseOfTheFrameworksAndNameEachOperationOnce) {
  for (const auto& [name, count] : {std::pair{"torch-cuda", kCountOfTorchCuda},
                                    {"torch-cpu", kCountOfTorchCpu},
                                    {"apex-o1", kCountOfApexO1},
                                    {"keras", kCountOfKeras}}) {
    std::multiset<std::string> words;
    for (const CastRules::Group& group : cast_rules_named(name).groups) {
      std::istringstream text{std::string(group.operations)};
      for (std::string word; text >> word;) words.insert(word);
    }
    EXPECT_EQ(words.size(), count) << name;
    EXPECT_EQ(std::set<std::string>(words.begin(), words.end()).size(), count) << name;
  }
}

TEST(CastRules, KnowTheOperationsOfRecentVersions) {
  EXPECT_EQ(cast_rules_named("torch-cuda").of("_cudnn_rnn"), CastRule::lower);
  EXPECT_EQ(cast_rules_named("torch-cuda").of("rms_norm"), CastRule::fp32);
  for (const char* operation : {"gelu", "ctc_loss", "grid_sample"})  // apex/amp/lists/functional_overrides.py
    EXPECT_EQ(cast_rules_named("apex-o1").of(operation), CastRule::fp32) << operation;
  EXPECT_EQ(cast_rules_named("torch-cpu").of("rms_norm"), CastRule::as_is);
  for (const char* rules : {"torch-cuda", "torch-cpu"})
    EXPECT_EQ(cast_rules_named(rules).of("linalg_matrix_sqrth"), CastRule::fp32) << rules;
}

TEST(CastRules, ListTheKnownNamesWhenANameIsWrong) {
  try {
    cast_rules_named("torch-tpu");
    FAIL() << "an unknown name was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("torch-cuda, torch-cpu, apex-o1, keras, none"), std::string::npos)
        << error.what();
  }
}

// Everything that one training step leaves: output, loss, gradients, parameters, running statistics.
std::vector<std::vector<unsigned char>> codes_after_a_step(const TrialSpec& spec) {
  Trial trial(spec);
  trial.load_batch(0);
  std::vector<std::vector<unsigned char>> codes = {trial.forward().codes()};
  const double loss = trial.loss();
  trial.backward();
  const auto bytes = std::as_bytes(std::span(&loss, 1));
  codes.emplace_back(reinterpret_cast<const unsigned char*>(bytes.data()),
                     reinterpret_cast<const unsigned char*>(bytes.data()) + bytes.size());
  const std::vector<double> dx = trial.input_gradient();
  codes.emplace_back(reinterpret_cast<const unsigned char*>(dx.data()),
                     reinterpret_cast<const unsigned char*>(dx.data() + dx.size()));
  for (const Param* param : trial.params()) codes.push_back(param->grad.codes());
  trial.update();
  for (const Param* param : trial.params()) codes.push_back(param->value.codes());
  for (const State* state : trial.states()) codes.push_back(state->value.codes());
  return codes;
}

// The norms of rows run in f32 under the lists for CUDA and stay in the low dtype under those for CPUs.
// So do softmax, exp, square (pow), and upsampling, which a detector has.
TEST(Policies, GiveTheSameBitsUnderTheListsForCudaAndForCpusExceptInNormsOfRowsSoftmaxUpsamplingAndPowers) {
  std::set<std::string> different;
  for (const Subject& subject : subjects())
    for (const char* name : {"amp-fp16", "amp-bf16"}) {
      if (subject.input.elements() > 20000) continue;  // the large ones have the layers of the small ones
      const TrialSpec cuda = test_spec(subject.id(), name);
      Policy policy = policy_named(name);
      ASSERT_EQ(policy.rules->name, "torch-cuda");
      policy.rules = &cast_rules_named("torch-cpu");
      if (codes_after_a_step(cuda) != codes_after_a_step(cuda.under(policy))) different.insert(subject.name);
      policy.rules = nullptr;  // the comparison sees a difference: without autocast everything is f32
      const std::string layer = subject.id().substr(0, subject.id().find('/'));
      if (layer == "mlp" || layer == "convnet") {
        EXPECT_NE(codes_after_a_step(cuda), codes_after_a_step(cuda.under(policy))) << subject.id();
      }
    }
  EXPECT_EQ(different, (std::set<std::string>{"detector", "exp", "groupnorm", "layernorm", "rmsnorm", "softmax",
                                              "square", "upsample", "upsample_nearest"}));
}

TEST(Policies, AreFoundByName) {
  EXPECT_EQ(policy_named("fp64").param, DType::f64);
  EXPECT_EQ(policy_named("amp-fp16").scaler.initial, 65536);
  try {
    policy_named("fp12");
    FAIL() << "an unknown policy was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("amp-bf16"), std::string::npos);
  }
}

// The dtypes of the tensors of a step: activations and their gradients, tensors of the loss, parameter gradients.
struct TensorDTypes {
  DType activation, loss, gradient, norm_gradient, input;
  friend bool operator==(const TensorDTypes&, const TensorDTypes&) = default;
};

// Derived from the policy's row: autocast computes in the low dtype between f32 ends, everything else in its own dtypes. A
// gradient is at least as wide as its parameter.
TensorDTypes dtypes_of(const Policy& policy) {
  return {policy.low, policy.rules ? DType::f32 : policy.low, policy.grad, wider(policy.grad, policy.batch_norm),
          policy.param};
}

// The dtypes of each layer under PyTorch's autocast for CUDA and under apex, written out from their cast lists.
TEST(Policies, SayWhatTheFrameworksTableSays) {
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;
  const std::pair<const char*, TensorDTypes> table[] = {
      {"fp32", {f32, f32, f32, f32, f32}},        {"tf32", {f32, f32, f32, f32, f32}},
      {"fp16", {f16, f16, f16, f16, f16}},        {"fp16-bn32", {f16, f16, f16, f32, f16}},
      {"amp-fp16", {f16, f32, f32, f32, f32}},    {"bf16", {bf16, bf16, bf16, bf16, bf16}},
      {"fp16-master", {f16, f32, f32, f32, f16}}, {"bf16-master", {bf16, bf16, f32, f32, bf16}},
      {"amp-bf16", {bf16, f32, f32, f32, f32}},
  };
  for (const auto& [name, expected] : table) EXPECT_EQ(dtypes_of(policy_named(name)), expected) << name;
}

// Of FP16_Optimizer, O2 and O3 with keep_batchnorm_fp32: apex leaves torch.nn.modules.batchnorm._BatchNorm in float and
// converts every other module (apex/fp16_utils/fp16util.py, convert_network).
TEST(Policies, KeepBatchNormInFp32AndNoOtherNorm) {
  for (const char* policy : {"fp16-bn32", "fp16-master", "apex-o2"})
    for (const std::string subject : {"layernorm/b8_d16", "groupnorm/b4_c8_s4_g4", "rmsnorm/b8_d16",
                                      "gpt/b8_t32_n2_h2_d32_v27", "batchnorm2d/b4_c3_s4"}) {
      Trial trial(test_spec(subject, policy));
      for (const Param* param : trial.params())
        EXPECT_EQ(param->value.dtype(), subject.starts_with("batchnorm2d") ? DType::f32 : DType::f16)
            << policy << " " << subject << " " << param->name;
    }
}

// apex: `if isinstance(module, _BatchNorm) and module.affine is True: continue` (convert_network), and BN_convert_float with
// the same condition. The seed article's fp16-bn32 takes every batch norm.
TEST(Policies, StoreStatisticsOfABatchNormWithoutAffineAsTheFrameworkDoes) {
  for (const auto& [policy, expected] : {std::pair{"apex-o2", DType::f16},
                                         {"fp16-master", DType::f16},
                                         {"fp16-bn32", DType::f32},
                                         {"amp-fp16", DType::f32},
                                         {"apex-o3", DType::f16}}) {
    Subject subject =
        subject_of_network({4, 8, 6, 6}, DataKind::normal, 0,
                           Network{{{"batchnorm2d", "plain", {{"affine", false}}}, {"batchnorm2d", "usual"}}});
    subject.name = "network", subject.sizes = "b4";
    TrialSpec spec = test_spec(kSmallMlp, policy);
    spec.subject = &subject;
    Trial trial(spec);
    for (const State* state : trial.states()) {
      const bool is_plain = state->name.starts_with("plain");
      EXPECT_EQ(state->value.dtype(), is_plain ? expected : policy_named(policy).state) << policy << " " << state->name;
    }
    trial.load_batch(0), trial.forward(), trial.backward();
    EXPECT_TRUE(trial.update()) << policy;
  }
}

TEST(Policies, GiveEveryTensorItsDtype) {
  for (const Policy& policy : policies()) {
    const TensorDTypes expected = dtypes_of(policy);
    std::map<std::string, DType> seen;
    Trial trial(test_spec(kSmallConvnet, policy.name));
    trial.set_tap([&](const std::string& name, const Tensor& tensor) { seen[name] = tensor.dtype(); });
    trial.load_batch(0), trial.forward(), trial.backward();

    std::map<std::string, DType> wanted;
    for (const char* layer : {"conv1", "bn1", "relu1", "pool1", "conv2", "bn2", "relu2", "conv3", "bn3", "block",
                              "relu3", "conv4", "bn4", "relu4", "mean", "flatten", "fc"}) {
      wanted["activation/" + std::string(layer)] = expected.activation;
      wanted["gradient/" + std::string(layer)] = expected.activation;  // also at the cast before the loss
    }
    wanted["activation/log_probabilities"] = wanted["activation/loss"] = expected.loss;
    for (const Param* param : trial.params())
      wanted["gradient/" + param->name] = param->name.starts_with("bn") ? expected.norm_gradient : expected.gradient;
    wanted["gradient/input"] = expected.input;
    EXPECT_EQ(seen.size(), wanted.size()) << policy.name;
    for (const auto& [name, dtype] : wanted) {
      ASSERT_TRUE(seen.contains(name)) << policy.name << ": no tensor passed as " << name;
      EXPECT_EQ(seen[name], dtype) << policy.name << ": " << name << " is " << name_of(seen[name]);
    }
  }
}

// Keras's Layer.__call__ casts floating inputs to the compute dtype, also those of layers that compute in fp32 or only move
// numbers. Without it a layer before the first convolution or product would see fp32 numbers.
TEST(KerasMixedPrecision, CastsTheInputOfWhicheverLayerComesFirst) {
  const Shape image{4, 8, 6, 6};
  const LayerSpec silu{"silu", "silu"};
  const LayerSpec side{"side", "side", {}, {{{"dropout", "drop", {{"p", 0.0}}}}}};
  const auto joined = [](const char* how) {
    return LayerSpec{"join", "join", {{"of", std::string("side")}, {"how", std::string(how)}}};
  };
  const std::tuple<Shape, std::vector<LayerSpec>> forms[] = {
      {image, {{"batchnorm2d", "bn"}}},
      {image, {{"layer_norm", "norm"}}},
      {image, {{"rms_norm", "norm"}}},
      {image, {{"group_norm", "norm", {{"groups", int64_t{2}}}}}},
      {image, {{"flatten", "flat"}}},
      {image, {{"dropout", "drop"}}},
      {image, {{"to_sequence", "sequence"}}},
      {image, {{"channel_shuffle", "shuffle", {{"groups", int64_t{2}}}}}},
      {image, {{"concat", "joined", {}, {{silu}, {}}}}},
      {image, {{"add", "sum", {}, {{silu}, {}}}}},
      {image, {side, joined("add")}},
      {image, {side, joined("concat")}},
      {image, {{"checkpoint", "again", {}, {{{"batchnorm2d", "first"}}}}}},
  };
  for (const auto& form : forms) {
    const Shape& input = std::get<0>(form);
    const std::vector<LayerSpec>& layers = std::get<1>(form);
    std::vector<LayerSpec> all = layers;
    all.push_back({"flatten", "rows"}), all.push_back({"linear", "head", {{"out", int64_t{10}}}});
    Subject subject = subject_of_network(input, DataKind::images, 10, Network{all});
    subject.name = "network", subject.sizes = "b4";
    TrialSpec spec = test_spec(kSmallMlp, "keras-mixed-float16");
    spec.subject = &subject;
    const std::string what = layers.back().kind;
    std::vector<std::vector<double>> outputs;
    for (const bool rounds : {false, true}) {
      Trial trial(spec);
      trial.load_batch(0);
      Tensor x = trial.input();
      EXPECT_EQ(x.dtype(), DType::f32) << what;
      std::vector<double> values = x.values();
      if (rounds)
        for (double& value : values) value = round_to(kFp16, value);
      EXPECT_EQ(values == x.values(), !rounds) << what << ": drawn numbers are no fp16 numbers";
      x.set_values(values);
      trial.set_tap([&](const std::string& name, const Tensor& tensor) {
        if (name != "activation/" + layers.back().name && name != "activation/first") return;
        EXPECT_EQ(tensor.dtype(), DType::f16) << what;
        outputs.push_back(tensor.values());
      });
      trial.forward();
      DType of_gradient = DType::f64;
      trial.set_tap([&](const std::string& name, const Tensor& tensor) {
        if (name == "gradient/input") of_gradient = tensor.dtype();
      });
      trial.backward();
      EXPECT_EQ(of_gradient, DType::f32) << what << ": the backward of the cast";
      for (const Param* param : trial.params()) EXPECT_EQ(param->value.dtype(), DType::f32) << param->name;
    }
    ASSERT_EQ(outputs.size(), 2u) << what;
    EXPECT_EQ(outputs[0], outputs[1]) << what << ": the layer sees the input in fp16";
  }
}

TEST(Policies, KeepParametersAndStatisticsInTheirDtypes) {
  for (const Policy& policy : policies()) {
    Trial trial(test_spec(kSmallConvnet, policy.name));
    for (const Param* param : trial.params()) {
      EXPECT_EQ(param->value.dtype(), param->name.starts_with("bn") ? policy.batch_norm : policy.param) << param->name;
      const bool is_narrow = param->value.dtype() != DType::f32 && param->value.dtype() != DType::f64;
      EXPECT_EQ(!param->master.empty(), policy.master && is_narrow) << policy.name << " " << param->name;
    }
    for (const State* state : trial.states()) EXPECT_EQ(state->value.dtype(), policy.state) << state->name;
  }
}

}  // namespace
}  // namespace halfmark::models
