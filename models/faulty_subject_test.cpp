// Subjects with a mistake, as a program of another project may bring them: one clear error instead of a wrong number.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"
#include "models/layers/tapped_layer.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

using Make = std::function<LayerPtr(const Init&, const Settings&)>;

Subject subject_with(Make make) {
  return {.name = "faulty",
          .sizes = "b2_i4",
          .input = {2, 4},
          .data = DataKind::normal,
          .classes = 0,
          .make = std::move(make)};
}

LayerPtr chain_of(LayerPtr first, LayerPtr second) {
  std::vector<LayerPtr> layers;
  layers.push_back(std::move(first));
  layers.push_back(std::move(second));
  return sequential("chain", std::move(layers));
}

// What a forward pass of the subject throws.
std::string error_of(Make make) {
  const Subject subject = subject_with(std::move(make));
  TrialSpec spec = test_spec(kMlp, "fp16");
  spec.subject = &subject;
  try {
    Trial trial(spec);
    trial.load_batch(0);
    trial.forward();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FaultySubject, ThatIsSoundThrowsNothing) {
  EXPECT_EQ(error_of([](const Init& init, const Settings&) {
              return chain_of(linear(init, "fc1", 4, 4), linear(init, "fc2", 4, 4));
            }),
            "");
}

// Its score would take 0 as the blank, its loss 4, which is one of the drawn symbols.
TEST(FaultySubject, WithABlankThatIsASymbolOfItsLabelsIsRefused) {
  Subject subject = subject_named("speech/b1_f16_t64_h32");
  subject.loss.blank = 4;
  TrialSpec spec = test_spec(kMlp, "fp32");
  spec.subject = &subject;
  std::string said;
  try {
    const Trial trial(spec);
  } catch (const Error& error) {
    said = error.what();
  }
  EXPECT_EQ(said, "subject speech/b1_f16_t64_h32: blank is 4: the labels of speech have the blank 0");
}

TEST(FaultySubject, WithTwoParametersOfOneNameIsRefused) {
  EXPECT_EQ(error_of([](const Init& init, const Settings&) {
              return chain_of(linear(init, "fc", 4, 4), linear(init, "fc", 4, 4));
            }),
            "subject faulty/b2_i4: two parameters are named 'fc.weight'");
}

class TwoStates : public TappedLayer {
 public:
  TwoStates(const Init& init, const char* a, const char* b)
      : TappedLayer("states"), a_(init.state(a, {4}, 0)), b_(init.state(b, {4}, 0)) {}
  std::vector<State*> states() override { return {&a_, &b_}; }

 private:
  Tensor compute(Pass&, const Tensor& x, Saved*) override { return x; }
  Tensor differentiate(Pass&, const Tensor& dy, Saved&) override { return dy; }
  State a_, b_;
};

TEST(FaultySubject, WithTwoStatesOfOneNameIsRefused) {
  const auto with = [](const char* a, const char* b) {
    return error_of([=](const Init& init, const Settings&) { return std::make_unique<TwoStates>(init, a, b); });
  };
  EXPECT_EQ(with("mean", "variance"), "");
  EXPECT_EQ(with("mean", "mean"), "subject faulty/b2_i4: two states are named 'mean'");
}

TEST(FaultySubject, ThatReturnsNoLayerOrThrowsIsNamed) {
  EXPECT_EQ(error_of([](const Init&, const Settings&) { return LayerPtr(); }),
            "subject faulty/b2_i4: its function `make` returns no layer");
  EXPECT_EQ(error_of([](const Init&, const Settings&) -> LayerPtr { throw std::runtime_error("no file"); }),
            "subject faulty/b2_i4: no file");
}

TEST(FaultySubject, WithANullLayerIsRefused) {
  EXPECT_EQ(error_of([](const Init&, const Settings&) { return chain_of(relu("relu"), nullptr); }),
            "subject faulty/b2_i4: sequential 'chain': layer 1 is null");
  EXPECT_EQ(error_of([](const Init&, const Settings&) { return residual("block", nullptr); }),
            "subject faulty/b2_i4: residual 'block': its body is null");
}

class WrongShape : public TappedLayer {
 public:
  WrongShape() : TappedLayer("wrong") {}
  Shape output_shape(const Shape&) const override { return {2, 8}; }

 private:
  Tensor compute(Pass&, const Tensor& x, Saved*) override { return x; }
  Tensor differentiate(Pass&, const Tensor& dy, Saved&) override { return dy; }
};

TEST(FaultySubject, WhoseOutputShapeIsWrongIsRefused) {
  const std::string error = error_of([](const Init&, const Settings&) { return std::make_unique<WrongShape>(); });
  EXPECT_NE(error.find("its output has the shape"), std::string::npos) << error;
}

}  // namespace
}  // namespace halfmark::models
