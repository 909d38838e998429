// Rows of quantisation and of products of matrices with scales; their kernels are in quantize.cu.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

// The arithmetic of a rule of number/quantizer.h, by its name.
std::optional<QuantizeRule> arithmetic_of(const Quantizer& rule) {
  struct Row {
    std::string_view begin, end;
    QuantizeRule rule;
  };
  using enum QuantizeRule;
  constexpr Row kRows[] = {{"te-current-pow2-", "", current_power_of_two},
                           {"te-current-", "", current},
                           {"te-block-", "-fp32", block_fp32},
                           {"te-block-", "", block_power_of_two},
                           {"te-mxfp8-", "", mx_rounded_up},
                           {"te-nvfp4", "", nvfp4},
                           {"torchao-tensorwise-", "", torchao},
                           {"torchao-rowwise", "", torchao_power_of_two},
                           {"deepseek-", "", deepseek},
                           {"deepgemm-", "", deepseek}};
  for (const Row& row : kRows)
    if (rule.name.starts_with(row.begin) && rule.name.ends_with(row.end)) return row.rule;
  return {};
}

Refusal quantize_refuses(const Device&, const Quantize& op) {
  if (!arithmetic_of(op.rule)) return "does not know the rule " + std::string(op.rule.name);
  if (op.rule.element != DType::e4m3 && op.rule.element != DType::e5m2 && op.rule.element != DType::e2m1)
    return "makes codes of e4m3, e5m2 and e2m1, not " + std::string(name_of(op.rule.element));
  if (Refusal r = not_readable_dtype({&op.x})) return r;
  if (op.x.dtype() == DType::f64) return "computes in fp32, which does not hold every f64";
  if (Refusal r = not_indexable({&op.x, &op.codes})) return r;
  return not_plain({&op.x, &op.factor, &op.codes, &op.scales, &op.tensor_scale, &op.amax, &op.losses});
}

void quantize_matrix(Device& device, const Quantize& op) {
  CudaDevice& cuda = on(device);
  for (Tensor* one : {&op.codes, &op.scales, &op.tensor_scale, &op.amax, &op.losses})
    if (!one->empty()) one->materialize(Layout::plain);
  const Quantizer& rule = op.rule;
  const Format& format = format_of(rule.element);
  QuantizeForm s{};
  s.rows = static_cast<uint32_t>(op.rows()), s.depth = static_cast<uint32_t>(op.depth());
  s.width = static_cast<uint32_t>(depth_of_codes(op.depth(), op.transform));
  s.tile_rows = rule.tile_rows != 0 ? static_cast<uint32_t>(rule.tile_rows) : s.rows;
  s.tile_depth = rule.tile_depth != 0 ? static_cast<uint32_t>(rule.tile_depth) : s.width;
  s.tiles_along_depth = (s.width + s.tile_depth - 1) / s.tile_depth;
  const uint32_t tiles = (s.rows + s.tile_rows - 1) / s.tile_rows * s.tiles_along_depth;
  s.transpose = op.transpose, s.transform = op.transform, s.stochastic = op.stochastic;
  s.nan_spreads = rule.nan == Quantizer::Nan::spreads;
  s.divides = rule.divides, s.has_tensor_scale = rule.has_tensor_scale;
  s.seed = op.noise.seed, s.first_noise = op.noise.first;
  s.rule = *arithmetic_of(rule), s.element = rule.element;
  s.most = static_cast<float>(format.max_finite());
  s.input_most = static_cast<float>(format_of(op.x.dtype()).max_finite());
  // From here on a magnitude is nearer to the next number than to the largest; the even of the two takes the middle.
  const double place = std::ldexp(1.0, format.max_exponent() - format.fraction_bits);
  s.middle = format.max_finite() + place / 2;
  s.largest_is_even = std::fmod(format.max_finite() / place, 2) == 0;
  const auto floats = [](Tensor& tensor) { return tensor.empty() ? nullptr : tensor.as<float>(); };
  QuantizeResults out{};
  out.codes = op.codes.as<uint8_t>();
  if (!op.scales.empty() && rule.scale == DType::f32)
    out.scales = op.scales.as<float>();
  else if (!op.scales.empty())
    out.scale_codes = op.scales.as<uint8_t>();
  out.tensor_scale = floats(op.tensor_scale), out.amax = floats(op.amax);
  if (!op.losses.empty()) out.losses = op.losses.as<double>();
  Tensor memory = workspace(cuda, quantize_scratch(s, tiles, array(op.x), out));
  launch_quantize(cuda.stream(), s, tiles, memory.data(), array(op.x),
                  op.factor.empty() ? nullptr : op.factor.as<float>(), out);
}

