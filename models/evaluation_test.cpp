// Tests of evaluation on held-out samples, drawn and of files, and of the batches of files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/data_kinds.h"
#include "models/files/data_set.h"
#include "models/trial.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

TEST(Evaluation, UnderAnotherPolicyChangesNothing) {
  Trial trial(test_spec(kSmallConvnet, "amp-fp16"));
  for (int64_t step = 0; step < 3; ++step) trial.train_step(step);
  const auto before = codes_of(trial);
  const Evaluation own = trial.evaluate(12), again = trial.evaluate(12);
  EXPECT_EQ(own.loss, again.loss);
  const Evaluation exact = trial.evaluate(12, &policy_named("fp64")),
                   single = trial.evaluate(12, &policy_named("fp32"));
  const Evaluation half = trial.evaluate(12, &policy_named("fp16"));
  EXPECT_EQ(codes_of(trial), before);
  EXPECT_NEAR(single.loss, exact.loss, 1e-5 * exact.loss);
  EXPECT_NE(single.loss, exact.loss);
  EXPECT_NEAR(half.loss, exact.loss, 0.02 * exact.loss);
  EXPECT_NE(half.loss, single.loss);
}

// Points that are computed from their number, from `first` on.
class CountedPoints : public DataSet {
 public:
  CountedPoints(int64_t first, int64_t count) : first_(first), count_(count) {}
  const DataFacts& facts() const override { return facts_; }
  Needs needs(DataKind, const Shape&) const override { return {}; }
  int64_t samples(Split, const Shape&) const override { return count_; }
  void sample(Split, int64_t index, const Shape& input, double* x, double* labels) const override {
    const auto number = static_cast<uint64_t>(first_ + index);
    for (int64_t i = 0; i < input[1]; ++i) x[i] = RandomKey(number).normal(static_cast<uint64_t>(i));
    labels[0] = static_cast<double>(number % 10);
  }

 private:
  int64_t first_, count_;
  DataFacts facts_;
};

// Street scenes of two kinds in turn: dark ones with a label at one pixel only, bright ones with a label at every pixel.
class TwoKindsOfStreets : public DataSet {
 public:
  TwoKindsOfStreets(int64_t dark, int64_t bright, int64_t label) : dark_(dark), bright_(bright), label_(label) {}
  const DataFacts& facts() const override { return facts_; }
  Needs needs(DataKind, const Shape&) const override { return {}; }
  int64_t samples(Split, const Shape&) const override { return dark_ + bright_; }
  void sample(Split, int64_t index, const Shape& input, double* x, double* labels) const override {
    const bool is_dark = index < dark_;
    const int64_t pixels = input[2] * input[3];
    for (int64_t i = 0; i < input[1] * pixels; ++i)
      x[i] = (is_dark ? -2 : 2) + 0.5 * RandomKey(9).normal(static_cast<uint64_t>(i));
    for (int64_t i = 0; i < pixels; ++i) labels[i] = static_cast<double>(is_dark && i > 0 ? kUnlabelled : label_);
  }

 private:
  int64_t dark_, bright_, label_;
  DataFacts facts_;
};

// 257 samples are evaluated as 256 and 1; the batches have different numbers of labelled pixels.
TEST(Evaluation, CountsAllLabelledPixelsAlike) {
  const auto accuracy = [](int64_t dark, int64_t bright, int64_t label) {
    TrialSpec spec = test_spec("erfnet/b2_s16x24_n1_w4_o4", "fp32");
    spec.data = std::make_shared<TwoKindsOfStreets>(dark, bright, label);
    return Trial(spec).evaluate(dark + bright).accuracy;
  };
  bool differ = false;
  for (int64_t label = 0; label < 4; ++label) {
    const double dark = accuracy(1, 0, label), bright = accuracy(0, 1, label);
    if (std::fabs(dark - bright) < 0.1) continue;
    differ = true;
    constexpr double kPixels = 16 * 24, kDark = 129, kBright = 128;
    EXPECT_NEAR(accuracy(129, 128, label), (kDark * dark + kBright * kPixels * bright) / (kDark + kBright * kPixels),
                1e-12)
        << "label " << label;
  }
  EXPECT_TRUE(differ) << "the test needs a model that does not answer both kinds alike";
}

TEST(BatchSource, ReadsAheadTheNumbersThatItReadsOtherwise) {
  const auto inputs = [](bool ahead) {
    TrialSpec spec = test_spec("mlp/b2_i4_h4_o10", "fp32");
    spec.data = std::make_shared<CountedPoints>(0, 20);
    spec.settings.input_scale = 3, spec.settings.input_offset = 0.25;
    Trial trial(spec);
    if (ahead) trial.read_ahead();
    std::vector<double> all;
    for (const int64_t step : {0, 1, 2, 7}) {
      trial.load_batch(step);
      const std::vector<double> x = trial.input().values();
      all.insert(all.end(), x.begin(), x.end());
    }
    return all;
  };
  EXPECT_EQ(inputs(true), inputs(false));
}

// 300 samples are evaluated as 256 and 44.
TEST(Evaluation, IsTheMeanOverAllSamplesWhateverTheBatches) {
  const auto evaluated = [](int64_t first, int64_t count) {
    TrialSpec spec = test_spec("mlp/b2_i4_h4_o10", "fp64");
    spec.data = std::make_shared<CountedPoints>(first, count);
    return Trial(spec).evaluate(count);
  };
  double loss = 0, right = 0;
  for (int64_t i = 0; i < 300; ++i) {
    const Evaluation one = evaluated(i, 1);
    loss += one.loss, right += one.accuracy;
  }
  const Evaluation all = evaluated(0, 300);
  EXPECT_EQ(all.samples, 300);
  EXPECT_NEAR(all.loss, loss / 300, 1e-12 * loss);
  EXPECT_NEAR(all.accuracy, right / 300, 1e-12);
  EXPECT_GT(right, 0);
}

TEST(Evaluation, TakesAsManyHeldOutSamplesAsAskedFor) {
  Trial trial(test_spec(kSmallMlp, "fp32"));
  // 300 samples are more than one batch of the evaluation, and the last batch is smaller.
  const Evaluation first = trial.evaluate(300), again = trial.evaluate(300), fewer = trial.evaluate(256);
  EXPECT_EQ(first.samples, 300);
  EXPECT_EQ(first.loss, again.loss);
  EXPECT_NEAR(first.accuracy * 300, std::round(first.accuracy * 300), 1e-9);
  const Evaluation single = Trial(test_spec(kSmallMlp, "fp32", 2)).evaluate(300);
  EXPECT_NE(first.loss, single.loss) << "other seeds have other samples";
  EXPECT_NE(first.loss, fewer.loss);
  EXPECT_NEAR(first.loss, fewer.loss, 0.2) << "the first 256 are the same";
  EXPECT_THROW(Trial(test_spec("linear/b8_i32_o16", "fp32")).evaluate(8), Error);
}

TEST(Evaluation, HasAStandardErrorEvenIfAllOrNoneAreRight) {
  EXPECT_NEAR((Evaluation{.accuracy = 0.5, .samples = 1024}.accuracy_error()), 0.5 / 32, 1e-9);
  const double all = Evaluation{.accuracy = 1, .samples = 1024}.accuracy_error();
  const double none = Evaluation{.accuracy = 0, .samples = 1024}.accuracy_error();
  EXPECT_NEAR(all, 1.0 / 1025, 1e-4);
  EXPECT_NEAR(all, none, 1e-15);
}

}  // namespace
}  // namespace halfmark::models
