// Autocast's cache of cast weights: counts by hand, equal bits, and a stale cast as the control that bits can differ.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/trial_values.h"
#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

// x [8, 6] -> fc1 -> ReLU -> fc1 again -> ReLU -> fc1 a third time -> head.
const Subject& subject_with_a_weight_used_thrice() {
  static const Subject subject = [] {
    const auto again = [](const char* name) { return LayerSpec{"again", name, {{"of", std::string("fc1")}}}; };
    const auto linear = [](const char* name, int64_t out) { return LayerSpec{"linear", name, {{"out", out}}}; };
    Network network{{linear("fc1", 6),
                     {"relu", "relu1"},
                     again("fc1_second"),
                     {"relu", "relu2"},
                     again("fc1_third"),
                     linear("head", 3)}};
    Subject made = subject_of_network({8, 6}, DataKind::points, 3, std::move(network));
    made.name = "thrice", made.sizes = "b8";
    return made;
  }();
  return subject;
}

TrialSpec thrice(const char* policy) {
  TrialSpec spec = experiment_spec("mlp/b8_i16_h24_o10", policy);
  spec.subject = &subject_with_a_weight_used_thrice(), spec.settings = {};
  return spec;
}

// Casts of the input, of two weights and two biases; without the cache, of one weight and one bias twice more. The softmax's
// input and the rest stay as they are in both.
TEST(CastCache, SavesACastForEachFurtherUseOfAWeight) {
  for (const char* policy : {"amp-fp16", "amp-bf16"}) {
    const Findings found = findings_of(cast_cache_harness(), thrice(policy));
    EXPECT_EQ(number_at(found, "cast_cache.saved_casts"), 4) << policy;
    // 2 bytes for each of 6 6 and 3 6 numbers, which wait for backward; copies of biases end with the pass.
    EXPECT_EQ(number_at(found, "cast_cache.bytes", "on"), 2 * (36 + 18)) << policy;
    // Each use keeps a copy of its own.
    EXPECT_EQ(number_at(found, "cast_cache.bytes", "off"), 2 * (3 * 36 + 18)) << policy;
    for (const char* at : {"gradient", "parameter"})
      EXPECT_EQ(number_at(found, "cast_cache.different", at), 0) << policy << " " << at;
  }
}

TEST(CastCache, SavesNothingWhereEachWeightIsUsedOnce) {
  const Findings found = findings_of(cast_cache_harness(), experiment_spec("mlp/b8_i16_h24_o10", "amp-fp16"));
  EXPECT_EQ(number_at(found, "cast_cache.saved_casts"), 0);
  EXPECT_EQ(number_at(found, "cast_cache.casts", "on"), number_at(found, "cast_cache.casts", "off"));
}

// A cache that outlived the update would give other bits: a training whose passes see the weights of the first step does.
TEST(CastCache, OfAnEarlierStepWouldChangeTheBits) {
  const TrialSpec spec = thrice("amp-fp16");
  const auto trained = [&](bool is_stale) {
    Trial trial(spec);
    std::vector<std::vector<double>> first;
    for (const Param* param : trial.params()) first.push_back(param->value.values());
    for (int64_t step = 0; step < 3; ++step) {
      const ModelValues own = values_of(trial);
      if (is_stale)
        for (size_t i = 0; i < first.size(); ++i) trial.params()[i]->value.set_values(first[i]);
      trial.load_batch(step), trial.forward(), trial.backward();
      put_values(trial, own);
      trial.update();
    }
    return all_values(values_of(trial));
  };
  EXPECT_LT(share_of_equal_values(trained(true), trained(false)), 0.5);
}

TEST(CastCache, NeedsCastRules) {
  EXPECT_TRUE(refusal_of(cast_cache_harness(), experiment_spec("mlp/b8_i16_h24_o10", "fp16")));
}

}  // namespace
}  // namespace halfmark::accuracy
