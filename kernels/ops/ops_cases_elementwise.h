// Cases of the operations that look at one element at a time, of the loss, and of the optimizer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/ops_cases_image.h"

namespace halfmark::ops_cases {

inline const std::vector<Shape> kElementShapes{{2, 16, 5, 3}, {1, 5, 7, 4}};

// Images of every layout, and matrices. f(name, make, shape, out_layout)
inline void each_tensor(const Bench& bench, auto&& f) {
  each_image(bench, kImageTypes, [&](const std::string& image, auto make, Layout out_layout) {
    for (const Shape& shape : kElementShapes) f(image + " " + shape.text(), make, shape, out_layout);
  });
  for (const DType dtype : kImageTypes)
    f(
        std::string(name_of(dtype)) + " matrix",
        [&bench, dtype](const Shape& shape, uint64_t seed) {
          return random_tensor(bench, shape, dtype, Layout::plain, seed);
        },
        Shape{9, 37}, Layout::plain);
}

inline std::vector<double> sums_slack(const std::vector<double>& a, const std::vector<double>& b,
                                      const Format& format) {
  std::vector<double> slack(a.size());
  for (size_t i = 0; i < a.size(); ++i) slack[i] = gamma(1, format) * std::fabs(a[i] + b[i]);
  return slack;
}

template <>
inline void cases<AddBias>(const Bench& bench, const Try<AddBias>& attempt) {
  each_tensor(bench, [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
    for (const bool in_place : {false, true}) {
      const Tensor x = make(shape, 1);
      for (const DType bias_type : {x.dtype(), DType::f32}) {
        if (in_place && bias_type != x.dtype()) continue;
        const Tensor bias = random_tensor(bench, {shape[1]}, bias_type, Layout::plain, 2);
        Tensor out = in_place ? x : Tensor(bench.device, shape, x.dtype(), out_layout);
        std::vector<double> expected = x.values(), spread(expected.size());
        const std::vector<double> xv = expected, bv = bias.values();
        const size_t pixels = shape.rank() == 4 ? static_cast<size_t>(shape[2] * shape[3]) : 1;
        for (size_t i = 0; i < expected.size(); ++i) spread[i] = bv[i / pixels % bv.size()], expected[i] += spread[i];
        const std::string what = name + " bias " + std::string(name_of(bias_type)) + (in_place ? " in place" : "");
        attempt(what, AddBias{.x = x, .bias = bias, .out = out}, [&] {
          expect_close(out, expected,
                       sums_slack(xv, spread, x.dtype() == DType::f64 && bias_type == DType::f64 ? kFp64 : kFp32),
                       what);
        });
      }
    }
  });
}

template <>
inline void cases<BiasGradient>(const Bench& bench, const Try<BiasGradient>& attempt) {
  each_tensor(bench, [&](const std::string& name, auto make, const Shape& shape, Layout) {
    const Tensor dy = make(shape, 1);
    for (const DType out_type : {dy.dtype(), DType::f32}) {
      Tensor dbias(bench.device, {shape[1]}, out_type);
      attempt(name, BiasGradient{.dy = dy, .dbias = dbias}, [&] {
        const std::vector<double> dv = dy.values();
        std::vector<double> expected(static_cast<size_t>(shape[1])), slack(expected.size());
        const size_t pixels = shape.rank() == 4 ? static_cast<size_t>(shape[2] * shape[3]) : 1;
        const double steps = static_cast<double>(dv.size() / expected.size());
        for (size_t i = 0; i < dv.size(); ++i) {
          expected[i / pixels % expected.size()] += dv[i];
          slack[i / pixels % expected.size()] += gamma(steps, wide_format(dy.dtype())) * std::fabs(dv[i]);
        }
        expect_close(dbias, expected, slack, name);
      });
    }
  });
}

template <>
inline void cases<Relu>(const Bench& bench, const Try<Relu>& attempt) {
  each_tensor(bench, [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
    for (const bool in_place : {false, true}) {
      const Tensor x = make(shape, 1);
      Tensor out = in_place ? x : Tensor(bench.device, shape, x.dtype(), out_layout);
      std::vector<double> expected = x.values();
      for (double& value : expected) value = std::max(value, 0.0);
      attempt(name + (in_place ? " in place" : ""), Relu{.x = x, .out = out},
              [&] { expect_exact(out, expected, name); });
    }
  });
}

template <>
inline void cases<ReluBackward>(const Bench& bench, const Try<ReluBackward>& attempt) {
  each_tensor(bench, [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
    for (const bool in_place : {false, true}) {
      const Tensor y = make(shape, 1), dy = make(shape, 2);
      Tensor dx = in_place ? dy : Tensor(bench.device, shape, dy.dtype(), out_layout);
      std::vector<double> expected = dy.values();
      const std::vector<double> yv = y.values();
      for (size_t i = 0; i < expected.size(); ++i)
        if (!(yv[i] > 0)) expected[i] = 0;
      attempt(name + (in_place ? " in place" : ""), ReluBackward{.y = y, .dy = dy, .dx = dx},
              [&] { expect_exact(dx, expected, name); });
    }
  });
}

template <>
inline void cases<Add>(const Bench& bench, const Try<Add>& attempt) {
  each_tensor(bench, [&](const std::string& name, auto make, const Shape& shape, Layout out_layout) {
    for (const bool in_place : {false, true}) {
      const Tensor a = make(shape, 1), b = make(shape, 2);
      Tensor out = in_place ? a : Tensor(bench.device, shape, a.dtype(), out_layout);
      const std::vector<double> av = a.values(), bv = b.values();
      std::vector<double> expected(av.size());
      for (size_t i = 0; i < av.size(); ++i) expected[i] = av[i] + bv[i];
      attempt(name + (in_place ? " in place" : ""), Add{.a = a, .b = b, .out = out},
              [&] { expect_close(out, expected, sums_slack(av, bv, wide_format(a.dtype())), name); });
    }
  });
}

template <>
inline void cases<Cast>(const Bench& bench, const Try<Cast>& attempt) {
  for (const DType from : dtypes())
    for (const DType to : dtypes()) {
      if (!is_floating(from) || !is_floating(to)) continue;
      for (const Layout layout : {Layout::plain, Layout::nhwc})
        for (const Rounding rounding :
             {Rounding::near_even, Rounding::toward_zero, Rounding::near_away, Rounding::stochastic}) {
          const Shape shape{3, 5, 4, 7};
          // Half the largest number of the coarser type: no overflow, and with the powers of two below, subnormals.
          std::vector<double> values = random_values(shape.elements(), 1);
          for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], -static_cast<int>(i % 24));
          const Tensor x = Tensor::from(bench.device, shape, from, values, layout);
          Tensor out(bench.device, shape, to, layout);
          const uint64_t noise = 77;
          std::vector<double> expected = x.values();
          for (size_t i = 0; i < expected.size(); ++i)
            expected[i] = round_to(format_of(to), expected[i], rounding, nullptr, RandomKey(noise).bits(i));
          const std::string name =
              text_of({from, to}) + " " + std::string(name_of(layout)) + " " + std::string(name_of(rounding));
          attempt(name, Cast{.x = x, .out = out, .rounding = rounding, .noise = noise},
                  [&] { expect_exact(out, expected, name); });
        }
    }
}

