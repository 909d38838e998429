// Attention of q, k and v in one memory on the software GPU: cuDNN reads them where they are, and what becomes of an engine
// that fails or computes wrongly. Each test has sizes of its own, because plans are kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/library_rows_testing.h"
#include "kernels/number/error.h"
#include "kernels/ops/packed_attention_testing.h"

namespace halfmark::kernels {
namespace {

template <class Op>
bool has_cudnn(const Device& device) {
  return std::ranges::any_of(device.kernels().of<Op>(), [](const Kernel<Op>& row) { return row.name == "cudnn"; });
}

class PackedAttentionRows : public LibraryRows {
 protected:
  bool fuses() { return has_cudnn<PackedAttention>(gpu()); }
  bool fuses_backward() { return has_cudnn<PackedAttentionBackward>(gpu()); }

  struct Results {
    Ran forward, backward;
    std::vector<double> log_sum;
    std::vector<std::string> nested;  // "attention cudnn": operations that the rows ran
  };
  Results run_case(const PackedCase& c) { return run_case(c, gpu()); }
  static Results run_case(const PackedCase& c, Device& device) {
    const PackedSample sample(device, c);
    Tensor out(device, sample.out.shape(), c.dtype), log_sum(device, sample.log_sum.shape(), sample.log_sum.dtype()),
        dqkv(device, sample.qkv.shape(), c.dtype);
    Results results;
    const KernelLog log;
    run(sample.forward(out, log_sum)), run(sample.backward(dqkv));
    for (const LoggedKernel& entry : log.entries())
      if (entry.operation == PackedAttention::name)
        results.forward = {entry.row, entry.refusals, entry.choices, out.values()};
      else if (entry.operation == PackedAttentionBackward::name)
        results.backward = {entry.row, entry.refusals, entry.choices, dqkv.values()};
      else
        results.nested.push_back(entry.operation + " " + entry.row);
    results.log_sum = log_sum.values();
    return results;
  }
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::ranges::find(all, one) != all.end();
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << what << " " << i;
}

// Nothing else runs: there are no copies.
TEST_F(PackedAttentionRows, CudnnReadsAndWritesTheProjectionWhereItIs) {
  const std::shared_ptr<Device> cpu = open_device("cpu");
  for (const bool causal : {false, true})
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const PackedCase form{2, 7, 3, 16, dtype, causal, 'n'};
      const Results found = run_case(form), expected = run_case(form, *cpu);
      const double tolerance = dtype == DType::f16 ? 8e-3 : 6e-2;
      expect_near(found.forward.values, expected.forward.values, tolerance, form.text());
      expect_near(found.log_sum, expected.log_sum, 1e-4, form.text());
      expect_near(found.backward.values, expected.backward.values, tolerance, form.text());
      const char* const forward = fuses() ? "cudnn" : "separate";
      const char* const backward = fuses_backward() ? "cudnn" : "separate";
      const bool takes_bf16 = fuses() || dtype == DType::f16;  // no products of bf16 before
      if (takes_bf16) {
        EXPECT_EQ(found.forward.row, forward) << form.text() << found.forward.all_refusals();
        EXPECT_EQ(found.backward.row, backward) << form.text() << found.backward.all_refusals();
      }
      if (fuses()) {
        EXPECT_TRUE(has(found.forward.choice(), "[2, 7, 3, 3, 16]: engine 7; the library's number 2 of 6"))
            << found.forward.choice();
      }
      EXPECT_EQ(found.nested.empty(), fuses_backward()) << form.text();
      EXPECT_EQ(has(found.nested, "permute cuda"), !fuses_backward()) << form.text();
    }
}

TEST_F(PackedAttentionRows, WhatCudnnDoesNotTakeIsCopiedForTheRowsOfAttention) {
  struct Case {
    PackedCase form;
    const char* reason;
  };
  const Case cases[] = {{{1, 6, 2, 12, DType::f16, false, 'n'}, "a multiple of 8 features, not 12"},
                        {{2, 6, 2, 16, DType::f16, false, 's'}, "a query may attend to nothing"},
                        {{1, 6, 2, 16, DType::f32, false, 'n'}, "takes f16 and bf16, not f32"},
                        {{1, 6, 2, 16, DType::f64, false, 'n'}, "takes f16 and bf16, not f64"}};
  for (const Case& one : cases) {
    const Results found = run_case(one.form);
    EXPECT_EQ(found.forward.row, "separate") << one.reason;
    EXPECT_EQ(found.backward.row, "separate") << one.reason;
    EXPECT_TRUE(has(found.nested, "attention cuda") && has(found.nested, "attention_backward cuda")) << one.reason;
    if (fuses()) {
      EXPECT_TRUE(has(found.forward.all_refusals(), one.reason)) << found.forward.all_refusals();
    }
    if (fuses_backward()) {
      EXPECT_TRUE(has(found.backward.all_refusals(), one.reason)) << found.backward.all_refusals();
    }
  }
}

// A library that only takes heads one after the other gets copies.
TEST_F(PackedAttentionRows, WithoutAnEngineForTheStridesTheHeadsAreCopiedForCudnn) {
  if (!fuses()) GTEST_SKIP() << "cuDNN has no fused attention on this GPU";
  const Planted planted("attention-takes-no-strides");
  const Results found = run_case({1, 10, 2, 16, DType::f16, true, 'n'});
  EXPECT_EQ(found.forward.row, "separate");
  EXPECT_TRUE(has(found.forward.all_refusals(), "cudnn: ")) << found.forward.all_refusals();
  EXPECT_TRUE(has(found.nested, "attention cudnn"));
  EXPECT_EQ(has(found.nested, "attention_backward cudnn"), fuses_backward());
}

TEST_F(PackedAttentionRows, AnEngineThatComputesWronglyIsFoundWhenItIsTriedAndAnotherIsUsed) {
  if (!fuses()) GTEST_SKIP() << "cuDNN has no fused attention on this GPU";
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
                        {"attention-ignores-strides", "gives another", true, true},
                        {"attention-writes-once", "gives another", true, true},
                        {"attention-varies", "gives other bits each time", true, true},
                        {"attention-loses-nan", "loses a NaN", true, true}};
  int64_t t = 20;
  for (const Case& one : cases) {
    const Planted planted(one.words);
    for (const bool causal : {false, true}) {
      const Results found = run_case({2, ++t, 2, 8, DType::bf16, causal, 'n'});
      const auto expect_other = [&](const Ran& ran) {
        EXPECT_EQ(ran.row, "cudnn") << one.words << ran.all_refusals();
        EXPECT_TRUE(has(ran.choice(), "engine 9; the library's number 3 of 6")) << one.words << ran.choice();
        EXPECT_TRUE(has(ran.choice(), std::string("engine 7 ") + one.fault)) << one.words << ran.choice();
      };
      if (one.forward) expect_other(found.forward);
      if (one.backward && fuses_backward()) expect_other(found.backward);
    }
  }
}

TEST_F(PackedAttentionRows, TheSeparateRowsHaveTheBitsOfAttentionOnCopies) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const char mask : {'n', 's', 'q'})
      for (const bool causal : {false, true})
        EXPECT_EQ(expect_bits_of_attention_on_copies(gpu(), {2, 5, 3, causal ? 8 : 7, dtype, causal, mask}), 2);
}

TEST_F(PackedAttentionRows, ADtypeThatNoRowOfAttentionTakesIsRefusedByEachRow) {
  const DType dtype = DType::e4m3fnuz;
  const Tensor qkv = Tensor::zeros(gpu(), {1, 4, 3, 2, 8}, dtype), mask;
  Tensor out(gpu(), {1, 4, 2, 8}, dtype), log_sum(gpu(), {1, 2, 4}, DType::f32);
  try {
    run(PackedAttention{.qkv = qkv, .mask = mask, .out = out, .log_sum = log_sum});
    FAIL() << "a row took it";
  } catch (const Unsupported& error) {
    EXPECT_TRUE(has(error.what(), "separate: no row has attention: ")) << error.what();
    EXPECT_TRUE(has(error.what(), "separate-emulated: no row has attention: ")) << error.what();
  }
}

}  // namespace
}  // namespace halfmark::kernels
