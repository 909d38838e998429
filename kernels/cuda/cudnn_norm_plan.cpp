#include "kernels/cuda/cudnn_norm_plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/cudnn_statistics.h"

namespace halfmark::kernels::cuda {

constexpr float kWholeMomentum = 1;

static Tensor column_floats(Device& device, int64_t entries) {
  return workspace(device, {entries}, DType::f32, Layout::plain);
}
static float* floats_of(const Tensor& tensor) { return static_cast<float*>(const_cast<void*>(tensor.data())); }

CudnnOperands operands_of(const NormalizeRows& op, const float& epsilon) {
  CudnnOperands o;
  o.add(norm_ids::kX, op.x.data()), o.add(norm_ids::kScale, op.scale.data()), o.add(norm_ids::kOut, op.out.data());
  if (!op.shift.empty()) o.add(norm_ids::kShift, op.shift.data());
  if (op.centred) o.add(norm_ids::kMean, op.mean.data());
  o.add(norm_ids::kInverse, op.inverse.data()), o.add(norm_ids::kEpsilon, &epsilon);
  return o;
}

static Tensor wanted_gradient(CudaDevice& device, const NormalizeRowsBackward& op, const Tensor& gradient) {
  return gradient.empty() ? workspace(device, {op.width}, op.scale.dtype(), Layout::plain) : gradient;
}
RowGradients::RowGradients(CudaDevice& device, const NormalizeRowsBackward& op)
    : dscale(wanted_gradient(device, op, op.dscale)),
      dshift(op.centred ? wanted_gradient(device, op, op.dshift) : Tensor()) {}
CudnnOperands operands_of(const NormalizeRowsBackward& op, const RowGradients& gradients) {
  CudnnOperands o;
  o.add(norm_ids::kX, op.x.data()), o.add(norm_ids::kDy, op.dy.data()), o.add(norm_ids::kScale, op.scale.data()),
      o.add(norm_ids::kDx, op.dx.data());
  o.add(norm_ids::kInverse, op.inverse.data()), o.add(norm_ids::kDscale, gradients.dscale.data());
  if (op.centred) o.add(norm_ids::kMean, op.mean.data()), o.add(norm_ids::kDshift, gradients.dshift.data());
  return o;
}

BatchScratch::BatchScratch(CudaDevice& device, int64_t entries)
    : mean_before(column_floats(device, entries)),
      variance_before(column_floats(device, entries)),
      next_mean(column_floats(device, entries)),
      unbiased(column_floats(device, entries)),
      inverse(column_floats(device, entries)) {
  for (const Tensor* one : {&mean_before, &variance_before})
    HM_CUDA(cudaMemsetAsync(floats_of(*one), 0, one->bytes(), device.stream()));
}
CudnnOperands operands_of(const BatchNorm& op, const BatchScratch& scratch, const float& epsilon) {
  CudnnOperands o;
  o.add(norm_ids::kX, op.x.data()), o.add(norm_ids::kScale, op.scale.data()), o.add(norm_ids::kShift, op.shift.data()),
      o.add(norm_ids::kOut, op.out.data());
  o.add(norm_ids::kMean, op.mean.data()), o.add(norm_ids::kInverse, scratch.inverse.data());
  o.add(norm_ids::kRunningMean, scratch.mean_before.data()),
      o.add(norm_ids::kRunningVariance, scratch.variance_before.data());
  o.add(norm_ids::kNextMean, scratch.next_mean.data()), o.add(norm_ids::kNextVariance, scratch.unbiased.data());
  o.add(norm_ids::kEpsilon, &epsilon), o.add(norm_ids::kMomentum, &kWholeMomentum);
  return o;
}
void keep_statistics(CudaDevice& device, const BatchNorm& op, const BatchScratch& scratch) {
  launch_keep_statistics(device.stream(), channels(op.x), op.momentum, floats_of(op.mean), floats_of(scratch.unbiased),
                         array(op.variance), array(op.running_mean), array(op.running_variance));
}

CudnnOperands operands_of(const BatchNormInference& op, const float& epsilon) {
  CudnnOperands o;
  o.add(norm_ids::kX, op.x.data()), o.add(norm_ids::kOut, op.out.data());
  o.add(norm_ids::kScale, op.scale.data()), o.add(norm_ids::kShift, op.shift.data());
  o.add(norm_ids::kMean, op.running_mean.data()), o.add(norm_ids::kVariance, op.running_variance.data());
  o.add(norm_ids::kEpsilon, &epsilon);
  return o;
}
CudnnOperands operands_of(const BatchNormBackward& op, const Tensor& dy, const Tensor& inverse) {
  CudnnOperands o;
  o.add(norm_ids::kX, op.x.data()), o.add(norm_ids::kDy, dy.data()), o.add(norm_ids::kScale, op.scale.data()),
      o.add(norm_ids::kMean, op.mean.data());
  o.add(norm_ids::kInverse, inverse.data()), o.add(norm_ids::kDx, op.dx.data());
  o.add(norm_ids::kDscale, op.dscale.data()), o.add(norm_ids::kDshift, op.dshift.data());
  return o;
}
Tensor inverse_deviations(CudaDevice& device, const BatchNormBackward& op) {
  const Tensor inverse = column_floats(device, op.variance.elements());
  launch_invert_deviations(device.stream(), channels(op.x).channels, floats_of(op.variance), op.epsilon,
                           floats_of(inverse));
  return inverse;
}

namespace {

// A variance that is the difference of a mean square and a squared mean would be wrong by far.
constexpr double kTriedMean = 64, kTriedEpsilon = 1e-3;
constexpr float kTriedEpsilonValue = 1e-3F;

// Operands of trials, and the results of both rows.
class TriedNorm {
 public:
  TriedNorm(CudaDevice& device, const NormProblem& p)
      : device_(device),
        p_(p),
        images_(p.x),
        columns_{p.x[1]},
        statistics_{p.kind == NormKind::batch ? p.x[1] : p.x[0]},
        layout_(p.last ? Layout::nhwc : Layout::plain) {}