template <>
inline void cases<Reorder>(const Bench& bench, const Try<Reorder>& attempt) {
  each_image(bench, {DType::f32, DType::f64, DType::f16, DType::bf16, DType::e4m3, DType::e5m2},
             [&](const std::string& image, auto make, Layout) {
               for (const Shape& shape : kElementShapes)
                 for (const Layout to : {Layout::plain, Layout::nhwc, Layout::any}) {
                   const Tensor x = make(shape, 1);
                   Tensor out(bench.device, shape, x.dtype(), to);
                   const std::string name = image + " " + shape.text() + " to " + std::string(name_of(to));
                   attempt(name, Reorder{.x = x, .out = out}, [&] { EXPECT_EQ(out.codes(), x.codes()) << name; });
                 }
             });
}

template <>
inline void cases<SoftmaxCrossEntropy>(const Bench& bench, const Try<SoftmaxCrossEntropy>& attempt) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const DType wide : {dtype == DType::f64 ? DType::f64 : DType::f32, dtype})
      for (const Shape& shape : {Shape{7, 10}, Shape{1, 3}, Shape{16, 129}}) {
        const auto n = static_cast<size_t>(shape[0]), classes = static_cast<size_t>(shape[1]);
        const Tensor logits = random_tensor(bench, shape, dtype, Layout::plain, 1, Fill::normal, 4);
        std::vector<double> label_values(n);
        for (size_t i = 0; i < n; ++i) label_values[i] = static_cast<double>(RandomKey(2).below(i, classes));
        const Tensor labels = Tensor::from(bench.device, {shape[0]}, DType::i32, label_values);
        Tensor loss(bench.device, {1}, wide), probabilities(bench.device, shape, wide);
        const std::string name = text_of({dtype, wide}) + " " + shape.text();
        attempt(name,
                SoftmaxCrossEntropy{.logits = logits, .labels = labels, .loss = loss, .probabilities = probabilities},
                [&] {
                  const std::vector<double> z = logits.values();
                  const Format& format = wide_format(dtype);
                  std::vector<double> p(z.size()), p_slack(z.size());
                  double total = 0, total_slack = 0;
                  for (size_t i = 0; i < n; ++i) {
                    const double* row = &z[i * classes];
                    const double largest = *std::max_element(row, row + classes),
                                 least = *std::min_element(row, row + classes);
                    double sum = 0;
                    for (size_t c = 0; c < classes; ++c) sum += std::exp(row[c] - largest);
                    // An argument off by u range makes exp off by that relatively; a library's exp and log are good to
                    // 4 units.
                    const double relative = gamma(static_cast<double>(classes) + 2 * (largest - least) + 12, format);
                    for (size_t c = 0; c < classes; ++c)
                      p[i * classes + c] = std::exp(row[c] - largest) / sum,
                                      p_slack[i * classes + c] = relative * p[i * classes + c] + smallest(format);
                    const double term = std::log(sum) - (row[static_cast<size_t>(label_values[i])] - largest);
                    total += term, total_slack += relative + gamma(static_cast<double>(n) + 4, format) *
                                                                 (std::fabs(std::log(sum)) + largest - least);
                  }
                  expect_close(probabilities, p, p_slack, name);
                  expect_close(loss, {total / static_cast<double>(n)}, {total_slack / static_cast<double>(n)},
                               name + " loss");
                });
      }
}

