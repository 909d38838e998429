// Linear layers under the recipes: the products of their codes in fp64, the scales over steps, the random numbers, and the
// mistakes that such code has had (numbers in brackets: the list of known pitfalls).
#include "models/quantized_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/layers/quantized_linear.h"
#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

const char* const kRecipes[] = {"fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4"};

// A policy like that of a recipe with another description.
Policy with_products(const QuantizedProducts& products) {
  Policy policy = policy_named("fp8-current");
  policy.products = &products;
  return policy;
}

struct Matrix {
  size_t rows, columns;
  std::vector<double> values;
  double at(size_t row, size_t column) const { return values[row * columns + column]; }
  Matrix turned() const {
    Matrix other{columns, rows, values};
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j) other.values[j * rows + i] = at(i, j);
    return other;
  }
  Tensor tensor(DType dtype) const {
    const Shape shape{static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
    return Tensor::from(*test_device(), shape, dtype, values);
  }
};

// Of magnitudes that differ from row to row and from column to column, so that a scale in a wrong place shows. Multiples of a
// power of two, so that fp32 sums of 16 are exact; weights have more digits than bf16.
// `is_wide`: 18 binades along rows and along columns, beyond those of e4m3, so that a copy with the scales of the other axis has
// other values even if scales are powers of two.
Matrix drawn(size_t rows, size_t columns, uint64_t seed, const Format& format, bool is_wide = false) {
  const RandomKey key(seed);
  Matrix m{rows, columns, std::vector<double>(rows * columns)};
  for (size_t i = 0; i < m.values.size(); ++i) {
    const int row = static_cast<int>(i / columns), column = static_cast<int>(i % columns);
    if (is_wide) {
      m.values[i] = round_to(format, std::ldexp(key.normal(i), 6 * (row % 4) - 6 * (column % 4)));
      continue;
    }
    const double grid = format == kFp32 ? 0x1p-14 : 0x1p-8;
    m.values[i] = round_to(format, std::round(std::ldexp(key.normal(i), row % 5 - column / 16 % 4) / grid) * grid);
  }
  return m;
}

// What the layer multiplies: codes times scales. `given_codes`: instead of the rule's own.
Matrix dequantized(const char* rule, const Matrix& m, float factor = 0, const std::vector<unsigned char>& given = {}) {
  const std::vector<float> narrow(m.values.begin(), m.values.end());
  const Quantizer& quantizer = quantizer_named(rule);
  Quantized quantized = factor == 0 ? kernels::quantize(quantizer, narrow, m.rows, m.columns)
                                    : quantize_with(quantizer, factor, narrow, m.rows, m.columns);
  for (size_t i = 0; i < given.size() * 2 && i < quantized.codes.size() && !given.empty(); ++i)
    quantized.codes[i] = static_cast<unsigned char>(load_code(DType::e2m1, given.data(), i));
  Matrix result{m.rows, m.columns, std::vector<double>(m.values.size())};
  for (size_t i = 0; i < m.rows; ++i)
    for (size_t j = 0; j < m.columns; ++j) result.values[i * m.columns + j] = quantized.value(i, j);
  return result;
}

// Each group of 16 along a row times signs and Sylvester's matrix, by its recursive definition.
Matrix hadamard_of(const Matrix& m) {
  constexpr int kSigns[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
  const size_t width = (m.columns + 15) / 16 * 16;
  Matrix result{m.rows, width, std::vector<double>(m.rows * width, 0.0)};
  for (size_t i = 0; i < m.rows; ++i)
    for (size_t first = 0; first < width; first += 16) {
      double group[16] = {};
      for (size_t k = 0; k < 16 && first + k < m.columns; ++k) group[k] = kSigns[k] * m.at(i, first + k);
      for (size_t half = 1; half < 16; half *= 2)
        for (size_t k = 0; k < 16; ++k)
          if ((k & half) == 0) {
            const double a = group[k], b = group[k + half];
            group[k] = a + b, group[k + half] = a - b;
          }
      for (size_t k = 0; k < 16; ++k) result.values[i * width + first + k] = round_to(kBf16, group[k] / 4);
    }
  return result;
}

// Elements of `found` that are not a b^T within what fp32 sums and the rounding to bf16 allow.
int wrong_elements(const Tensor& found, const Matrix& a, const Matrix& b) {
  const std::vector<double> values = found.values();
  const double steps = static_cast<double>(a.columns) + 10, u = kFp32.unit_roundoff(),
               gamma = steps * u / (1 - steps * u);
  int wrong = 0;
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < b.rows; ++j) {
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < a.columns; ++k)
        sum += a.at(i, k) * b.at(j, k), magnitude += std::fabs(a.at(i, k) * b.at(j, k));
      const double slack = gamma * magnitude;
      const double bound = slack + kBf16.unit_roundoff() * (std::fabs(sum) + slack);
      wrong += !(std::fabs(values[i * b.rows + j] - sum) <= bound);
    }
  return wrong;
}

