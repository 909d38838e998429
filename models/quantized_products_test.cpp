// Linear layers under the recipes: their products are those of their codes, computed in fp64, and their random numbers differ.
// Numbers in brackets: the list of known mistakes of such code.
#include "models/quantized_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/quantized_testing.h"

namespace halfmark::models {
namespace {

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

double largest_of(const Matrix& m) {
  double largest = 0;
  for (const double x : m.values) largest = std::max(largest, std::fabs(x));
  return largest;
}

float scale_of(const Matrix& m, double largest_code) {
  return static_cast<float>(largest_code) / static_cast<float>(largest_of(m));
}

// (8) A NaN is not the largest number, so it spoils its own row and no scale.
TEST(QuantizedLinear, ANaNStaysInItsRow) {
  Matrix x = drawn(20, 160, 1, kBf16);
  x.values[7 * 160 + 40] = std::nan("");
  const Tensor w = drawn(24, 160, 2, kFp32).tensor(DType::f32), dy = drawn(20, 24, 3, kBf16).tensor(DType::bf16);
  for (const char* recipe : {"fp8-delayed", "fp8-current", "fp8-block", "mxfp8"}) {
    QuantizedLinear layer;
    const std::vector<double> y = step_of(layer, policy_named(recipe), x.tensor(DType::bf16), w, dy).y.values();
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(std::isnan(y[i]), i / 24 == 7) << recipe << " " << i;
  }
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
    EXPECT_EQ(step.log.at("x forward").amax, largest_of(x));  // of the numbers as stored (10)
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
    const auto
        y = step_of(layer, policy, x.tensor(DType::bf16), w.tensor(DType::f32), dy.tensor(DType::bf16)).y.values(),
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

// Numbers that are all 3: the largest code stands for 3, whichever scales it is divided among.
TEST(QuantizedLinear, TheRecordedScaleIsTheWholeScale) {
  const std::pair<const char*, double> table[] = {
      {"fp8-current", 448.0 / 3}, {"mxfp8", 128}, {"nvfp4", 6.0 / 3}};  // MX: the power of two that keeps 3 within 448
  const Matrix threes{32, 32, std::vector<double>(32 * 32, 3)};
  for (const auto& [recipe, scale] : table) {
    QuantizedLinear layer;
    const Step step = step_of(layer, policy_named(recipe), threes.tensor(DType::bf16), threes.tensor(DType::f32),
                              threes.tensor(DType::bf16));
    EXPECT_NEAR(step.log.at("x forward").scale, scale, 1e-6 * scale) << recipe;
    EXPECT_NEAR(step.log.at("w forward").scale, scale, 1e-6 * scale) << recipe;
  }
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
    for (size_t i = 0; i < 32 * 32; ++i)
      count += load_code(DType::e2m1, a.data(), i) != load_code(DType::e2m1, b.data(), i);
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

}  // namespace
}  // namespace halfmark::models
