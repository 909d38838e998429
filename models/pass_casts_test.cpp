// Casts of all parameters, and of all gradients, as one operation each (Pass::fuses), beside casts one by one: on the CPU, and on a
// GPU if there is one.
#include "models/pass_casts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/recorded_step.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr const char* kGpt = "gpt/b2_t8_n2_h2_d16_v27";  // the output layer has the weight of the embedding
constexpr const char* kResnet = "resnet50/b2_s16_n1_w2_o10";

// A layer that runs twice, so that the gradients of its parameters are added; one whose forward is computed again.
Subject shared_and_recomputed() {
  const LayerSpec twice{"linear", "twice", {{"out", int64_t{16}}}};
  Subject subject =
      subject_of_network({8, 16}, DataKind::normal, 0,
                         Network{{twice,
                                  {"relu", "between", {}},
                                  {"again", "second", {{"of", std::string("twice")}}},
                                  {"checkpoint",
                                   "later",
                                   {},
                                   {{{"linear", "a", {{"out", int64_t{16}}}}, {"linear", "b", {{"out", int64_t{8}}}}}}},
                                  {"batchnorm1d", "norm", {}},
                                  {"linear", "last", {{"out", int64_t{8}}}}}});
  subject.name = "shared", subject.sizes = "b8";
  return subject;
}

class PassCasts : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (const kernels::DeviceRow& row : kernels::known_devices())
      if (row.name == GetParam() && row.absent.empty()) device_ = open_device(row.name);
    if (!device_) GTEST_SKIP() << "there is no " << GetParam();
  }
  TrialSpec spec(const Subject& subject, std::string_view policy) const {
    TrialSpec own = test_spec(kSmallMlp, policy);
    own.subject = &subject;
    own.device = device_;
    own.settings.fused = true;
    own.settings.scaler = own.policy->scaler;
    own.settings.scaler->initial = 256;  // overflows only where a test makes it
    return own;
  }
  TrialSpec spec(const std::string& subject, std::string_view policy) const {
    return spec(subject_named(subject), policy);
  }
  std::shared_ptr<Device> device_;
};

// The same arithmetic with casts one by one: each use casts its weight, and a tap sees each gradient when it is there.
Trial one_by_one(TrialSpec spec) {
  spec.settings.cast_cache = false;
  Trial trial(spec);
  trial.set_tap([](const std::string&, const Tensor&) {});
  return trial;
}

struct CastCalls {
  uint64_t single = 0, lists = 0, bytes = 0;
};
CastCalls casts_of(const KernelLog& log, std::string_view phase) {
  CastCalls counts;
  for (const LoggedKernel& one : log.entries()) {
    if (one.phase != phase || (one.operation != Cast::name && one.operation != CastTensors::name)) continue;
    (one.operation == Cast::name ? counts.single : counts.lists) += one.calls;
    counts.bytes += one.read + one.written;
  }
  return counts;
}

std::vector<std::vector<unsigned char>> gradients_of(Trial& trial) {
  std::vector<std::vector<unsigned char>> all;
  for (const Param* param : trial.params()) all.push_back(param->grad.codes());
  return all;
}

// Where the loss scale is dynamic, steps 1 and 3 overflow and are skipped: steps 2 and 4 have the parameters of the step before,
// step 5 again those of an update.
void expect_the_bits_of_casts_one_by_one(const TrialSpec& spec) {
  const std::string what = spec.subject->id() + " " + std::string(spec.policy->name);
  Trial listed(spec), single = one_by_one(spec);
  const bool overflows = listed.scaler().is_dynamic() && !row_of(spec.subject->data).has_indices;
  for (int64_t step = 0; step < 6; ++step) {
    const bool skipped = overflows && (step == 1 || step == 3);
    for (Trial* trial : {&listed, &single}) {
      trial->load_batch(step);
      if (skipped) trial->input().fill(std::numeric_limits<double>::infinity());
      trial->forward(), trial->backward();
    }
    EXPECT_EQ(gradients_of(listed), gradients_of(single)) << what << " " << step;
    const auto before = codes_of(listed);
    EXPECT_EQ(listed.update(), !skipped) << what << " " << step;
    EXPECT_EQ(single.update(), !skipped) << what << " " << step;
    EXPECT_EQ(codes_of(listed) == before, skipped) << what << " " << step;
    EXPECT_EQ(codes_of(listed), codes_of(single)) << what << " " << step;
  }
}