Refusal delayed_refuses(const Device&, const DelayedScalingStep& op) {
  for (const DelayedScale& one : op.scales) {
    if (Refusal r = not_indexable({&one.history})) return r;
    if (Refusal r = not_plain({&one.amax, &one.history, &one.scale, &one.used})) return r;
  }
  return {};
}

void delayed_step(Device& device, const DelayedScalingStep& op) {
  const CudaDevice& cuda = on(device);
  DelayedScaleBatch batch{};
  uint32_t count = 0;
  const auto flush = [&] { launch_delayed_scaling_step(cuda.stream(), batch, std::exchange(count, 0), op.ends_step); };
  for (DelayedScale& one : op.scales) {
    if (count == kMostDelayedScales) flush();
    if (!one.used.empty()) one.used.materialize(Layout::plain);
    batch.scales[count++] = {.amax = one.amax.as<float>(),
                             .history = one.history.as<float>(),
                             .scale = one.scale.as<float>(),
                             .used = one.used.empty() ? nullptr : one.used.as<float>(),
                             .length = static_cast<uint32_t>(one.history.elements()),
                             .most = one.most,
                             .most_recent = one.choice == AmaxChoice::most_recent};
  }
  flush();
}

bool is_scaled_code(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2 || dtype == DType::e2m1; }
bool is_tile_scale(DType dtype) { return dtype == DType::f32 || dtype == DType::e4m3 || dtype == DType::e8m0; }

Refusal scaled_refuses(const Device&, const ScaledMatmul& op) {
  for (const Scaled* one : {&op.a, &op.b}) {
    if (!is_scaled_code(one->codes.dtype()))
      return "takes codes of e4m3, e5m2 and e2m1, not " + std::string(name_of(one->codes.dtype()));
    if (!one->scales.empty() && !is_tile_scale(one->scales.dtype()))
      return "takes scales of f32, e4m3 and e8m0, not " + std::string(name_of(one->scales.dtype()));
    if (Refusal r = not_indexable({&one->codes})) return r;
    if (Refusal r = not_plain({&one->codes, &one->scales, &one->tensor_scale})) return r;
  }
  if (Refusal r = not_readable_dtype({&op.out})) return r;
  if (op.out.dtype() == DType::f64) return "sums are in fp32";
  if (Refusal r = not_indexable({&op.out})) return r;
  return not_plain({&op.out});
}

ScaledSide side_of(const Scaled& operand) {
  ScaledSide side{};
  side.codes = operand.codes.as<uint8_t>(), side.element = operand.codes.dtype();
  side.rows = static_cast<uint32_t>(operand.rows()), side.depth = static_cast<uint32_t>(operand.depth());
  side.transposed = operand.transposed;
  if (!operand.tensor_scale.empty()) side.tensor_scale = operand.tensor_scale.as<float>();
  if (operand.scales.empty()) return side;
  side.scales = operand.scales.data(), side.scale = operand.scales.dtype();
  side.tiles_along = static_cast<uint32_t>(operand.scales.shape()[1]);
  side.tile_rows = static_cast<uint32_t>(operand.tile_rows);
  side.tile_depth = operand.tile_depth != 0
                        ? static_cast<uint32_t>(operand.tile_depth)
                        : static_cast<uint32_t>(operand.codes.shape()[1] / operand.scales.shape()[1]);
  return side;
}

void scaled(Device& device, const ScaledMatmul& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const bool outer = op.has_outer_scales();
  launch_scaled_matmul(cuda.stream(), side_of(op.a), side_of(op.b), outer,
                       static_cast<uint32_t>(outer ? op.a.block() : op.a.depth()), 1 / (op.a.divisor * op.b.divisor),
                       array(op.out));
}

}  // namespace

void add_quantize_rows(KernelTable& table) {
  table.of<Quantize>().push_back({"cuda", Speed::real, quantize_refuses, quantize_matrix});
  table.of<DelayedScalingStep>().push_back({"cuda", Speed::real, delayed_refuses, delayed_step});
}

void add_scaled_rows(KernelTable& table) {
  table.of<ScaledMatmul>().push_back({"cuda-direct", Speed::emulated, scaled_refuses, scaled});
}

}  // namespace halfmark::kernels::cuda