struct Step {
  Tensor y, dx, dw;
  std::map<std::string, QuantizedOnce> log;  // "x forward"
};

// One forward and backward of the products alone.
Step step_of(QuantizedLinear& layer, const Policy& policy, const Tensor& x, const Tensor& w, const Tensor& dy,
             uint64_t key = 3) {
  Step step;
  QuantizationLog log;
  Saved saved;
  {
    Pass pass(*test_device(), policy, true, RandomKey(key));
    step.y = layer.forward(pass, "fc", x, w, &saved);
  }
  {
    Pass pass(*test_device(), policy, true, RandomKey(key).child("backward"));
    step.dx = layer.backward(pass, "fc", dy, saved, [&](const auto& compute) {
      step.dw = Tensor(*test_device(), w.shape(), DType::bf16);
      compute(step.dw);
    });
  }
  EXPECT_TRUE(saved.empty());
  for (const QuantizedOnce& one : log.entries()) {
    EXPECT_TRUE(step.log.emplace(one.operand + " " + one.product, one).second) << "quantised twice";
  }
  return step;
}

// The rules by TE's documentation of who is quantised where, written a second time.
struct Rules {
  const char *x, *w, *dy;
  bool copies_x_and_dy, copies_w;  // made from the tensor again
  bool is_fp4 = false;
};
const std::map<std::string, Rules> kRules = {
    {"fp8-delayed", {"te-current-e4m3", "te-current-e4m3", "te-current-e5m2", false, false}},
    {"fp8-current", {"te-current-e4m3", "te-current-e4m3", "te-current-e5m2", false, false}},
    {"fp8-block", {"te-block-1x128", "te-block-128x128", "te-block-1x128", true, false}},
    {"mxfp8", {"te-mxfp8-e4m3", "te-mxfp8-e4m3", "te-mxfp8-e4m3", true, true}},
    {"nvfp4", {"te-nvfp4", "te-nvfp4-16x16", "te-nvfp4", true, false, true}},
};

float scale_of(const Matrix& m, double largest_code) {
  double amax = 0;
  for (const double x : m.values) amax = std::max(amax, std::fabs(x));
  return static_cast<float>(largest_code) / static_cast<float>(amax);
}

