#include "accuracy/experiments/batchnorm_layouts.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/experiments/sums.h"

namespace halfmark::accuracy {

namespace {

constexpr double kLayoutEpsilon = 1e-5;

// Operands of a batch norm as they are stored.
struct NormCase {
  Shape image;
  bool frozen = false, affine = true;
  std::vector<double> x{}, dy{}, scale{}, shift{}, mean{},
      variance{};  // mean and variance: the running ones of a frozen layer
  size_t channels() const { return static_cast<size_t>(image[1]); }
  size_t pixels() const { return static_cast<size_t>(image[2] * image[3]); }
  void each(size_t c, auto&& visit) const {
    for (size_t n = 0; n < static_cast<size_t>(image[0]); ++n)
      for (size_t p = 0; p < pixels(); ++p) visit((n * channels() + c) * pixels() + p);
  }
};

struct NormResults {
  std::vector<double> out, dx, dscale, dshift;
};

NormCase draw_norm(const TrialSpec& spec) {
  NormCase drawn{.image = batchnorm_image(spec.subject->input),
                 .frozen = is_frozen_batchnorm(*spec.subject),
                 .affine = spec.subject->sizes.find("_a0") == std::string::npos};
  const RandomKey key = RandomKey(spec.seed).child("batchnorm_layouts");
  const auto values = [&](const char* name, DType dtype, int64_t count, double centre, double spread, bool is_drawn) {
    std::vector<double> all(static_cast<size_t>(count), centre);
    const RandomKey own = key.child(name);
    for (size_t i = 0; i < all.size() && is_drawn; ++i) all[i] += spread * (2 * own.uniform(i) - 1);
    return stored_as(*spec.device, dtype, all);
  };
  const Policy& policy = *spec.policy;
  const int64_t all = drawn.image.elements(), channels = drawn.image[1];
  drawn.x = values("x", policy.low, all, 3, 2, true), drawn.dy = values("dy", policy.low, all, 0, 1, true);
  drawn.scale = values("scale", policy.batch_norm, channels, 1, 0.5, drawn.affine);
  drawn.shift = values("shift", policy.batch_norm, channels, 0, 0.5, drawn.affine);
  drawn.mean = values("mean", policy.state, channels, 3, 0.5, true);
  drawn.variance = values("variance", policy.state, channels, 1.5, 0.5, true);
  return drawn;
}

NormResults exact_norm(const NormCase& given) {
  NormResults exact{.out = std::vector<double>(given.x.size()),
                    .dx = std::vector<double>(given.x.size()),
                    .dscale = std::vector<double>(given.channels()),
                    .dshift = std::vector<double>(given.channels())};
  const double count = static_cast<double>(given.x.size()) / static_cast<double>(given.channels());
  for (size_t c = 0; c < given.channels(); ++c) {
    double mean = 0, variance = 0;
    given.each(c, [&](size_t i) { mean += given.x[i] / count; });
    given.each(c, [&](size_t i) { variance += (given.x[i] - mean) * (given.x[i] - mean) / count; });
    if (given.frozen) mean = given.mean[c], variance = given.variance[c];
    const double divisor = std::sqrt(variance + kLayoutEpsilon);
    double& dscale = exact.dscale[c];
    double& dshift = exact.dshift[c];
    given.each(c, [&](size_t i) {
      const double normal = (given.x[i] - mean) / divisor;
      exact.out[i] = given.scale[c] * normal + given.shift[c];
      dscale += given.dy[i] * normal, dshift += given.dy[i];
    });
    given.each(c, [&](size_t i) {
      const double normal = (given.x[i] - mean) / divisor;
      const double through = given.frozen ? 0 : (dshift + normal * dscale) / count;
      exact.dx[i] = given.scale[c] / divisor * (given.dy[i] - through);
    });
  }
  return exact;
}

NormResults norm_by_device(const TrialSpec& spec, const NormCase& given, Layout layout) {
  Device& device = *spec.device;
  const Policy& policy = *spec.policy;
  const Shape channels{given.image[1]};
  const Tensor x = Tensor::from(device, given.image, policy.low, given.x, layout),
               dy = Tensor::from(device, given.image, policy.low, given.dy, layout);
  const Tensor scale = Tensor::from(device, channels, policy.batch_norm, given.scale),
               shift = Tensor::from(device, channels, policy.batch_norm, given.shift);
  Tensor running_mean = Tensor::from(device, channels, policy.state, given.mean),
         running_variance = Tensor::from(device, channels, policy.state, given.variance);
  Tensor out(device, given.image, policy.low, layout), dx(device, given.image, policy.low, layout);
  Tensor dscale(device, channels, policy.batch_norm), dshift(device, channels, policy.batch_norm);
  if (given.frozen) {
    run(BatchNormInference{.x = x,
                           .scale = scale,
                           .shift = shift,
                           .running_mean = running_mean,
                           .running_variance = running_variance,
                           .out = out,
                           .epsilon = kLayoutEpsilon});
    run(BatchNormInferenceBackward{.x = x,
                                   .dy = dy,
                                   .scale = scale,
                                   .running_mean = running_mean,
                                   .running_variance = running_variance,
                                   .dx = dx,
                                   .dscale = dscale,
                                   .dshift = dshift,
                                   .epsilon = kLayoutEpsilon});
  } else {
    Tensor mean(device, channels, DType::f32), variance(device, channels, DType::f32);
    run(BatchNorm{.x = x,
                  .scale = scale,
                  .shift = shift,
                  .out = out,
                  .mean = mean,
                  .variance = variance,
                  .running_mean = running_mean,
                  .running_variance = running_variance,
                  .epsilon = kLayoutEpsilon});
    run(BatchNormBackward{.x = x,
                          .dy = dy,
                          .scale = scale,
                          .mean = mean,
                          .variance = variance,
                          .dx = dx,
                          .dscale = dscale,
                          .dshift = dshift,
                          .epsilon = kLayoutEpsilon});
  }
  return {out.values(), dx.values(), dscale.values(), dshift.values()};
}

// Root of the normalised mean squared error; NaN or infinite if a value is.
double rms_error(const std::vector<double>& found, const std::vector<double>& exact) {
  double off = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = found[i] - exact[i];
    off += difference * difference, size += exact[i] * exact[i];
  }
  return std::sqrt(off / size);
}

}  // namespace

