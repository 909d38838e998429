// Losses beside PyTorch 2.15.0 on a CPU: values and gradients were printed by it in fp64 with 17 digits (focal: by the
// composition of torchvision's sigmoid_focal_loss).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/number/error.h"
#include "models/layers/loss.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

struct Found {
  double loss;
  std::vector<double> gradient;
  DType loss_type, gradient_type;
};

Found found_by(const LossSpec& spec, const char* policy_name, const Shape& shape, const std::vector<double>& output,
               const Shape& target_shape, const std::vector<double>& targets, double dloss = 1) {
  Device& device = *test_device();
  const Policy& policy = policy_named(policy_name);
  Pass pass(device, policy, true);
  const std::unique_ptr<Loss> loss = make_loss(spec);
  const bool values = row_of(spec.kind).targets == TargetKind::values;
  const Tensor x = Tensor::from(device, shape, policy.low, output);
  const Tensor y = Tensor::from(device, target_shape, values ? policy.low : DType::i32, targets);
  const Tensor result = loss->forward(pass, x, y);
  const Tensor gradient = loss->backward(pass, dloss);
  return {result.values()[0], gradient.values(), result.dtype(), gradient.dtype()};
}

// Element i: ((37 i) mod 29 - 14) / 4, exact in every dtype.
std::vector<double> outputs(int64_t count, double scale = 1) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * 37 % 29 - 14) / 4 * scale);
  return values;
}
// Element i: ((11 i) mod 7) / 4 - 3 / 4.
std::vector<double> real_targets(int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * 11 % 7) / 4 - 0.75);
  return values;
}

struct TorchLoss {
  const char* name;
  LossSpec spec;
  Shape shape;
  std::vector<double> output;
  Shape target_shape;
  std::vector<double> targets;
  double loss;
  std::vector<double> gradient;
};

const std::vector<double> kShares = {0, 1, 1, 0, 0.25, 1};
constexpr LossKind kCrossEntropy = LossKind::cross_entropy, kLogits = LossKind::binary_cross_entropy_with_logits;

