// Quantisation on a GPU: codes, scales, largest magnitudes and losses have the bits of the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
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
  for (size_t i = 0; i < std::size(some); ++i) values[(11 + i * 97) % values.size()] = some[i];
  return values;
}

struct QuantizeCase {
  const Quantizer& rule;
  int64_t rows, depth;
  DType dtype;
  bool specials, transposed;  // transposed: and where there is that transformed and at random
  float factor;               // 0: the rule finds it
};

// The bits of every result.
std::vector<std::vector<unsigned char>> quantised(Device& device, const QuantizeCase& c) {
  const Quantizer& rule = c.rule;
  const Tensor x = Tensor::from(device, c.transposed ? Shape{c.depth, c.rows} : Shape{c.rows, c.depth}, c.dtype,
                                wild_numbers(c.rows * c.depth, c.specials));
  Tensor factor, codes(device, {c.rows, c.depth}, rule.element), scales, tensor_scale, amax(device, {1}, DType::f32),
      losses(device, {2}, DType::f64);
  if (c.factor != 0) factor = Tensor::from(device, {1}, DType::f32, std::vector<double>{c.factor});
  if (!has_one_tile(rule)) scales = Tensor(device, shape_of_scales(rule, c.rows, c.depth), rule.scale);
  if (has_one_tile(rule) || rule.has_tensor_scale) tensor_scale = Tensor(device, {1}, DType::f32);
  run(Quantize{.x = x,
               .factor = factor,
               .codes = codes,
               .scales = scales,
               .tensor_scale = tensor_scale,
               .amax = amax,
               .losses = losses,
               .rule = rule,
               .transpose = c.transposed,
               .transform = c.transposed && c.depth % 16 == 0 && !c.specials && c.factor == 0,
               .stochastic = c.transposed && rule.element == DType::e2m1,
               .noise = {.seed = 5, .first = 3}});
  std::vector<std::vector<unsigned char>> results;
  for (const Tensor& one : {codes, scales, tensor_scale, amax, losses})
    if (!one.empty()) results.push_back(one.codes());
  // The sign of a NaN depends on how a device computes.
  for (unsigned char& code : results.front())
    if (rule.element != DType::e2m1 && std::isnan(decode(rule.element, code))) code &= 0x7f;
  return results;
}

// Shapes: whole tiles of every rule or not, one row, one tile of several, more than one block of threads.
TEST_F(GpuQuantize, EveryRuleGivesTheBitsOfTheCpu) {
  const std::pair<Shape, DType> matrices[] = {
      {{37, 144}, DType::f32}, {{37, 256}, DType::f16},   {{1, 32}, DType::bf16}, {{1, 128}, DType::f16},
      {{64, 128}, DType::f32}, {{130, 256}, DType::bf16}, {{5, 512}, DType::f16}, {{3, 40}, DType::bf16}};
  for (const Quantizer& rule : quantizers())
    for (const auto& [shape, dtype] : matrices)
      for (const bool specials : {false, true})
        for (const bool transposed : {false, true})
          for (const float factor : {0.0F, 0x1p-9F, 3.3e5F, HUGE_VALF}) {  // the last two saturate
            if (factor != 0 && !has_one_tile(rule)) continue;
            const QuantizeCase one{rule, shape[0], shape[1], dtype, specials, transposed, factor};
            EXPECT_EQ(quantised(gpu(), one), quantised(cpu(), one))
                << rule.name << (specials ? " with special values" : "") << (transposed ? " transposed " : " ")
                << shape[0] << " x " << shape[1] << " " << name_of(dtype) << " factor " << factor;
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