Shape batchnorm_image(const Shape& shape) {
  switch (shape.rank()) {
    case 2:
      return {shape[0], shape[1], 1, 1};
    case 3:
      return {shape[0], shape[1], 1, shape[2]};
    case 5:
      return {shape[0], shape[1], shape[2] * shape[3], shape[4]};
    default:
      return shape;
  }
}

bool is_frozen_batchnorm(const Subject& subject) { return subject.sizes.find("_m1") != std::string::npos; }

void measure_batchnorm_layouts(const TrialSpec& spec, FindingsWriter& out) {
  const NormCase given = draw_norm(spec);
  const NormResults exact = exact_norm(given);
  for (const auto& [name, layout] : {std::pair{"nchw", Layout::plain}, std::pair{"nhwc", Layout::nhwc}})
    where_supported(out, "batchnorm_statistics.unsupported", name, [&, name = std::string(name), layout = layout] {
      const NormResults found = norm_by_device(spec, given, layout);
      double nonfinite = 0, values = 0;
      for (const std::vector<double>* all : {&found.out, &found.dx, &found.dscale, &found.dshift})
        for (const double value : *all) nonfinite += !std::isfinite(value), values += 1;
      out.number("batchnorm_statistics.output_error", name, rms_error(found.out, exact.out));
      out.number("batchnorm_statistics.gradient_error", name + "/input", rms_error(found.dx, exact.dx));
      out.number("batchnorm_statistics.gradient_error", name + "/scale", rms_error(found.dscale, exact.dscale));
      out.number("batchnorm_statistics.gradient_error", name + "/shift", rms_error(found.dshift, exact.dshift));
      out.number("batchnorm_statistics.layout_nonfinite", name, nonfinite / values);
    });
}

}  // namespace halfmark::accuracy