// 300 inputs reach a third block of 128; no extent is a multiple of 32.
TEST(QuantizedLinear, MultipliesWhatItsCodesStandForUnderEveryRecipe) {
  for (const char* recipe : kRecipes) {
    SCOPED_TRACE(recipe);
    const Rules& rules = kRules.at(recipe);
    const bool is_wide = !rules.is_fp4;
    const Matrix x = drawn(50, 300, 1, kBf16, is_wide), w = drawn(140, 300, 2, kFp32, is_wide),
                 dy = drawn(50, 140, 3, kBf16, is_wide);
    const Policy& policy = policy_named(recipe);
    QuantizedLinear layer;
    const Tensor xt = x.tensor(DType::bf16), wt = w.tensor(DType::f32), dyt = dy.tensor(DType::bf16);
    Step step = step_of(layer, policy, xt, wt, dyt);
    float factor_x = 0, factor_w = 0, factor_dy = 0;
    if (recipe == std::string("fp8-delayed")) {
      EXPECT_EQ(step.log.at("x forward").scale, 1);  // (14)
      step = step_of(layer, policy, xt, wt, dyt);
      factor_x = scale_of(x, 448), factor_w = scale_of(w, 448), factor_dy = scale_of(dy, 57344);
    }
    const auto codes = [&](const char* copy) {
      return rules.is_fp4 ? step.log.at(copy).codes : std::vector<unsigned char>();
    };
    const Matrix x_rows = dequantized(rules.x, x, factor_x), w_rows = dequantized(rules.w, w, factor_w),
                 dy_rows = dequantized(rules.dy, dy, factor_dy, codes("dy data"));
    EXPECT_EQ(wrong_elements(step.y, x_rows, w_rows), 0);

    const Matrix w_columns = rules.copies_w ? dequantized(rules.w, w.turned()) : w_rows.turned();
    EXPECT_EQ(wrong_elements(step.dx, dy_rows, w_columns), 0);

    Matrix dy_columns = dy_rows.turned(), x_columns = x_rows.turned();
    if (rules.is_fp4) {
      dy_columns = dequantized(rules.dy, hadamard_of(dy.turned()), 0, codes("dy weights"));
      x_columns = dequantized(rules.x, hadamard_of(x.turned()));
    } else if (rules.copies_x_and_dy) {
      dy_columns = dequantized(rules.dy, dy.turned()), x_columns = dequantized(rules.x, x.turned());
    }
    EXPECT_EQ(wrong_elements(step.dw, dy_columns, x_columns), 0);

    // The comparison sees mistakes: codes of the rows in place of a copy of its own (17), and scales of another matrix.
    if (rules.copies_x_and_dy) {
      EXPECT_GT(wrong_elements(step.dw, dy_rows.turned(), x_rows.turned()), 1000);
    }
    if (rules.copies_w) {
      EXPECT_GT(wrong_elements(step.dx, dy_rows, w_rows.turned()), 1000);
    }
    EXPECT_GT(wrong_elements(step.y, x, w), 1000) << "nothing was quantised";
  }
}

// (12) Only the row of the changed element may move if scales belong to rows; with one scale for the tensor all may.
TEST(QuantizedLinear, AChangedElementMovesItsOwnRowOnly) {
  const Matrix x = drawn(20, 160, 1, kBf16), w = drawn(24, 160, 2, kFp32), dy = drawn(20, 24, 3, kBf16);
  Matrix other = x;
  other.values[7 * 160 + 40] = 1024;
  for (const char* recipe : {"fp8-block", "mxfp8", "fp8-current"}) {
    QuantizedLinear layer;
    const Policy& policy = policy_named(recipe);
    const auto y = step_of(layer, policy, x.tensor(DType::bf16), w.tensor(DType::f32), dy.tensor(DType::bf16)).y.values(),
               moved =
                   step_of(layer, policy, other.tensor(DType::bf16), w.tensor(DType::f32), dy.tensor(DType::bf16)).y.values();
    std::set<size_t> rows;
    for (size_t i = 0; i < y.size(); ++i)
      if (y[i] != moved[i]) rows.insert(i / 24);
    if (recipe == std::string("fp8-current")) {
      EXPECT_GT(rows.size(), 10u) << "one scale for all of x";
    } else {
      EXPECT_EQ(rows, std::set<size_t>{7}) << recipe;
    }
  }
}

// (11) Zeros give zeros, not NaN; and a history that saw only zeros has not rolled (3).
TEST(QuantizedLinear, ZerosGiveZeros) {
  for (const char* recipe : kRecipes) {
    QuantizedLinear layer;
    const Tensor x = Tensor::zeros(*test_device(), {32, 48}, DType::bf16),
                 w = Tensor::zeros(*test_device(), {16, 48}, DType::f32),
                 dy = Tensor::zeros(*test_device(), {32, 16}, DType::bf16);
    for (int repeat = 0; repeat < 2; ++repeat) {
      const Step step = step_of(layer, policy_named(recipe), x, w, dy);
      for (const Tensor* one : {&step.y, &step.dx, &step.dw})
        for (const double value : one->values()) ASSERT_EQ(value, 0) << recipe;
      if (recipe == std::string("fp8-delayed")) {
        EXPECT_EQ(step.log.at("x forward").scale, 1);
      }
    }
  }
}

QuantizedProducts delayed_by(size_t history, AmaxHistory::Algorithm algorithm) {
  QuantizedProducts products = quantized_products_named("fp8-delayed");
  products.delayed = DelayedScaling{.history = history, .algorithm = algorithm, .margin = 0};
  return products;
}

