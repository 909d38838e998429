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

namespace {

std::vector<double> values_of(const Tensor& tensor) { return tensor.empty() ? std::vector<double>() : tensor.values(); }

// Parameters and results of a norm of x, or of tensors like x.
struct ForwardOperands {
  Tensor scale, shift, out, inverse, mean;
  ForwardOperands(const CaseRequest& request, const Tensor& x, const NormForm& form, DType parameters, DType result,
                  Layout out_layout)
      : out(request.device, x.shape(), result, out_layout) {
    if (form.affine) scale = random_tensor(request, {form.entries}, parameters, Layout::plain, 2);
    if (form.affine && form.centred) shift = random_tensor(request, {form.entries}, parameters, Layout::plain, 3);
    const Shape rows{x.elements() / form.width};
    const DType wide = wide_type(x.dtype());
    inverse = Tensor(request.device, rows, wide);
    if (form.centred) mean = Tensor(request.device, rows, wide);
  }
  // `xv`: what was normalised, of the dtype `given`.
  void expect_norm(CaseResult& result, const NormForm& form, const std::vector<double>& xv, DType given,
                   double epsilon) const {
    const Format& format = wide_format(given);
    const std::vector<double> sv = values_of(scale), bv = values_of(shift);
    std::vector<double> y(xv.size()), slack(xv.size()), m, m_slack, v, v_slack;
    for (size_t begin = 0; begin < xv.size(); begin += static_cast<size_t>(form.width)) {
      const RowStatistics s(xv, begin, form, epsilon, format);
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
  }
};

}  // namespace

template <>
void Cases<NormalizeRows>::each(const CaseRequest& request, const RunCase<NormalizeRows>& run_case) {
  each_row_norm(request, [&](const std::string& name, const Tensor& x, const NormForm& form, DType parameters,
                             DType narrow, Layout out_layout) {
    ForwardOperands of(request, x, form, parameters, narrow, out_layout);
    const NormalizeRows op{.x = x,
                           .scale = of.scale,
                           .shift = of.shift,
                           .out = of.out,
                           .mean = of.mean,
                           .inverse = of.inverse,
                           .width = form.width,
                           .repeat = form.repeat,
                           .centred = form.centred,
                           .summed = form.summed,
                           .epsilon = 1e-3};
    run_case(name, op, [&](CaseResult& result) { of.expect_norm(result, form, x.values(), x.dtype(), op.epsilon); });
  });
}

template <>
void Cases<AddNormalizeRows>::each(const CaseRequest& request, const RunCase<AddNormalizeRows>& run_case) {
  each_row_norm(request, [&](const std::string& name, const Tensor& x, const NormForm& form, DType parameters,
                             DType narrow, Layout out_layout) {
    if (form.summed) return;  // of weights
    // With a narrow result, as a linear layer reads it, a branch is one that a linear layer has written.
    const Tensor a =
        random_tensor(request, x.shape(), narrow, x.layout() == Layout::nhwc ? Layout::nhwc : Layout::plain, 7);
    ForwardOperands of(request, x, form, parameters, narrow, out_layout);
    Tensor sum(request.device, x.shape(), x.dtype(), out_layout);
    const AddNormalizeRows op{.a = a,
                              .b = x,
                              .scale = of.scale,
                              .shift = of.shift,
                              .sum = sum,
                              .out = of.out,
                              .mean = of.mean,
                              .inverse = of.inverse,
                              .width = form.width,
                              .repeat = form.repeat,
                              .centred = form.centred,
                              .epsilon = 1e-3};
    run_case(name, op, [&](CaseResult& result) {
      const std::vector<double> left = a.values(), right = x.values();
      std::vector<double> y(left.size()), slack(left.size());
      for (size_t i = 0; i < y.size(); ++i)
        y[i] = left[i] + right[i], slack[i] = gamma(1, wide_format(x.dtype())) * std::fabs(y[i]);
      result.expect_close(sum, y, slack, "sum");
      of.expect_norm(result, form, sum.values(), sum.dtype(), op.epsilon);
    });
  });
}

namespace {

struct RowGradients {
  std::vector<double> dx, dx_slack, dscale, dscale_slack, dshift, dshift_slack;
};
// `scale`: empty: 1.
RowGradients expected_gradients(const NormForm& form, const std::vector<double>& xv, const std::vector<double>& dv,
                                const std::vector<double>& mv, const std::vector<double>& iv,
                                const std::vector<double>& sv, const Format& format) {
  const auto width = static_cast<size_t>(form.width), entries = static_cast<size_t>(form.entries);
  const double rounding = gamma(static_cast<double>(width) + 10, format);
  const double count = form.summed ? 1 : static_cast<double>(width);  // what a sum is divided by
  const double uses = static_cast<double>(xv.size()) / static_cast<double>(entries);
  RowGradients y;
  y.dx.resize(xv.size()), y.dx_slack.resize(xv.size());
  for (std::vector<double>* one : {&y.dscale, &y.dscale_slack, &y.dshift, &y.dshift_slack}) one->resize(entries);
  for (size_t row = 0; row < iv.size(); ++row) {
    const auto entry = [&](size_t i) { return i / static_cast<size_t>(form.repeat) % entries; };
    const auto factor = [&](size_t i) { return sv.empty() ? 1 : sv[entry(i)]; };
    const double mean = mv.empty() ? 0 : mv[row];
    const auto hat = [&](size_t i) { return (xv[i] - mean) * iv[row]; };
    const auto hat_size = [&](size_t i) { return (std::fabs(xv[i]) + std::fabs(mean)) * iv[row]; };
    double sum = 0, sum_size = 0, product = 0, product_size = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      sum += factor(i) * dv[i], sum_size += std::fabs(factor(i) * dv[i]);
      product += factor(i) * dv[i] * hat(i), product_size += std::fabs(factor(i) * dv[i]) * hat_size(i);
      y.dscale[entry(i)] += dv[i] * hat(i), y.dscale_slack[entry(i)] += std::fabs(dv[i]) * hat_size(i);
      y.dshift[entry(i)] += dv[i], y.dshift_slack[entry(i)] += std::fabs(dv[i]);
    }
    if (!form.centred) sum = sum_size = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      y.dx[i] = iv[row] * (factor(i) * dv[i] - sum / count - hat(i) * product / count);
      y.dx_slack[i] =
          rounding * iv[row] * (std::fabs(factor(i) * dv[i]) + sum_size / count + hat_size(i) * product_size / count);
    }
  }
  for (double& one : y.dscale_slack) one *= gamma(uses + 10, format);
  for (double& one : y.dshift_slack) one *= gamma(uses + 10, format);
  return y;
}

