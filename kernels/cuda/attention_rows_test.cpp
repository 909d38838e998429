// Which row of attention runs on the software GPU, and what becomes of an engine of cuDNN that fails or computes wrongly.
// Each test has sizes of its own, because plans are kept.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
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
    fuses_ = has_row<Attention>(), fuses_backward_ = has_row<AttentionBackward>();
  }
  // Whether the GPU has rows `cudnn`: from compute capability 8.0 on, backward not on 10.x.
  bool fuses() const { return fuses_; }
  bool fuses_backward() const { return fuses_backward_; }
  template <class Op>
  bool has_row() {
    for (const Kernel<Op>& row : gpu().kernels().of<Op>())
      if (row.name == "cudnn") return true;
    return false;
  }

  Ran chosen_row(const Heads& h) { return chosen_row(h, gpu()); }
  Ran chosen_row(const Heads& h, Device& device) {
    const auto normal = [&](int64_t length, uint64_t seed) {
      const RandomKey key(seed);
      std::vector<double> values(static_cast<size_t>(h.n * h.heads * length * h.d));
      for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
      return Tensor::from(device, {h.n, h.heads, length, h.d}, h.dtype, values);
    };
    const Tensor q = normal(h.t, 1), k = normal(h.s, 2), v = normal(h.s, 3),
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
  Ran chosen_backward(const Heads& h) {
    const Shape queries{h.n, h.heads, h.t, h.d}, keys{h.n, h.heads, h.s, h.d};
    const auto ones = [&](const Shape& shape) {
      return Tensor::from(gpu(), shape, h.dtype, std::vector<double>(static_cast<size_t>(shape.elements()), 1));
    };
    const Tensor q = ones(queries), k = ones(keys), v = ones(keys), out = ones(queries), dout = ones(queries), mask,
                 log_sum = Tensor::zeros(gpu(), {h.n, h.heads, h.t}, DType::f32);
    Tensor dq(gpu(), queries, h.dtype), dk(gpu(), keys, h.dtype), dv(gpu(), keys, h.dtype);
    KernelLog log;
    run(AttentionBackward{.q = q,
                          .k = k,
                          .v = v,
                          .mask = mask,
                          .out = out,
                          .log_sum = log_sum,
                          .dout = dout,
                          .dq = dq,
                          .dk = dk,
                          .dv = dv,
                          .causal = h.causal});
    for (const LoggedKernel& entry : log.entries())
      if (entry.operation == "attention_backward") return {entry.row, entry.refusals, entry.choices, dq.values()};
    return {};
  }
  const std::string& nested() const { return nested_; }

 private:
  bool fuses_ = false, fuses_backward_ = false;
  std::string nested_;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST_F(AttentionRows, CudnnIsThereFromAmpereOnAndBackwardNotOnBlackwell) {
  const char* gpu = std::getenv("HALFMARK_SOFTWARE_GPU");
  ASSERT_NE(gpu, nullptr);
  const std::string name = gpu;
  EXPECT_EQ(fuses(), name != "sm_75") << name;
  EXPECT_EQ(fuses_backward(), name != "sm_75" && name != "sm_100" && name != "sm_103") << name;
}

TEST_F(AttentionRows, CudnnRunsBothDirectionsInBothHalfTypes) {
  if (!fuses()) GTEST_SKIP() << "cuDNN has no fused attention on this GPU";
  for (const bool causal : {false, true})
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const Heads heads{.t = 7, .s = 7, .dtype = dtype, .causal = causal};
      const Ran forward = chosen_row(heads), backward = chosen_backward(heads);
      const std::string name = std::string(name_of(dtype)) + (causal ? " causal" : "");
      EXPECT_EQ(forward.row, "cudnn") << name << forward.all_refusals();
      EXPECT_TRUE(has(forward.choice(), "engine 7; the library's number 2 of 6")) << forward.choice();
      EXPECT_TRUE(has(forward.choice(), "probabilities rounded to " + std::string(name_of(dtype)))) << forward.choice();
      EXPECT_EQ(backward.row, fuses_backward() ? "cudnn" : "cuda") << name << backward.all_refusals();
    }
}

TEST_F(AttentionRows, WhatCudnnDoesNotTakeIsTheProductsOfOtherRows) {
  struct Case {
    Heads heads;
    const char* reason;
  };
  const Case cases[] = {{{.d = 12}, "a multiple of 8 features, not 12"},
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

TEST_F(AttentionRows, WhatCudnnDoesNotTakeBackwardHasAReason) {
  if (!fuses_backward()) GTEST_SKIP() << "no such row on this GPU";
  const Ran wide = chosen_backward({.d = 264}), one_key = chosen_backward({.s = 1});
  EXPECT_EQ(wide.row, "cuda");
  EXPECT_TRUE(has(wide.all_refusals(), "features here, not 264")) << wide.all_refusals();
  EXPECT_EQ(one_key.row, "cuda");
  EXPECT_TRUE(has(one_key.all_refusals(), "each query sees one key")) << one_key.all_refusals();
  EXPECT_EQ(chosen_row({.t = 1, .s = 1, .d = 264}).row, "cudnn");
}

TEST_F(AttentionRows, AnEngineThatComputesWronglyIsFoundWhenItIsTriedAndAnotherIsUsed) {
  if (!fuses()) GTEST_SKIP() << "cuDNN has no fused attention on this GPU";
  // The ids are those of cudnn_attention_graph.h: 4 is out, 5 log_sum, 7 to 9 are dq, dk and dv. A last row of dv, causal, is
  // small beside the others.
  struct Case {
    const char *words, *fault;
    bool forward, backward;
  };
  const Case cases[] = {{"attention-loses-keys", "gives another", true, true},
                        {"attention-loses-row-of-4", "gives another out", true, false},
                        {"attention-loses-row-of-5", "gives another log_sum", true, false},
                        {"attention-loses-row-of-7", "gives another dq", false, true},
                        {"attention-loses-row-of-8", "gives another dk", false, true},
                        {"attention-loses-row-of-9", "gives another dv", false, true},
                        {"attention-writes-once", "gives another", true, true},
                        {"attention-varies", "gives other bits each time", true, true},
                        {"attention-loses-nan", "loses a NaN", true, true}};
  int64_t t = 40;
  for (const Case& one : cases) {
    const Planted planted(one.words);
    for (const bool causal : {false, true}) {
      const Heads heads{.t = ++t, .s = t, .dtype = DType::bf16, .causal = causal};
      const auto expect_other = [&](const Ran& ran) {
        EXPECT_EQ(ran.row, "cudnn") << one.words << ran.all_refusals();
        EXPECT_TRUE(has(ran.choice(), "engine 9; the library's number 3 of 6")) << one.words << ran.choice();
        EXPECT_TRUE(has(ran.choice(), std::string("engine 7 ") + one.fault)) << one.words << ran.choice();
      };
      if (one.forward) expect_other(chosen_row(heads));
      if (one.backward && fuses_backward()) expect_other(chosen_backward(heads));
    }
  }
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
