// Names of changed policies, and layers that run under policies of their own.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

const std::string kResNet = "resnet/b4_s8_n1_w4";

std::map<std::string, DType> dtypes_in(Trial& trial) {
  std::map<std::string, DType> seen;
  trial.set_tap([&](const std::string& name, const Tensor& tensor) { seen[name] = tensor.dtype(); });
  trial.load_batch(0), trial.forward(), trial.backward();
  return seen;
}

// The output, the loss, the unscaled gradients and the parameters after a step.
std::vector<std::vector<double>> step_of(const TrialSpec& spec) {
  Trial trial(spec);
  trial.load_batch(0);
  std::vector<std::vector<double>> numbers = {trial.forward().values()};
  numbers.push_back({trial.loss()});
  trial.backward();
  numbers.push_back(trial.input_gradient());
  for (const Param* param : trial.params()) numbers.push_back(trial.gradient(*param));
  trial.update();
  for (const Param* param : trial.params()) numbers.push_back(param->value.values());
  for (const State* state : trial.states()) numbers.push_back(state->value.values());
  return numbers;
}

TEST(PolicyText, GivesTheShortestNameAndTheSamePolicyEachTime) {
  EXPECT_EQ(policy_named("amp-fp16+scaler=torch").name, "amp-fp16");
  EXPECT_EQ(policy_named("amp-fp16+rules=torch-cuda+scaler=torch:65536").name, "amp-fp16");
  const Policy& changed = policy_named("amp-fp16+scaler=static:128+rules=torch-cpu");
  EXPECT_EQ(changed.name, "amp-fp16+rules=torch-cpu+scaler=static");
  EXPECT_EQ(&changed, &policy_named(changed.name));
  EXPECT_EQ(changed.scaler.initial, 128);
  EXPECT_EQ(changed.rules->name, "torch-cpu");
  EXPECT_EQ(changed.base, &policy_named("amp-fp16"));
  EXPECT_EQ(place_of(changed), place_of(policy_named("amp-fp16")));
  const char* layers = "fp16+precision=conv3=fp32,block*.bn=fp16-bn32";
  EXPECT_EQ(policy_named(layers).name, layers);
}

