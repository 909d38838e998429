// The roofline share by hand, and where there is none.
#include "bench/run/attainable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/run/hot_steps.h"
#include "bench/run/work.h"
#include "kernels/devices.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::bench {
namespace {

Measurement measured(const std::string& metric, const std::string& at, double value) {
  Measurement one;
  one.metric = metric, one.at = at, one.value = value;
  return one;
}

// A step of 6 GFLOP in products of this type and 0.5 GB in 0.2 s.
Record throughput_record(const std::string& type) {
  Record record;
  record.harness = "throughput", record.device = "cpu", record.policy = "fp32";
  record.measurements = {measured("time.step", "hot", 0.2),      measured("time.step", "cold", 5),
                         measured("work.flops", "forward", 2e9), measured("work.flops", "train", 6e9),
                         measured("roofline.bytes", "hot", 5e8), measured("roofline.flops", type, 6e9)};
  return record;
}

AttainableRates::Rates rates(double copy, double f32, double f16) {
  return {{"attainable.copy", copy}, {"attainable.matmul.f32", f32}, {"attainable.matmul.f16", f16}};
}

double number(const Record& record, const std::string& metric) {
  for (const Measurement& one : record.measurements)
    if (one.metric == metric) return one.value;
  return -1;
}

TEST(Attainable, TheShareIsThatOfTheSlowerOfProductsAndBytes) {
  Record bound_by_products = throughput_record("f32");
  add_roofline(bound_by_products, rates(1e10, 6e10, 1e12));  // 0.1 s for products, 0.05 s for bytes
  EXPECT_DOUBLE_EQ(number(bound_by_products, "roofline.share"), 0.5);
  EXPECT_DOUBLE_EQ(number(bound_by_products, "roofline.intensity"), 12);
  Record bound_by_bytes = throughput_record("f16");
  add_roofline(bound_by_bytes, rates(1e10, 6e10, 1e12));  // 0.006 s and 0.05 s
  EXPECT_DOUBLE_EQ(number(bound_by_bytes, "roofline.share"), 0.25);
}

// A step that computes 12 GFLOP for the 6 of its work: the share is of what is computed, the intensity of the work, so that
// intensity / throughput.flops is still the time of a byte.
TEST(Attainable, TheShareIsOfWhatIsComputedAndTheIntensityOfTheWork) {
  Record record = throughput_record("f32");
  record.measurements.back().value = 12e9;
  add_roofline(record, rates(1e10, 6e10, 1e12));
  EXPECT_DOUBLE_EQ(number(record, "roofline.share"), 1);
  EXPECT_DOUBLE_EQ(number(record, "roofline.intensity"), 12);
  EXPECT_DOUBLE_EQ(number(record, "roofline.intensity") / (6e9 / 0.2), 0.2 / 5e8);
}

TEST(Attainable, EmulatedArithmeticHasNoShare) {
  Record record = throughput_record("f16");
  record.kernels.push_back({"matmul", "forward", "f16,f16->f16", "upcast", "emulated", 1, {}});
  add_roofline(record, rates(1e10, 6e10, 1e12));
  EXPECT_EQ(number(record, "roofline.share"), -1);
}

TEST(Attainable, WithoutTheRateOfItsTypeThereIsNoShare) {
  for (const auto& environment : {rates(1e10, 0, 1e12), rates(0, 6e10, 1e12), AttainableRates::Rates()}) {
    Record record = throughput_record("f32");
    add_roofline(record, environment);
    EXPECT_EQ(number(record, "roofline.share"), -1);
  }
  Record of_tf32 = throughput_record("tf32");
  add_roofline(of_tf32, rates(1e10, 6e10, 1e12));
  EXPECT_EQ(number(of_tf32, "roofline.share"), -1);
  Record other = throughput_record("f32");
  other.harness = "memory";
  add_roofline(other, rates(1e10, 6e10, 1e12));
  EXPECT_EQ(number(other, "roofline.share"), -1);
}

// Of more elements than are copied to the device at a time, so that the rest is copied there.
TEST(Attainable, APatternIsRepeatedToTheEnd) {
  const auto cpu = open_device("cpu");
  const std::vector<double> three = {1, 2, 3};
  const Tensor numbers = Tensor::from(*cpu, {3}, DType::f32, three);
  const std::vector<unsigned char> pattern = numbers.codes();
  for (const Layout layout : {Layout::plain, Layout::nhwc})
    for (const int64_t count : {int64_t{2}, int64_t{7}, (int64_t{5} << 20) + 1}) {
      Tensor image(*cpu, {1, 1, 1, count}, DType::f32, layout);
      fill_repeatedly(image, pattern);
      const auto* values = image.as<float>();
      std::map<double, int64_t> seen;
      for (int64_t i = 0; i < count; ++i) ++seen[static_cast<double>(values[i])];
      EXPECT_EQ(seen.size(), std::min<size_t>(3, static_cast<size_t>(count)));
      EXPECT_EQ(values[0], 1);
      EXPECT_EQ(values[1], 2);
      for (const auto& [value, times] : seen)
        EXPECT_NEAR(static_cast<double>(times), static_cast<double>(count) / 3, 1);
    }
}

// 6 GFLOP of f32 in 0.1 s, and 4 of fp8 in 0.004 s.
TEST(Attainable, ProductsOfSeveralTypesAreEachComparedWithTheirOwnRate) {
  Record record = throughput_record("f32");
  record.measurements.push_back(measured("roofline.flops", "fp8", 4e9));
  Record unknown = record;
  AttainableRates::Rates known = rates(1e10, 6e10, 1e12);
  add_roofline(unknown, known);
  EXPECT_EQ(number(unknown, "roofline.share"), -1);
  known.emplace_back("attainable.matmul.fp8", 1e12);
  add_roofline(record, known);
  EXPECT_DOUBLE_EQ(number(record, "roofline.share"), 0.52);
  EXPECT_DOUBLE_EQ(number(record, "roofline.attainable_matmul"), 10e9 / 0.104);
}

// FLOP of a step's products by their types: "bf16 4608 ".
std::string products_of_step(const std::string& subject, const std::string& policy) {
  TrialSpec spec;
  spec.subject = &subject_named(subject), spec.policy = &policy_named(policy), spec.device = open_device("cpu");
  Trial trial(spec);
  trial.load_batch(0);
  FindingsWriter out(roofline_table());
  write_operands_of_step(trial, out);
  std::string found;
  for (const Measurement& one : out.take().measurements)
    if (one.metric == "roofline.flops") found += one.at + " " + std::to_string(static_cast<int64_t>(one.value)) + " ";
  return found;
}

// Forward, and the gradients of input and weights: three times the work of forward.
TEST(Attainable, TheProductsOfAStepAreCountedByTheirTypes) {
  const std::string mlp = std::to_string(2 * 8 * 3 * (16 * 24 + 24 * 24 + 24 * 10));
  for (const auto& [policy, type] : std::map<std::string, std::string>{{"fp32", "f32"},
                                                                       {"fp16", "f16"},
                                                                       {"fp16-sum16", "f16-fp16-sums"},
                                                                       {"amp-bf16", "bf16"},
                                                                       {"mxfp8", "mxfp8"},
                                                                       {"fp8-delayed", "fp8"},
                                                                       {"tf32", "tf32"}})
    EXPECT_EQ(products_of_step("mlp/b8_i16_h24_o10", policy), type + " " + mlp + " ") << policy;
  // The transform of 16 numbers fills the depth of 8 of the weights' gradients with zeros.
  EXPECT_EQ(products_of_step("mlp/b8_i16_h24_o10", "nvfp4"),
            "nvfp4 " + std::to_string(2 * 8 * (2 + 2) * (16 * 24 + 24 * 24 + 24 * 10)) + " ");
  for (const char* subject : {"conv2d/b2_c4_o8_s6_k3_g2", "attention/b2_h2_t6_d8", "convtranspose2d/b2_c3_o4_s5_k3"}) {
    const auto flops = static_cast<int64_t>(work_of(subject_named(subject)).step_flops);
    EXPECT_EQ(products_of_step(subject, "fp32"), "f32 " + std::to_string(flops) + " ") << subject;
  }
}

TEST(Attainable, TheCopyReadsAndWritesItsBytes) {
  const auto cpu = open_device("cpu");
  LargeCopy copy(*cpu, 4096);
  EXPECT_EQ(copy.bytes(), 8192);
  copy.run();
}

// Products of formats with scales: no zeros, and no two rows of a period alike.
TEST(Attainable, RowsInABlockFormatRepeat) {
  const auto cpu = open_device("cpu");
  constexpr int64_t kDepth = 64, kPeriod = 16;
  for (const BlockFormat& format : block_formats())
    for (const int64_t rows : {int64_t{5}, int64_t{40}}) {
      const Scaled matrix = repeated_rows(*cpu, format, rows, kDepth, 1);
      ASSERT_EQ(matrix.rows(), rows);
      const std::vector<double> values = matrix.values();
      const auto row = [&](int64_t i) {
        return std::vector<double>(values.begin() + i * kDepth, values.begin() + (i + 1) * kDepth);
      };
      EXPECT_NE(row(0), row(1)) << format.name;
      for (int64_t i = kPeriod; i < rows; ++i) EXPECT_EQ(row(i), row(i - kPeriod)) << format.name << " row " << i;
      double squares = 0;
      for (const double value : values) squares += value * value;
      EXPECT_NEAR(squares / static_cast<double>(values.size()), 1, 0.3) << format.name;
    }
}

TEST(Attainable, IsMeasuredOnHardwareOnly) {
  std::map<std::string, double> cpu;
  for (const auto& [name, rate] : attainable_of(*open_device("cpu"))) cpu[name] = rate;
  EXPECT_GT(cpu["attainable.copy"], 1e8);
  EXPECT_GT(cpu["attainable.matmul.f32"], 1e8);
  EXPECT_TRUE(attainable_of(*open_device("sim:hopper")).empty());
}

}  // namespace
}  // namespace halfmark::bench
