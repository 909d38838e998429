// Quantisation on a GPU: codes, scales and losses have the bits of the CPU.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/devices.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

class GpuQuantize : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped()) cpu_ = open_device("cpu");
  }
  Device& cpu() { return *cpu_; }

 private:
  std::shared_ptr<Device> cpu_;
};

// Numbers over many powers of two, with zeros, infinities and NaN.
std::vector<double> wild_numbers(int64_t count, bool specials) {
  const RandomKey key(8);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(key.normal(i), static_cast<int>(i * 7 % 23) - 16);
  values.back() = -4096;  // beyond all others: a largest magnitude is not that of the first block
  if (!specials) return values;
  const double some[] = {0.0, -0.0, HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN), 3e38, 1e-40};
  for (size_t i = 0; i < std::size(some); ++i) values[11 + i * 97] = some[i];
  return values;
}

// Bits of the values; a NaN without its sign, which no rule defines.
std::vector<uint64_t> bits_of_values(const Tensor& tensor) {
  std::vector<uint64_t> bits;
  for (const double value : tensor.values())
    bits.push_back(std::isnan(value) ? ~uint64_t{0} : std::bit_cast<uint64_t>(value));
  return bits;
}

struct QuantizeCase {
  const Quantizer& rule;
  int64_t depth;         // whole tiles, or not
  bool specials, other;  // other: transposed, and where there is that transformed and at random
  float factor;          // 0: the rule finds it
};

// The bits of every result, for a matrix of more than one block of threads.
std::vector<std::vector<uint64_t>> quantised(Device& device, const QuantizeCase& c) {
  constexpr int64_t kRows = 37;
  const Quantizer& rule = c.rule;
  const Tensor x = Tensor::from(device, c.other ? Shape{c.depth, kRows} : Shape{kRows, c.depth},
                                c.other          ? DType::bf16
                                : c.depth == 256 ? DType::f16
                                                 : DType::f32,
                                wild_numbers(kRows * c.depth, c.specials));
  Tensor factor, codes(device, {kRows, c.depth}, rule.element), scales, tensor_scale, amax(device, {1}, DType::f32),
      losses(device, {2}, DType::f64);
  if (c.factor != 0) factor = Tensor::from(device, {1}, DType::f32, std::vector<double>{c.factor});
  if (!has_one_tile(rule)) scales = Tensor(device, shape_of_scales(rule, kRows, c.depth), rule.scale);
  if (has_one_tile(rule) || rule.has_tensor_scale) tensor_scale = Tensor(device, {1}, DType::f32);
  run(Quantize{.x = x,
               .factor = factor,
               .codes = codes,
               .scales = scales,
               .tensor_scale = tensor_scale,
               .amax = amax,
               .losses = losses,
               .rule = rule,
               .transpose = c.other,
               .transform = c.other && !c.specials && c.factor == 0,
               .stochastic = c.other && rule.element == DType::e2m1,
               .noise = {.seed = 5, .first = 3}});
  std::vector<std::vector<uint64_t>> results;
  for (const Tensor& one : {codes, scales, tensor_scale, amax, losses})
    if (!one.empty()) results.push_back(bits_of_values(one));
  return results;
}

TEST_F(GpuQuantize, EveryRuleOfQuantisationGivesTheBitsOfTheCpu) {
  for (const Quantizer& rule : quantizers())
    for (const int64_t depth : {144, 256})
      for (const bool specials : {false, true})
        for (const bool other : {false, true})
          for (const float factor : {0.0F, 0x1p-9F, 3.3e5F}) {  // of which the last saturates
            if (factor != 0 && !has_one_tile(rule)) continue;
            const QuantizeCase one{rule, depth, specials, other, factor};
            EXPECT_EQ(quantised(gpu(), one), quantised(cpu(), one))
                << rule.name << (specials ? " with special values" : "") << (other ? " transposed " : " ") << depth
                << " factor " << factor;
          }
}

// No code is zero here, so the count does not depend on what flushed numbers make the kernel look at.
TEST_F(GpuQuantize, NumbersJustBeyondTheLargestOfAQuantiserAreCountedAmongOthers) {
  for (const char* name : {"te-current-e4m3", "te-current-e5m2"}) {
    const Quantizer& rule = quantizer_named(name);
    const Format& format = format_of(rule.element);
    const double most = format.max_finite(),
                 middle = most + std::ldexp(1.0, format.max_exponent() - format.fraction_bits - 1);
    for (const double extreme : {most, std::nextafter(static_cast<float>(middle), 0.0F) * 1.0, middle,
                                 std::nextafter(static_cast<float>(middle), HUGE_VALF) * 1.0, 1.3 * middle}) {
      std::vector<double> values(64, 1);
      values[13] = extreme, values[50] = -extreme;
      std::vector<double> losses[2];
      for (const bool on_gpu : {false, true}) {
        Device& device = on_gpu ? gpu() : cpu();
        const Tensor x = Tensor::from(device, {2, 32}, DType::f32, values),
                     factor = Tensor::from(device, {1}, DType::f32, std::vector<double>{1});
        Tensor codes(device, {2, 32}, rule.element), none, scale(device, {1}, DType::f32),
            amax(device, {1}, DType::f32), lost(device, {2}, DType::f64);
        run(Quantize{.x = x,
                     .factor = factor,
                     .codes = codes,
                     .scales = none,
                     .tensor_scale = scale,
                     .amax = amax,
                     .losses = lost,
                     .rule = rule});
        losses[on_gpu] = lost.values();
      }
      EXPECT_EQ(losses[0], losses[1]) << name << " " << extreme;
      EXPECT_EQ(losses[0][1], extreme > middle || (extreme == middle && rule.element == DType::e5m2) ? 2 : 0)
          << name << " " << extreme;
    }
  }
}

}  // namespace
}  // namespace halfmark::kernels
