// Rows of the widths at which the kernels change how they share a row among threads, against the CPU; and slices that
// start anywhere, which take other kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/devices.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

struct RowForm {
  DType dtype;
  int64_t rows, width;
  bool apart;  // a slice that does not start at 16 bytes
  bool special;
  std::string text() const {
    return std::string(name_of(dtype)) + " " + std::to_string(rows) + "x" + std::to_string(width) +
           (apart ? " slice" : "") + (special ? " with special values" : "");
  }
};

// f(form): widths of a few lanes, of a warp, of blocks, and beyond what registers hold.
template <class F>
void each_form(F f) {
  for (const DType dtype : kDTypes) {
    for (const int64_t width : {8, 24, 40, 136, 264, 520, 1024, 1032}) f(RowForm{dtype, 37, width, false, false});
    f(RowForm{dtype, 3, 4096, false, false});
    f(RowForm{dtype, 2, 8192, false, false});
    f(RowForm{dtype, 2, 16392, false, false});
    f(RowForm{dtype, 5, 265, true, false});
    f(RowForm{dtype, 9, 136, false, true});
  }
}

class GpuRowPacks : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped()) cpu_ = open_device("cpu");
  }
  // What run(device) gives on both devices, tensor by tensor.
  template <class Run>
  void compare(const RowForm& form, Run run) {
    const std::vector<Tensor> expected = run(*cpu_), found = run(gpu());
    const double unit = form.dtype == DType::f64   ? 1e-13
                        : form.dtype == DType::f32 ? 1e-5
                        : form.dtype == DType::f16 ? 0x1p-9
                                                   : 0x1p-6;
    for (size_t t = 0; t < expected.size(); ++t) {
      const std::vector<double> a = expected[t].values(), b = found[t].values();
      ASSERT_EQ(a.size(), b.size());
      size_t wrong = 0;
      for (size_t i = 0; i < a.size(); ++i)
        if (std::isfinite(a[i]) ? !(std::fabs(a[i] - b[i]) <= unit * (1 + std::fabs(a[i])))
                                : !(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) {
          if (wrong++ == 0)
            ADD_FAILURE() << form.text() << ": tensor " << t << ", value " << i << ": " << b[i] << ", not " << a[i];
        }
      EXPECT_EQ(wrong, 0U) << form.text();
    }
  }

 private:
  std::shared_ptr<Device> cpu_;
};

// Normal numbers; the second row has an infinity, the fourth a NaN, the sixth nothing but -infinity.
Tensor numbers(Device& device, const RowForm& form, uint64_t seed) {
  const RandomKey key(seed);
  const int64_t first = form.apart ? 1 : 0;
  std::vector<double> values(static_cast<size_t>((form.rows + first) * form.width));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  if (form.special) {
    const auto width = static_cast<size_t>(form.width);
    values[width + 5] = HUGE_VAL, values[3 * width + 7] = static_cast<double>(NAN);
    for (size_t i = 0; i < width; ++i) values[5 * width + i] = -HUGE_VAL;
  }
  const Tensor all = Tensor::from(device, {form.rows + first, form.width}, form.dtype, values);
  return form.apart ? all.slice(1, form.rows) : all;
}

DType wide_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

std::vector<double> around(int64_t count, double middle, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = middle + 0.25 * key.normal(i);
  return values;
}

TEST_F(GpuRowPacks, NormsOfEveryWidth) {
  each_form([&](const RowForm& form) {
    for (const bool layer : {true, false})
      compare(form, [&](Device& device) {
        const DType wide = wide_of(form.dtype);
        const Tensor none,
            x = numbers(device, form, 1), dy = numbers(device, form, 2),
            scale = Tensor::from(device, {form.width}, layer ? wide : form.dtype, around(form.width, 1, 3)),
            shift = layer ? Tensor::from(device, {form.width}, wide, around(form.width, 0, 4)) : none;
        Tensor out(device, {form.rows, form.width}, form.dtype), dx(device, {form.rows, form.width}, form.dtype),
            inverse(device, {form.rows}, wide), dscale(device, {form.width}, wide), mean, dshift;
        if (layer) mean = Tensor(device, {form.rows}, wide), dshift = Tensor(device, {form.width}, wide);
        run(NormalizeRows{.x = x,
                          .scale = scale,
                          .shift = shift,
                          .out = out,
                          .mean = mean,
                          .inverse = inverse,
                          .width = form.width,
                          .centred = layer,
                          .epsilon = 1e-3});
        run(NormalizeRowsBackward{.x = x,
                                  .dy = dy,
                                  .scale = scale,
                                  .mean = mean,
                                  .inverse = inverse,
                                  .dx = dx,
                                  .dscale = dscale,
                                  .dshift = dshift,
                                  .width = form.width,
                                  .centred = layer});
        std::vector<Tensor> results{out, inverse, dx, dscale};
        if (layer) results.push_back(mean), results.push_back(dshift);
        return results;
      });
  });
}

TEST_F(GpuRowPacks, SoftmaxOfEveryWidth) {
  each_form([&](const RowForm& form) {
    for (const bool log : {false, true})
      for (const bool causal : {false, true}) {
        if (log && causal) continue;
        compare(form, [&](Device& device) {
          const Tensor x = numbers(device, form, 1), dy = numbers(device, form, 2);
          Tensor out(device, {form.rows, form.width}, form.dtype), dx(device, {form.rows, form.width}, form.dtype);
          run(Softmax{.x = x, .out = out, .log = log, .causal = causal, .masked = causal});
          run(SoftmaxBackward{.y = out, .dy = dy, .dx = dx, .log = log});
          return std::vector<Tensor>{out, dx};
        });
      }
  });
}

}  // namespace
}  // namespace halfmark::kernels
