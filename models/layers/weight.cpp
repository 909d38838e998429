#include "models/layers/weight.h"

#include <cmath>
#include <functional>
#include <utility>

namespace halfmark::models {
namespace {

// The length of each row of a weight with so many outputs.
std::vector<double> lengths(const std::vector<double>& values, int64_t outputs) {
  const size_t width = values.size() / static_cast<size_t>(outputs);
  std::vector<double> all(static_cast<size_t>(outputs));
  for (size_t i = 0; i < values.size(); ++i) all[i / width] += values[i] * values[i];
  for (double& one : all) one = std::sqrt(one);
  return all;
}

}  // namespace

Weight::Weight(const Init& init, const std::string& name, const Shape& shape, int64_t fan_in, int64_t fan_out,
               const Start& start, bool normalised) {
  const std::string drawn = name + ".weight";
  if (!normalised) {
    own_ = weight_of(init, drawn, shape, fan_in, fan_out, start);
    return;
  }
  const DType dtype = init.policy.param;
  const std::vector<double> values =
      init.draws ? drawn_weight(init, drawn, shape, fan_in, fan_out, start) : std::vector<double>();
  own_ = init.param(name + ".weight_v", shape, dtype, values);
  length_ = init.param(name + ".weight_g", {shape[0]}, dtype, init.draws ? lengths(values, shape[0]) : values);
}

std::vector<Param*> Weight::params() {
  if (shared_) return {};
  if (is_normalised()) return {&length_, &own_};
  return {&own_};
}

Tensor Weight::forward(Pass& pass, std::string_view operation, Saved* saved) {
  if (!is_normalised()) {
    Tensor w = pass.weight(operation, main(), shared_);
    if (saved) saved->keep(w);
    return w;
  }
  const Tensor& v = own_.value;
  const DType wide = v.dtype() == DType::f64 ? DType::f64 : DType::f32;
  Tensor w(pass.device, shape(), v.dtype()), inverse(pass.device, length_.value.shape(), wide), none;
  run(NormalizeRows{.x = v,
                    .scale = length_.value,
                    .shift = none,
                    .out = w,
                    .mean = none,
                    .inverse = inverse,
                    .width = width(),
                    .repeat = width(),
                    .centred = false,
                    .summed = true,
                    .epsilon = 0});
  if (pass.tap) pass.look("activation/" + own_.name.substr(0, own_.name.size() - 2), w);
  w = pass.input(operation, w);
  if (saved) saved->keep(inverse), saved->keep(w);
  return w;
}

void Weight::gradient(Pass& pass, DType computed, Saved& saved, const std::function<void(Tensor&)>& compute) {
  if (!is_normalised()) return pass.gradient(main(), computed, compute);
  const Tensor inverse = saved.take();
  Tensor dw(pass.device, shape(), computed), none;
  compute(dw);
  const Tensor& v = own_.value;
  const Tensor dy = pass.operand(pass.cast(dw, v.dtype()));
  pass.gradient(length_, v.dtype(), [&](Tensor& dg) {
    pass.gradient(own_, v.dtype(), [&](Tensor& dv) {
      run(NormalizeRowsBackward{.x = v,
                                .dy = dy,
                                .scale = length_.value,
                                .mean = none,
                                .inverse = inverse,
                                .dx = dv,
                                .dscale = dg,
                                .dshift = none,
                                .width = width(),
                                .repeat = width(),
                                .centred = false,
                                .summed = true});
    });
  });
}

}  // namespace halfmark::models
