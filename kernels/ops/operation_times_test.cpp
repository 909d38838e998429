#include "kernels/ops/operation_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels {
namespace {

std::string calls_of(const std::vector<OperationTimes::Time>& times) {
  std::string text;
  for (const OperationTimes::Time& one : times)
    text += std::string(one.operation) + " " + std::to_string(one.calls) + " ";
  return text;
}

double sum_of(const std::vector<OperationTimes::Time>& times) {
  double seconds = 0;
  for (const OperationTimes::Time& one : times) {
    EXPECT_GE(one.seconds, 0) << one.operation;
    seconds += one.seconds;
  }
  return seconds;
}

TEST(OperationTimes, CountEachOperationThatRunsWhileTheyExist) {
  const auto device = open_device("cpu");
  const Tensor a = Tensor::zeros(*device, {64, 64}, DType::f32);
  Tensor out(*device, {64, 64}, DType::f32), narrow(*device, {64, 64}, DType::bf16);
  run(Cast{.x = a, .out = narrow});
  const auto start = std::chrono::steady_clock::now();
  std::vector<OperationTimes::Time> found;
  {
    const OperationTimes times(*device);
    run(Matmul{.a = a, .b = a, .out = out});
    run(Cast{.x = a, .out = narrow});
    run(Matmul{.a = a, .b = a, .out = out});
    found = times.times();
  }
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run(Cast{.x = a, .out = narrow});
  EXPECT_EQ(calls_of(found), "matmul 2 cast 1 ");
  EXPECT_LE(sum_of(found), elapsed);
  EXPECT_GT(sum_of(found), 0);
}

// Attention of the row `after-product` and products of fused operations run operations of their own.
TEST(OperationTimes, WhatARowRunsItselfIsPartOfItsOwn) {
  const auto device = open_device("cpu");
  const Tensor a = Tensor::zeros(*device, {64, 64}, DType::f32), bias = Tensor::zeros(*device, {64}, DType::f32);
  Tensor out(*device, {64, 64}, DType::f32), kept;
  const OperationTimes times(*device);
  KernelLog log;
  run(FusedMatmul{.a = a, .b = a, .bias = bias, .out = out, .kept = kept});
  EXPECT_GT(log.entries().size(), 1u) << "the row runs a product";
  EXPECT_EQ(calls_of(times.times()), "fused_matmul 1 ");
}

TEST(OperationTimes, OperationsOfOtherDevicesAreNotAmongThem) {
  const auto device = open_device("cpu"), other = open_device("cpu");
  const Tensor a = Tensor::zeros(*other, {8, 8}, DType::f32);
  Tensor out(*other, {8, 8}, DType::f32);
  const OperationTimes times(*device);
  run(Matmul{.a = a, .b = a, .out = out});
  EXPECT_EQ(calls_of(times.times()), "");
}

// An operation that fails has no end.
TEST(OperationTimes, AnOperationThatIsRefusedIsLeftOut) {
  const auto device = open_device("cpu");
  const Tensor a = Tensor::zeros(*device, {8, 8}, DType::f32), wrong = Tensor::zeros(*device, {7, 8}, DType::f32);
  Tensor out(*device, {8, 8}, DType::f32);
  const OperationTimes times(*device);
  EXPECT_THROW(run(Matmul{.a = a, .b = wrong, .out = out}), Error);
  run(Matmul{.a = a, .b = a, .out = out});
  EXPECT_EQ(calls_of(times.times()), "matmul 1 ");
}

}  // namespace
}  // namespace halfmark::kernels