TEST_P(PassCasts, HaveTheBitsOfCastsOneByOneInEveryStep) {
  const Subject shared = shared_and_recomputed();
  for (const Subject* subject : {&subject_named(kGpt), &subject_named("resnet/b2_s8_n1_w4"), &subject_named(kSmallMlp),
                                 &subject_named("lstm/b3_t4_i5_h6"), &shared})
    for (const char* policy : {"amp-bf16", "amp-fp16", "apex-o1", "keras-mixed-float16", "fp16-master", "fp32"})
      expect_the_bits_of_casts_one_by_one(spec(*subject, policy));
  for (const char* policy : {"fp8-delayed", "mxfp8", "amp-fp16+precision=fc1=fp32", "amp-bf16+precision=fc2=amp-fp16"})
    expect_the_bits_of_casts_one_by_one(spec(kSmallMlp, policy));
}

struct CountedCasts {
  CastCalls forward, backward;
};
CountedCasts casts_of_step(Trial& trial) {
  const KernelLog log;
  trial.forward(), trial.backward(), trial.update();
  return {casts_of(log, "forward"), casts_of(log, "backward")};
}

// What is left one by one are the casts of activations and of their gradients: of GPT in each block the gradients
// before its two branches; of ResNet the images and their gradient. Rows of a CPU
// for fp16 have casts of their own in backward.
TEST_P(PassCasts, AreOneOperationInForwardAndOneInBackward) {
  struct ExpectedCasts {
    const char* subject;
    uint64_t parameters, forward, backward;
  };
  for (const ExpectedCasts& expected : {ExpectedCasts{kGpt, 17, 0, 4}, ExpectedCasts{kResnet, 19, 1, 1}})
    for (const std::string policy : {"amp-bf16", "amp-fp16"}) {
      const std::string what = std::string(expected.subject) + " " + policy;
      Trial trial(spec(expected.subject, policy));
      trial.load_batch(0);
      const CountedCasts first = casts_of_step(trial);
      EXPECT_EQ(first.forward.lists, 0u) << what << ": nothing is known before the first";
      EXPECT_EQ(first.forward.single, expected.forward + expected.parameters) << what;
      for (int step = 1; step < 4; ++step) {
        const CountedCasts later = casts_of_step(trial);
        EXPECT_EQ(later.forward.lists, 1u) << what;
        EXPECT_EQ(later.backward.lists, 1u) << what;
        EXPECT_EQ(later.forward.single, expected.forward) << what;
        if (policy == "amp-bf16" || device_->name() != "cpu") {
          EXPECT_EQ(later.backward.single, expected.backward) << what;
        }
        // Nothing is cast that the pass does not read, and nothing twice.
        EXPECT_EQ(later.forward.bytes, first.forward.bytes) << what;
        EXPECT_EQ(later.backward.bytes, first.backward.bytes) << what;
      }
    }
}

TEST_P(PassCasts, AreOneByOneInAPassThatDoesNotFuseOrKeepsNoCasts) {
  TrialSpec separate = spec(kGpt, "amp-bf16"), uncached = separate;
  separate.settings.fused = false, uncached.settings.cast_cache = false;
  for (const TrialSpec& one : {separate, uncached}) {
    Trial trial(one);
    trial.load_batch(0);
    for (int step = 0; step < 3; ++step) {
      const CountedCasts counts = casts_of_step(trial);
      EXPECT_EQ(counts.forward.lists, 0u);
      EXPECT_GE(counts.forward.single, 17u);
      EXPECT_EQ(counts.backward.lists, one.settings.fused ? 1u : 0u);
    }
  }
}

// Each cast that is not a launch of its own is a kernel less in the recorded step.
TEST_P(PassCasts, AreOneKernelOfARecordedStep) {
  if (device_->name() == "cpu") GTEST_SKIP() << "a CPU records no steps";
  for (const auto& [subject, parameters] : {std::pair<const char*, uint64_t>{kGpt, 17}, {kResnet, 19}}) {
    TrialSpec uncached = spec(subject, "amp-bf16");
    uncached.settings.cast_cache = false;
    Trial listed(spec(subject, "amp-bf16")), single(uncached), tapped(uncached);
    tapped.set_tap([](const std::string&, const Tensor&) {});
    for (Trial* trial : {&listed, &single, &tapped}) trial->load_batch(0);
    const uint64_t kernels = RecordedStep(listed).counts().kernels;
    EXPECT_EQ(RecordedStep(single).counts().kernels, kernels + parameters - 1) << subject;
    EXPECT_EQ(RecordedStep(tapped).counts().kernels, kernels + 2 * (parameters - 1)) << subject;
  }
}

// Evaluation reads other casts than training: a mode has its own list.
TEST_P(PassCasts, OfInferenceAreOneOperation) {
  Trial trial(spec(kGpt, "amp-bf16"));
  trial.load_batch(0);
  const Tensor first = trial.infer();
  trial.forward(), trial.backward();
  EXPECT_TRUE(trial.update());
  const KernelLog log;
  const Tensor later = trial.infer();
  EXPECT_EQ(casts_of(log, "evaluation").lists, 1u);
  EXPECT_EQ(casts_of(log, "evaluation").single, 0u);
  EXPECT_NE(later.codes(), first.codes()) << "the weights have changed";
  trial.set_training(false);
  EXPECT_EQ(trial.forward().codes(), later.codes());
}

