#include "kernels/ops/operations/quantization.h"

#include <string>

#include "kernels/ops/operations/checks.h"

namespace halfmark::kernels {
namespace {

using namespace operation_checks;

int64_t tiles(int64_t extent, int64_t tile) { return tile == 0 ? 1 : (extent + tile - 1) / tile; }

void check_result(std::string_view which, const Tensor& tensor, bool exists, const Shape& shape, DType dtype) {
  need(tensor.empty() != exists, Quantize::name,
       std::string(which) + (exists ? " is missing" : " must be empty for this rule"));
  if (!exists) return;
  need(tensor.shape() == shape && tensor.dtype() == dtype, Quantize::name,
       std::string(which) + " must be " + shape.text() + " of " + std::string(name_of(dtype)) + ", not " +
           tensor.shape().text() + " of " + std::string(name_of(tensor.dtype())));
}

}  // namespace

int64_t depth_of_codes(int64_t depth, bool transform) { return transform ? (depth + 15) / 16 * 16 : depth; }

bool has_one_tile(const Quantizer& rule) { return rule.tile_rows == 0 && rule.tile_depth == 0; }

Shape shape_of_scales(const Quantizer& rule, int64_t rows, int64_t depth) {
  return {tiles(rows, rule.tile_rows), tiles(depth, rule.tile_depth)};
}

void Quantize::check() const {
  rank(name, "x", x, 2);
  const int64_t width = depth_of_codes(depth(), transform);
  const bool is_one = has_one_tile(rule);
  check_result("codes", codes, true, {rows(), width}, rule.element);
  check_result("scales", scales, !is_one, shape_of_scales(rule, rows(), width), rule.scale);
  check_result("tensor_scale", tensor_scale, is_one || rule.has_tensor_scale, {1}, DType::f32);
  check_result("amax", amax, true, {1}, DType::f32);
  check_result("losses", losses, !losses.empty(), {2}, DType::f64);
  check_result("factor", factor, !factor.empty(), {1}, DType::f32);
  need(factor.empty() || is_one, name, std::string(rule.name) + " has several tiles, which do not share a scale");
  need(!stochastic || rule.element == DType::e2m1, name,
       std::string(rule.name) + " has no stochastic rounding: only e2m1 codes have");
}

void DelayedScalingStep::check() const {
  for (const DelayedScale& one : scales) {
    vector_of(name, "amax", one.amax, 1), vector_of(name, "scale", one.scale, 1), rank(name, "history", one.history, 1);
    need(one.history.elements() > 0, name, "an amax history needs at least one entry");
    if (!one.used.empty()) vector_of(name, "used", one.used, 1);
    need(ends_step || one.used.empty(), name, "the scale before is kept at the end of a step only");
    for (const Tensor* tensor : {&one.amax, &one.history, &one.scale, &one.used})
      need(tensor->empty() || tensor->dtype() == DType::f32, name, "amax, history and scales are f32");
  }
}

}  // namespace halfmark::kernels