template <>
inline void cases<SoftmaxCrossEntropyBackward>(const Bench& bench, const Try<SoftmaxCrossEntropyBackward>& attempt) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const DType wide : {dtype == DType::f64 ? DType::f64 : DType::f32, dtype})
      for (const double dloss : {1.0, 1024.0}) {
        const Shape shape{7, 10};
        std::vector<double> values = random_values(shape.elements(), 1), label_values(7);
        for (double& value : values) value = std::min(1.0, std::fabs(value) / 4);
        for (size_t i = 0; i < 7; ++i) label_values[i] = static_cast<double>(RandomKey(2).below(i, 10));
        const Tensor probabilities = Tensor::from(bench.device, shape, wide, values);
        const Tensor labels = Tensor::from(bench.device, {7}, DType::i32, label_values);
        Tensor dlogits(bench.device, shape, dtype);
        const std::string name = text_of({wide, dtype}) + " loss scale " + std::to_string(dloss);
        attempt(name,
                SoftmaxCrossEntropyBackward{
                    .probabilities = probabilities, .labels = labels, .dlogits = dlogits, .dloss = dloss},
                [&] {
                  std::vector<double> expected = probabilities.values(), slack(expected.size());
                  for (size_t i = 0; i < expected.size(); ++i) {
                    if (i % 10 == static_cast<size_t>(label_values[i / 10])) expected[i] -= 1;
                    expected[i] *= dloss / 7, slack[i] = gamma(4, wide_format(wide)) * std::fabs(expected[i]);
                  }
                  expect_close(dlogits, expected, slack, name);
                });
      }
}