TEST_P(PassCasts, OfWhatIsComputedAgainAreOneOperationForEachCheckpoint) {
  const Subject shared = shared_and_recomputed();
  Trial trial(spec(shared, "amp-bf16"));
  trial.load_batch(0);
  const CountedCasts first = casts_of_step(trial), second = casts_of_step(trial);
  EXPECT_EQ(second.forward.lists, 1u);
  EXPECT_EQ(second.forward.bytes, first.forward.bytes) << "also of the layer that runs twice";
  // Of the parameters of the checkpoint; of gradients before those of the layer that runs twice are added, and after that.
  EXPECT_EQ(first.backward.lists, 1u);
  EXPECT_EQ(second.backward.lists, 2u);
  EXPECT_EQ(second.backward.single + 4, first.backward.single);
  EXPECT_EQ(second.backward.bytes, first.backward.bytes);
  Trial uncached = one_by_one(spec(shared, "amp-bf16"));
  uncached.load_batch(0);
  casts_of_step(uncached);
  EXPECT_EQ(casts_of_step(uncached).backward.lists, 0u) << "a checkpoint of a pass that keeps no casts keeps none";
}

TEST_P(PassCasts, OfGradientsAreMadeBeforeATapSeesThem) {
  Trial trial(spec(kGpt, "amp-bf16"));
  std::map<std::string, std::vector<unsigned char>> seen;
  trial.load_batch(0);
  trial.set_tap([&](const std::string& name, const Tensor& tensor) { seen[name] = tensor.codes(); });
  const KernelLog log;
  trial.forward(), trial.backward();
  EXPECT_EQ(casts_of(log, "backward").lists, 0u);
  for (const Param* param : trial.params())
    EXPECT_EQ(seen.at("gradient/" + param->name), param->grad.codes()) << param->name;
}

// With the casts of gradients one by one the peak is at least that without the 16-bit gradients.
TEST_P(PassCasts, OfGradientsTakeNoMoreMemoryThanTheGradientsIn16Bits) {
  const auto peak_of = [&](bool taps, size_t& gradients) {
    Trial trial(spec(kResnet, "amp-bf16"));
    if (taps) trial.set_tap([](const std::string&, const Tensor&) {});
    trial.load_batch(0);
    casts_of_step(trial);
    device_->memory().reset_peak();
    casts_of_step(trial);
    gradients = 0;
    for (const Param* param : trial.params()) gradients += static_cast<size_t>(param->grad.elements()) * 2;
    return device_->memory().tensor_peak().total;
  };
  size_t gradients = 0;
  const size_t listed = peak_of(false, gradients), single = peak_of(true, gradients);
  EXPECT_LE(listed, single + gradients);
}

TEST_P(PassCasts, OfGradientsRunWhenTheyHaveWaitedLongEnough) {
  constexpr auto kHalf = static_cast<int64_t>(GradientCasts::kMostBytes / 4);  // elements of half the bytes
  const Tensor computed = Tensor::zeros(*device_, {kHalf}, DType::bf16);
  Tensor gradients[3];
  for (Tensor& gradient : gradients) {
    gradient = Tensor(*device_, {kHalf}, DType::f32);
    gradient.fill(1);
  }
  const auto is_zero = [&](int i) { return gradients[i].slice(kHalf - 1, 1).values()[0] == 0; };
  {
    GradientCasts casts;
    casts.add(computed, gradients[0], true);
    EXPECT_FALSE(is_zero(0));
    casts.add(computed, gradients[1], false);
    EXPECT_TRUE(is_zero(0) && is_zero(1));
    casts.add(computed, gradients[2], false);
    EXPECT_FALSE(is_zero(2));
  }
  EXPECT_TRUE(is_zero(2));
  gradients[2].fill(1);
  const Tensor few = Tensor::zeros(*device_, {3}, DType::bf16);
  Tensor fresh(*device_, {3}, DType::f32);
  EXPECT_THROW(
      {
        GradientCasts casts;
        casts.add(computed, gradients[0], true);
        casts.add(computed, gradients[1], true);  // they have run
        casts.add(computed, gradients[2], false);
        casts.add(few, fresh, true);
        throw Error("another operation has failed");
      },
      Error);
  EXPECT_FALSE(is_zero(2));
  EXPECT_TRUE(fresh.empty()) << "it has got no values";
  EXPECT_TRUE(is_zero(0) && is_zero(1)) << "these have got theirs";
  Tensor other_shape(*device_, {3}, DType::f32);
  fresh = Tensor(*device_, {3}, DType::f32);
  EXPECT_THROW(
      {
        GradientCasts casts;
        casts.add(computed, other_shape, false);
        casts.add(few, fresh, true);
      },
      Error)
      << "what fails at the end reaches the caller";
  EXPECT_FALSE(other_shape.empty());
  EXPECT_TRUE(fresh.empty());
}