std::vector<TorchLoss> torch_losses() {
  return {
      {"plain",
       {},
       {4, 3},
       outputs(12),
       {4},
       {0, 2, 1, 2},
       3.2372726627165544,
       {-0.2460309400058833, 0.029327606956549589, 0.21670333304933373, 0.23945861826318757, 0.0012565635051786288,
        -0.24071518176836618, 0.02966362526300553, -0.030813808833995648, 0.0011501835709900959, 0.02966362526300553,
        0.21918619116600435, -0.24884981642900991}},
      {"weights, smoothing and an ignored label",
       {.kind = kCrossEntropy, .smoothing = 0.1, .ignored = -100, .class_weights = {1, 2, 4}},
       {4, 3},
       outputs(12),
       {4},
       {0, 2, -100, 2},
       4.0942256903486287,
       {-0.10170447348444493, 0.0073650168373731277, 0.094339456647071815, 0.40426283111506034, -0.0052665955096956691,
        -0.39899623560536462, 0, 0, 0, 0.046834324522157578, 0.36602091828282229, -0.41285524280497987}},
      // The smoothed part is spread over all classes: over the wrong ones only, the loss is 1.33873.
      {"smoothing",
       {.kind = kCrossEntropy, .smoothing = 0.1},
       {2, 3},
       {2, 1, 0, 0, 3, 1},
       {2},
       {0, 2},
       1.3220593253336665,
       {-0.13404618877925578, 0.10569756886073216, 0.028348619918523551, 0.0043383664003663579, 0.40523070057400312,
        -0.40956906697436946}},
      // Divided by the sum of the weights: divided by 2, the loss is 4.5435.
      {"weights",
       {.kind = kCrossEntropy, .class_weights = {1, 2, 4}},
       {2, 3},
       {2, 1, 0, 0, 3, 1},
       {2},
       {0, 2},
       1.8173980085339045,
       {-0.06695180884503564, 0.048945694210959532, 0.018006114634076087, 0.033608052907252842, 0.67503578758507166,
        -0.70864384049232443}},
      {"pixels",
       {.kind = kCrossEntropy, .ignored = 255, .class_weights = {1, 2, 4}},
       {2, 3, 1, 2},
       outputs(12),
       {2, 1, 2},
       {0, 2, 255, 1},
       3.4080819737356949,
       {-0.14038193240141356, 0.0099008418229171342, 0.1351419118255148, 0.5405676473020592, 0.0052400205758987616,
        -0.55046848912497637, 0, 0.27465195136265574, 0, -0.27506487387076206, 0, 0.00041292250810638675}},
      {"mse",
       {.kind = LossKind::mse},
       {6},
       outputs(6),
       {6},
       real_targets(6),
       4.020833333333333,
       {-0.91666666666666663, -0.58333333333333326, 0.33333333333333331, 0.66666666666666663, -0.83333333333333326,
        -0.5}},
      {"smooth L1",
       {.kind = LossKind::smooth_l1, .beta = 0.5},
       {6},
       outputs(6, 0.125),
       {6},
       real_targets(6),
       0.20654296875,
       {0.10416666666666666, -0.14583333333333331, 0.16666666666666666, -0.0625, -0.03125, -0.16666666666666666}},
      {"L1",
       {.kind = LossKind::smooth_l1, .beta = 0},
       {6},
       {-0.75, 0, 0.25, 0.5, -3, 2},
       {6},
       real_targets(6),
       0.83333333333333337,
       {0, -0.16666666666666666, 0.16666666666666666, 0, -0.16666666666666666, 0.16666666666666666}},
      {"binary, logits",
       {.kind = kLogits},
       {6},
       outputs(6),
       {6},
       kShares,
       1.1117448349743546,
       {0.0048853717918927201, -0.1362624126989406, -0.062923444799690906, 0.1540236366631261, -0.031652224970998726,
        -0.1131964498625655}},
      {"binary, logits, positive weight",
       {.kind = kLogits, .pos_weight = 3},
       {6},
       outputs(6),
       {6},
       kShares,
       2.4501958901505407,
       {0.0048853717918927201, -0.40878723809682183, -0.18877033439907268, 0.1540236366631261, -0.1099783374564981,
        -0.33958934958769649}},
      {"binary",
       {.kind = LossKind::binary_cross_entropy},
       {6},
       {0, 1, 0.5, 0.125, 0.875, 0.9375},
       {6},
       kShares,
       0.41403018312300777,
       {0, 0, -0.33333333333333331, 0.19047619047619047, 0.95238095238095244, -0.17777777777777778}},
      {"focal",
       {.kind = LossKind::focal},
       {6},
       outputs(6),
       {6},
       kShares,
       0.35348724852644714,
       {9.3512816340414672e-06, -0.040059361977931675, -0.0057473748896214333, 0.14042538419433698,
        -0.00031670715302728339, -0.027074346885158491}},
      {"focal, other arguments",
       {.kind = LossKind::focal, .alpha = 0.5, .gamma = 1.5},
       {6},
       outputs(6),
       {6},
       kShares,
       0.36719843223967824,
       {3.0374336342577282e-05, -0.079047094858121753, -0.015855288170222772, 0.090141870266955776,
        -0.00094542784988309943, -0.057198356009008744}},
      // Of logits through log_softmax; sequences of 5, 4 and 2 steps.
      {"ctc",
       {.kind = LossKind::ctc},
       {3, 5, 4},
       outputs(60),
       {3, 4},
       {5, 2, 1, 1, 4, 2, 2, 1, 2, 1, 3, 0},
       3.6797699767027297,
       {-0.013480219440090532,
        -0.1501887455662278,
        0.019509818873088853,
        0.14415914613322947,
        -0.056754916326791804,
        -0.10691404867952671,
        0.019509818873088881,
        0.14415914613322967,
        -0.065980703341643743,
        -0.078588697399546326,
        0.14381473029787864,
        0.00075467044331142699,
        -0.054478192457039054,
        -0.09009120828415082,
        0.14381473029787845,
        0.00075467044331142602,
        -0.011203495570337996,
        -0.1333659051708519,
        0.14381473029787847,
        0.00075467044331142613,
        0.018768461402898843,
        0.14131994411252724,
        -0.16556797439921256,
        0.0054795688837864709,
        0.018773010248153386,
        -0.024745063205105361,
        0.00049248407316550779,
        0.0054795688837864683,
        -0.040169089818811871,
        -0.00045451825910290602,
        0.0047349589995310092,
        0.035888649078383766,
        -0.041035946284767623,
        0.00029029671838138162,
        0.0048570004880024676,
        0.035888649078383773,
        0,
        0,
        0,
        0,
        -0.00010750519592437092,
        0.0052807337261689732,
        0.039019637746177643,
        -0.04419286627642225,
        -0.00010750519592437092,
        0.0052807337261689732,
        0.039019637746177643,
        -0.04419286627642225,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0}},
  };
}