template <>
inline void cases<Unscale>(const Bench& bench, const Try<Unscale>& attempt) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const double bad : {0.0, HUGE_VAL, static_cast<double>(NAN)})
      for (const double already : {0.0, 1.0}) {
        std::vector<double> values = random_values(301, 1);
        if (bad != 0) values[250] = bad;
        Tensor gradient = Tensor::from(bench.device, {301}, dtype, values),
               found = Tensor::from(bench.device, {1}, DType::f32, std::vector<double>{already});
        std::vector<double> expected = gradient.values();
        for (double& value : expected) value /= 1024;
        const std::string name = std::string(name_of(dtype)) + " with " + std::to_string(bad);
        attempt(name, Unscale{.gradient = gradient, .found_inf = found, .inverse_scale = 1.0f / 1024}, [&] {
          expect_exact(gradient, expected, name);
          EXPECT_EQ(found.values()[0], bad != 0 || already != 0 ? 1 : 0) << name;
        });
      }
}

template <>
inline void cases<SgdStep>(const Bench& bench, const Try<SgdStep>& attempt) {
  struct Stored {
    DType parameter, gradient, velocity;
    std::optional<DType> low;
  };
  using enum DType;
  for (const Stored types : {Stored{f32, f32, f32, {}}, Stored{f32, f32, f32, f16}, Stored{f32, f16, f32, f16},
                             Stored{f32, bf16, f32, bf16}, Stored{f64, f64, f64, {}}, Stored{f16, f16, f16, {}},
                             Stored{bf16, bf16, bf16, {}}, Stored{bf16, bf16, f32, {}}})
    for (const double momentum : {0.0, 0.9})
      for (const double decay : {0.0, 0.01}) {
        const Shape shape{13, 17};
        Tensor p = random_tensor(bench, shape, types.parameter, Layout::plain, 1);
        const Tensor g = random_tensor(bench, shape, types.gradient, Layout::plain, 2);
        Tensor v = momentum != 0 ? random_tensor(bench, shape, types.velocity, Layout::plain, 3) : Tensor();
        Tensor low = types.low ? Tensor(bench.device, shape, *types.low) : Tensor();
        const std::vector<double> pv = p.values(), gv = g.values(),
                                  vv = v.empty() ? std::vector<double>(pv.size()) : v.values();
        const std::string name = text_of({types.parameter, types.gradient, types.velocity}) + " momentum " +
                                 std::to_string(momentum) + " decay " + std::to_string(decay) +
                                 (types.low ? " low " + std::string(name_of(*types.low)) : "");
        attempt(name,
                SgdStep{.parameter = p,
                        .gradient = g,
                        .velocity = v,
                        .low = low,
                        .rate = 0.1,
                        .momentum = momentum,
                        .weight_decay = decay},
                [&] {
                  const Format& format = wide_format(types.parameter);
                  std::vector<double> new_v(pv.size()), v_slack(pv.size()), new_p(pv.size()), p_slack(pv.size());
                  for (size_t i = 0; i < pv.size(); ++i) {
                    new_v[i] = momentum * vv[i] + gv[i] + decay * pv[i];
                    v_slack[i] =
                        gamma(6, format) * (std::fabs(momentum * vv[i]) + std::fabs(gv[i]) + std::fabs(decay * pv[i]));
                    new_p[i] = pv[i] - 0.1 * new_v[i];
                    p_slack[i] = 0.1 * v_slack[i] + gamma(4, format) * (std::fabs(pv[i]) + 0.1 * std::fabs(new_v[i]));
                  }
                  if (!v.empty()) expect_close(v, new_v, v_slack, name + " velocity");
                  expect_close(p, new_p, p_slack, name + " parameter");
                  if (low.empty()) return;
                  const std::vector<double> stored = p.values();
                  expect_exact(low, stored, name + " low");
                });
      }
}

}  // namespace halfmark::ops_cases