// The gradient of `later` waits for its cast when the layer in front of it fails.
TEST_P(PassCasts, LeaveNoGradientWithoutValuesIfABackwardFails) {
  const Policy& policy = policy_named("amp-bf16");
  for (const bool fuses : {true, false}) {
    const Init init{*device_, policy, RandomKey(3)};
    const LayerPtr later = linear(init, "later", 8, 8);
    Param first = init.param("first", {8}, DType::f32, std::vector<double>(8, 1.0));
    Pass setting(*device_, policy, true);
    Saved saved;
    later->forward(setting, Tensor::zeros(*device_, {2, 8}, DType::f32), &saved);
    EXPECT_THROW(
        {
          Pass pass(*device_, policy, true);
          pass.fuses = fuses;
          later->backward(pass, Tensor::zeros(*device_, {2, 8}, DType::bf16), saved);
          pass.gradient(first, DType::f32, [](Tensor&) { throw Error("an operation has failed"); });
        },
        Error);
    EXPECT_TRUE(first.grad.empty());
    for (const Param* param : later->params()) {
      EXPECT_EQ(param->grad.empty(), fuses) << param->name;
      if (!param->grad.empty()) {
        EXPECT_EQ(param->grad.values(), std::vector<double>(static_cast<size_t>(param->grad.elements()), 0.0));
      }
    }
  }
}

TEST_P(PassCasts, LeaveTheGradientsOfTheStepBeforeIfABackwardFails) {
  const Policy& policy = policy_named("amp-bf16");
  const Init init{*device_, policy, RandomKey(3)};
  const LayerPtr later = linear(init, "later", 8, 8);
  Param first = init.param("first", {8}, DType::f32, std::vector<double>(8, 1.0));
  const auto backward = [&](double slope, bool fails) {
    Pass pass(*device_, policy, true);
    pass.fuses = true;
    Saved saved;
    Tensor x(*device_, {2, 8}, DType::f32), dy(*device_, {2, 8}, DType::bf16);
    x.fill(1), dy.fill(slope);
    later->forward(pass, x, &saved);
    later->backward(pass, dy, saved);
    pass.gradient(first, DType::f32, [&](Tensor& gradient) {
      if (fails) throw Error("an operation has failed");
      gradient.fill(slope);
    });
  };
  backward(1, false);
  EXPECT_THROW(backward(2, true), Error);
  EXPECT_EQ(first.grad.values(), std::vector<double>(8, 1.0));
  for (const Param* param : later->params())
    EXPECT_EQ(param->grad.values(), std::vector<double>(static_cast<size_t>(param->grad.elements()), 2.0));
}

// A pass that counts casts makes each by itself: the second knows what the first has asked for.
TEST_P(PassCasts, AreCountedInEveryPassAlike) {
  Trial trial(spec(kGpt, "amp-bf16"));
  trial.load_batch(0);
  casts_of_step(trial), casts_of_step(trial);
  const auto values_of = [&](CastCounts& counts) {
    std::map<std::string, double> values;
    for (const CastCounts::Row& row : counts.rows())
      values[std::string(name_of(row.kind)) + " " + std::string(name_of(row.from))] = row.values;
    return values;
  };
  std::map<std::string, double> seen[2];
  for (auto& values : seen) {
    CastCounts counts;
    trial.set_cast_counts(&counts);
    trial.forward(), trial.backward();
    values = values_of(counts);
    const Tensor evaluated = trial.infer();
    EXPECT_EQ(values_of(counts), values) << "inference is not counted";
  }
  trial.set_cast_counts(nullptr);
  EXPECT_EQ(seen[0], seen[1]);
  double gradients = 0;
  for (const Param* param : trial.params())
    if (param->grad.dtype() == DType::f32) gradients += static_cast<double>(param->value.elements());
  EXPECT_GT(seen[0]["weights f32"], 0);
  EXPECT_GT(gradients, 0);
}

TEST(ParameterCast, OfALargeTensorIsMadeByItself) {
  EXPECT_TRUE(is_cast_with_others(Tensor(*test_device(), {int64_t{1} << 22}, DType::e4m3)));
  EXPECT_FALSE(is_cast_with_others(Tensor(*test_device(), {(int64_t{1} << 22) + 1}, DType::e4m3)));
}

INSTANTIATE_TEST_SUITE_P(On, PassCasts, testing::Values("cpu", "cuda:0"),
                         [](const auto& device) { return std::string(device.param).substr(0, 4); });

}  // namespace
}  // namespace halfmark::models
