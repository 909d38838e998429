// What the cases of operations on images share.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops/cases/operands.h"

namespace halfmark::kernels::ops_cases {

// f(name, make, out_layout): make(shape, seed) gives the image operand of a case. Uses all layouts of the axes; the
// library's own only if the device has one for this dtype. Operations of several images pass `several`; seed 1 is the
// first of them.
inline void each_image(const CaseRequest& request, const std::vector<DType>& dtypes, auto&& f, bool several = false) {
  for (const DType dtype : dtypes)
    for (const ImageForm& form : request.axes.forms) {
      if (form.other_second && !several) continue;
      if (form.opaque && !opaque_tensor(request, {2, 16, 6, 5}, dtype, 1)) continue;
      const Layout other = form.in == Layout::plain ? Layout::nhwc : Layout::plain;
      const Layout second = form.other_second ? other : form.in;
      std::string layouts =
          form.opaque ? "opaque" : std::string(name_of(form.in)) + "-" + std::string(name_of(form.out));
      if (form.other_second) layouts += " second " + std::string(name_of(other));
      const auto make = [&request, dtype, form, second](const Shape& shape, uint64_t seed) {
        std::optional<Tensor> tensor;
        if (form.opaque) tensor = opaque_tensor(request, shape, dtype, seed);
        return tensor ? *tensor : random_tensor(request, shape, dtype, seed == 1 ? form.in : second, seed);
      };
      f(std::string(name_of(dtype)) + " " + layouts, make, form.out);
    }
}

struct Channels {  // [n, c, h, w] by channel
  size_t n, c, pixels;
  explicit Channels(const Shape& s)
      : n(static_cast<size_t>(s[0])), c(static_cast<size_t>(s[1])), pixels(static_cast<size_t>(s[2] * s[3])) {}
  double count() const { return static_cast<double>(n * pixels); }
  void each(size_t channel, auto&& f) const {
    for (size_t i = 0; i < n; ++i)
      for (size_t p = 0; p < pixels; ++p) f((i * c + channel) * pixels + p);
  }
};

// Statistics of one channel in fp64, with the error an fp32 computation may have. The variance must come from two passes,
// or from as good a formula: differences from the computed mean, squared, have an error of gamma(m) variance and the
// squared error of the mean. One pass in fp32, E x^2 - mean^2, would have gamma(m) mean^2, which no digit survives.
struct Statistics {
  double mean = 0, variance = 0, mean_slack = 0, variance_slack = 0;
  Statistics(const std::vector<double>& x, const Channels& channels, size_t c, const Format& format) {
    double magnitude = 0;
    channels.each(c, [&](size_t i) { mean += x[i], magnitude += std::fabs(x[i]); });
    mean /= channels.count();
    channels.each(c, [&](size_t i) { variance += (x[i] - mean) * (x[i] - mean); });
    variance /= channels.count();
    const double g = gamma(channels.count() + 4, format);
    mean_slack = g * magnitude / channels.count();
    variance_slack = 2 * (g * variance + mean_slack * mean_slack);
  }
};

// scale (x - mean) / sqrt(variance + epsilon) + shift: three rounded steps of its own, plus the slack of the statistics
// to first order. scale x inverse + (shift - scale mean inverse) is allowed too, hence |x| and |mean| count separately.
inline double normalised_slack(double x, double mean, double inverse, double scale, double shift, double mean_slack,
                               double variance_slack, const Format& format) {
  const double spread = std::fabs(x) + std::fabs(mean);
  return gamma(8, format) * (std::fabs(scale) * spread * inverse + std::fabs(shift)) +
         std::fabs(scale) * inverse * (mean_slack + spread * variance_slack * inverse * inverse);
}

// The results of batch norm backward for the gradient g of its result, in logical order.
void expect_batch_norm_gradients(CaseResult& result, const BatchNormBackward& op, const std::vector<double>& g);

// f(name, x, out_layout): images of each size and mean.
inline void each_norm(const CaseRequest& request, auto&& f) {
  each_image(request, request.axes.dtypes, [&](const std::string& image, auto make, Layout out_layout) {
    for (const Shape& shape : request.axes.norms)
      for (const double mean : request.axes.norm_means) {
        Tensor x = make(shape, 1);
        if (mean != 0) {
          if (x.layout() == Layout::opaque) continue;  // a library made it, with its padding
          std::vector<double> values = x.values();
          for (double& value : values) value += mean;
          x.set_values(values);
        }
        f(image + " " + shape.text() + (mean != 0 ? " mean " + std::to_string(std::lround(mean)) : ""), x, out_layout);
      }
  });
}

}  // namespace halfmark::kernels::ops_cases
