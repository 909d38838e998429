// Bytes held per purpose, compared with a count by hand: parameters p, batch b, widths
// i, h, h, o of an MLP.
#include <gtest/gtest.h>

#include <memory>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

constexpr size_t kB = 32, kI = 64, kH = 128, kO = 10;
constexpr size_t kWeights = kI * kH + kH * kH + kH * kO, kParams = kWeights + kH + kH + kO;

// A separate device, so that its memory counters hold nothing else. The workspace that kernels keep between calls is
// not counted as memory of a model.
struct SeparateDevice {
  std::shared_ptr<Device> device = open_device("cpu");

  TrialSpec spec(const char* subject, const char* policy) const {
    TrialSpec spec = test_spec(subject, policy);
    spec.device = device;
    return spec;
  }
  size_t live(Purpose purpose) const { return device->memory().live().by_purpose[static_cast<size_t>(purpose)]; }
  size_t of_models() const {
    return device->memory().live().total - live(Purpose::workspace) - live(Purpose::emulation) - live(Purpose::padding);
  }
};

struct Expected {
  const char* policy;
  size_t param, saved, casts, low;  // bytes per parameter; total bytes saved; total bytes of casts; bytes per low value
};

TEST(Memory, IsCountedByPurpose) {
  // Saved are the outputs of both relus and the log probabilities; under autocast also the cast of the input. An input that
  // needs no cast keeps purpose `input`.
  const Expected table[] = {
      {"fp32", 4, 4 * kB * (kH + kH + kO), 0, 4},
      {"fp16", 2, 2 * kB * (kH + kH + kO), 0, 2},
      {"amp-fp16", 4, 2 * kB * (kI + kH + kH) + 4 * kB * kO, 2 * kWeights, 2},
      {"amp-bf16", 4, 2 * kB * (kI + kH + kH) + 4 * kB * kO, 2 * kWeights, 2},
  };
  const SeparateDevice separate;
  const auto live = [&](Purpose purpose) { return separate.live(purpose); };
  for (const Expected& expected : table) {
    ASSERT_EQ(separate.of_models(), 0u) << "the previous trial left memory allocated";
    Trial trial(separate.spec(kMlp, expected.policy));
    EXPECT_EQ(live(Purpose::weights), expected.param * kParams) << expected.policy;
    trial.load_batch(0);
    EXPECT_EQ(live(Purpose::input), expected.param * kB * kI + 4 * kB) << expected.policy;
    trial.forward();
    EXPECT_EQ(live(Purpose::saved), expected.saved) << expected.policy;
    EXPECT_EQ(live(Purpose::casts), expected.casts)
        << expected.policy << ": casts of weights, for as long as backward needs them";
    trial.backward();
    EXPECT_EQ(live(Purpose::saved), 0u) << expected.policy;
    EXPECT_EQ(live(Purpose::casts), 0u) << expected.policy;
    EXPECT_EQ(live(Purpose::gradients), expected.param * kParams) << expected.policy;
    EXPECT_EQ(live(Purpose::optimizer), 0u) << expected.policy;
    trial.update();
    EXPECT_EQ(live(Purpose::optimizer), expected.param * kParams) << expected.policy;
    trial.train_step(1);
    EXPECT_EQ(live(Purpose::gradients), expected.param * kParams) << expected.policy << ": a second step needs no more";
    const MemoryUse& now = separate.device->memory().live();
    size_t sum = 0;
    for (const size_t bytes : now.by_purpose) sum += bytes;
    EXPECT_EQ(sum, now.total);
  }
  EXPECT_EQ(separate.of_models(), 0u);
}

TEST(Memory, KeepsHalfTheActivationsOfAConvnetUnderAmp) {
  const auto saved = [](const char* policy) {
    const SeparateDevice separate;
    Trial trial(separate.spec(kConvnet, policy));
    trial.load_batch(0), trial.forward();
    return static_cast<double>(separate.live(Purpose::saved));
  };
  const double single = saved("fp32"), half = saved("amp-fp16");
  // Pooling indices, statistics, log probabilities and the cast of the input keep the ratio above one half.
  EXPECT_GT(half / single, 0.5);
  EXPECT_LT(half / single, 0.6);
}

TEST(Memory, OfTheReferenceIsNotCountedOnTheTrialsDevice) {
  const SeparateDevice separate;
  Trial oracle(separate.spec(kMlp, "fp32").oracle(Inputs::drawn));
  oracle.train_step(0);
  EXPECT_EQ(separate.device->memory().live().total, 0u);
}

TEST(Memory, DoesNotGrowOverAHundredSteps) {
  for (const char* subject : {kSmallMlp, kSmallConvnet, "gpt/b2_t8_n1_h2_d8_v27"})
    for (const char* policy : {"fp32", "amp-fp16"}) {
      const SeparateDevice separate;
      Trial trial(separate.spec(subject, policy));
      for (int step = 0; step < 30; ++step) trial.train_step(step);  // the loss scale settles
      const size_t before = separate.device->memory().live().total;
      for (int step = 0; step < 100; ++step) trial.train_step(step);
      EXPECT_EQ(separate.device->memory().live().total, before) << subject << " " << policy;
    }
}

TEST(Memory, OfAMasterCopyIsCountedSeparately) {
  const SeparateDevice separate;
  Trial trial(separate.spec(kMlp, "fp16-master"));
  EXPECT_EQ(separate.live(Purpose::weights), 2 * kParams);
  EXPECT_EQ(separate.live(Purpose::master), 4 * kParams);
}

}  // namespace
}  // namespace halfmark::models