  Tensor image(uint64_t seed, double mean = 0) const {
    return keep(tried_values(device_, images_, p_.dtype, layout_, seed, mean));
  }
  Tensor parameter(uint64_t seed, double mean = 1) const {
    return keep(tried_values(device_, columns_, p_.parameters, Layout::plain, seed, mean));
  }
  Tensor image_result() const { return Tensor(device_, images_, p_.dtype, layout_); }
  Tensor parameter_result() const { return Tensor(device_, columns_, p_.parameters); }
  Tensor statistic() const { return Tensor(device_, statistics_, DType::f32); }
  Tensor zeros() const { return keep(Tensor::zeros(device_, columns_, DType::f32)); }
  // Results of one row at a time: the expected ones, then those of the engine.
  void add(std::string_view name, const Tensor& found, const Tensor& expected, int64_t line = 0, double term = 0) {
    trial.results.push_back({name, found, expected, line, false, term});
  }
  Tensor keep(Tensor tensor) const {
    trial.memory.push_back(tensor);
    return tensor;
  }
  int64_t width() const { return p_.x[1] * p_.x[2] * p_.x[3]; }

  mutable GraphTrial trial;

 private:
  CudaDevice& device_;
  const NormProblem& p_;
  Shape images_, columns_, statistics_;
  Layout layout_;
};

GraphTrial try_rows(CudaDevice& device, const NormProblem& p) {
  TriedNorm tried(device, p);
  const bool centred = p.kind == NormKind::layer;
  const Tensor none, x = tried.image(1, kTriedMean), scale = tried.parameter(2),
                     shift = p.has_shift && centred ? tried.parameter(3) : none;
  const auto op = [&](Tensor& out, Tensor& mean, Tensor& inverse) {
    return NormalizeRows{.x = x,
                         .scale = scale,
                         .shift = shift,
                         .out = out,
                         .mean = mean,
                         .inverse = inverse,
                         .width = p.x[1],
                         .centred = centred,
                         .epsilon = kTriedEpsilon};
  };
  Tensor out = tried.image_result(), mean = centred ? tried.statistic() : none, inverse = tried.statistic();
  Tensor own_out = tried.image_result(), own_mean = centred ? tried.statistic() : none, own_inverse = tried.statistic();
  run_own_row(device, op(own_out, own_mean, own_inverse));
  tried.add("out", out, own_out, tried.width()), tried.add("inverse", inverse, own_inverse);
  if (centred) tried.add("mean", mean, own_mean);
  tried.trial.operands = operands_of(op(out, mean, inverse), kTriedEpsilonValue);
  return tried.trial;
}

GraphTrial try_rows_backward(CudaDevice& device, const NormProblem& p) {
  TriedNorm tried(device, p);
  const bool centred = p.kind == NormKind::layer;
  const Tensor none, x = tried.image(1, kTriedMean), dy = tried.image(4), scale = tried.parameter(2);
  Tensor out = tried.image_result(), mean = centred ? tried.keep(tried.statistic()) : none,
         inverse = tried.keep(tried.statistic());
  run_own_row(device, NormalizeRows{.x = x,
                                    .scale = scale,
                                    .shift = none,
                                    .out = out,
                                    .mean = mean,
                                    .inverse = inverse,
                                    .width = p.x[1],
                                    .centred = centred,
                                    .epsilon = kTriedEpsilon});
  const auto op = [&](Tensor& dx, Tensor& dscale, Tensor& dshift) {
    return NormalizeRowsBackward{.x = x,
                                 .dy = dy,
                                 .scale = scale,
                                 .mean = mean,
                                 .inverse = inverse,
                                 .dx = dx,
                                 .dscale = dscale,
                                 .dshift = dshift,
                                 .width = p.x[1],
                                 .centred = centred};
  };
  Tensor dx = tried.image_result(), dscale = tried.parameter_result(),
         dshift = centred ? tried.parameter_result() : none;
  Tensor own_dx = tried.image_result(), own_dscale = tried.parameter_result(),
         own_dshift = centred ? tried.parameter_result() : none;
  run_own_row(device, op(own_dx, own_dscale, own_dshift));
  const double term = largest_of(dy) * largest_of(scale) * largest_of(inverse);
  tried.add("dx", dx, own_dx, tried.width(), term), tried.add("dscale", dscale, own_dscale);
  if (centred) tried.add("dshift", dshift, own_dshift);
  const NormalizeRowsBackward tried_op = op(dx, dscale, dshift);
  tried.trial.operands = operands_of(tried_op, RowGradients(device, tried_op));
  return tried.trial;
}

// Numbers of 1 and -1 in equal numbers, and a 0 if one is left, in channel 0: sums of them and of their squares are exact.
// The variance of that channel.
double set_plain_channel(Tensor x) {
  const Shape shape = x.shape();
  const int64_t pixels = shape[2] * shape[3], count = shape[0] * pixels;
  std::vector<double> values = x.values();
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i / pixels * shape[1] * pixels + i % pixels)] =
        i % 2 == 0 ? (i + 1 == count ? 0 : 1) : -1;
  x.set_values(values);
  return count % 2 == 0 ? 1 : static_cast<double>(count - 1) / static_cast<double>(count);
}

