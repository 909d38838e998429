// The model of the operations of autocast's lists against the kernels of this suite; verdicts that are known; wrong lists.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accuracy/experiments/cast_list_operations.h"
#include "accuracy/experiments/experiment_testing.h"
#include "kernels/ops/ops.h"

namespace halfmark::accuracy {
namespace {

using namespace experiment_testing;

constexpr const char* kAnySubject = "mlp/b8_i16_h24_o10";

Findings lists_of(const char* policy) {
  return findings_of(cast_lists_harness(), experiment_trial(kAnySubject, policy));
}
double verdict(const Findings& found, const char* operation) {
  return number_at(found, "cast_lists.verdict", operation);
}

ListedOperation listed(std::string_view name) {
  for (const ListedOperation& one : listed_operations())
    if (one.names.starts_with(name)) return one;
  for (const ListedOperation& one : listed_losses())
    if (one.names.starts_with(name)) return one;
  throw Error("no operation " + std::string(name));
}

// The results of one row in fp16, by the model of the lists.
NumberRow modelled(std::string_view name, const std::vector<NumberRow>& operands) {
  return listed(name).run({&kFp16}, operands);
}

NumberRow some_numbers(uint64_t seed, size_t count = 64) {
  return operand_rows(OperandKind::real, OperandSize::ordinary, count, kFp16, RandomKey(seed)).front();
}

// Kernels of the CPU compute in fp32, the model in fp64: a result next to the middle of two numbers of fp16 may round to the
// other one, which is rare.
void expect_nearly_all_equal(const NumberRow& a, const NumberRow& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 0x1p-10 * std::fabs(b[i]) + 0x1p-24) << what;
    different += a[i] != b[i];
  }
  EXPECT_LE(different, 1 + a.size() / 50) << what;
}

TEST(CastListOperations, ComputeWhatTheKernelsOfThisSuiteCompute) {
  const auto device = open_device("cpu");
  const NumberRow x = some_numbers(1), y = some_numbers(2);
  const auto n = static_cast<int64_t>(x.size());
  const Tensor of_x = Tensor::from(*device, {1, n}, DType::f16, x), of_y = Tensor::from(*device, {1, n}, DType::f16, y);
  Tensor row(*device, {1, n}, DType::f16);
  run(Activation<activations::Exp>{.x = of_x, .out = row});
  expect_nearly_all_equal(row.values(), modelled("exp", {x}), "exp");
  run(Activation<activations::Gelu>{.x = of_x, .out = row});
  expect_nearly_all_equal(row.values(), modelled("gelu", {x}), "gelu");
  run(Activation<activations::Sigmoid>{.x = of_x, .out = row});
  expect_nearly_all_equal(row.values(), modelled("sigmoid", {x}), "sigmoid");
  run(Softmax{.x = of_x, .out = row});
  expect_nearly_all_equal(row.values(), modelled("softmax", {x}), "softmax");
  run(Add{.a = of_x, .b = of_y, .out = row});
  expect_nearly_all_equal(row.values(), modelled("add", {x, y}), "add");
}

TEST(CastListOperations, InvertErf) {
  const NumberRow x = operand_rows(OperandKind::unit, OperandSize::ordinary, 64, kFp16, RandomKey(3)).front();
  const NumberRow y = listed("erfinv").run({}, std::vector<NumberRow>{x});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(std::erf(y[i]), x[i], 1e-15);
}

// Slopes against differences of the functions, in fp64.
TEST(CastListOperations, HaveTheSlopesOfTheirFunctions) {
  for (const ListedOperation& one : listed_operations()) {
    if (!one.backward) continue;
    NumberRow x = operand_rows(one.operands[0], OperandSize::ordinary, 32, kFp16, RandomKey(4)).front();
    std::erase_if(x, [&](double value) {
      return std::fabs(value) < 0.1 || (one.operands[0] == OperandKind::unit && std::fabs(value) > 0.9) ||
             std::fabs(std::cos(value)) < 0.2;  // tan
    });
    NumberRow above = x, below = x;
    constexpr double kStep = 1e-6;
    for (double& value : above) value += kStep;
    for (double& value : below) value -= kStep;
    const NumberRow slopes = one.backward({}, std::vector<NumberRow>{x}),
                    high = one.run({}, std::vector<NumberRow>{above}), low = one.run({}, std::vector<NumberRow>{below});
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(slopes[i], (high[i] - low[i]) / (2 * kStep), 1e-5 * (1 + std::fabs(slopes[i])))
          << one.names << " at " << x[i];
  }
}