TEST(PolicyText, SaysWhatDoesNotFit) {
  const std::pair<const char*, const char*> table[] = {
      {"fp17", "did you mean fp16"},
      {"fp16+", "'' is not rules=RULES"},
      {"fp16+scale=2", "'scale=2' is not rules=RULES, scaler=SCALER or precision"},
      {"fp16+scaler=a+scaler=b", "unknown loss scaler 'a'"},
      {"fp16+scaler=none+scaler=none", "has two parts scaler"},
      {"fp16+rules=keras", "casts nothing, so it takes no cast rules; amp-fp16 does"},
      {"amp-fp16+rules=kears", "did you mean keras"},
      {"fp16+precision=", "is not LAYER=POLICY"},
      {"fp16+precision=fc=fp32,", "is not LAYER=POLICY"},
      {"fp16+precision==fp32", "is not LAYER=POLICY"},
      {"fp16+precision=a/b=fp32", "no slash"},
      {"fp16+precision=fc=fp32=fp16", "unknown policy 'fp32=fp16'"},
  };
  for (const auto& [text, wanted] : table) try {
      policy_named(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << text << ": " << error.what();
    }
}

TEST(LayerPolicies, AllInFp32AreFp32BitForBit) {
  for (const std::string& subject : {std::string(kSmallMlp), kResNet, std::string("gpt/b2_t8_n1_h2_d16_v27"),
                                     std::string("lstm_classifier/b4_t8_n1_e8_h8_v64_o4"),
                                     std::string("erfnet/b2_s16x32_n1_w4_o4"), std::string("detector/b2_s64")}) {
    const auto wanted = step_of(test_spec(subject, "fp32"));
    EXPECT_EQ(step_of(test_spec(subject, "fp16+precision=*=fp32")), wanted) << subject;
    EXPECT_EQ(step_of(test_spec(subject, "bf16+precision=*=fp32")), wanted) << subject;
    EXPECT_EQ(step_of(test_spec(subject, "amp-fp16+scaler=none+precision=*=fp32")), wanted) << subject;
    EXPECT_NE(step_of(test_spec(subject, "fp16")), wanted) << subject << ": the comparison sees fp16";
  }
}

TEST(LayerPolicies, OfTheModelsOwnPolicyChangeNothing) {
  for (const char* policy : {"fp16", "amp-fp16", "bf16", "fp16-bn32", "fp16-master"})
    for (const std::string& subject : {std::string(kSmallMlp), kResNet, std::string("gpt/b2_t8_n1_h2_d16_v27")})
      EXPECT_EQ(step_of(test_spec(subject, std::string(policy) + "+precision=*=" + policy)),
                step_of(test_spec(subject, policy)))
          << subject << " " << policy;
}

TEST(LayerPolicies, GiveOneLayerItsParametersItsInputAndItsResult) {
  Trial trial(test_spec(kResNet, "fp16+precision=stage2.block1.conv1=fp32"));
  const std::map<std::string, DType> seen = dtypes_in(trial);
  const std::set<std::string> wide = {"activation/stage2.block1.conv1", "gradient/stage2.block1.conv1",
                                      "gradient/stage2.block1.conv1.weight", "gradient/input"};
  for (const auto& [name, dtype] : seen)
    EXPECT_EQ(dtype, wide.contains(name) ? DType::f32 : DType::f16) << name << " is " << name_of(dtype);
  for (const std::string& name : wide) EXPECT_TRUE(seen.contains(name)) << name;
  for (const Param* param : trial.params())
    EXPECT_EQ(param->value.dtype(), param->name == "stage2.block1.conv1.weight" ? DType::f32 : DType::f16)
        << param->name;
}

TEST(LayerPolicies, OfPatternsTheLastOneThatMatchesCounts) {
  const Policy& policy = policy_named("fp16+precision=*=fp32,stage*.bn*=bf16,stage1.block1.bn1=fp16-bn32");
  EXPECT_EQ(policy_of_layer(policy, "conv1").name, "fp32");
  EXPECT_EQ(policy_of_layer(policy, "stage2.block1.bn1").name, "bf16");
  EXPECT_EQ(policy_of_layer(policy, "stage1.block1.bn1").name, "fp16-bn32");
  EXPECT_EQ(&policy_of_layer(policy_named("fp16"), "conv1"), &policy_named("fp16"));
}

// A loss of sums beyond 65504: in fp16 it is infinite, with the loss alone in fp32 it is not.
TEST(LayerPolicies, CoverTheLoss) {
  TrialSpec half = test_spec("mlp/b32_i16_h24_o10", "fp16");
  half.settings.input_scale = 3e3;
  TrialSpec wide = half;
  wide.policy = &policy_named("fp16+precision=loss=fp32");
  Trial trial(wide);
  const std::map<std::string, DType> seen = dtypes_in(trial);
  EXPECT_EQ(seen.at("activation/loss"), DType::f32);
  EXPECT_EQ(seen.at("activation/fc2"), DType::f16);
  EXPECT_EQ(seen.at("gradient/fc2"), DType::f16);
}

// Else the layer would run as under amp-bf16, beside the name of a recipe.
TEST(LayerPolicies, OfRecipesAreForLayersThatAreQuantised) {
  const std::pair<const char*, const char*> table[] = {
      {"mlp/b8_i16_h24_o10 amp-bf16+precision=fc1=mxfp8", ""},
      {"mlp/b8_i16_h24_o10 fp16+precision=*=mxfp8", ""},
      {"mlp/b8_i16_h24_o10 fp16+precision=*=fp8-current,fc2=fp32", ""},
      {"mlp/b8_i16_h24_o10 fp16+precision=fc*=mxfp8,*=fp32",
       "of fc1, fc2, fc3 in mlp/b8_i16_h24_o10 it is given to none"},
      {"mlp/b8_i16_h24_o10 fp16+precision=loss=mxfp8", "policy mxfp8 of 'loss' quantises linear layers"},
      {"lstm/b2_t5_i6_h4 fp16+precision=*=nvfp4", "lstm/b2_t5_i6_h4 has none"}};
  for (const auto& [text, wanted] : table) {
    const std::string line = text;
    const size_t blank = line.find(' ');
    const auto what = unquantised_layer(policy_named(line.substr(blank + 1)), subject_named(line.substr(0, blank)));
    EXPECT_EQ(what.has_value(), *wanted != '\0') << text;
    EXPECT_NE(what.value_or("").find(wanted), std::string::npos) << what.value_or("");
  }
}

TEST(LayerPolicies, RefuseALayerThatTheModelLacks) {
  const std::pair<const char*, const char*> table[] = {
      {"fp16+precision=fc9=fp32", "has no layer with a policy of its own 'fc9'; did you mean fc1"},
      {"fp16+precision=zz*=fp32", "has no layer with a policy of its own like 'zz*'; it has fc1, "}};
  for (const auto& [text, wanted] : table) try {
      Trial trial(test_spec(kSmallMlp, text));
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
    }
}

// The parameters of the recipes after steps, against those of the policy and settings that they stand for.
TEST(Recipes, AreThePoliciesAndSettingsThatTheyStandFor) {
  const auto after = [](TrialSpec spec) {
    Trial trial(spec);
    for (int64_t step = 0; step < 5; ++step) trial.train_step(step);
    return codes_of(trial);
  };
  TrialSpec stochastic = test_spec(kSmallMlp, "bf16"), kahan = stochastic;
  stochastic.settings.optimizer.storage = Storage::stochastic, kahan.settings.optimizer.storage = Storage::kahan;
  EXPECT_EQ(after(test_spec(kSmallMlp, "bf16-sr")), after(stochastic));
  EXPECT_EQ(after(test_spec(kSmallMlp, "bf16-kahan")), after(kahan));
  EXPECT_NE(after(test_spec(kSmallMlp, "bf16-sr")), after(test_spec(kSmallMlp, "bf16")));
  EXPECT_NE(after(test_spec(kSmallMlp, "bf16-kahan")), after(test_spec(kSmallMlp, "bf16")));
  EXPECT_EQ(after(test_spec(kSmallConvnet, "apex-o2")), after(test_spec(kSmallConvnet, "fp16-master")));
  EXPECT_EQ(after(test_spec(kSmallConvnet, "cpu-amp-fp16")), after(test_spec(kSmallConvnet, "amp-fp16")))
      << "the lists differ in norms of rows, softmax and upsampling, which a convnet lacks";
}

}  // namespace
}  // namespace halfmark::models
