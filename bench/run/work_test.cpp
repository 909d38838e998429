// Compares counts of work with counts made by hand and with the tensors of a trial.
#include "bench/run/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>

#include "bench/run/case.h"
#include "bench/run/name_match.h"
#include "bench/run/run_case.h"
#include "kernels/devices.h"
#include "kernels/ops/kernel.h"
#include "reports/record/subject_facts.h"

namespace halfmark::bench {
namespace {

Work work_named(const std::string& id) { return work_of(subject_named(id)); }

double flops_of(const KernelLog& log) {
  double flops = 0;
  for (const LoggedKernel& kernel : log.entries())
    for (const auto& [type, count] : kernel.flops) flops += count;
  return flops;
}

TEST(Work, OfALinearLayer) {
  const Work work = work_named("linear/b8_i32_o16");
  EXPECT_EQ(work.parameters, 32 * 16 + 16);        // weight and bias
  EXPECT_EQ(work.forward_flops, 2 * 8 * 32 * 16);  // a multiply-add for each weight and sample
  EXPECT_EQ(work.step_flops, 3 * 2 * 8 * 32 * 16);
  EXPECT_EQ(work.input, (Shape{8, 32}));
  EXPECT_EQ(work.output, (Shape{8, 16}));
  // fp16: every number has two bytes. amp-fp16: parameters have four, and a single layer gets its input in f16.
  const Subject& linear = subject_named("linear/b8_i32_o16");
  EXPECT_EQ(least_forward_bytes(linear, policy_named("fp16")), 2 * (528 + 8 * 32 + 8 * 16));
  EXPECT_EQ(least_forward_bytes(linear, policy_named("amp-fp16")), 4 * 528 + 2 * (8 * 32 + 8 * 16));
  EXPECT_EQ(least_forward_bytes(linear, policy_named("fp32")), 4 * (528 + 8 * 32 + 8 * 16));
}

TEST(Work, OfAGroupedConvolution) {
  const Work work = work_named("conv2d/b2_c4_o8_s6_k3_g2");
  // Two groups: each of the 8 outputs sees 4 / 2 inputs through 3 x 3 weights; one bias for each output.
  const double weights = 8 * 2 * 3 * 3;
  EXPECT_EQ(work.parameters, weights + 8);
  EXPECT_EQ(work.forward_flops, 2 * weights * 2 * 6 * 6);  // each weight at 6 x 6 places of 2 images
  EXPECT_EQ(work.output, (Shape{2, 8, 6, 6}));
}

TEST(Work, OfAnMlp) {
  const Work work = work_named("mlp/b8_i16_h24_o10");
  // Three linear layers: 16 -> 24 -> 24 -> 10.
  const double weights = 16 * 24 + 24 * 24 + 24 * 10;
  EXPECT_EQ(work.parameters, weights + 24 + 24 + 10);
  EXPECT_EQ(work.forward_flops, 2 * 8 * weights);
  EXPECT_EQ(work.input.elements(), 8 * 16);
  EXPECT_EQ(work.output.elements(), 8 * 10);
}

TEST(Work, OfAConvnet) {
  const Work work = work_named("convnet/b4_c1_s8_w4");
  // 3 x 3 convolutions without bias: 1 -> 4 on 8 x 8; pooled to 4 x 4, where two keep the 4 channels; 4 -> 8 with
  // stride 2 on 2 x 2. Then the mean and 8 -> 10 with bias. Batch norm: scale and shift of 4 + 4 + 4 + 8 channels.
  const double conv1 = 1 * 4 * 9, conv2 = 4 * 4 * 9, conv3 = conv2, conv4 = 4 * 8 * 9, fc = 8 * 10;
  EXPECT_EQ(work.parameters, conv1 + conv2 + conv3 + conv4 + fc + 10 + 2 * (4 + 4 + 4 + 8));
  EXPECT_EQ(work.forward_flops, 2 * 4 * (conv1 * 8 * 8 + (conv2 + conv3) * 4 * 4 + conv4 * 2 * 2 + fc));
  EXPECT_EQ(work.output, (Shape{4, 10}));
}

TEST(Work, OfALayerWithoutMultiplyAddsHasNoFlops) {
  EXPECT_EQ(work_named("batchnorm2d/b4_c3_s4").forward_flops, 0);
  EXPECT_EQ(work_named("batchnorm2d/b4_c3_s4").parameters, 2 * 3);  // scale and shift of each channel
  EXPECT_EQ(work_named("relu/b2_c4_s5").parameters, 0);
}

TEST(Work, AgreesWithTheTensorsOfATrial) {
  const auto device = open_device("cpu");
  for (const Subject& subject : subjects()) {
    const Work work = work_of(subject);
    if (work.forward_flops > 1e7 || work.input.elements() > 100'000) continue;  // the small subjects of each kind
    for (const char* policy : {"fp32", "fp16", "fp16-bn32", "amp-fp16", "amp-bf16"}) {
      TrialSpec spec;
      spec.subject = &subject, spec.device = device, spec.policy = &policy_named(policy);
      Trial trial(spec);
      trial.load_batch(0);
      const KernelLog log;
      const Tensor out = trial.forward();
      // Counted from the operations that ran, and above by the layers.
      // The state before the first step of an LSTM is zero: its product is left out.
      if (subject.name == "lstm" || subject.name == "lstm_classifier" || subject.name == "speech") {
        EXPECT_LT(flops_of(log), work.forward_flops) << subject.id() << " " << policy;
        EXPECT_GT(flops_of(log), 0.8 * work.forward_flops) << subject.id() << " " << policy;
      } else {
        EXPECT_EQ(flops_of(log), work.forward_flops) << subject.id() << " " << policy;
      }
      double bytes = static_cast<double>(trial.input().shape().elements()) * size_of(trial.input().dtype()) +
                     static_cast<double>(out.shape().elements()) * size_of(out.dtype());
      double parameters = 0;
      for (const Param* param : trial.params()) {
        parameters += static_cast<double>(param->value.shape().elements());
        bytes += static_cast<double>(param->value.shape().elements()) * size_of(param->value.dtype());
      }
      EXPECT_EQ(parameters, work.parameters) << subject.id();
      EXPECT_EQ(out.shape(), work.output) << subject.id();
      EXPECT_EQ(trial.step_flops(), work.step_flops) << subject.id();
      // Autocast runs norms of rows, softmax, powers, upsampling and CTC in f32, and a table of an embedding stays in it: the output
      // is wider than the least.
      const bool runs_wide = subject.name.ends_with("norm") || subject.name == "softmax" ||
                             subject.name.starts_with("upsample") || subject.name.ends_with("embedding") ||
                             subject.name == "ctc" || subject.name == "exp" || subject.name == "square";
      const bool is_widened = spec.policy->rules && runs_wide && out.dtype() == DType::f32;
      const size_t wider = is_widened ? size_of(DType::f32) - size_of(spec.policy->low) : 0;
      bytes -= static_cast<double>(out.shape().elements()) * static_cast<double>(wider);
      EXPECT_EQ(bytes, least_forward_bytes(subject, *spec.policy)) << subject.id() << " " << policy;
    }
  }
}

TEST(Work, IsInEveryRecordThatWasMeasured) {
  const Record record = run_case(case_of("mlp/b8_i16_h24_o10/cpu/fp16/range"), open_device("cpu"), 0);
  ASSERT_EQ(record.status, Status::ok) << record.reason;
  const Measurement* flops = find(record, "work.flops", "train");
  ASSERT_TRUE(flops);
  EXPECT_EQ(flops->value, 3 * 2 * 8 * (16 * 24 + 24 * 24 + 24 * 10));
  EXPECT_EQ(flops->unit, "FLOP");
  EXPECT_EQ(flops->kind, Kind::information);
  const double weights = 16 * 24 + 24 * 24 + 24 * 10, parameters = weights + 24 + 24 + 10;
  const std::tuple<const char*, const char*, const char*, double> others[] = {
      {"work.parameters", "", "1", parameters},
      {"work.input", "", "1", 8 * 16},
      {"work.output", "", "1", 8 * 10},
      {"work.flops", "forward", "FLOP", 2 * 8 * weights},
      {"work.bytes", "forward", "B", 2 * (parameters + 8 * 16 + 8 * 10)}};
  for (const auto& [metric, at, unit, value] : others) {
    const Measurement* one = find(record, metric, at);
    ASSERT_TRUE(one) << metric;
    EXPECT_EQ(one->value, value) << metric;
    EXPECT_EQ(one->unit, unit) << metric;
    EXPECT_EQ(one->kind, Kind::information) << metric;
  }
  const Record norm = run_case(case_of("batchnorm2d/b4_c3_s4/cpu/fp16/range"), open_device("cpu"), 0);
  EXPECT_TRUE(find(norm, "work.parameters"));
  EXPECT_FALSE(find(norm, "work.flops", "forward")) << "it has no matmul and no convolution";
  const Record skipped =
      run_case(case_of("mlp/b8_i16_h24_o10/sim:hopper/fp16/throughput"), open_device("sim:hopper"), 0);
  EXPECT_TRUE(skipped.measurements.empty());
}

// The reports compare these: a name that no record has would compare nothing.
TEST(Work, HasEveryMetricByWhichReportsKnowASubject) {
  const Record record = run_case(case_of("mlp/b8_i16_h24_o10/cpu/fp32/memory"), open_device("cpu"), 0);
  const SubjectFacts facts = subject_facts(record);
  for (const std::string_view metric : kSubjectMetrics)
    EXPECT_TRUE(std::any_of(facts.numbers.begin(), facts.numbers.end(), [&](const auto& fact) {
      return fact.first.first == metric;
    })) << metric;
  for (const char* other : {"mlp/b8_i16_h24_o10/cpu/amp-fp16/error", "mlp/b8_i16_h24_o10/sim:hopper/bf16/range"})
    EXPECT_EQ(difference_of(facts, subject_facts(run_case(case_of(other), open_device(split(other, '/')[2]), 0))), "");
  EXPECT_EQ(difference_of(
                facts, subject_facts(run_case(case_of("mlp/b32_i64_h128_o10/cpu/fp32/memory"), open_device("cpu"), 0)))
                .substr(0, 10),
            "definition");
}

}  // namespace
}  // namespace halfmark::bench
