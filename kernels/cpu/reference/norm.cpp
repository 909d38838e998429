// Reference rows of batch normalisation, alone and with ReLU: fp64 throughout from the operands as stored, every output rounded once.
// Statistics take two passes, so that a large mean costs no digits of the variance.
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::reference {
namespace {

struct Planes {  // [n, c, h, w] by channel
  size_t n, channels, pixels;
  explicit Planes(const Shape& shape)
      : n(static_cast<size_t>(shape[0])),
        channels(static_cast<size_t>(shape[1])),
        pixels(static_cast<size_t>(shape[2] * shape[3])) {}
  size_t count() const { return n * pixels; }
  // f(i) for every element of channel c.
  void each(size_t c, auto&& f) const {
    for (size_t i = 0; i < n; ++i)
      for (size_t p = 0; p < pixels; ++p) f((i * channels + c) * pixels + p);
  }
  void each_channel(auto&& f) const {
    parallel_for(static_cast<int64_t>(channels), 1, [&](int64_t begin, int64_t end) {
      for (auto c = static_cast<size_t>(begin); c < static_cast<size_t>(end); ++c) f(c);
    });
  }
};

// Statistics and running statistics of x, then out = finish(i, the normalised value i).
template <class Op>
void normalise_batch(const Op& op, const Format* accumulate, auto&& finish) {
  const Planes planes(op.x.shape());
  const std::vector<double> x = read<double>(op.x), scale = read<double>(op.scale), shift = read<double>(op.shift);
  std::vector<double> out(x.size()), mean(planes.channels), variance(planes.channels);
  std::vector<double> running_mean = read<double>(op.running_mean),
                      running_variance = read<double>(op.running_variance);
  const auto count = static_cast<double>(planes.count());
  planes.each_channel([&](size_t c) {
    double sum = 0, squares = 0;
    const auto add = [&](double& to, double term) { to = accumulate ? round_to(*accumulate, to + term) : to + term; };
    planes.each(c, [&](size_t i) { add(sum, x[i]); });
    mean[c] = sum / count;
    planes.each(c, [&](size_t i) { add(squares, (x[i] - mean[c]) * (x[i] - mean[c])); });
    variance[c] = squares / count;
    const double inverse = formulas::batch_norm_inverse(variance[c], op.epsilon);
    planes.each(c, [&](size_t i) {
      out[i] = finish(i, formulas::batch_norm_in_order(x[i], mean[c], inverse, scale[c], shift[c]));
    });
    running_mean[c] = formulas::moving_average(running_mean[c], mean[c], op.momentum);
    // The unbiased variance is never rounded by itself, so moving_average() cannot be used.
    running_variance[c] = (1 - op.momentum) * running_variance[c] + op.momentum * squares / (count - 1);
  });
  settle(op.out, op.x), settle(op.mean, op.scale), settle(op.variance, op.scale);
  write(op.out, out), write(op.mean, mean), write(op.variance, variance);
  write(op.running_mean, running_mean), write(op.running_variance, running_variance);
}

void batch_norm(Device&, const BatchNorm& op) {
  normalise_batch(op, op.accumulate, [](size_t, double y) { return y; });
}

void fused_batch_norm(Device&, const FusedBatchNorm& op) {
  const std::vector<double> addend = op.addend.empty() ? std::vector<double>() : read<double>(op.addend);
  normalise_batch(op, nullptr, [&](size_t i, double y) { return formulas::relu(addend.empty() ? y : y + addend[i]); });
}

void batch_norm_inference(Device&, const BatchNormInference& op) {
  const Planes planes(op.x.shape());
  const std::vector<double> x = read<double>(op.x), scale = read<double>(op.scale), shift = read<double>(op.shift);
  const std::vector<double> mean = read<double>(op.running_mean), variance = read<double>(op.running_variance);
  std::vector<double> out(x.size());
  planes.each_channel([&](size_t c) {
    const double inverse = formulas::batch_norm_inverse(variance[c], op.epsilon);
    planes.each(c,
                [&](size_t i) { out[i] = formulas::batch_norm_in_order(x[i], mean[c], inverse, scale[c], shift[c]); });
  });
  settle(op.out, op.x);
  write(op.out, out);
}

// The gradients of x, scale and shift from that of the result.
template <class Op>
void differentiate_batch(const Op& op, const std::vector<double>& dy) {
  const Planes planes(op.x.shape());
  const std::vector<double> x = read<double>(op.x), scale = read<double>(op.scale);
  const std::vector<double> mean = read<double>(op.mean), variance = read<double>(op.variance);
  std::vector<double> dx(x.size()), dscale(planes.channels), dshift(planes.channels);
  const auto count = static_cast<double>(planes.count());
  planes.each_channel([&](size_t c) {
    const double inverse = formulas::batch_norm_inverse(variance[c], op.epsilon);
    double sum = 0, product = 0;
    planes.each(c, [&](size_t i) { sum += dy[i], product += dy[i] * (x[i] - mean[c]) * inverse; });
    planes.each(c, [&](size_t i) {
      dx[i] = formulas::batch_norm_backward_in_order(x[i], dy[i], mean[c], inverse, scale[c], product, sum, count);
    });
    dscale[c] = product, dshift[c] = sum;
  });
  settle(op.dx, op.x), settle(op.dscale, op.scale), settle(op.dshift, op.scale);
  write(op.dx, dx), write(op.dscale, dscale), write(op.dshift, dshift);
}

void batch_norm_backward(Device&, const BatchNormBackward& op) { differentiate_batch(op, read<double>(op.dy)); }

void fused_batch_norm_backward(Device&, const FusedBatchNormBackward& op) {
  const std::vector<double> kept = read<double>(op.kept);
  std::vector<double> gradient = read<double>(op.dy);
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = formulas::relu_backward(kept[i], gradient[i]);
  differentiate_batch(op, gradient);
  if (op.daddend.empty()) return;
  settle(op.daddend, op.x);
  write(op.daddend, gradient);
}

void batch_norm_inference_backward(Device&, const BatchNormInferenceBackward& op) {
  const Planes planes(op.x.shape());
  const std::vector<double> x = read<double>(op.x), dy = read<double>(op.dy), scale = read<double>(op.scale);
  const std::vector<double> mean = read<double>(op.running_mean), variance = read<double>(op.running_variance);
  std::vector<double> dx(x.size()), dscale(planes.channels), dshift(planes.channels);
  planes.each_channel([&](size_t c) {
    const double inverse = formulas::batch_norm_inverse(variance[c], op.epsilon);
    planes.each(c, [&](size_t i) {
      dshift[c] += dy[i], dscale[c] += dy[i] * (x[i] - mean[c]) * inverse;
      dx[i] = scale[c] * inverse * dy[i];
    });
  });
  settle(op.dx, op.x), settle(op.dscale, op.scale), settle(op.dshift, op.scale);
  write(op.dx, dx), write(op.dscale, dscale), write(op.dshift, dshift);
}

}  // namespace

void add_norm_rows(KernelTable& table) {
  add_row<BatchNorm>(table, batch_norm), add_row<BatchNormInference>(table, batch_norm_inference);
  add_row<BatchNormBackward>(table, batch_norm_backward);
  add_row<BatchNormInferenceBackward>(table, batch_norm_inference_backward);
  add_row<FusedBatchNorm>(table, fused_batch_norm);
  add_row<FusedBatchNormBackward>(table, fused_batch_norm_backward);
}

}  // namespace halfmark::kernels::reference
