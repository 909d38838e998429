// Tests of the numbers of the fp64 reference: what they cover, and that they see rules which act only on special data.
#include "accuracy/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/oracle.h"
#include "kernels/devices.h"

namespace halfmark::accuracy {
namespace {

TrialSpec reference_spec(const std::string& subject, std::string_view policy = "fp32") {
  TrialSpec spec;
  spec.subject = &subject_named(subject);
  spec.device = open_device("cpu");
  spec.policy = &policy_named(policy);
  return spec;
}

using PlacedNumbers = std::map<std::pair<std::string, std::string>, double>;

PlacedNumbers by_place(const ReferenceNumbers& numbers) {
  static const std::vector<MetricRow> rows = with_reference_rows({});
  FindingsWriter out(rows);
  numbers.add_to(out);
  PlacedNumbers all;
  for (const Measurement& one : out.take().measurements)
    if (one.metric != "reference.all") all[{one.metric, one.at}] = one.value;  // depends on the others
  return all;
}

// One subject of each family, small enough for every test.
std::vector<std::string> subject_of_each_family() {
  std::vector<std::string> ids;
  std::set<std::string> families;
  for (const Subject& subject : subjects())
    if (families.insert(subject.name).second) ids.push_back(subject.id());
  return ids;
}

TEST(ReferenceNumbers, RandomVectorHasMeanZeroAndVarianceOne) {
  const uint64_t name = projection_name("output");
  constexpr uint64_t kCount = 100000;
  double sum = 0, squares = 0, products = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double w = projection_weight(name, i);
    ASSERT_LT(std::fabs(w), 1.7321);
    sum += w, squares += w * w, products += w * projection_weight(name, i + 1);
  }
  // Standard errors: 1, sqrt(4/5) and 1 over sqrt(kCount) = 0.003; five of them.
  EXPECT_NEAR(sum / kCount, 0, 0.016);
  EXPECT_NEAR(squares / kCount, 1, 0.015);
  EXPECT_NEAR(products / kCount, 0, 0.016);
  EXPECT_NE(projection_weight(name, 0), projection_weight(projection_name("input"), 0));
}

TEST(ReferenceNumbers, SeeAPermutationAndAnExchangeOfTensors) {
  ReferenceNumbers plain, permuted, exchanged;
  plain.add("p", "a", std::vector<double>{1, 2}), plain.add("p", "b", std::vector<double>{3, 4});
  permuted.add("p", "a", std::vector<double>{2, 1}), permuted.add("p", "b", std::vector<double>{3, 4});
  exchanged.add("p", "b", std::vector<double>{1, 2}), exchanged.add("p", "a", std::vector<double>{3, 4});
  const PlacedNumbers one = by_place(plain);
  for (const ReferenceNumbers* other : {&permuted, &exchanged}) {
    const PlacedNumbers two = by_place(*other);
    EXPECT_EQ(one.at({"reference.norm", "p"}), two.at({"reference.norm", "p"}));
    EXPECT_GT(std::fabs(one.at({"reference.projection", "p"}) - two.at({"reference.projection", "p"})), 0.01);
  }
}

TEST(ReferenceNumbers, CoverEveryParameterOfEverySubject) {
  for (const std::string& id : subject_of_each_family()) {
    const TrialSpec spec = reference_spec(id);
    const PlacedNumbers numbers = by_place(*step_numbers(spec));
    for (const auto& [place, value] : numbers) EXPECT_TRUE(std::isfinite(value)) << id << " " << place.second;
    Trial trial(spec);
    for (const Param* param : trial.params())
      EXPECT_GT(numbers.at({"reference.norm", "gradient/" + param->name}), 0) << id << " " << param->name;
    std::vector<std::string> places = {"input", "output", "evaluation", "special/output", "special/gradient"};
    if (!row_of(spec.subject->data).has_indices) places.emplace_back("gradient/input");
    for (const std::string& at : places) EXPECT_GT(numbers.at({"reference.norm", at}), 0) << id << " " << at;
  }
}

TEST(ReferenceNumbers, AreTheSameForEveryPolicy) {
  const TrialSpec spec = reference_spec("mlp/b8_i16_h24_o10");
  EXPECT_EQ(step_numbers(spec), step_numbers(spec.under(policy_named("amp-fp16"))));
  const PlacedNumbers plain = by_place(*training_numbers(spec)),
                      scaled = by_place(*training_numbers(spec.under(policy_named("amp-fp16"))));
  for (const auto& [place, value] : plain) EXPECT_EQ(value, scaled.at(place)) << place.second;
}

TEST(ReferenceNumbers, AreFiniteWithWeightNorm) {
  for (const auto& [place, value] : by_place(*step_numbers(reference_spec("conv2d/b2_c4_o6_s6_k3_w1"))))
    EXPECT_TRUE(std::isfinite(value)) << place.second;
}

// The values that tap names "activation/NAME" in a trial with special data.
std::vector<double> special_activation(const std::string& subject, const std::string& layer) {
  Trial trial(reference_spec(subject).oracle(Inputs::drawn));
  std::vector<double> values;
  trial.set_tap([&](const std::string& name, const Tensor& tensor) {
    if (name == "activation/" + layer) values = tensor.values();
  });
  make_special(trial);
  trial.forward();
  return values;
}

TEST(SpecialData, GivesExactZerosToEveryReluOfTheModels) {
  for (const auto& [subject, layer] : std::vector<std::pair<std::string, std::string>>{
           {"mlp/b8_i16_h24_o10", "fc1"}, {"mlp/b8_i16_h24_o10", "fc2"}, {"convnet/b4_c1_s8_w4", "bn1"}}) {
    const std::vector<double> values = special_activation(subject, layer);
    EXPECT_GE(std::count(values.begin(), values.end(), 0.0), static_cast<long>(values.size() / 5)) << layer;
    EXPECT_GE(std::count_if(values.begin(), values.end(), [](double x) { return x > 0; }),
              static_cast<long>(values.size() / 5))
        << layer;
  }
}

TEST(SpecialData, HasTiesInTheWindowsOfPoolingAndAConstantChannel) {
  for (const char* id : {"maxpool/b2_c4_s6_k2", "batchnorm2d/b4_c3_s4"}) {
    Trial trial(reference_spec(id).oracle(Inputs::drawn));
    make_special(trial);
    const Shape shape = trial.input().shape();
    const std::vector<double> x = trial.input().values();
    const auto side = static_cast<size_t>(shape[3]), pixels = static_cast<size_t>(shape[2]) * side;
    EXPECT_TRUE(std::all_of(x.begin(), x.begin() + static_cast<long>(pixels), [&](double v) { return v == x[0]; }));
    size_t ties = 0, ordered = 0;  // of the largest values, in the windows of the other channels
    for (size_t plane = pixels; plane < static_cast<size_t>(shape[1]) * pixels; plane += pixels)
      for (size_t row = 0; row + 1 < side; row += 2)
        for (size_t column = 0; column + 1 < side; column += 2) {
          const size_t at = plane + row * side + column;
          std::vector<double> window = {x[at], x[at + 1], x[at + side], x[at + side + 1]};
          std::sort(window.begin(), window.end());
          ++(window[2] == window[3] ? ties : ordered);
        }
    EXPECT_GT(ties, 0u) << id;
    EXPECT_GT(ordered, 0u) << id;
  }
}

// Settings that change the mathematics only a little, and the place that must show it.
TEST(ReferenceNumbers, SeeASettingThatChanged) {
  const TrialSpec spec = reference_spec("convnet/b4_c1_s8_w4");
  const PlacedNumbers before = by_place(*step_numbers(spec)), trained = by_place(*training_numbers(spec));
  TrialSpec other = spec;
  other.settings.batchnorm_momentum = 0.11;
  EXPECT_NE(before.at({"reference.norm", "step/states"}),
            by_place(*step_numbers(other)).at({"reference.norm", "step/states"}));
  EXPECT_NE(before.at({"reference.norm", "evaluation"}),
            by_place(*step_numbers(other)).at({"reference.norm", "evaluation"}));
  other = spec;
  other.settings.momentum = 0.89;
  EXPECT_NE(trained.at({"reference.loss", "train/2"}),
            by_place(*training_numbers(other)).at({"reference.loss", "train/2"}));
}

// The key of cached references: every setting that changes a number is in it.
TEST(ReferenceNumbers, AreCachedByEverySetting) {
  const std::vector<std::function<void(Settings&)>> changes = {
      [](Settings&) {},
      [](Settings& s) { s.rate = 0.06; },
      [](Settings& s) { s.momentum = 0.8; },
      [](Settings& s) { s.weight_decay = 0.1; },
      [](Settings& s) { s.loss_factor = 2; },
      [](Settings& s) { s.input_scale = 2; },
      [](Settings& s) { s.input_offset = 1; },
      [](Settings& s) { s.batchnorm_momentum = 0.2; },
      [](Settings& s) { s.batchnorm_state = DType::f16; },
      [](Settings& s) { s.batchnorm_accumulate = DType::f16; },
      [](Settings& s) { s.scaler.reset(); },
      [](Settings& s) { s.scaler->kind = ScalerSpec::Kind::fixed; },
      [](Settings& s) { s.scaler->initial = 2; },
      [](Settings& s) { s.scaler->growth = 3; },
      [](Settings& s) { s.scaler->backoff = 0.25; },
      [](Settings& s) { s.scaler->interval = 3; },
      [](Settings& s) { s.optimizer.kind = OptimizerKind::adam; },
      [](Settings& s) { s.optimizer.dampening = 0.1; },
      [](Settings& s) { s.optimizer.nesterov = true; },
      [](Settings& s) { s.optimizer.beta1 = 0.8; },
      [](Settings& s) { s.optimizer.beta2 = 0.99; },
      [](Settings& s) { s.optimizer.epsilon = 1e-7; },
      [](Settings& s) { s.optimizer.storage = Storage::kahan; },
      [](Settings& s) { s.optimizer.rounding = StepRounding::each_operation; },
      [](Settings& s) { s.optimizer.clip_norm = 1; }};
  std::set<std::string> texts;
  for (const auto& change : changes) {
    Settings settings;  // other than the default, which has a text of its own
    settings.scaler = ScalerSpec{.kind = ScalerSpec::Kind::dynamic}, settings.optimizer.beta1 = 0.7;
    change(settings);
    texts.insert(text_of(settings));
  }
  EXPECT_EQ(texts.size(), changes.size());
}

// The scale by the rules of torch.amp.GradScaler, written out by hand.
TEST(OverflowTraining, FollowsTheRulesOfTheDynamicLossScale) {
  ReferenceNumbers expected;
  const std::vector<double> scale = {4096, 4096, 8192, 8192, 4096, 4096, 4096, 8192, 8192};
  const std::vector<double> tracker = {1, 2, 0, 1, 0, 1, 2, 0, 1}, skipped = {0, 0, 0, 0, 1, 0, 0, 0, 0};
  expected.add("overflow/scaler", "scale", scale);
  expected.add("overflow/scaler", "tracker", tracker);
  expected.add("overflow/scaler", "skipped", skipped);
  const PlacedNumbers numbers = by_place(*training_numbers(reference_spec("mlp/b8_i16_h24_o10")));
  for (const auto& [place, value] : by_place(expected)) EXPECT_EQ(numbers.at(place), value) << place.first;
}

TEST(OverflowTraining, RecordsTheLossScaleOfThePolicy) {
  ReferenceNumbers expected;
  std::vector<double> scale, tracker;
  for (int step = 1; step <= 4020; ++step) {
    scale.push_back(step < 2000 ? 65536 : step < 4000 ? 131072 : step < 4010 ? 262144 : 131072);
    tracker.push_back(step < 4010 ? step % 2000 : step - 4010);
  }
  expected.add("scaler/policy", "scale", scale);
  expected.add("scaler/policy", "tracker", tracker);
  const PlacedNumbers numbers = by_place(*training_numbers(reference_spec("mlp/b8_i16_h24_o10", "amp-fp16")));
  for (const auto& [place, value] : by_place(expected)) EXPECT_EQ(numbers.at(place), value) << place.first;
}

}  // namespace
}  // namespace halfmark::accuracy
