// Cases of batch normalisation and pooling.

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/ops/cases/image.h"

namespace halfmark::kernels::ops_cases {

template <>
void Cases<BatchNorm>::each(const CaseRequest& request, const RunCase<BatchNorm>& run_case) {
  each_norm(request, [&](const std::string& image, const Tensor& x, Layout out_layout) {
    const Shape& shape = x.shape();
    const DType wide = wide_type(x.dtype());
    for (const bool narrow : request.axes.narrow_parameters) {
      const DType parameters = narrow ? x.dtype() : wide;
      if (parameters == DType::e4m3) continue;
      const Shape c{shape[1]};
      const Tensor scale = random_tensor(request, c, parameters, Layout::plain, 2),
                   shift = random_tensor(request, c, parameters, Layout::plain, 3);
      Tensor out(request.device, shape, x.dtype(), out_layout), mean(request.device, c, wide),
          variance(request.device, c, wide);
      Tensor running_mean = random_tensor(request, c, parameters, Layout::plain, 4);
      Tensor running_variance = positive_tensor(request, c, parameters, 6);
      const std::string name = image + " parameters " + std::string(name_of(parameters));
      const BatchNorm op{.x = x,
                         .scale = scale,
                         .shift = shift,
                         .out = out,
                         .mean = mean,
                         .variance = variance,
                         .running_mean = running_mean,
                         .running_variance = running_variance,
                         .momentum = 0.25,
                         .epsilon = 1e-3};
      run_case(name, op, [&](CaseResult& result) {
        const Format& format = wide_format(x.dtype());
        const Channels channels(shape);
        const std::vector<double> xv = x.values(), sv = scale.values(), bv = shift.values();
        const std::vector<double> mean_before = result.before(running_mean),
                                  variance_before = result.before(running_variance);
        std::vector<double> y(xv.size()), y_slack(xv.size()), m, m_slack, v, v_slack, rm, rm_slack, rv, rv_slack;
        for (size_t ch = 0; ch < channels.c; ++ch) {
          const Statistics s(xv, channels, ch, format);
          m.push_back(s.mean), m_slack.push_back(s.mean_slack), v.push_back(s.variance),
              v_slack.push_back(s.variance_slack);
          const double unbiased = channels.count() / (channels.count() - 1);
          rm.push_back(0.75 * mean_before[ch] + 0.25 * s.mean),
              rv.push_back(0.75 * variance_before[ch] + 0.25 * s.variance * unbiased);
          rm_slack.push_back(s.mean_slack + gamma(4, format) * (std::fabs(mean_before[ch]) + std::fabs(s.mean)));
          rv_slack.push_back(2 * s.variance_slack + gamma(6, format) * (variance_before[ch] + 2 * s.variance));
          const double inverse = 1 / std::sqrt(s.variance + op.epsilon);
          channels.each(ch, [&](size_t i) {
            y[i] = sv[ch] * (xv[i] - s.mean) * inverse + bv[ch];
            y_slack[i] =
                normalised_slack(xv[i], s.mean, inverse, sv[ch], bv[ch], s.mean_slack, s.variance_slack, format);
          });
        }
        result.expect_close(out, y, y_slack, "out"), result.expect_close(mean, m, m_slack, "mean");
        result.expect_close(variance, v, v_slack, "variance");
        result.expect_close(running_mean, rm, rm_slack, "running mean");
        result.expect_close(running_variance, rv, rv_slack, "running variance");
      });
    }
  });
}

template <>
void Cases<BatchNormInference>::each(const CaseRequest& request, const RunCase<BatchNormInference>& run_case) {
  each_image(request, request.axes.dtypes, [&](const std::string& image, auto make, Layout out_layout) {
    for (const Shape& shape : request.axes.norms) {
      const Tensor x = make(shape, 1);
      const DType wide = wide_type(x.dtype());
      for (const bool narrow : request.axes.narrow_parameters) {
        const DType parameters = narrow ? x.dtype() : wide;
        if (parameters == DType::e4m3) continue;
        const Shape c{shape[1]};
        const Tensor scale = random_tensor(request, c, parameters, Layout::plain, 2),
                     shift = random_tensor(request, c, parameters, Layout::plain, 3);
        const Tensor mean = random_tensor(request, c, parameters, Layout::plain, 4);
        const Tensor variance = positive_tensor(request, c, parameters, 6);
        Tensor out(request.device, shape, x.dtype(), out_layout);
        const std::string name = image + " " + shape.text() + " parameters " + std::string(name_of(parameters));
        const BatchNormInference op{.x = x,
                                    .scale = scale,
                                    .shift = shift,
                                    .running_mean = mean,
                                    .running_variance = variance,
                                    .out = out,
                                    .epsilon = 1e-3};
        run_case(name, op, [&](CaseResult& result) {
          const Channels channels(shape);
          const std::vector<double> xv = x.values(), sv = scale.values(), bv = shift.values(), mv = mean.values(),
                                    vv = variance.values();
          std::vector<double> y(xv.size()), slack(xv.size());
          for (size_t ch = 0; ch < channels.c; ++ch) {
            const double inverse = 1 / std::sqrt(vv[ch] + op.epsilon);
            channels.each(ch, [&](size_t i) {
              y[i] = sv[ch] * (xv[i] - mv[ch]) * inverse + bv[ch];
              slack[i] = normalised_slack(xv[i], mv[ch], inverse, sv[ch], bv[ch], 0, 0, wide_format(x.dtype()));
            });
          }
          result.expect_close(out, y, slack);
        });
      }
    }
  });
}

void expect_batch_norm_gradients(CaseResult& result, const BatchNormBackward& op, const std::vector<double>& g) {
  const Format& format = wide_format(op.x.dtype());
  const Channels channels(op.x.shape());
  const std::vector<double> x = op.x.values(), scale = op.scale.values(), mean = op.mean.values(),
                            variance = op.variance.values();
  std::vector<double> dx(x.size()), dx_slack(x.size()), ds, ds_slack, db, db_slack;
  const double m = channels.count(), rounding = gamma(m + 10, format);
  for (size_t c = 0; c < channels.c; ++c) {
    const double inverse = 1 / std::sqrt(variance[c] + op.epsilon);
    double sum = 0, sum_magnitude = 0, product = 0, product_magnitude = 0;
    channels.each(c, [&](size_t i) {
      sum += g[i], sum_magnitude += std::fabs(g[i]);
      product += g[i] * (x[i] - mean[c]) * inverse;
      product_magnitude += std::fabs(g[i]) * (std::fabs(x[i]) + std::fabs(mean[c])) * inverse;
    });
    db.push_back(sum), db_slack.push_back(rounding * sum_magnitude);
    ds.push_back(product), ds_slack.push_back(rounding * product_magnitude);
    channels.each(c, [&](size_t i) {
      const double hat = (x[i] - mean[c]) * inverse, hat_magnitude = (std::fabs(x[i]) + std::fabs(mean[c])) * inverse;
      dx[i] = scale[c] * inverse * (g[i] - sum / m - hat * product / m);
      dx_slack[i] = rounding * std::fabs(scale[c]) * inverse *
                    (std::fabs(g[i]) + sum_magnitude / m + hat_magnitude * product_magnitude / m);
    });
  }
  result.expect_close(op.dx, dx, dx_slack, "dx");
  result.expect_close(op.dscale, ds, ds_slack, "dscale"), result.expect_close(op.dshift, db, db_slack, "dshift");
}

template <>
void Cases<BatchNormBackward>::each(const CaseRequest& request, const RunCase<BatchNormBackward>& run_case) {
  each_image(
      request, request.axes.dtypes,
      [&](const std::string& image, auto make, Layout out_layout) {
        for (const Shape& shape : request.axes.norms) {
          const Tensor x = make(shape, 1), dy = make(shape, 5);
          const DType wide = wide_type(x.dtype());
          const Format& format = wide_format(x.dtype());
          const Channels channels(shape);
          const Shape c{shape[1]};
          const auto statistic = [&](double Statistics::*which) {
            return filled_tensor(request, c, wide, Layout::plain, [&] {
              const std::vector<double> xv = x.values();
              std::vector<double> values;
              for (size_t ch = 0; ch < channels.c; ++ch) values.push_back(Statistics(xv, channels, ch, format).*which);
              return values;
            });
          };
          const Tensor mean = statistic(&Statistics::mean), variance = statistic(&Statistics::variance);
          for (const bool narrow : request.axes.narrow_parameters) {
            const DType parameters = narrow ? x.dtype() : wide;
            if (parameters == DType::e4m3) continue;
            const Tensor scale = random_tensor(request, c, parameters, Layout::plain, 2);
            Tensor dx(request.device, shape, x.dtype(), out_layout), dscale(request.device, c, parameters),
                dshift(request.device, c, parameters);
            const std::string name = image + " " + shape.text() + " parameters " + std::string(name_of(parameters));
            const BatchNormBackward op{.x = x,
                                       .dy = dy,
                                       .scale = scale,
                                       .mean = mean,
                                       .variance = variance,
                                       .dx = dx,
                                       .dscale = dscale,
                                       .dshift = dshift,
                                       .epsilon = 1e-3};
            run_case(name, op, [&](CaseResult& result) { expect_batch_norm_gradients(result, op, dy.values()); });
          }
        }
      },
      true);
}

namespace {

Shape result_shape(const PoolSize& p) {
  return {p.x[0], p.x[1], window_extent(p.x[2], p.kernel_h, p.window.stride_h, p.window.pad_h, 1),
          window_extent(p.x[3], p.kernel_w, p.window.stride_w, p.window.pad_w, 1)};
}

// f(element of x, place in the window, element of the result), places in order.
void each_place(const PoolSize& p, auto&& f) {
  const Shape y = result_shape(p);
  size_t o = 0;
  for (int64_t plane = 0; plane < y[0] * y[1]; ++plane)
    for (int64_t oy = 0; oy < y[2]; ++oy)
      for (int64_t ox = 0; ox < y[3]; ++ox, ++o)
        for (int place = 0; place < p.kernel_h * p.kernel_w; ++place) {
          const int64_t iy = oy * p.window.stride_h - p.window.pad_h + place / p.kernel_w,
                        ix = ox * p.window.stride_w - p.window.pad_w + place % p.kernel_w;
          if (iy >= 0 && iy < p.x[2] && ix >= 0 && ix < p.x[3])
            f(static_cast<size_t>((plane * p.x[2] + iy) * p.x[3] + ix), place, o);
        }
}

void each_pool(const CaseRequest& request, auto&& f, bool several = false) {
  const auto each_size = [&](const std::string& image, auto make, Layout out_layout) {
    for (const PoolSize& p : request.axes.pools)
      f(image + " " + p.x.text() + " window " + std::to_string(p.kernel_h) + "x" + std::to_string(p.kernel_w), p, make,
        out_layout);
  };
  each_image(request, request.axes.dtypes, each_size, several);
}

// Two and three NaNs close together, a NaN beside +infinity, and a block of -infinity: every rule of a maximum. Not in
// the last image, so that the last element is not NaN.
void sprinkle_special_values_in_windows(const Tensor& x) {
  if (x.layout() == Layout::opaque) return;  // a library made it, with its padding
  const Shape& s = x.shape();
  std::vector<double> values = x.values();
  const auto at = [&](int64_t channel, int64_t row, int64_t column) -> double& {
    return values[static_cast<size_t>((channel % s[1] * s[2] + row % s[2]) * s[3] + column % s[3])];
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  at(0, 0, 0) = at(0, 0, 1) = at(0, 1, 0) = kNan;
  at(0, 2, 4) = at(0, 3, 5) = kNan, at(0, 3, 4) = HUGE_VAL;
  for (int64_t row = 0; row < s[2]; ++row)
    for (int64_t column = 0; column < s[3]; ++column) at(1, row, column) = -HUGE_VAL;
  Tensor(x).set_values(values);
}

}  // namespace

template <>
void Cases<MaxPool2d>::each(const CaseRequest& request, const RunCase<MaxPool2d>& run_case) {
  const auto each = [&](const std::string& name, const PoolSize& p, const Tensor& x, Layout out_layout) {
    for (const bool wanted : request.axes.pool_indices) {
      Tensor out(request.device, result_shape(p), x.dtype(), out_layout);
      Tensor indices = wanted ? Tensor(request.device, result_shape(p), DType::u8, out_layout) : Tensor();
      run_case(name,
               MaxPool2d{.x = x,
                         .out = out,
                         .indices = indices,
                         .kernel_h = p.kernel_h,
                         .kernel_w = p.kernel_w,
                         .window = p.window},
               [&](CaseResult& result) {
                 const std::vector<double> xv = x.values();
                 // The first of equal values wins, but the last NaN, as in PyTorch.
                 std::vector<double> best(static_cast<size_t>(out.elements())), winner(best.size(), -1);
                 each_place(p, [&](size_t i, int place, size_t o) {
                   if (winner[o] < 0 || xv[i] > best[o] || std::isnan(xv[i])) best[o] = xv[i], winner[o] = place;
                 });
                 result.expect_exact(out, best);
                 // A library may store the winner's place in its own format; indices that can be read must be correct.
                 if (wanted && indices.layout() != Layout::opaque)
                   result.expect(indices.values() == winner, "the indices differ");
               });
    }
  };
  each_pool(request, [&](const std::string& name, const PoolSize& p, auto make, Layout out_layout) {
    each(name, p, make(p.x, 1), out_layout);
    if (!request.axes.special_values) return;
    const Tensor x = make(p.x, 1);  // a row may compute such images on another path, so both are tested
    sprinkle_special_values_in_windows(x);
    each(name + " with NaN and infinity", p, x, out_layout);
  });
}

template <>
void Cases<MaxPool2dBackward>::each(const CaseRequest& request, const RunCase<MaxPool2dBackward>& run_case) {
  each_pool(
      request,
      [&](const std::string& name, const PoolSize& p, auto make, Layout out_layout) {
        const Tensor dy = make(result_shape(p), 2);
        const auto winners = [&] {
          std::vector<double> winner(static_cast<size_t>(dy.elements()));
          each_place(p, [&](size_t i, int place, size_t o) {
            if ((i + o) % 3 == 0 || winner[o] == 0) winner[o] = place;  // always inside the image
          });
          return winner;
        };
        const Layout first = make(result_shape(p), 1).layout();  // dy is the second
        const Layout index_layout = first == Layout::nhwc ? Layout::nhwc : Layout::plain;
        const Tensor indices = filled_tensor(request, dy.shape(), DType::u8, index_layout, winners);
        Tensor dx(request.device, p.x, dy.dtype(), out_layout);
        run_case(name,
                 MaxPool2dBackward{.dy = dy,
                                   .indices = indices,
                                   .dx = dx,
                                   .kernel_h = p.kernel_h,
                                   .kernel_w = p.kernel_w,
                                   .window = p.window},
                 [&](CaseResult& result) {
                   const std::vector<double> winner = winners(), dv = dy.values();
                   std::vector<double> expected(static_cast<size_t>(p.x.elements())), slack(expected.size());
                   each_place(p, [&](size_t i, int place, size_t o) {
                     if (place != static_cast<int>(winner[o])) return;
                     expected[i] += dv[o], slack[i] += std::fabs(dv[o]);
                   });
                   const bool overlapping = p.window.stride_h < p.kernel_h || p.window.stride_w < p.kernel_w;
                   for (double& s : slack)
                     s *= overlapping ? gamma(p.kernel_h * p.kernel_w, wide_format(dy.dtype())) : 0;
                   result.expect_close(dx, expected, slack);
                 });
      },
      true);
}

template <>
void Cases<AvgPool2d>::each(const CaseRequest& request, const RunCase<AvgPool2d>& run_case) {
  each_pool(request, [&](const std::string& name, const PoolSize& p, auto make, Layout out_layout) {
    const Tensor x = make(p.x, 1);
    Tensor out(request.device, result_shape(p), x.dtype(), out_layout);
    run_case(name, AvgPool2d{.x = x, .out = out, .kernel_h = p.kernel_h, .kernel_w = p.kernel_w, .window = p.window},
             [&](CaseResult& result) {
               const std::vector<double> xv = x.values();
               const double count = p.kernel_h * p.kernel_w;
               std::vector<double> expected(static_cast<size_t>(out.elements())), slack(expected.size());
               each_place(p, [&](size_t i, int, size_t o) {
                 expected[o] += xv[i] / count,
                     slack[o] += gamma(count + 2, wide_format(x.dtype())) * std::fabs(xv[i]) / count;
               });
               result.expect_close(out, expected, slack);
             });
  });
}

template <>
void Cases<AvgPool2dBackward>::each(const CaseRequest& request, const RunCase<AvgPool2dBackward>& run_case) {
  each_pool(request, [&](const std::string& name, const PoolSize& p, auto make, Layout out_layout) {
    const Tensor dy = make(result_shape(p), 1);
    Tensor dx(request.device, p.x, dy.dtype(), out_layout);
    run_case(name,
             AvgPool2dBackward{.dy = dy, .dx = dx, .kernel_h = p.kernel_h, .kernel_w = p.kernel_w, .window = p.window},
             [&](CaseResult& result) {
               const std::vector<double> dv = dy.values();
               const double count = p.kernel_h * p.kernel_w;
               std::vector<double> expected(static_cast<size_t>(dx.elements())), slack(expected.size());
               each_place(p, [&](size_t i, int, size_t o) {
                 expected[i] += dv[o] / count,
                     slack[i] += gamma(count + 2, wide_format(dy.dtype())) * std::fabs(dv[o]) / count;
               });
               result.expect_close(dx, expected, slack);
             });
  });
}

}  // namespace halfmark::kernels::ops_cases