GraphTrial try_batch(CudaDevice& device, const NormProblem& p) {
  TriedNorm tried(device, p);
  const Tensor x = tried.image(1, kTriedMean);
  const double plain_variance = set_plain_channel(x);
  const Tensor scale = tried.parameter(2), shift = tried.parameter(3);
  Tensor running_mean = tried.zeros(), running_variance = tried.zeros();
  const auto op = [&](Tensor& out, Tensor& mean, Tensor& variance) {
    return BatchNorm{.x = x,
                     .scale = scale,
                     .shift = shift,
                     .out = out,
                     .mean = mean,
                     .variance = variance,
                     .running_mean = running_mean,
                     .running_variance = running_variance,
                     .epsilon = kTriedEpsilon};
  };
  Tensor out = tried.image_result(), mean = tried.statistic(), variance = tried.statistic();
  Tensor own_out = tried.image_result(), own_mean = tried.statistic(), own_variance = tried.statistic();
  run_own_row(device, op(own_out, own_mean, own_variance));
  const BatchScratch scratch(device, p.x[1]);
  for (const Tensor& one :
       {scratch.mean_before, scratch.variance_before, scratch.next_mean, scratch.unbiased, scratch.inverse})
    tried.keep(one);
  tried.add("out", out, own_out, tried.width()), tried.add("mean", mean, own_mean);
  tried.add("variance", variance, own_variance);
  // Whether cuDNN's running variance is the unbiased one shows in the variance that is made from it: the biased one is
  // smaller by one part of the values of a channel, which the usual bounds allow from 95,000 values on. From 2^20 on it is
  // no more than the rounding of fp32.
  constexpr int64_t kMostValues = int64_t{1} << 20;
  if (const int64_t count = p.x[0] * p.x[2] * p.x[3]; count <= kMostValues) {
    const Tensor expected = Tensor::from(device, {1}, DType::f32, std::vector<double>{plain_variance});
    tried.trial.results.push_back(
        {"variance", variance.slice(0, 1), expected, 0, false, 0, 0.5 / static_cast<double>(count)});
  }
  tried.trial.operands = operands_of(op(out, mean, variance), scratch, kTriedEpsilonValue);
  const Channels c = channels(x);
  tried.trial.finish = [&device, c, mean, variance, scratch, running_mean, running_variance] {
    launch_keep_statistics(device.stream(), c, 0.5, floats_of(mean), floats_of(scratch.unbiased), array(variance),
                           array(running_mean), array(running_variance));
  };
  return tried.trial;
}