// Operands of the backward of a norm, as forward leaves them, and its gradients of scale and shift.
struct BackwardOperands {
  Tensor x, dy, mean, inverse, scale, dscale, dshift;
  BackwardOperands(const CaseRequest& request, const Tensor& given, const NormForm& form, DType parameters,
                   DType narrow)
      : x(given) {
    const Format& format = wide_format(x.dtype());
    const Shape rows{x.elements() / form.width};
    const auto statistic = [&](double RowStatistics::*which) {
      return filled_tensor(request, rows, wide_type(x.dtype()), Layout::plain, [&] {
        const std::vector<double> xv = x.values();
        std::vector<double> values;
        for (size_t begin = 0; begin < xv.size(); begin += static_cast<size_t>(form.width))
          values.push_back(RowStatistics(xv, begin, form, 1e-3, format).*which);
        return values;
      });
    };
    dy = random_tensor(request, x.shape(), narrow, x.layout() == Layout::nhwc ? Layout::nhwc : Layout::plain, 5);
    if (form.centred) mean = statistic(&RowStatistics::mean);
    inverse = statistic(&RowStatistics::inverse);
    if (form.affine) scale = random_tensor(request, {form.entries}, parameters, Layout::plain, 2);
    if (form.affine) dscale = Tensor(request.device, {form.entries}, parameters);
    if (form.affine && form.centred) dshift = Tensor(request.device, {form.entries}, parameters);
  }
  RowGradients expected(const NormForm& form) const {
    return expected_gradients(form, x.values(), dy.values(), values_of(mean), inverse.values(), values_of(scale),
                              wide_format(x.dtype()));
  }
  void expect_parameters(CaseResult& result, const RowGradients& y) const {
    if (!dscale.empty()) result.expect_close(dscale, y.dscale, y.dscale_slack, "dscale");
    if (!dshift.empty()) result.expect_close(dshift, y.dshift, y.dshift_slack, "dshift");
  }
};

}  // namespace