TEST(Loss, HasPyTorchsValuesAndGradients) {
  for (const TorchLoss& torch : torch_losses())
    for (const char* policy : {"fp64", "fp32"}) {
      const Found found = found_by(torch.spec, policy, torch.shape, torch.output, torch.target_shape, torch.targets);
      // A few dozen roundings of numbers up to 10.
      const double bound = 64 * format_of(policy_named(policy).low).unit_roundoff();
      EXPECT_NEAR(found.loss, torch.loss, bound * torch.loss) << torch.name << " " << policy;
      ASSERT_EQ(found.gradient.size(), torch.gradient.size()) << torch.name;
      for (size_t i = 0; i < found.gradient.size(); ++i)
        EXPECT_NEAR(found.gradient[i], torch.gradient[i], bound) << torch.name << " " << policy << " " << i;
    }
}

TEST(Loss, GradientsAreThoseOfFiniteDifferences) {
  for (const TorchLoss& torch : torch_losses()) {
    if (std::string(torch.name) == "L1") continue;      // has corners at these points
    if (std::string(torch.name) == "binary") continue;  // has outputs at the ends of its domain
    const auto of = [&](const std::vector<double>& output) {
      return found_by(torch.spec, "fp64", torch.shape, output, torch.target_shape, torch.targets, 3);
    };
    const Found found = of(torch.output);
    for (size_t i = 0; i < torch.output.size(); ++i) {
      constexpr double kOffset = 0x1p-17;  // errors of the differences: 1e-10 of the third derivative, and of rounding
      std::vector<double> above = torch.output, below = torch.output;
      above[i] += kOffset, below[i] -= kOffset;
      EXPECT_NEAR(found.gradient[i], 3 * (of(above).loss - of(below).loss) / (2 * kOffset), 1e-8) << torch.name << i;
    }
  }
}

TEST(Loss, WithoutAnyLabelIsNaNAndHasNoGradient) {
  for (const double smoothing : {0.0, 0.1}) {
    const Found found =
        found_by({.smoothing = smoothing, .ignored = -100}, "fp32", {2, 3}, outputs(6), {2}, {-100, -100});
    EXPECT_TRUE(std::isnan(found.loss));
    EXPECT_EQ(found.gradient, std::vector<double>(6, 0.0));
  }
}

TEST(Loss, OfASequenceWithTooFewStepsIsInfiniteOrZero) {
  const std::vector<double> targets = {3, 3, 1, 1, 2, 3, 2, 2, 3, 0};  // 1 1 needs a blank: four steps
  const Found infinite = found_by({.kind = LossKind::ctc}, "fp64", {2, 3, 4}, outputs(24), {2, 5}, targets);
  EXPECT_EQ(infinite.loss, std::numeric_limits<double>::infinity());
  const Found zero =
      found_by({.kind = LossKind::ctc, .zero_infinity = true}, "fp64", {2, 3, 4}, outputs(24), {2, 5}, targets);
  EXPECT_TRUE(std::isfinite(zero.loss));
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(std::isnan(infinite.gradient[i]), i < 12) << i;
    EXPECT_EQ(zero.gradient[i], i < 12 ? 0 : infinite.gradient[i]) << i;
  }
}

TEST(Loss, FollowsTheCastRulesOfPyTorch) {
  const std::vector<double> x = outputs(6);
  for (const LossKind kind : {LossKind::mse, LossKind::smooth_l1, kLogits, LossKind::focal}) {
    const Found amp = found_by({.kind = kind}, "amp-fp16", {6}, x, {6}, kShares);
    EXPECT_EQ(amp.loss_type, DType::f32) << row_of(kind).name;
    EXPECT_EQ(amp.gradient_type, DType::f16) << row_of(kind).name;
    EXPECT_EQ(found_by({.kind = kind}, "fp16", {6}, x, {6}, kShares).loss_type, DType::f16) << row_of(kind).name;
  }
  EXPECT_THROW(found_by({.kind = LossKind::binary_cross_entropy}, "amp-fp16", {6}, kShares, {6}, kShares), Unsupported);
  const Found ctc = found_by({.kind = LossKind::ctc}, "fp16", {1, 5, 4}, outputs(20), {1, 4}, {5, 2, 1, 2});
  EXPECT_EQ(ctc.loss_type, DType::f32);
  EXPECT_EQ(ctc.gradient_type, DType::f16);
}

