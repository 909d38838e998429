// Cases of layer norm, RMS norm, group norm and weight norm.

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/image.h"

namespace halfmark::kernels::ops_cases {

namespace {

struct NormForm {
  const char* name;
  int64_t width, repeat, entries;
  bool centred, affine;
  bool summed = false;
};

// Rows of an image [n, c, h, w]: of a whole sample, and of groups of channels.
std::vector<NormForm> norm_forms(const Shape& shape) {
  const int64_t c = shape[1], pixels = shape[2] * shape[3], groups = c % 4 == 0 ? 4 : 1;
  return {{"layer", c * pixels, 1, c * pixels, true, true},
          {"layer without scale", c * pixels, 1, c * pixels, true, false},
          {"rms", c * pixels, 1, c * pixels, false, true},
          {"rms of columns", shape[3], 1, shape[3], false, true},
          {"group", c / groups * pixels, pixels, c, true, true},
          {"lengths of channels", pixels, pixels, c, false, true, true}};
}

// Mean and inverse of one row in fp64, with the error that an fp32 computation may have.
struct RowStatistics {
  double mean = 0, variance = 0, inverse = 0, mean_slack = 0, variance_slack = 0;
  RowStatistics(const std::vector<double>& x, size_t begin, const NormForm& form, double epsilon,
                const Format& format) {
    const auto width = static_cast<size_t>(form.width);
    const double values = static_cast<double>(width), g = gamma(values + 4, format);
    const double count = form.summed ? 1 : values;  // what a sum is divided by
    double magnitude = 0;
    if (form.centred) {
      for (size_t i = begin; i < begin + width; ++i) mean += x[i] / count, magnitude += std::fabs(x[i]);
      mean_slack = g * magnitude / count;
    }
    for (size_t i = begin; i < begin + width; ++i) variance += (x[i] - mean) * (x[i] - mean) / count;
    variance_slack = 2 * (g * variance + mean_slack * mean_slack);
    inverse = 1 / std::sqrt(variance + epsilon);
  }
  double inverse_slack(const Format& format) const {
    return inverse * (gamma(4, format) + variance_slack * inverse * inverse);
  }
};

// f(name, x, form, parameters, dtype of the result, out_layout)
void each_row_norm(const CaseRequest& request, auto&& f) {
  each_norm(request, [&](const std::string& image, const Tensor& x, Layout out_layout) {
    std::vector<NormForm> forms = norm_forms(x.shape());
    if (!request.axes.norm_forms) forms.resize(1);
    for (const NormForm& form : forms)
      for (const bool narrow : request.axes.narrow_parameters) {
        if (!form.affine && narrow) continue;
        const DType parameters = narrow ? x.dtype() : wide_type(x.dtype());
        if (parameters == DType::e4m3) continue;
        const std::string name =
            std::string(form.name) + " " + image + " parameters " + std::string(name_of(parameters));
        f(name, x, form, parameters, x.dtype(), out_layout);
        if (x.dtype() != DType::f32) continue;
        for (const DType result : request.axes.narrow_results)
          f(name + " result " + std::string(name_of(result)), x, form, parameters, result, out_layout);
      }
  });
}

}  // namespace

template <>
void Cases<NormalizeRows>::each(const CaseRequest& request, const RunCase<NormalizeRows>& run_case) {
  each_row_norm(request, [&](const std::string& name, const Tensor& x, const NormForm& form, DType parameters,
                             DType narrow, Layout out_layout) {
    const Tensor none,
        scale = form.affine ? random_tensor(request, {form.entries}, parameters, Layout::plain, 2) : none,
        shift =
            form.affine && form.centred ? random_tensor(request, {form.entries}, parameters, Layout::plain, 3) : none;
    const Shape rows{x.elements() / form.width};
    const DType wide = wide_type(x.dtype());
    Tensor out(request.device, x.shape(), narrow, out_layout), inverse(request.device, rows, wide);
    Tensor mean = form.centred ? Tensor(request.device, rows, wide) : Tensor();
    const NormalizeRows op{.x = x,
                           .scale = scale,
                           .shift = shift,
                           .out = out,
                           .mean = mean,
                           .inverse = inverse,
                           .width = form.width,
                           .repeat = form.repeat,
                           .centred = form.centred,
                           .summed = form.summed,
                           .epsilon = 1e-3};
    run_case(name, op, [&](CaseResult& result) {
      const Format& format = wide_format(x.dtype());
      const std::vector<double> xv = x.values(), sv = scale.empty() ? std::vector<double>() : scale.values(),
                                bv = shift.empty() ? std::vector<double>() : shift.values();
      std::vector<double> y(xv.size()), slack(xv.size()), m, m_slack, v, v_slack;
      for (size_t begin = 0; begin < xv.size(); begin += static_cast<size_t>(form.width)) {
        const RowStatistics s(xv, begin, form, op.epsilon, format);
        m.push_back(s.mean), m_slack.push_back(s.mean_slack);
        v.push_back(s.inverse), v_slack.push_back(s.inverse_slack(format));
        for (size_t i = begin; i < begin + static_cast<size_t>(form.width); ++i) {
          const size_t entry = i / static_cast<size_t>(form.repeat) % static_cast<size_t>(form.entries);
          const double factor = sv.empty() ? 1 : sv[entry], offset = bv.empty() ? 0 : bv[entry];
          y[i] = factor * (xv[i] - s.mean) * s.inverse + offset;
          slack[i] = normalised_slack(xv[i], s.mean, s.inverse, factor, offset, s.mean_slack, s.variance_slack, format);
        }
      }
      result.expect_close(out, y, slack, "out"), result.expect_close(inverse, v, v_slack, "inverse");
      if (form.centred) result.expect_close(mean, m, m_slack, "mean");
    });
  });
}

template <>
void Cases<NormalizeRowsBackward>::each(const CaseRequest& request, const RunCase<NormalizeRowsBackward>& run_case) {
  each_row_norm(request, [&](const std::string& name, const Tensor& x, const NormForm& form, DType parameters,
                             DType narrow, Layout out_layout) {
    const Format& format = wide_format(x.dtype());
    const Shape rows{x.elements() / form.width};
    const DType wide = wide_type(x.dtype());
    const auto statistic = [&](double RowStatistics::*which) {
      return filled_tensor(request, rows, wide, Layout::plain, [&] {
        const std::vector<double> xv = x.values();
        std::vector<double> values;
        for (size_t begin = 0; begin < xv.size(); begin += static_cast<size_t>(form.width))
          values.push_back(RowStatistics(xv, begin, form, 1e-3, format).*which);
        return values;
      });
    };
    const Tensor dy =
        random_tensor(request, x.shape(), narrow, x.layout() == Layout::nhwc ? Layout::nhwc : Layout::plain, 5);
    const Tensor none,
        mean = form.centred ? statistic(&RowStatistics::mean) : none, inverse = statistic(&RowStatistics::inverse),
        scale = form.affine ? random_tensor(request, {form.entries}, parameters, Layout::plain, 2) : none;
    Tensor dx(request.device, x.shape(), x.dtype(), out_layout);
    Tensor dscale = form.affine ? Tensor(request.device, {form.entries}, parameters) : Tensor();
    Tensor dshift = form.affine && form.centred ? Tensor(request.device, {form.entries}, parameters) : Tensor();
    const NormalizeRowsBackward op{.x = x,
                                   .dy = dy,
                                   .scale = scale,
                                   .mean = mean,
                                   .inverse = inverse,
                                   .dx = dx,
                                   .dscale = dscale,
                                   .dshift = dshift,
                                   .width = form.width,
                                   .repeat = form.repeat,
                                   .centred = form.centred,
                                   .summed = form.summed};
    run_case(name, op, [&](CaseResult& result) {
      const std::vector<double> xv = x.values(), dv = dy.values(), iv = inverse.values(),
                                mv = mean.empty() ? std::vector<double>(iv.size()) : mean.values(),
                                sv = scale.empty() ? std::vector<double>() : scale.values();
      const auto width = static_cast<size_t>(form.width), entries = static_cast<size_t>(form.entries);
      const double rounding = gamma(static_cast<double>(width) + 10, format);
      const double count = form.summed ? 1 : static_cast<double>(width);  // what a sum is divided by
      const double uses = static_cast<double>(xv.size()) / static_cast<double>(entries);
      std::vector<double> g(xv.size()), g_slack(xv.size()), ds(entries), ds_slack(entries), db(entries),
          db_slack(entries);
      for (size_t row = 0; row < iv.size(); ++row) {
        const auto entry = [&](size_t i) { return i / static_cast<size_t>(form.repeat) % entries; };
        const auto factor = [&](size_t i) { return sv.empty() ? 1 : sv[entry(i)]; };
        const auto hat = [&](size_t i) { return (xv[i] - mv[row]) * iv[row]; };
        const auto hat_size = [&](size_t i) { return (std::fabs(xv[i]) + std::fabs(mv[row])) * iv[row]; };
        double sum = 0, sum_size = 0, product = 0, product_size = 0;
        for (size_t i = row * width; i < (row + 1) * width; ++i) {
          sum += factor(i) * dv[i], sum_size += std::fabs(factor(i) * dv[i]);
          product += factor(i) * dv[i] * hat(i), product_size += std::fabs(factor(i) * dv[i]) * hat_size(i);
          ds[entry(i)] += dv[i] * hat(i), ds_slack[entry(i)] += std::fabs(dv[i]) * hat_size(i);
          db[entry(i)] += dv[i], db_slack[entry(i)] += std::fabs(dv[i]);
        }
        if (!form.centred) sum = sum_size = 0;
        for (size_t i = row * width; i < (row + 1) * width; ++i) {
          g[i] = iv[row] * (factor(i) * dv[i] - sum / count - hat(i) * product / count);
          g_slack[i] = rounding * iv[row] *
                       (std::fabs(factor(i) * dv[i]) + sum_size / count + hat_size(i) * product_size / count);
        }
      }
      for (double& one : ds_slack) one *= gamma(uses + 10, format);
      for (double& one : db_slack) one *= gamma(uses + 10, format);
      result.expect_close(dx, g, g_slack, "dx");
      if (!dscale.empty()) result.expect_close(dscale, ds, ds_slack, "dscale");
      if (!dshift.empty()) result.expect_close(dshift, db, db_slack, "dshift");
    });
  });
}

}  // namespace halfmark::kernels::ops_cases