template <>
void Cases<NormalizeRowsBackward>::each(const CaseRequest& request, const RunCase<NormalizeRowsBackward>& run_case) {
  each_row_norm(request, [&](const std::string& name, const Tensor& x, const NormForm& form, DType parameters,
                             DType narrow, Layout out_layout) {
    BackwardOperands of(request, x, form, parameters, narrow);
    Tensor dx(request.device, x.shape(), x.dtype(), out_layout);
    const NormalizeRowsBackward op{.x = of.x,
                                   .dy = of.dy,
                                   .scale = of.scale,
                                   .mean = of.mean,
                                   .inverse = of.inverse,
                                   .dx = dx,
                                   .dscale = of.dscale,
                                   .dshift = of.dshift,
                                   .width = form.width,
                                   .repeat = form.repeat,
                                   .centred = form.centred,
                                   .summed = form.summed};
    run_case(name, op, [&](CaseResult& result) {
      const RowGradients y = of.expected(form);
      result.expect_close(dx, y.dx, y.dx_slack, "dx");
      of.expect_parameters(result, y);
    });
  });
}

template <>
void Cases<NormalizeRowsBackwardAdd>::each(const CaseRequest& request,
                                           const RunCase<NormalizeRowsBackwardAdd>& run_case) {
  each_row_norm(request, [&](const std::string& name, const Tensor& x, const NormForm& form, DType parameters,
                             DType narrow, Layout out_layout) {
    if (form.summed) return;  // of weights
    BackwardOperands of(request, x, form, parameters, narrow);
    const Tensor addend =
        random_tensor(request, x.shape(), x.dtype(), x.layout() == Layout::nhwc ? Layout::nhwc : Layout::plain, 6);
    Tensor out(request.device, x.shape(), x.dtype(), out_layout);
    const NormalizeRowsBackwardAdd op{.x = of.x,
                                      .dy = of.dy,
                                      .addend = addend,
                                      .scale = of.scale,
                                      .mean = of.mean,
                                      .inverse = of.inverse,
                                      .out = out,
                                      .dscale = of.dscale,
                                      .dshift = of.dshift,
                                      .width = form.width,
                                      .repeat = form.repeat,
                                      .centred = form.centred};
    run_case(name, op, [&](CaseResult& result) {
      RowGradients y = of.expected(form);
      const std::vector<double> added = addend.values();
      const Format& stored = format_of(x.dtype());
      for (size_t i = 0; i < added.size(); ++i) {
        // dx is rounded before it is added; the sum is one of fp32 or fp64.
        y.dx_slack[i] += stored.unit_roundoff() * (std::fabs(y.dx[i]) + y.dx_slack[i]) + smallest(stored) / 2;
        y.dx[i] += added[i];
        y.dx_slack[i] += gamma(1, wide_format(x.dtype())) * std::fabs(y.dx[i]);
      }
      result.expect_close(out, y.dx, y.dx_slack, "out");
      of.expect_parameters(result, y);
    });
  });
}

}  // namespace halfmark::kernels::ops_cases