TEST(Loss, OfPureHalfOverflowsOnlyWhenItIsStored) {
  // 300^2 is beyond fp16. The mean of 300^2 and 0 is not: PyTorch's CUDA and CPU kernels too sum in fp32.
  EXPECT_EQ(found_by({.kind = LossKind::mse}, "fp16", {1}, {300}, {1}, {0}).loss, HUGE_VAL);
  EXPECT_EQ(found_by({.kind = LossKind::mse}, "fp16", {2}, {300, 0}, {2}, {0, 0}).loss, 45000 - 8);
  EXPECT_EQ(found_by({.kind = LossKind::mse}, "fp16", {1}, {300}, {1}, {0}).gradient[0], 600);
  // In fp16 sigmoid(12) is 1 and its cross-entropy with 0 is limited to 100; from the logit it is 12.
  EXPECT_EQ(found_by({.kind = LossKind::binary_cross_entropy}, "fp16", {1}, {1}, {1}, {0}).loss, 100);
  EXPECT_EQ(found_by({.kind = kLogits}, "fp16", {1}, {12}, {1}, {0}).loss, 12);
}

TEST(Loss, OfPlainLabelsRunsTheSameOperationAsBefore) {
  const auto operations = [](const LossSpec& spec) {
    KernelLog log;
    found_by(spec, "fp32", {2, 3}, outputs(6), {2}, {0, 1});
    std::vector<std::string> names;
    for (const LoggedKernel& kernel : log.entries()) names.push_back(kernel.operation);
    return names;
  };
  EXPECT_EQ(operations({}), (std::vector<std::string>{"softmax_cross_entropy", "softmax_cross_entropy_backward"}));
  EXPECT_EQ(operations({.ignored = 255}), (std::vector<std::string>{"cross_entropy", "cross_entropy_backward"}));
  // With the same bits for the same labels.
  const Found plain = found_by({}, "fp32", {4, 3}, outputs(12), {4}, {0, 2, 1, 2}),
              general = found_by({.ignored = 255}, "fp32", {4, 3}, outputs(12), {4}, {0, 2, 1, 2});
  EXPECT_EQ(plain.loss, general.loss);
  EXPECT_EQ(plain.gradient, general.gradient);
}

TEST(Loss, KindsAreFoundByName) {
  for (const LossRow& row : loss_rows()) {
    EXPECT_EQ(&loss_named(row.name), &row);
    EXPECT_EQ(&row_of(row.kind), &row);
    EXPECT_NE(make_loss({.kind = row.kind}), nullptr) << row.name;
  }
  EXPECT_THROW(loss_named("hinge"), Error);
  EXPECT_THROW(make_loss({.smoothing = 1.5}), Error);
  EXPECT_THROW(make_loss({.kind = LossKind::smooth_l1, .beta = -1}), Error);
}

TEST(Loss, RefusesLabelsAndShapesThatCannotBe) {
  EXPECT_THROW(found_by({.smoothing = 0.1}, "fp32", {2, 3}, outputs(6), {2}, {0, 3}), Error);
  EXPECT_THROW(found_by({.class_weights = {1, 2}}, "fp32", {2, 3}, outputs(6), {2}, {0, 1}), Error);
  EXPECT_THROW(found_by({.kind = LossKind::mse}, "fp32", {6}, outputs(6), {3}, {0, 1, 2}), Error);
  EXPECT_THROW(found_by({.kind = LossKind::ctc}, "fp32", {1, 2, 3}, outputs(6), {1, 3}, {3, 1, 1}), Error);
  EXPECT_THROW(found_by({.kind = LossKind::ctc, .blank = 2}, "fp32", {1, 2, 3}, outputs(6), {1, 3}, {2, 1, 2}), Error);
}

}  // namespace
}  // namespace halfmark::models
