// Quantised copies: right ones show no fault, and each fault shows at once. Values are given by hand, and the limits are
// computed here from the definition of the formats.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "accuracy/lint_copies.h"
#include "accuracy/lint_gradients.h"
#include "accuracy/lint_rules.h"

namespace halfmark::accuracy {
namespace {

// 64 x 64 numbers of many sizes; `factor` scales all of them.
CopiedMatrix matrix_of(double factor) {
  CopiedMatrix m{std::vector<float>(64 * 64), 64, 64};
  for (size_t i = 0; i < m.values.size(); ++i) {
    const auto x = static_cast<double>(i);
    m.values[i] = static_cast<float>(factor * std::sin(x * 0.7 + 0.1) * std::exp2(std::fmod(x * 1.3, 9.0) - 4));
  }
  return m;
}

const QuantizedCopy& named_copy(const std::vector<QuantizedCopy>& copies, const std::string& name) {
  for (const QuantizedCopy& copy : copies)
    if (copy.name == name) return copy;
  throw Error("no copy " + name);
}

double judged(CopyFault fault, const QuantizedCopy& copy) {
  const auto found = evidence_of(fault, copy);
  EXPECT_TRUE(found) << copy.name;
  return found ? found->front().value : kNotSeen;
}

TEST(LintCopies, ShowNoFaultWhenTheyAreRight) {
  CopyMaker maker({}, 7);
  for (const double factor : {1.0, 0.37, 1e-6, 4e4}) {
    const auto copies = maker.copies_of(matrix_of(factor));
    EXPECT_EQ(judged(CopyFault::stochastic_zeros, named_copy(copies, "NVFP4")), 0) << factor;
    EXPECT_LT(judged(CopyFault::stale_amax, named_copy(copies, "current scaling")), 0x1p-22) << factor;
    EXPECT_EQ(judged(CopyFault::foreign_tiles, named_copy(copies, "MXFP8 rowwise")), 0) << factor;
    EXPECT_EQ(judged(CopyFault::foreign_tiles, named_copy(copies, "MXFP8 columnwise")), 0) << factor;
  }
}

TEST(LintCopies, DelayedScalingMayHaveAnOldMagnitude) {
  CopyMaker maker({}, 7);
  maker.copies_of(matrix_of(1));
  const auto copies = maker.copies_of(matrix_of(3));
  EXPECT_FALSE(evidence_of(CopyFault::stale_amax, named_copy(copies, "delayed scaling")));
  const QuantizedCopy& delayed = named_copy(copies, "delayed scaling");
  float before = 0;
  for (const float value : matrix_of(1).values) before = std::fmax(before, std::fabs(value));
  EXPECT_EQ(delayed.codes.tiles[0].factor, 57344 / before);
  QuantizedCopy claimed = delayed;
  claimed.scaling = QuantizedCopy::Scaling::current;
  EXPECT_NEAR(judged(CopyFault::stale_amax, claimed), 2, 1e-5) << "three times the magnitude of the scale";
}

TEST(LintCopies, AScaleIsOldFromARelativeDifferenceOfTwoToTheMinus21On) {
  CopyMaker maker({}, 7);
  Observation seen;
  seen.copies = {named_copy(maker.copies_of(matrix_of(1)), "current scaling")};
  EXPECT_TRUE(findings_of(seen).empty());
  float& factor = seen.copies[0].codes.tiles[0].factor;
  const float own = factor;
  factor = own * (1 + 0x1p-22F);
  EXPECT_TRUE(findings_of(seen).empty());
  factor = own * (1 + 0x1p-19F);
  ASSERT_EQ(findings_of(seen).size(), 1u);
  EXPECT_EQ(findings_of(seen)[0].rule, "stale_amax");
}

TEST(LintCopies, SeeASingleZeroThatCannotBe) {
  CopyMaker maker({}, 7);
  QuantizedCopy copy = named_copy(maker.copies_of(matrix_of(1)), "NVFP4");
  size_t large = 0;  // a number that is not small beside its tile
  while (copy.codes.codes[large] % 8 < 4) ++large;
  copy.codes.codes[large] = 8;  // -0
  EXPECT_GT(judged(CopyFault::stochastic_zeros, copy), 0);
}

TEST(LintCopies, SeeOneForeignScaleAndOneForeignCode) {
  CopyMaker maker({}, 7);
  const QuantizedCopy right = named_copy(maker.copies_of(matrix_of(1)), "MXFP8 columnwise");
  QuantizedCopy copy = right;
  copy.codes.tiles[5].decode *= 2;
  EXPECT_GE(judged(CopyFault::foreign_tiles, copy), 1.0 / 128);
  copy = right, copy.codes.tiles[5].decode /= 2;
  EXPECT_GE(judged(CopyFault::foreign_tiles, copy), 1.0 / 128);
  copy = right, copy.codes.codes[100] ^= 4;  // the exponent's last bit
  EXPECT_EQ(judged(CopyFault::foreign_tiles, copy), 1.0 / 4096);
}

TEST(LintCopies, TellOldMagnitudesOfEqualTensorsFromNothing) {
  CopyMaker maker({.uses_old_amax = true}, 7);
  maker.copies_of(matrix_of(1));
  EXPECT_LT(judged(CopyFault::stale_amax, named_copy(maker.copies_of(matrix_of(1)), "current scaling")), 0x1p-22);
  EXPECT_NEAR(judged(CopyFault::stale_amax, named_copy(maker.copies_of(matrix_of(1.01)), "current scaling")), 0.01,
              1e-4);
}

TEST(LintGradients, AreTheSumOfTheirParts) {
  const std::vector<std::vector<double>> parts = {{1, 0, 2, 0}, {0, 1, 1, 0}, {1, 1, 0, 3}};
  std::vector<double> sum(4);
  for (size_t i = 0; i < 4; ++i) sum[i] = 2 * parts[0][i] - 0.5 * parts[1][i] + 8 * parts[2][i];
  const WeightedSum found = fit_sum(parts, sum);
  EXPECT_NEAR(found.weights[0], 2, 1e-12);
  EXPECT_NEAR(found.weights[1], -0.5, 1e-12);
  EXPECT_NEAR(found.weights[2], 8, 1e-12);
  EXPECT_LT(found.unexplained, 1e-12);
  const WeightedSum other = fit_sum(std::vector<std::vector<double>>{{3, 0, 0, 0}}, std::vector<double>{6, 0, 0, 8});
  EXPECT_EQ(other.weights[0], 2);
  EXPECT_EQ(other.unexplained, 0.8);
}

}  // namespace
}  // namespace halfmark::accuracy
