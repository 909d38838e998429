// The roofline share by hand, and where there is none.
#include "bench/run/attainable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/devices.h"
#include "kernels/tensor/tensor.h"

namespace halfmark::bench {
namespace {

Measurement measured(const std::string& metric, const std::string& at, double value) {
  Measurement one;
  one.metric = metric, one.at = at, one.value = value;
  return one;
}

// A step of 6 GFLOP and 0.5 GB in 0.2 s.
Record throughput_record(const std::string& policy) {
  Record record;
  record.harness = "throughput", record.device = "cpu", record.policy = policy;
  record.measurements = {measured("time.step", "hot", 0.2), measured("time.step", "cold", 5),
                         measured("work.flops", "forward", 2e9), measured("work.flops", "train", 6e9),
                         measured("roofline.bytes", "hot", 5e8)};
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
  Record bound_by_products = throughput_record("fp32");
  add_roofline(bound_by_products, rates(1e10, 6e10, 1e12));  // 0.1 s for products, 0.05 s for bytes
  EXPECT_DOUBLE_EQ(number(bound_by_products, "roofline.share"), 0.5);
  EXPECT_DOUBLE_EQ(number(bound_by_products, "roofline.intensity"), 12);
  Record bound_by_bytes = throughput_record("fp16");
  add_roofline(bound_by_bytes, rates(1e10, 6e10, 1e12));  // 0.006 s and 0.05 s
  EXPECT_DOUBLE_EQ(number(bound_by_bytes, "roofline.share"), 0.25);
}

TEST(Attainable, EmulatedArithmeticHasNoShare) {
  Record record = throughput_record("fp16");
  record.kernels.push_back({"matmul", "forward", "f16,f16->f16", "upcast", "emulated", 1, {}});
  add_roofline(record, rates(1e10, 6e10, 1e12));
  EXPECT_EQ(number(record, "roofline.share"), -1);
}

TEST(Attainable, WithoutTheRateOfItsTypeThereIsNoShare) {
  for (const auto& environment : {rates(1e10, 0, 1e12), rates(0, 6e10, 1e12), AttainableRates::Rates()}) {
    Record record = throughput_record("fp32");
    add_roofline(record, environment);
    EXPECT_EQ(number(record, "roofline.share"), -1);
  }
  Record of_tf32 = throughput_record("tf32");
  add_roofline(of_tf32, rates(1e10, 6e10, 1e12));
  EXPECT_EQ(number(of_tf32, "roofline.share"), -1);
  Record other = throughput_record("fp32");
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

TEST(Attainable, QuantisedProductsAndThoseOfSeveralTypesHaveNoShare) {
  AttainableRates::Rates known = rates(1e10, 6e10, 1e12);
  known.emplace_back("attainable.matmul.bf16", 1e12);
  Record plain = throughput_record("amp-bf16");
  add_roofline(plain, known);
  EXPECT_GT(number(plain, "roofline.share"), 0);
  for (const char* policy : {"fp8-delayed", "mxfp8", "nvfp4", "fp32+precision=fc1=fp16"}) {
    Record record = throughput_record(policy);
    add_roofline(record, known);
    EXPECT_EQ(number(record, "roofline.share"), -1) << policy;
  }
}

TEST(Attainable, TheCopyReadsAndWritesItsBytes) {
  const auto cpu = open_device("cpu");
  LargeCopy copy(*cpu, 4096);
  EXPECT_EQ(copy.bytes(), 8192);
  copy.run();
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
