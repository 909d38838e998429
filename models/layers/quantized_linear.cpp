#include "models/layers/quantized_linear.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

// Fields of a Scaled that follow from its rule.
Scaled empty_of(const QuantizedOperand& how) {
  Scaled scaled{.codes = {}, .scales = {}};
  if (has_one_tile(*how.rule)) return scaled;
  scaled.tile_rows = how.rule->tile_rows, scaled.tile_depth = how.rule->tile_depth;
  // The amax of the tensor stands for its scale: 448 of e4m3 times 6 of e2m1.
  if (how.rule->has_tensor_scale) scaled.divisor = 448 * 6;
  return scaled;
}

void keep(Saved& saved, const Scaled& scaled) {
  saved.keep(scaled.codes);
  if (!scaled.scales.empty()) saved.keep(scaled.scales);
  if (!scaled.tensor_scale.empty()) saved.keep(scaled.tensor_scale);
}

Scaled take(Saved& saved, const QuantizedOperand& how) {
  Scaled scaled = empty_of(how);
  const bool is_one = has_one_tile(*how.rule);
  if (is_one || how.rule->has_tensor_scale) scaled.tensor_scale = saved.take();
  if (!is_one) scaled.scales = saved.take();
  scaled.codes = saved.take();
  return scaled;
}

Scaled transposed(Scaled scaled) {
  scaled.transposed = !scaled.transposed;
  return scaled;
}

// On a simulated GPU its tensor cores compute the product or nothing does: the reference row is the arithmetic of no GPU.
void multiply(const Scaled& a, const Scaled& b, Tensor& out, bool fast_accumulate) {
  const ScaledMatmul op{.a = a, .b = b, .out = out, .fast_accumulate = fast_accumulate};
  const Device& device = a.codes.device();
  if (!device.numerics().empty() && chosen(op).name == "reference") {
    const auto& first = device.kernels().of<ScaledMatmul>().front();
    const Refusal refusal = first.refuses(device, op);
    throw Unsupported(device.name() + " cannot multiply " + std::string(name_of(a.codes.dtype())) + " by " +
                      std::string(name_of(b.codes.dtype())) +
                      " with the scales of this policy: " + refusal.value_or("its tensor cores have no FP8"));
  }
  run(op);
}

double median_factor(const Scaled& scaled, const QuantizedOperand& how) {
  if (scaled.scales.empty()) return 1 / static_cast<double>(scaled.tensor_factor());
  std::vector<double> decodes = scaled.scales.values();
  const auto middle = decodes.begin() + static_cast<int64_t>(decodes.size() / 2);
  std::nth_element(decodes.begin(), middle, decodes.end());
  const double tensor = how.rule->has_tensor_scale ? static_cast<double>(scaled.tensor_factor() / scaled.divisor) : 1;
  return 1 / (*middle * tensor);
}

}  // namespace

Scaled QuantizedLinear::quantize(Pass& pass, const Request& request, const QuantizedOperand& how, const Tensor& x,
                                 bool transpose) {
  const Quantizer& rule = *how.rule;
  std::shared_ptr<DelayedOperand> delayed;
  Tensor factor, amax, losses;
  if (request.recipe.delayed) {
    if (!*request.delayed)
      *request.delayed = std::make_shared<DelayedOperand>(pass.device, rule.element, *request.recipe.delayed);
    delayed = *request.delayed;
    factor = delayed->scale(pass.recomputes);
  }
  {
    const PurposeScope scratch(Purpose::workspace);
    amax = Tensor(pass.device, {1}, DType::f32);
    const bool is_logged = QuantizationLog::exists() && !pass.recomputes;
    if (is_logged) losses = Tensor(pass.device, {2}, DType::f64);
  }
  const Tensor plain = pass.operand(x);
  const int64_t rows = x.shape()[transpose ? 1 : 0],
                depth = depth_of_codes(x.shape()[transpose ? 0 : 1], how.is_transformed);
  Scaled scaled = empty_of(how);
  scaled.codes = Tensor(pass.device, {rows, depth}, rule.element);
  if (!has_one_tile(rule)) scaled.scales = Tensor(pass.device, shape_of_scales(rule, rows, depth), rule.scale);
  if (has_one_tile(rule) || rule.has_tensor_scale) scaled.tensor_scale = Tensor(pass.device, {1}, DType::f32);
  // Every copy of every operand draws from a stream of its own.
  const RandomKey key = pass.key.child(request.layer).child(request.operand).child(request.product);
  run(Quantize{.x = plain,
               .factor = factor,
               .codes = scaled.codes,
               .scales = scaled.scales,
               .tensor_scale = scaled.tensor_scale,
               .amax = amax,
               .losses = losses,
               .rule = rule,
               .transpose = transpose,
               .transform = how.is_transformed,
               .stochastic = how.is_stochastic,
               .noise = {.seed = key.value(), .first = 0}});
  if (delayed && pass.training && !pass.recomputes) pass.updates.add(delayed, amax);
  if (losses.empty()) return scaled;
  const std::vector<double> lost = losses.values();
  QuantizationLog::record({.layer = request.layer,
                           .operand = request.operand,
                           .product = request.product,
                           .elements = static_cast<double>(scaled.codes.elements()),
                           .flushed = lost[0],
                           .saturated = lost[1],
                           .amax = amax.values()[0],
                           .scale = delayed ? factor.values()[0] : median_factor(scaled, how),
                           .codes = scaled.codes.codes()});
  return scaled;
}