// Worked example: amax 2, 0, 7, inf, 4, 4, 4, 1e-44 with three entries. The scale that a step uses is that of the steps before
// it. The weights are quantised from fp32, which has 1e-44.
TEST(DelayedScaling, HasTheScalesOfTheWorkedExampleOverSteps) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double largest = static_cast<double>(std::numeric_limits<float>::max());
  const std::vector<double> amaxes = {2, 0, 7, infinity, 4, 4, 4, 1e-44};
  const std::vector<double> largest_of_three = {224, 224, 64, 64, 64, 64, 112, 112},
                            latest = {224, 224, 64, 64, 112, 112, 112, largest};
  for (const auto& [algorithm, expected] : {std::pair{AmaxHistory::Algorithm::max, largest_of_three},
                                            {AmaxHistory::Algorithm::most_recent, latest}}) {
    const QuantizedProducts products = delayed_by(3, algorithm);
    const Policy policy = with_products(products);
    QuantizedLinear layer;
    const Tensor x = Tensor::zeros(*test_device(), {2, 4}, DType::bf16), dy = x;
    std::vector<double> used;
    for (const double amax : amaxes) {
      const Matrix w{4, 4, std::vector<double>(16, amax)};
      used.push_back(step_of(layer, policy, x, w.tensor(DType::f32), dy).log.at("w forward").scale);
    }
    const Matrix w{4, 4, std::vector<double>(16, 1.0)};
    used.push_back(step_of(layer, policy, x, w.tensor(DType::f32), dy).log.at("w forward").scale);
    EXPECT_EQ(used.front(), 1);
    EXPECT_EQ(std::vector<double>(used.begin() + 1, used.end()), expected);
  }
}

// (3) An evaluation uses the scale and does not change it; a pass that fails changes nothing either.
TEST(DelayedScaling, IsUpdatedByTrainingOnly) {
  const Policy& policy = policy_named("fp8-delayed");
  const Matrix x{4, 16, std::vector<double>(64, 2.0)}, large{4, 16, std::vector<double>(64, 1000.0)};
  const Tensor w = Matrix{16, 16, std::vector<double>(256, 1.0)}.tensor(DType::f32), dy = x.tensor(DType::bf16);
  QuantizedLinear layer;
  step_of(layer, policy, x.tensor(DType::bf16), w, dy);
  const auto evaluate = [&](bool training, bool fails) {
    QuantizationLog log;
    try {
      Pass pass(*test_device(), policy, training);
      layer.forward(pass, "fc", large.tensor(DType::bf16), w, nullptr);
      if (fails) throw Error("planted");
    } catch (const Error&) {
    }
    return log.entries()[0];
  };
  const QuantizedOnce evaluated = evaluate(false, false);
  EXPECT_EQ(evaluated.scale, 224);
  EXPECT_EQ(evaluated.saturated, 64);
  EXPECT_EQ(step_of(layer, policy, x.tensor(DType::bf16), w, dy).log.at("x forward").scale, 224);
  evaluate(true, false);  // the control: a training does
  EXPECT_EQ(step_of(layer, policy, x.tensor(DType::bf16), w, dy).log.at("x forward").scale,
            static_cast<double>(448.0F / 1000));
}

// Both forwards of one pass, as with a layer that runs twice, count for one step: the larger of them (3).
TEST(DelayedScaling, TakesTheLargestOfTwoRunsInAStep) {
  const Policy& policy = policy_named("fp8-delayed");
  const Tensor w = Matrix{16, 16, std::vector<double>(256, 1.0)}.tensor(DType::f32);
  QuantizedLinear layer;
  {
    Pass pass(*test_device(), policy, true);
    for (const double amax : {7.0, 2.0})
      layer.forward(pass, "fc", Matrix{4, 16, std::vector<double>(64, amax)}.tensor(DType::bf16), w, nullptr);
  }
  QuantizationLog log;
  Pass pass(*test_device(), policy, true);
  layer.forward(pass, "fc", Matrix{4, 16, std::vector<double>(64, 2.0)}.tensor(DType::bf16), w, nullptr);
  EXPECT_EQ(log.entries()[0].scale, 64);
}

struct Trained {
  std::vector<std::vector<unsigned char>> codes;  // of parameters, in the end
  std::vector<double> scales, saturated;          // of every quantisation
};

LayerSpec fc(const char* name, int64_t out) { return {"linear", name, {{"out", out}}}; }

