// Which row of attention runs on the software GPU, and what becomes of an engine of cuDNN that fails or computes wrongly.
// Each test has sizes of its own, because plans are kept.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/library_rows_testing.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

struct Heads {
  int64_t n = 1, heads = 2, t = 6, s = 6, d = 16;
  DType dtype = DType::f16;
  bool causal = false, masked = false;
};

class AttentionRows : public LibraryRows {
 protected:
  void SetUp() override {
    LibraryRows::SetUp();
    if (IsSkipped()) return;
    fuses_ = chosen_row({}).row == "cudnn";
  }
  // Whether cuDNN has fused engines on this GPU: from compute capability 8.0 on.
  bool fuses() const { return fuses_; }

  Ran chosen_row(const Heads& h) { return chosen_row(h, gpu()); }
  Ran chosen_row(const Heads& h, Device& device) {
    const auto normal = [&](int64_t length, uint64_t seed) {
      const RandomKey key(seed);
      std::vector<double> values(static_cast<size_t>(h.n * h.heads * length * h.d));
      for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
      return Tensor::from(device, {h.n, h.heads, length, h.d}, h.dtype, values);
    };
    const Tensor q = normal(h.t, 1), k = normal(h.s, 2), v = normal(h.s, 3), dout = normal(h.t, 4),
                 mask = h.masked ? Tensor::zeros(device, {1, 1, h.s}, h.dtype) : Tensor();
    const DType wide = h.dtype == DType::f64 ? DType::f64 : DType::f32;
    Tensor out(device, q.shape(), h.dtype), log_sum(device, {h.n, h.heads, h.t}, wide);
    KernelLog log;
    run(Attention{.q = q, .k = k, .v = v, .mask = mask, .out = out, .log_sum = log_sum, .causal = h.causal});
    Ran ran;
    for (const LoggedKernel& entry : log.entries())
      if (entry.operation == "attention")
        ran = {entry.row, entry.refusals, entry.choices, out.values()};
      else
        nested_ += entry.operation + " " + entry.row + "\n";
    return ran;
  }
  const std::string& nested() const { return nested_; }

 private:
  bool fuses_ = false;
  std::string nested_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST_F(AttentionRows, TheEngineOfCudnnAddsInAFixedOrder) {
  if (!fuses()) GTEST_SKIP() << "cuDNN has no fused attention on this GPU";
  const Ran ran = chosen_row({.t = 7});
  EXPECT_EQ(ran.row, "cudnn");
  EXPECT_TRUE(has(ran.choice(), "engine 7; the library's number 2 of 4")) << ran.choice();
  EXPECT_TRUE(has(ran.choice(), "probabilities rounded to f16")) << ran.choice();
}

TEST_F(AttentionRows, WhatCudnnDoesNotTakeIsTheProductsOfOtherRows) {
  struct Case {
    Heads heads;
    const char* reason;
  };
  const Case cases[] = {{{.d = 12}, "a multiple of 8, not 12"},
                        {{.d = 136}, "takes up to 128 features"},
                        {{.t = 1}, "takes two queries and two keys at least"},
                        {{.t = 8, .causal = true}, "takes as many queries as keys if causal"},
                        {{.masked = true}, "a query may attend to nothing"},
                        {{.dtype = DType::f32}, "takes f16 and bf16, not f32"},
                        {{.dtype = DType::f64}, "takes f16 and bf16, not f64"}};
  for (const Case& one : cases) {
    const Ran ran = chosen_row(one.heads);
    EXPECT_EQ(ran.row, "cuda") << one.reason;
    EXPECT_TRUE(has(ran.choice(), "scores of 2 of 2 heads at a time")) << ran.choice();
    EXPECT_EQ(has(ran.choice(), "probabilities rounded"), one.heads.dtype == DType::f16) << ran.choice();
    if (fuses()) {
      EXPECT_TRUE(has(ran.all_refusals(), one.reason)) << ran.all_refusals();
    }
  }
  EXPECT_TRUE(has(nested(), "batched_matmul cublaslt")) << nested();
}

TEST_F(AttentionRows, AnEngineThatComputesWronglyIsFoundWhenItIsTried) {
  if (!fuses()) GTEST_SKIP() << "cuDNN has no fused attention on this GPU";
  const Planted planted("attention-loses-keys");
  const Ran ran = chosen_row({.t = 9, .s = 9});
  EXPECT_EQ(ran.row, "cuda");
  EXPECT_TRUE(has(ran.all_refusals(), "cudnn: gives a out that differs from that of the next row (engine 7)"))
      << ran.all_refusals();
}

TEST_F(AttentionRows, AnEngineThatFailsIsARefusalWithTheReason) {
  if (!fuses()) GTEST_SKIP() << "cuDNN has no fused attention on this GPU";
  const Planted planted("cudnnBackendExecute");
  const Ran ran = chosen_row({.t = 11, .s = 11});
  EXPECT_EQ(ran.row, "cuda");
  EXPECT_TRUE(has(ran.all_refusals(), "cudnn: failed when it was tried: cudnnBackendExecute")) << ran.all_refusals();
}

TEST_F(AttentionRows, HeadsAreTakenInSlicesOfWhichTheLastMayBeSmaller) {
  // The software GPU keeps at most 4 KiB of scores: three heads of 16 x 20.
  const Heads heads{.heads = 5, .t = 16, .s = 20, .d = 4};
  const Ran ran = chosen_row(heads);
  EXPECT_EQ(ran.row, "cuda");
  EXPECT_TRUE(has(ran.choice(), "scores of 3 of 5 heads at a time")) << ran.choice();
  const std::shared_ptr<Device> cpu = open_device("cpu");
  const Ran expected = chosen_row(heads, *cpu);
  for (size_t i = 0; i < ran.values.size(); ++i) ASSERT_NEAR(ran.values[i], expected.values[i], 4e-3) << i;
}

}  // namespace
}  // namespace halfmark::kernels