GraphTrial try_constant(CudaDevice& device, const NormProblem& p) {
  TriedNorm tried(device, p);
  constexpr double kPositive = 8;  // above what such random values reach below their mean
  const Tensor x = tried.image(1), scale = tried.parameter(2), shift = tried.parameter(3), mean = tried.parameter(4),
               variance = tried.parameter(5, kPositive);
  const auto op = [&](Tensor& out) {
    return BatchNormInference{.x = x,
                              .scale = scale,
                              .shift = shift,
                              .running_mean = mean,
                              .running_variance = variance,
                              .out = out,
                              .epsilon = kTriedEpsilon};
  };
  Tensor out = tried.image_result(), own = tried.image_result();
  run_own_row(device, op(own));
  tried.add("out", out, own, tried.width());
  tried.trial.operands = operands_of(op(out), kTriedEpsilonValue);
  return tried.trial;
}

GraphTrial try_batch_backward(CudaDevice& device, const NormProblem& p) {
  TriedNorm tried(device, p);
  const Tensor x = tried.image(1, kTriedMean), dy = tried.image(4), scale = tried.parameter(2);
  Tensor out = tried.image_result(), mean = tried.keep(tried.statistic()), variance = tried.keep(tried.statistic());
  Tensor running_mean = tried.zeros(), running_variance = tried.zeros();
  run_own_row(device, BatchNorm{.x = x,
                                .scale = scale,
                                .shift = scale,
                                .out = out,
                                .mean = mean,
                                .variance = variance,
                                .running_mean = running_mean,
                                .running_variance = running_variance,
                                .epsilon = kTriedEpsilon});
  const auto op = [&](Tensor& dx, Tensor& dscale, Tensor& dshift) {
    return BatchNormBackward{.x = x,
                             .dy = dy,
                             .scale = scale,
                             .mean = mean,
                             .variance = variance,
                             .dx = dx,
                             .dscale = dscale,
                             .dshift = dshift,
                             .epsilon = kTriedEpsilon};
  };
  Tensor dx = tried.image_result(), dscale = tried.parameter_result(), dshift = tried.parameter_result();
  Tensor own_dx = tried.image_result(), own_dscale = tried.parameter_result(), own_dshift = tried.parameter_result();
  run_own_row(device, op(own_dx, own_dscale, own_dshift));
  const BatchNormBackward tried_op = op(dx, dscale, dshift);
  const Tensor inverse = tried.keep(inverse_deviations(device, tried_op));
  const double term = largest_of(dy) * largest_of(scale) * largest_of(inverse);
  tried.add("dx", dx, own_dx, tried.width(), term), tried.add("dscale", dscale, own_dscale);
  tried.add("dshift", dshift, own_dshift);
  tried.trial.operands = operands_of(tried_op, dy, inverse);
  return tried.trial;
}

GraphTrial trial_of(CudaDevice& device, const NormProblem& p) {
  if (p.kind == NormKind::constant) return try_constant(device, p);
  if (p.kind == NormKind::batch) return p.backward ? try_batch_backward(device, p) : try_batch(device, p);
  return p.backward ? try_rows_backward(device, p) : try_rows(device, p);
}

}  // namespace

const GraphPlan& norm_plan(const CudaDevice& device, const NormProblem& p) {
  Signature key;
  constexpr int64_t kNorm = 1;
  for (const int64_t one : {kNorm, static_cast<int64_t>(p.kind), int64_t{p.backward}, static_cast<int64_t>(p.dtype),
                            static_cast<int64_t>(p.parameters), int64_t{p.last}, int64_t{p.has_shift}})
    key.add(one);
  for (const int64_t extent : p.x) key.add(extent);
  return graph_plan(device, key, [&](CudaDevice& tried_on) {
    const std::string what = Shape(p.x).text() + (p.last ? " nhwc" : "");
    return std::make_unique<GraphPlan>(
        tried_on, what, p.dtype == DType::f32 ? TensorCores::excluded : TensorCores::allowed,
        [&](const CudnnTarget& target) { return norm_graph(target, p); },
        [&](CudaDevice& one) { return trial_of(one, p); });
  });
}

}  // namespace halfmark::kernels::cuda