Tensor QuantizedLinear::forward(Pass& pass, const std::string& layer, const Tensor& x, const Tensor& w, Saved* saved) {
  const QuantizedProducts& recipe = *pass.policy().products;
  const Request of_x{recipe, layer, "x", "forward", &x_}, of_w{recipe, layer, "w", "forward", &w_};
  const Scaled a = quantize(pass, of_x, recipe.forward.first, x, false);
  Scaled b;
  {
    const PurposeScope copies(Purpose::casts);
    b = quantize(pass, of_w, recipe.forward.second, w, false);
  }
  if (saved) {
    const Request x_again{recipe, layer, "x", "weights", &x_}, w_again{recipe, layer, "w", "data", &w_};
    if (shares_codes(recipe.forward.first, recipe.weights.second))
      keep(*saved, a);
    else
      keep(*saved, quantize(pass, x_again, recipe.weights.second, x, true));
    if (shares_codes(recipe.forward.second, recipe.data.second)) {
      keep(*saved, b);
    } else {
      const PurposeScope copies(Purpose::casts);
      keep(*saved, quantize(pass, w_again, recipe.data.second, w, true));
    }
  }
  Tensor y = pass.fresh({x.shape()[0], w.shape()[0]}, pass.output_dtype("linear", x.dtype()));
  multiply(a, b, y, recipe.forward.fast_accumulate);
  return y;
}

Tensor QuantizedLinear::backward(Pass& pass, const std::string& layer, const Tensor& dy, Saved& saved,
                                 const std::function<void(const std::function<void(Tensor&)>&)>& store) {
  const QuantizedProducts& recipe = *pass.policy().products;
  const bool keeps_w = shares_codes(recipe.forward.second, recipe.data.second),
             keeps_x = shares_codes(recipe.forward.first, recipe.weights.second),
             keeps_dy = shares_codes(recipe.data.first, recipe.weights.first);
  Scaled w = take(saved, recipe.data.second), x = take(saved, recipe.weights.second);
  if (keeps_w) w = transposed(std::move(w));
  if (keeps_x) x = transposed(std::move(x));
  const Request of_dy{recipe, layer, "dy", "data", &dy_}, dy_again{recipe, layer, "dy", "weights", &dy_};
  Scaled rows;
  if (keeps_dy) rows = quantize(pass, of_dy, recipe.data.first, dy, false);
  store([&](Tensor& dw) {
    const Scaled columns = keeps_dy ? transposed(rows) : quantize(pass, dy_again, recipe.weights.first, dy, true);
    multiply(columns, x, dw, recipe.weights.fast_accumulate);
  });
  if (!keeps_dy) rows = quantize(pass, of_dy, recipe.data.first, dy, false);
  Tensor dx = pass.fresh({dy.shape()[0], w.rows()}, dy.dtype());
  multiply(rows, w, dx, recipe.data.fast_accumulate);
  return dx;
}

}  // namespace halfmark::models
