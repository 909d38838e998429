// Who holds how many bytes, counted by hand (amp_semantics.md section 7): parameters p, batch b, widths i, h, h, o of an MLP.
#include <gtest/gtest.h>

#include "models/trial_testing.h"

namespace halfmark {
namespace {

constexpr size_t kB = 32, kI = 64, kH = 128, kO = 10;
constexpr size_t kWeights = kI * kH + kH * kH + kH * kO, kParams = kWeights + kH + kH + kO;

size_t live(Purpose purpose) { return test_device()->memory().live().by_purpose[static_cast<size_t>(purpose)]; }

struct Expected {
  const char* policy;
  size_t param, saved, casts, low;  // bytes of a parameter; of all that is saved, cast and passing
};

TEST(Memory, IsCountedByPurpose) {
  // Saved: the outputs of both relus, and the probabilities; under autocast the cast of the input as well. The input itself, where
  // no cast is needed, stays `input`.
  const Expected table[] = {
      {"fp32", 4, 4 * kB * (kH + kH + kO), 0, 4},
      {"fp16", 2, 2 * kB * (kH + kH + kO), 0, 2},
      {"amp-fp16", 4, 2 * kB * (kI + kH + kH) + 4 * kB * kO, 2 * kWeights, 2},
      {"amp-bf16", 4, 2 * kB * (kI + kH + kH) + 4 * kB * kO, 2 * kWeights, 2},
  };
  for (const Expected& expected : table) {
    ASSERT_EQ(test_device()->memory().live().total, 0u) << "another test left something";
    Trial trial(test_spec(kMlp, expected.policy));
    EXPECT_EQ(live(Purpose::weights), expected.param * kParams) << expected.policy;
    trial.load_batch(0);
    EXPECT_EQ(live(Purpose::input), expected.param * kB * kI + 4 * kB) << expected.policy;
    trial.forward();
    EXPECT_EQ(live(Purpose::saved), expected.saved) << expected.policy;
    EXPECT_EQ(live(Purpose::casts), expected.casts) << expected.policy << ": of weights, as long as backward needs them";
    trial.backward();
    EXPECT_EQ(live(Purpose::saved), 0u) << expected.policy;
    EXPECT_EQ(live(Purpose::casts), 0u) << expected.policy;
    EXPECT_EQ(live(Purpose::gradients), expected.param * kParams) << expected.policy;
    EXPECT_EQ(live(Purpose::optimizer), 0u) << expected.policy;
    trial.update();
    EXPECT_EQ(live(Purpose::optimizer), expected.param * kParams) << expected.policy;
    trial.train_step(1);
    EXPECT_EQ(live(Purpose::gradients), expected.param * kParams) << expected.policy << ": a second step needs no more";
    const MemoryUse& now = test_device()->memory().live();
    size_t sum = 0;
    for (const size_t bytes : now.by_purpose) sum += bytes;
    EXPECT_EQ(sum, now.total);
  }
  EXPECT_EQ(test_device()->memory().live().total, 0u);
}

TEST(Memory, KeepsHalfTheActivationsOfAConvnetUnderAmp) {
  const auto saved = [](const char* policy) {
    Trial trial(test_spec(kConvnet, policy));
    trial.load_batch(0), trial.forward();
    return static_cast<double>(live(Purpose::saved));
  };
  const double single = saved("fp32"), half = saved("amp-fp16");
  // Indices of the pool, statistics, probabilities and the cast of the input keep it above one half.
  EXPECT_GT(half / single, 0.5);
  EXPECT_LT(half / single, 0.6);
}

TEST(Memory, OfAnOracleIsNotOnTheTrialsLedger) {
  const TrialSpec spec = test_spec(kMlp, "fp32");
  Trial oracle(spec.oracle(Inputs::drawn));
  oracle.train_step(0);
  EXPECT_EQ(test_device()->memory().live().total, 0u);
}

TEST(Memory, OfAMasterCopyIsALineOfItsOwn) {
  Policy master = policy_named("fp16");
  master.master = true;
  TrialSpec spec = test_spec(kMlp, "fp16");
  spec.policy = &master;
  Trial trial(spec);
  EXPECT_EQ(live(Purpose::weights), 2 * kParams);
  EXPECT_EQ(live(Purpose::master), 4 * kParams);
}

}  // namespace
}  // namespace halfmark