Trained train(const LayerSpec& body, const Policy& policy, int steps, double input_scale = 1) {
  Subject subject = subject_of_network({16, 32}, DataKind::normal, 0, Network{{body, fc("last", 16)}});
  subject.name = "network", subject.sizes = "b16";
  TrialSpec spec = test_spec(kSmallMlp, "fp32");
  spec.subject = &subject, spec.policy = &policy;
  spec.settings.input_scale = input_scale;
  Trial trial(spec);
  Trained result;
  QuantizationLog log;
  for (int step = 0; step < steps; ++step) trial.train_step(step);
  for (const QuantizedOnce& one : log.entries())
    result.scales.push_back(one.scale), result.saturated.push_back(one.saturated);
  result.codes = codes_of(trial);
  return result;
}

// (3) A checkpoint computes the forward of its body again: with the scale of the first, and without a second update.
TEST(DelayedScaling, IsNotChangedByACheckpoint) {
  const LayerSpec plain = fc("fc", 24), checkpointed{"checkpoint", "again", {}, {{plain}}};
  for (const char* recipe : kRecipes) {
    const Trained once = train(plain, policy_named(recipe), 4), again = train(checkpointed, policy_named(recipe), 4);
    EXPECT_EQ(once.codes, again.codes) << recipe;
    if (recipe == std::string("fp8-delayed")) {
      EXPECT_EQ(once.scales, again.scales);
      EXPECT_EQ(std::set<double>(once.scales.begin(), once.scales.end()).count(1), 1u);
      EXPECT_GT(std::set<double>(once.scales.begin(), once.scales.end()).size(), 4u);
    }
  }
}

// (14) The first step has the scale 1, so that inputs above 448 are cut; the second does not.
TEST(DelayedScaling, CutsLargeNumbersInTheFirstStepOnly) {
  const Trained delayed = train(fc("fc", 24), policy_named("fp8-delayed"), 2, 1000),
                current = train(fc("fc", 24), policy_named("fp8-current"), 2, 1000);
  EXPECT_GT(delayed.saturated.front(), 16 * 32 / 2);
  EXPECT_EQ(delayed.saturated[delayed.saturated.size() / 2], 0);  // x of the first layer in the second step
  EXPECT_EQ(current.saturated.front(), 0);
}

QuantizedProducts without_transform() {
  QuantizedProducts products = quantized_products_named("nvfp4");
  products.weights.first.is_transformed = products.weights.second.is_transformed = false;
  return products;
}

// (2) A symmetric dy has equal numbers and scales in both copies, so equal random numbers would give equal codes. Every tile
// has a 6 on its diagonal; 2.25 of 6 is the code 4 or 5 with three to one.
TEST(StochasticRounding, HasOtherRandomNumbersForTheColumnsThanForTheRows) {
  Matrix dy{32, 32, std::vector<double>(32 * 32, 2.25)};
  for (size_t i = 0; i < 32; ++i)
    for (const size_t j : {i, (i + 16) % 32}) dy.values[i * 32 + j] = 6;
  const Tensor x = drawn(32, 32, 1, kBf16).tensor(DType::bf16), w = drawn(32, 32, 2, kFp32).tensor(DType::f32);
  const auto differing = [](const std::vector<unsigned char>& a, const std::vector<unsigned char>& b) {
    int count = 0;
    for (size_t i = 0; i < 32 * 32; ++i) count += load_code(DType::e2m1, a.data(), i) != load_code(DType::e2m1, b.data(), i);
    return count;
  };
  const QuantizedProducts random = without_transform();
  QuantizedProducts nearest = random;
  nearest.data.first.is_stochastic = nearest.weights.first.is_stochastic = false;
  QuantizedLinear layer;
  const Step one = step_of(layer, with_products(random), x, w, dy.tensor(DType::bf16)),
             same = step_of(layer, with_products(random), x, w, dy.tensor(DType::bf16)),
             next = step_of(layer, with_products(random), x, w, dy.tensor(DType::bf16), 4),
             to_nearest = step_of(layer, with_products(nearest), x, w, dy.tensor(DType::bf16));
  // Of 960 numbers with a chance of 3/8 to differ: 360 +- 15.
  EXPECT_NEAR(differing(one.log.at("dy data").codes, one.log.at("dy weights").codes), 360, 75);
  EXPECT_NEAR(differing(one.log.at("dy data").codes, next.log.at("dy data").codes), 360, 75) << "another step";
  EXPECT_EQ(differing(one.log.at("dy data").codes, same.log.at("dy data").codes), 0) << "the same step";
  EXPECT_EQ(differing(to_nearest.log.at("dy data").codes, to_nearest.log.at("dy weights").codes), 0)
      << "the control: without random numbers both copies are equal";
}

