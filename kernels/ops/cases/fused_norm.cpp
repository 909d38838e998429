// Cases of batch norm with ReLU, with and without the addition of another image.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/image.h"

namespace halfmark::kernels::ops_cases {

namespace {

constexpr double kNormEpsilon = 1e-3;

std::string addend_text(AddendForm form) {
  switch (form) {
    case AddendForm::none:
      return " without addend";
    case AddendForm::alike:
      return "";
    case AddendForm::wide:
      return " wide addend";
  }
  throw Error("unknown form of an addend");
}

// f(name, make, out_layout, shape, form, dtype of addend and result): each image with each form of the addend.
void each_fused_norm(const CaseRequest& request, auto&& f) {
  each_image(
      request, request.axes.dtypes,
      [&](const std::string& image, auto make, Layout out_layout) {
        for (const Shape& shape : request.axes.norms)
          for (const AddendForm form : request.axes.addends) {
            const Tensor x = make(shape, 1);
            const DType wide = wide_type(x.dtype());
            if (form == AddendForm::wide && (x.dtype() == wide || x.layout() == Layout::opaque)) continue;
            f(image + " " + shape.text() + addend_text(form), x, make, out_layout, form,
              form == AddendForm::wide ? wide : x.dtype());
          }
      },
      true);
}

// Of another dtype than the images that `make` gives.
Tensor in_dtype(const CaseRequest& request, const Tensor& image, DType dtype) {
  if (image.dtype() == dtype) return image;
  return filled_tensor(request, image.shape(), dtype, image.layout(), [&] { return image.values(); });
}

}  // namespace

template <>
void Cases<FusedBatchNorm>::each(const CaseRequest& request, const RunCase<FusedBatchNorm>& run_case) {
  each_fused_norm(request, [&](const std::string& name, const Tensor& x, auto make, Layout out_layout, AddendForm form,
                               DType result_dtype) {
    const Shape& shape = x.shape();
    const Shape c{shape[1]};
    const DType wide = wide_type(x.dtype());
    const Tensor addend = form == AddendForm::none ? Tensor() : in_dtype(request, make(shape, 7), result_dtype);
    const Tensor scale = random_tensor(request, c, wide, Layout::plain, 2),
                 shift = random_tensor(request, c, wide, Layout::plain, 3);
    Tensor out(request.device, shape, result_dtype, out_layout), mean(request.device, c, wide),
        variance(request.device, c, wide);
    Tensor running_mean = random_tensor(request, c, wide, Layout::plain, 4);
    Tensor running_variance = positive_tensor(request, c, wide, 6);
    const FusedBatchNorm op{.x = x,
                            .addend = addend,
                            .scale = scale,
                            .shift = shift,
                            .out = out,
                            .mean = mean,
                            .variance = variance,
                            .running_mean = running_mean,
                            .running_variance = running_variance,
                            .momentum = 0.25,
                            .epsilon = kNormEpsilon};
    run_case(name, op, [&](CaseResult& result) {
      const Format& format = wide_format(x.dtype());
      const Channels channels(shape);
      const std::vector<double> xv = x.values(), sv = scale.values(), bv = shift.values();
      const std::vector<double> av = addend.empty() ? std::vector<double>(xv.size()) : addend.values();
      const std::vector<double> mean_before = result.before(running_mean),
                                variance_before = result.before(running_variance);
      std::vector<double> y(xv.size()), y_slack(xv.size()), m, m_slack, v, v_slack, rm, rm_slack, rv, rv_slack;
      for (size_t ch = 0; ch < channels.c; ++ch) {
        const Statistics s(xv, channels, ch, format);
        m.push_back(s.mean), m_slack.push_back(s.mean_slack);
        v.push_back(s.variance), v_slack.push_back(s.variance_slack);
        const double unbiased = s.variance * channels.count() / (channels.count() - 1);
        rm.push_back(0.75 * mean_before[ch] + 0.25 * s.mean);
        rv.push_back(0.75 * variance_before[ch] + 0.25 * unbiased);
        rm_slack.push_back(s.mean_slack + gamma(4, format) * (std::fabs(mean_before[ch]) + std::fabs(s.mean)));
        rv_slack.push_back(2 * s.variance_slack + gamma(6, format) * (variance_before[ch] + 2 * s.variance));
        const double inverse = 1 / std::sqrt(s.variance + kNormEpsilon);
        channels.each(ch, [&](size_t i) {
          const double norm = sv[ch] * (xv[i] - s.mean) * inverse + bv[ch];
          y[i] = std::max(0.0, norm + av[i]);
          y_slack[i] =
              normalised_slack(xv[i], s.mean, inverse, sv[ch], bv[ch], s.mean_slack, s.variance_slack, format) +
              (addend.empty() ? 0 : gamma(1, format) * (std::fabs(norm) + std::fabs(av[i])));
        });
      }
      result.expect_close(out, y, y_slack, "out"), result.expect_close(mean, m, m_slack, "mean");
      result.expect_close(variance, v, v_slack, "variance");
      result.expect_close(running_mean, rm, rm_slack, "running mean");
      result.expect_close(running_variance, rv, rv_slack, "running variance");
    });
  });
}

template <>
void Cases<FusedBatchNormBackward>::each(const CaseRequest& request, const RunCase<FusedBatchNormBackward>& run_case) {
  each_fused_norm(request, [&](const std::string& name, const Tensor& x, auto make, Layout out_layout, AddendForm form,
                               DType result_dtype) {
    const Shape& shape = x.shape();
    const Shape c{shape[1]};
    const DType wide = wide_type(x.dtype());
    const Format& format = wide_format(x.dtype());
    const Channels channels(shape);
    // About half of `kept` is not above 0; a result of forward has zeros there.
    const Tensor kept = in_dtype(request, make(shape, 7), result_dtype), dy = make(shape, 5);
    const auto statistic = [&](double Statistics::*which) {
      return filled_tensor(request, c, wide, Layout::plain, [&] {
        const std::vector<double> xv = x.values();
        std::vector<double> values;
        for (size_t ch = 0; ch < channels.c; ++ch) values.push_back(Statistics(xv, channels, ch, format).*which);
        return values;
      });
    };
    const Tensor mean = statistic(&Statistics::mean), variance = statistic(&Statistics::variance);
    const Tensor scale = random_tensor(request, c, wide, Layout::plain, 2);
    Tensor dx(request.device, shape, x.dtype(), out_layout), dscale(request.device, c, wide),
        dshift(request.device, c, wide), daddend;
    if (form != AddendForm::none) daddend = Tensor(request.device, shape, result_dtype, out_layout);
    const FusedBatchNormBackward op{.x = x,
                                    .kept = kept,
                                    .dy = dy,
                                    .scale = scale,
                                    .mean = mean,
                                    .variance = variance,
                                    .dx = dx,
                                    .daddend = daddend,
                                    .dscale = dscale,
                                    .dshift = dshift,
                                    .epsilon = kNormEpsilon};
    run_case(name, op, [&](CaseResult& result) {
      const std::vector<double> kv = kept.values();
      std::vector<double> g = dy.values();
      for (size_t i = 0; i < g.size(); ++i)
        if (kv[i] <= 0) g[i] = 0;
      expect_batch_norm_gradients(result, op.norm(dy), g);
      if (!daddend.empty()) result.expect_exact(daddend, g, "daddend");
    });
  });
}

}  // namespace halfmark::kernels::ops_cases
