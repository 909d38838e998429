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

// Normal numbers; the second row has an infinity, the fourth a NaN, the sixth nothing but -infinity, the eighth also a NaN.
Tensor numbers(Device& device, const RowForm& form, uint64_t seed) {
  const RandomKey key(seed);
  const int64_t first = form.apart ? 1 : 0;
  std::vector<double> values(static_cast<size_t>((form.rows + first) * form.width));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  if (form.special) {
    const auto width = static_cast<size_t>(form.width);
    values[width + 5] = HUGE_VAL, values[3 * width + 7] = static_cast<double>(NAN);
    for (size_t i = 0; i < width; ++i) values[5 * width + i] = values[7 * width + i] = -HUGE_VAL;
    values[7 * width + 3] = static_cast<double>(NAN);
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

// Layer norm or RMS norm and its gradients. `narrow`: the dtype of the result and of its gradient.
std::vector<Tensor> norm_of(Device& device, const RowForm& form, bool layer, DType narrow, bool by_casts = false) {
  const DType wide = wide_of(form.dtype), given = by_casts ? form.dtype : narrow;
  RowForm of_dy = form;
  of_dy.dtype = narrow;
  const Tensor none, x = numbers(device, form, 1), dy = numbers(device, of_dy, 2),
                     scale = Tensor::from(device, {form.width}, layer ? wide : form.dtype, around(form.width, 1, 3)),
                     shift = layer ? Tensor::from(device, {form.width}, wide, around(form.width, 0, 4)) : none;
  const Shape shape{form.rows, form.width};
  Tensor out(device, shape, given), dx(device, shape, form.dtype), inverse(device, {form.rows}, wide),
      dscale(device, {form.width}, wide), mean, dshift, rounded(device, shape, narrow), widened(device, shape, given);
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
  if (by_casts) run(Cast{.x = out, .out = rounded}), run(Cast{.x = dy, .out = widened});
  run(NormalizeRowsBackward{.x = x,
                            .dy = by_casts ? widened : dy,
                            .scale = scale,
                            .mean = mean,
                            .inverse = inverse,
                            .dx = dx,
                            .dscale = dscale,
                            .dshift = dshift,
                            .width = form.width,
                            .centred = layer});
  std::vector<Tensor> results{by_casts ? rounded : out, inverse, dx, dscale};
  if (layer) results.push_back(mean), results.push_back(dshift);
  return results;
}

TEST_F(GpuRowPacks, NormsOfEveryWidth) {
  each_form([&](const RowForm& form) {
    for (const bool layer : {true, false})
      for (const DType narrow : {form.dtype, DType::f16, DType::bf16}) {
        if (narrow != form.dtype && form.dtype != DType::f32) continue;
        RowForm rounded = form;
        rounded.dtype = narrow;
        compare(rounded, [&](Device& device) { return norm_of(device, form, layer, narrow); });
      }
  });
}

TEST_F(GpuRowPacks, NormsThatRoundTheirResultHaveTheBitsOfACast) {
  each_form([&](const RowForm& form) {
    // Beyond 8192 values, and in slices, a mixture of dtypes is read in another order.
    if (form.dtype != DType::f32 || form.width > 8192 || form.apart) return;
    for (const bool layer : {true, false})
      for (const DType narrow : {DType::f16, DType::bf16}) {
        const std::vector<Tensor> one = norm_of(gpu(), form, layer, narrow),
                                  casts = norm_of(gpu(), form, layer, narrow, true);
        for (size_t t = 0; t < one.size(); ++t)
          EXPECT_EQ(one[t].codes(), casts[t].codes()) << form.text() << ": tensor " << t;
      }
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

// Labels of all kinds; the third is ignored.
Tensor labels_of(Device& device, const RowForm& form) {
  std::vector<double> labels;
  for (int64_t i = 0; i < form.rows; ++i) labels.push_back(i == 2 ? -100 : static_cast<double>(i * 29 % form.width));
  return Tensor::from(device, {form.rows}, DType::i32, labels);
}

TEST_F(GpuRowPacks, CrossEntropyOfEveryWidth) {
  // The logarithms of 16-bit logits are of f32 under autocast.
  const auto both = [&](const RowForm& form, DType of_logs) {
    for (const double smoothing : {0.0, 0.1})
      for (const bool weighted : {false, true})
        compare(form, [&](Device& device) {
          const DType wide = wide_of(form.dtype);
          const Tensor none,
              logits = numbers(device, form, 1), labels = labels_of(device, form),
              weights = weighted ? Tensor::from(device, {form.width}, form.dtype, around(form.width, 1, 3)) : none;
          Tensor logs(device, {form.rows, form.width}, of_logs), slope(device, {form.rows, form.width}, form.dtype),
              loss(device, {1}, wide), total(device, {1}, wide);
          run(CrossEntropy{.logits = logits,
                           .labels = labels,
                           .weights = weights,
                           .loss = loss,
                           .log_probabilities = logs,
                           .total_weight = total,
                           .smoothing = smoothing});
          run(CrossEntropyBackward{.log_probabilities = logs,
                                   .labels = labels,
                                   .weights = weights,
                                   .total_weight = total,
                                   .dlogits = slope,
                                   .smoothing = smoothing,
                                   .dloss = 16});
          return std::vector<Tensor>{logs, slope, loss, total};
        });
  };
  each_form([&](const RowForm& form) {
    both(form, form.dtype);
    if (form.dtype == DType::f16 || form.dtype == DType::bf16) both(form, DType::f32);
  });
  both(RowForm{DType::f32, 4100, 8, false, false}, DType::f32);  // more than one block adds up
}

TEST_F(GpuRowPacks, SoftmaxCrossEntropyOfEveryWidth) {
  each_form([&](const RowForm& form) {
    if (form.rows < 4) return;
    compare(form, [&](Device& device) {
      std::vector<double> classes;
      for (int64_t i = 0; i < form.rows; ++i) classes.push_back(static_cast<double>(i * 31 % form.width));
      const Tensor logits = numbers(device, form, 1), labels = Tensor::from(device, {form.rows}, DType::i32, classes);
      Tensor logs(device, {form.rows, form.width}, form.dtype), slope(device, {form.rows, form.width}, form.dtype),
          loss(device, {1}, wide_of(form.dtype));
      run(SoftmaxCrossEntropy{.logits = logits, .labels = labels, .loss = loss, .log_probabilities = logs});
      run(SoftmaxCrossEntropyBackward{.log_probabilities = logs, .labels = labels, .dlogits = slope, .dloss = 8});
      return std::vector<Tensor>{logs, slope, loss};
    });
  });
}

TEST_F(GpuRowPacks, LossesOfElementsWithAndWithoutWholePacks) {
  for (const DType dtype : kDTypes)
    for (const bool apart : {false, true})
      for (const bool weighted : {false, true})
        losses::All::each([&]<class Row>() {
          const RowForm form{dtype, 3, 331, apart, false};
          compare(form, [&](Device& device) {
            const int64_t n = form.rows * form.width;
            const auto make = [&](uint64_t seed) {  // probabilities
              std::vector<double> values = around(n + form.width, 0, seed);
              for (double& one : values) one = 1 / (1 + std::exp(-8 * one));
              const Tensor all = Tensor::from(device, {form.rows + 1, form.width}, dtype, values);
              return all.slice(apart ? 1 : 0, form.rows);
            };
            const Tensor x = make(1), y = make(2), weights = make(3);
            Tensor loss(device, {1}, wide_of(dtype)), slope(device, {form.rows, form.width}, dtype);
            run(ElementLoss<Row>{.output = x, .target = y, .loss = loss, .weights = weighted ? &weights : nullptr});
            run(ElementLossBackward<Row>{
                .output = x, .target = y, .doutput = slope, .weights = weighted ? &weights : nullptr});
            return std::vector<Tensor>{loss, slope};
          });
        });
}

// Logits as far as +-200, and targets that are no probabilities.
TEST_F(GpuRowPacks, FocalLossOfAnyTargetAndExponent) {
  for (const double gamma : {0.0, 0.5, 1.0, 2.0, 3.0, 5.5})
    for (const bool probabilities : {true, false})
      compare(RowForm{DType::f64, 1, 64, false, false}, [&](Device& device) {
        std::vector<double> logits = around(64, 0, 1), targets = around(64, 0.5, 2);
        for (size_t i = 0; i < logits.size(); ++i) {
          logits[i] *= i % 4 == 0 ? 200 : 4;
          targets[i] = probabilities ? static_cast<double>(i % 2) : 6 * targets[i] - 2.5;  // 0.5 +- 1.5
        }
        const Tensor x = Tensor::from(device, {1, 64}, DType::f64, logits),
                     y = Tensor::from(device, {1, 64}, DType::f64, targets);
        Tensor loss(device, {1}, DType::f64), slope(device, {1, 64}, DType::f64);
        run(ElementLoss<losses::Focal>{.output = x, .target = y, .loss = loss, .a = 0.25, .b = gamma});
        run(ElementLossBackward<losses::Focal>{.output = x, .target = y, .doutput = slope, .a = 0.25, .b = gamma});
        return std::vector<Tensor>{loss, slope};
      });
}

TEST_F(GpuRowPacks, MasksOfWholePacks) {
  for (const DType dtype : kDTypes)
    for (const bool bytes : {false, true})
      for (const int64_t keys : {24, 13})
        compare(RowForm{dtype, 4, keys, false, false}, [&](Device& device) {
          std::vector<double> kept = around(2 * 5 * keys, 0, 7);
          if (bytes)
            for (double& one : kept) one = one > 0;
          const Tensor scores = Tensor::from(device, {4, 5, keys}, dtype, around(4 * 5 * keys, 0, 1)),
                       mask = Tensor::from(device, {2, 5, keys}, bytes ? DType::u8 : dtype, kept);
          Tensor out(device, {4, 5, keys}, dtype);
          run(MaskScores{.scores = scores, .mask = mask, .out = out});
          return std::vector<Tensor>{out};
        });
}

TEST_F(GpuRowPacks, ANormOfBlocksThatEndInAnotherTensor) {
  for (const DType dtype : {DType::f32, DType::f16})
    compare(RowForm{dtype, 1, 0, false, false}, [&](Device& device) {
      std::vector<Tensor> gradients;
      for (const int64_t count : {700001, 3, 1500, 1500000, 1025})
        gradients.push_back(Tensor::from(device, {count}, gradients.size() == 3 ? DType::bf16 : dtype,
                                         around(count, 0, static_cast<uint64_t>(count))));
      Tensor norm(device, {1}, DType::f64);
      run(GradientNorm{.gradients = gradients, .norm = norm});
      return std::vector<Tensor>{norm};
    });
}

}  // namespace
}  // namespace halfmark::kernels