// Only dy is rounded at random: twice the same forward.
TEST(StochasticRounding, IsOfGradientsOnly) {
  const Tensor x = drawn(32, 32, 1, kBf16).tensor(DType::bf16), w = drawn(32, 32, 2, kFp32).tensor(DType::f32),
               dy = drawn(32, 32, 3, kBf16).tensor(DType::bf16);
  QuantizedLinear layer;
  const Policy& policy = policy_named("nvfp4");
  const Step one = step_of(layer, policy, x, w, dy, 1), two = step_of(layer, policy, x, w, dy, 2);
  for (const char* same : {"x forward", "x weights", "w forward"})
    EXPECT_EQ(one.log.at(same).codes, two.log.at(same).codes) << same;
  for (const char* different : {"dy data", "dy weights"})
    EXPECT_NE(one.log.at(different).codes, two.log.at(different).codes) << different;
}

double flushed_gradients(const Policy& policy) {
  TrialSpec spec = test_spec(kMlp, "fp32");
  spec.policy = &policy;
  Trial trial(spec);
  QuantizationLog log;
  for (int step = 0; step < 5; ++step) trial.train_step(step);
  double flushed = 0, elements = 0;
  for (const QuantizedOnce& one : log.entries())
    if (one.operand == "dy") flushed += one.flushed, elements += one.elements;
  return flushed / elements;
}

// The negative control of scaling: with the scale 1, most gradients of a mean loss are below half of the least e4m3 code, 2^-10.
TEST(QuantizedProducts, FlushMostGradientsWithoutScales) {
  const Quantizer unscaled{"unscaled", "the scale 1", DType::e4m3, DType::f32, 0, 0, Quantizer::Nan::dropped,
                           [](const TileFacts&, const Format&) { return TileScale{1, 1, 0}; }};
  QuantizedProducts products = quantized_products_named("fp8-current");
  products.data.first.rule = products.weights.first.rule = &unscaled;
  const double without = flushed_gradients(with_products(products));
  EXPECT_GT(without, 0.25);
  for (const char* recipe : {"fp8-current", "fp8-block", "mxfp8"})
    EXPECT_LT(flushed_gradients(policy_named(recipe)), without / 10) << recipe;
}

std::set<std::string> products_of(const std::string& subject, std::string_view policy) {
  Trial trial(test_spec(subject, policy));
  const KernelLog log;
  trial.train_step(0);
  std::set<std::string> names;
  for (const LoggedKernel& one : log.entries())
    if (one.operation.find("matmul") != std::string::npos || one.operation == "quantize") names.insert(one.operation);
  return names;
}

TEST(QuantizedProducts, AreThoseOfLinearLayersOnly) {
  for (const char* recipe : kRecipes) {
    EXPECT_EQ(products_of(kSmallMlp, recipe), (std::set<std::string>{"quantize", "scaled_matmul"})) << recipe;
    EXPECT_FALSE(products_of("lstm/b2_t5_i6_h4", recipe).contains("quantize")) << recipe;
  }
  EXPECT_EQ(products_of(kSmallMlp, "amp-bf16"), std::set<std::string>{"matmul"});
}

// Weight norm and a weight of an embedding stay as under amp-bf16, bit for bit.
TEST(QuantizedProducts, LeaveOtherLayersAsUnderAmpBf16) {
  LayerSpec normed = fc("fc", 24);
  normed.arguments["weight_norm"] = true;
  for (const LayerSpec& layer : {normed, LayerSpec{"layer_norm", "norm"}}) {
    const auto output_of = [&](std::string_view policy) {
      Subject subject = subject_of_network({16, 32}, DataKind::normal, 0, Network{{layer}});
      subject.name = "network", subject.sizes = "b16";
      TrialSpec spec = test_spec(kSmallMlp, policy);
      spec.subject = &subject;
      Trial trial(spec);
      trial.train_step(0);
      return codes_of(trial);
    };
    EXPECT_EQ(output_of("fp8-current"), output_of("amp-bf16"));
  }
}