// By hand: 64 differences of 300 have squares beyond fp16; the mean of |300| is not.
TEST(CastListOperations, OverflowWhereATensorThatIsStoredDoes) {
  const NumberRow big(64, 300), zero(64, 0);
  EXPECT_TRUE(std::isinf(modelled("mse_loss", {big, zero})[0]));
  EXPECT_EQ(modelled("l1_loss", {big, zero})[0], 300);
  EXPECT_TRUE(std::isinf(modelled("sum", {NumberRow(1000, 100)})[0]));
  EXPECT_EQ(modelled("mean", {NumberRow(1000, 100)})[0], 100) << "the sum stays in the kernel";
  EXPECT_EQ(listed("mse_loss").run({&kFp32}, std::vector<NumberRow>{big, zero})[0], 90000);
}

TEST(CastLists, JudgeTheListOfCudaAsItIsKnown) {
  const Findings found = lists_of("amp-fp16");
  EXPECT_TRUE(meets_expectation(cast_lists_harness(), experiment_trial(kAnySubject, "amp-fp16"), found));
  for (const char* needed : {"exp", "expm1", "cosh", "sinh", "pow", "log", "reciprocal", "sum", "mse_loss"})
    EXPECT_EQ(verdict(found, needed), 1) << needed;
  for (const char* harmless : {"acos", "softplus", "softmax", "layer_norm", "nll_loss"})
    EXPECT_EQ(verdict(found, harmless), 0) << harmless;
  for (const char* in_half : {"linear", "conv2d", "relu", "gelu", "prelu", "tanh"})
    EXPECT_EQ(verdict(found, in_half), 2) << in_half;
  // One rounding is within its bound by definition, for each function of one number that does not overflow.
  EXPECT_LE(number_at(found, "cast_lists.excess", "softmax"), 1);
  EXPECT_GT(number_at(found, "cast_lists.excess", "softmax"), 0.9);
}

// Results of 1 and more are far from the subnormals, so that the relative part of the bound decides: one rounding errs by at
// most 2^-11 of the result in fp16, and nearly that where the result is just above a power of two.
TEST(CastLists, BoundOneRoundingByOneUnitRoundoff) {
  for (const auto& [policy, unit] : {std::pair{"amp-fp16", 0x1p-11}, {"amp-bf16", 0x1p-8}}) {
    const Findings found = lists_of(policy);
    EXPECT_EQ(listed("cosh").stores, 1);
    EXPECT_LE(number_at(found, "cast_lists.excess", "cosh"), 1) << policy;
    EXPECT_GT(number_at(found, "cast_lists.excess", "cosh"), 0.9) << policy;
    // The same from the operands: |rounded - exact| / (u / (1 - u) |exact| + half the least subnormal).
    const bool is_half = unit == 0x1p-11;
    const Format& low = is_half ? kFp16 : kBf16;
    const double half_subnormal = is_half ? 0x1p-25 : 0x1p-134;
    double largest = 0;
    for (const OperandSize size : {OperandSize::ordinary, OperandSize::large, OperandSize::small}) {
      const RandomKey key = RandomKey(experiment_trial(kAnySubject, policy).seed).child("cast_lists").child("cosh");
      for (const NumberRow& row :
           operand_rows(listed("cosh").operands[0], size, listed("cosh").width, low, key.child(name_of(size)).child(0)))
        for (const double x : row) {
          const double exact = std::cosh(x), rounded = round_to(low, exact);
          if (!std::isfinite(rounded) || !std::isfinite(round_to(kFp32, exact))) continue;
          largest =
              std::max(largest, std::fabs(rounded - exact) / (unit / (1 - unit) * std::fabs(exact) + half_subnormal));
        }
    }
    EXPECT_NEAR(number_at(found, "cast_lists.excess", "cosh"), largest, 1e-9) << policy;
  }
}

// The list for CPUs keeps no sum in fp32: a planted omission that the harness has to find beside the list that has it.
TEST(CastLists, FindAnOperationThatAListLacks) {
  const Findings cpu = lists_of("cpu-amp-fp16"), cuda = lists_of("amp-fp16");
  EXPECT_EQ(verdict(cuda, "sum"), 1);
  EXPECT_EQ(verdict(cpu, "sum"), -1);
  EXPECT_GE(number_at(cpu, "cast_lists.missing"), 1);
  // In bf16 no sum overflows, so nothing is missing for its range.
  EXPECT_EQ(number_at(lists_of("cpu-amp-bf16"), "cast_lists.overflow", "sum"), 0);
}

TEST(CastLists, NeedCastRulesAndAHalfType) {
  EXPECT_TRUE(refusal_of(cast_lists_harness(), experiment_trial(kAnySubject, "fp16")));
  EXPECT_TRUE(refusal_of(cast_lists_harness(), experiment_trial(kAnySubject, "fp32")));
}

}  // namespace
}  // namespace halfmark::accuracy
