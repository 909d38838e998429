// Cases of joined and resampled images, and of the backward of batch norm with fixed statistics.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/cases/image.h"

namespace halfmark::kernels::ops_cases {

template <>
void Cases<CopyChannels>::each(const CaseRequest& request, const RunCase<CopyChannels>& run_case) {
  struct Piece {
    int64_t from, to, count;
  };
  const Shape tested{2, 6, 5, 3}, &from = request.axes.norm_forms ? tested : request.axes.single.joined;
  const Shape to{from[0], from[1] + 1, from[2], from[3]};
  each_image(request, request.axes.dtypes, [&](const std::string& image, auto make, Layout out_layout) {
    std::vector<Piece> pieces = {{2, 1, 4}, {0, 0, 3}, {5, 6, 1}, {1, 1, 0}};
    if (!request.axes.norm_forms) pieces = {{0, 1, from[1]}};
    for (const Piece& piece : pieces) {
      const Tensor x = make(from, 1);
      Tensor out = random_tensor(request, to, x.dtype(), out_layout == Layout::nhwc ? Layout::nhwc : Layout::plain, 2);
      run_case(image + " " + std::to_string(piece.count) + " from " + std::to_string(piece.from) + " to " +
                   std::to_string(piece.to),
               CopyChannels{.x = x, .out = out, .from = piece.from, .to = piece.to, .count = piece.count},
               [&](CaseResult& result) {
                 const std::vector<double> xv = x.values();
                 std::vector<double> expected = result.before(out);
                 const auto pixels = static_cast<size_t>(from[2] * from[3]);
                 for (int64_t n = 0; n < from[0]; ++n)
                   for (int64_t c = 0; c < piece.count; ++c)
                     for (size_t p = 0; p < pixels; ++p)
                       expected[static_cast<size_t>(n * to[1] + piece.to + c) * pixels + p] =
                           xv[static_cast<size_t>(n * from[1] + piece.from + c) * pixels + p];
                 result.expect_exact(out, expected);
               });
    }
  });
}

namespace {

struct ResampleSize {
  Resampling resampling;
  Shape x;
  int64_t h, w;
};

constexpr std::array<Resampling, 4> kResamplings = {Resampling::bilinear, Resampling::bilinear_corners,
                                                    Resampling::adaptive_average, Resampling::nearest};

// The weight of pixel `from` of `in` in pixel `to` of `out`, written down apart from sources_of(): a hat function around
// the source of the pixel for bilinear, the share of an interval for the mean.
double resample_weight(Resampling resampling, int64_t from, int64_t in, int64_t to, int64_t out) {
  const auto size = static_cast<double>(in), wanted = static_cast<double>(out), place = static_cast<double>(to);
  if (resampling == Resampling::adaptive_average) {
    const double first = std::floor(place * size / wanted), end = std::ceil((place + 1) * size / wanted);
    const auto at = static_cast<double>(from);
    return at >= first && at < end ? 1 / (end - first) : 0;
  }
  if (resampling == Resampling::nearest) return std::floor(place * size / wanted) == static_cast<double>(from) ? 1 : 0;
  const double step = out > 1 ? (size - 1) / (wanted - 1) : 0;
  const double source =
      resampling == Resampling::bilinear_corners ? place * step : (2 * place + 1) * size / (2 * wanted) - 0.5;
  const double inside = std::clamp(source, 0.0, size - 1);
  return std::max(0.0, 1 - std::fabs(inside - static_cast<double>(from)));
}

// f(element of the image, element of the result, weight) for weights other than 0.
void each_resampled(const ResampleSize& s, auto&& f) {
  for (int64_t plane = 0; plane < s.x[0] * s.x[1]; ++plane)
    for (int64_t y = 0; y < s.h; ++y)
      for (int64_t x = 0; x < s.w; ++x)
        for (int64_t i = 0; i < s.x[2]; ++i)
          for (int64_t j = 0; j < s.x[3]; ++j) {
            const double weight =
                resample_weight(s.resampling, i, s.x[2], y, s.h) * resample_weight(s.resampling, j, s.x[3], x, s.w);
            if (weight != 0)
              f(static_cast<size_t>((plane * s.x[2] + i) * s.x[3] + j),
                static_cast<size_t>((plane * s.h + y) * s.w + x), weight);
          }
}

void each_resample(const CaseRequest& request, auto&& f) {
  each_image(request, request.axes.dtypes, [&](const std::string& image, auto make, Layout out_layout) {
    if (!request.axes.norm_forms) {  // one case
      const Shape& x = request.axes.norms[0];
      f(image, ResampleSize{Resampling::bilinear, x, 2 * x[2], 2 * x[3]}, make, out_layout);
      return;
    }
    for (const Resampling resampling : kResamplings)
      for (const auto& [h, w] : {std::pair<int64_t, int64_t>{6, 5}, {12, 10}, {9, 11}, {2, 3}, {1, 1}}) {
        const ResampleSize size{resampling, {2, 3, 6, 5}, h, w};
        f(image + " " + std::string(name_of(resampling)) + " to " + std::to_string(h) + "x" + std::to_string(w), size,
          make, out_layout);
      }
  });
}

// Weights are products of two numbers of which each has an error of a few units relative to 1, not to itself: near a
// pixel a weight is a small difference.
double resample_slack(const Format& format, double terms) { return gamma(terms + 12, format); }

}  // namespace

template <>
void Cases<Resample2d>::each(const CaseRequest& request, const RunCase<Resample2d>& run_case) {
  each_resample(request, [&](const std::string& name, const ResampleSize& s, auto make, Layout out_layout) {
    const Tensor x = make(s.x, 1);
    Tensor out(request.device, {s.x[0], s.x[1], s.h, s.w}, x.dtype(), out_layout);
    run_case(name, Resample2d{.x = x, .out = out, .resampling = s.resampling}, [&](CaseResult& result) {
      const std::vector<double> xv = x.values();
      double largest = 0;
      for (const double value : xv) largest = std::max(largest, std::fabs(value));
      std::vector<double> expected(static_cast<size_t>(out.elements())), terms(expected.size()), slack(expected.size());
      each_resampled(s,
                     [&](size_t from, size_t to, double weight) { expected[to] += weight * xv[from], terms[to] += 1; });
      for (size_t i = 0; i < slack.size(); ++i)
        slack[i] = resample_slack(wide_format(x.dtype()), terms[i]) * 2 * largest;
      result.expect_close(out, expected, slack);
    });
  });
}

template <>
void Cases<Resample2dBackward>::each(const CaseRequest& request, const RunCase<Resample2dBackward>& run_case) {
  each_resample(request, [&](const std::string& name, const ResampleSize& s, auto make, Layout out_layout) {
    const Tensor dy = make({s.x[0], s.x[1], s.h, s.w}, 1);
    Tensor dx(request.device, s.x, dy.dtype(), out_layout);
    run_case(name, Resample2dBackward{.dy = dy, .dx = dx, .resampling = s.resampling}, [&](CaseResult& result) {
      const std::vector<double> dv = dy.values();
      double largest = 0;
      for (const double value : dv) largest = std::max(largest, std::fabs(value));
      std::vector<double> expected(static_cast<size_t>(dx.elements())), terms(expected.size()), slack(expected.size());
      each_resampled(s,
                     [&](size_t to, size_t from, double weight) { expected[to] += weight * dv[from], terms[to] += 1; });
      for (size_t i = 0; i < slack.size(); ++i)
        slack[i] = resample_slack(wide_format(dy.dtype()), terms[i]) * (1 + terms[i]) * largest;
      result.expect_close(dx, expected, slack);
    });
  });
}

template <>
void Cases<BatchNormInferenceBackward>::each(const CaseRequest& request,
                                             const RunCase<BatchNormInferenceBackward>& run_case) {
  const auto each = [&](const std::string& image, auto make, Layout out_layout) {
    for (const Shape& shape : request.axes.norms) {
      const Tensor x = make(shape, 1), dy = make(shape, 5);
      const DType wide = wide_type(x.dtype());
      for (const bool narrow : request.axes.narrow_parameters) {
        const DType parameters = narrow ? x.dtype() : wide;
        if (parameters == DType::e4m3) continue;
        const Shape c{shape[1]};
        const Tensor scale = random_tensor(request, c, parameters, Layout::plain, 2),
                     mean = random_tensor(request, c, parameters, Layout::plain, 4),
                     variance = positive_tensor(request, c, parameters, 6);
        Tensor dx(request.device, shape, x.dtype(), out_layout), dscale(request.device, c, parameters),
            dshift(request.device, c, parameters);
        const BatchNormInferenceBackward op{.x = x,
                                            .dy = dy,
                                            .scale = scale,
                                            .running_mean = mean,
                                            .running_variance = variance,
                                            .dx = dx,
                                            .dscale = dscale,
                                            .dshift = dshift,
                                            .epsilon = 1e-3};
        run_case(image + " " + shape.text() + " parameters " + std::string(name_of(parameters)), op,
                 [&](CaseResult& result) {
                   const Format& format = wide_format(x.dtype());
                   const Channels channels(shape);
                   const std::vector<double> xv = x.values(), dv = dy.values(), sv = scale.values(), mv = mean.values(),
                                             vv = variance.values();
                   std::vector<double> g(xv.size()), g_slack(xv.size()), ds(channels.c), ds_slack(channels.c),
                       db(channels.c), db_slack(channels.c);
                   const double rounding = gamma(channels.count() + 10, format);
                   for (size_t ch = 0; ch < channels.c; ++ch) {
                     const double inverse = 1 / std::sqrt(vv[ch] + op.epsilon);
                     channels.each(ch, [&](size_t i) {
                       g[i] = sv[ch] * inverse * dv[i], g_slack[i] = gamma(8, format) * std::fabs(g[i]);
                       db[ch] += dv[i], db_slack[ch] += rounding * std::fabs(dv[i]);
                       ds[ch] += dv[i] * (xv[i] - mv[ch]) * inverse;
                       ds_slack[ch] += rounding * std::fabs(dv[i]) * (std::fabs(xv[i]) + std::fabs(mv[ch])) * inverse;
                     });
                   }
                   result.expect_close(dx, g, g_slack, "dx");
                   result.expect_close(dscale, ds, ds_slack, "dscale");
                   result.expect_close(dshift, db, db_slack, "dshift");
                 });
      }
    }
  };
  each_image(request, request.axes.dtypes, each, true);
}

}  // namespace halfmark::kernels::ops_cases