TEST(QuantizedProducts, TrainAModel) {
  for (const char* recipe : kRecipes) {
    Trial trial(test_spec(kMlp, recipe));
    const double before = trial.train_step(0).loss;
    double after = 0;
    for (int step = 1; step < 60; ++step) after = trial.train_step(step).loss;
    EXPECT_LT(after, before / 2) << recipe;
  }
}

TrialSpec on_gpu(const std::string& device, const char* recipe) {
  TrialSpec spec = test_spec(kSmallMlp, recipe);
  spec.device = open_device(device);
  return spec;
}

TEST(QuantizedProducts, RunOnSimulatedGpusThatHaveTheInstructions) {
  for (const auto& [device, recipe] : {std::pair{"sim:ada", "fp8-delayed"},
                                       {"sim:hopper", "fp8-current"},
                                       {"sim:hopper", "fp8-block"},
                                       {"sim:blackwell", "fp8-block"},
                                       {"sim:blackwell", "mxfp8"},
                                       {"sim:blackwell-rtx", "nvfp4"}}) {
    SCOPED_TRACE(std::string(device) + " " + recipe);
    Trial trial(on_gpu(device, recipe)), cpu(test_spec(kSmallMlp, recipe));
    const KernelLog log;
    for (int step = 0; step < 2; ++step)
      EXPECT_NEAR(trial.train_step(step).loss, cpu.train_step(step).loss, 0.05);  // other sums, the same codes at first
    std::set<std::string> rows;
    for (const LoggedKernel& one : log.entries())
      if (one.operation == "scaled_matmul") rows.insert(one.row);
    EXPECT_EQ(rows, (std::set<std::string>{"reference", "tensor-core"})) << "of the CPU and of the GPU";
  }
}

TEST(QuantizedProducts, AreRefusedByGpusWithoutTheInstructions) {
  for (const auto& [device, recipe, reason] :
       {std::tuple{"sim:ampere", "fp8-delayed", "its tensor cores have no FP8"},
        {"sim:ada", "fp8-block", "ada has neither wgmma nor MX instructions"},
        {"sim:hopper", "mxfp8", "hopper has no instruction for e4m3 times e4m3 scaled by e8m0 per 32"},
        {"sim:hopper", "nvfp4", "hopper has no instruction for e2m1 times e2m1"}}) {
    Trial trial(on_gpu(device, recipe));
    try {
      trial.train_step(0);
      FAIL() << device << " ran " << recipe;
    } catch (const Unsupported& refusal) {
      EXPECT_NE(std::string(refusal.what()).find(reason), std::string::npos) << refusal.what();
      EXPECT_EQ(std::string(refusal.what()).find('\n'), std::string::npos);
    }
  }
}

// Forward accumulates fast, so Hopper keeps 13 fraction bits there; both gradients add chains of 128 products in fp32.
TEST(QuantizedProducts, AccumulateInFewerBitsOnHopperInForwardOnly) {
  const std::shared_ptr<Device> hopper = open_device("sim:hopper");
  const auto result = [&](bool fast) {
    const auto ones = [&](double first) {
      std::vector<double> values(512, 0x1p-7);
      values[0] = first;
      return Scaled{.codes = Tensor::from(*hopper, {1, 512}, DType::e4m3, values), .scales = {}};
    };
    const Scaled a = ones(8), b = ones(8);
    Tensor out(*hopper, {1, 1}, DType::f32);
    run(ScaledMatmul{.a = a, .b = b, .out = out, .fast_accumulate = fast});
    return out.values()[0];
  };
  // 64 and 511 products of 2^-14. With 64 in the sum, 13 fraction bits below 2^6 reach 2^-7: all in that chain are lost.
  EXPECT_EQ(result(true), 64);
  EXPECT_EQ(result(false), 64 + 384 * 0x1p-14);
  for (const char* recipe : {"fp8-delayed", "fp8-current", "mxfp8"}) {
    const QuantizedProducts& products = quantized_products_named(recipe);
    EXPECT_TRUE(products.forward.fast_accumulate && !products.data.fast_accumulate && !products.weights.fast_accumulate);
  }
  EXPECT_FALSE(quantized_products_named("fp8-block").forward.fast_accumulate);
}

}  // namespace
}  // namespace halfmark::models
