// The memory rules of the layers. Which dtype an operation reads and writes follows from the cast rules (cast_rules.cpp); what
// its backward needs follows from its derivative.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/number/error.h"
#include "models/layer.h"
#include "models/network/layer_memory.h"
#include "models/quantized_products.h"

namespace halfmark::models {

DType MemoryRequest::reads(std::string_view operation, DType x) const {
  if (!policy.rules || x == DType::f64) return x;
  switch (policy.rules->of(operation)) {
    case CastRule::lower:
      return policy.low;
    case CastRule::fp32:
      return DType::f32;
    case CastRule::refused:
      throw Unsupported(std::string(operation) + " is not allowed by the cast rules " +
                        std::string(policy.rules->name));
    case CastRule::fp32_out:
    case CastRule::widest:
    case CastRule::as_is:
      return x;
  }
  return x;
}

DType MemoryRequest::writes(std::string_view operation, DType read) const {
  if (!policy.rules || read == DType::f64) return read;
  return policy.rules->of(operation) == CastRule::fp32_out ? DType::f32 : read;
}

namespace memory_rules {
namespace {

using Weight = LayerMemory::Weight;

// Statistics of normalisation and logarithms of sums: at least f32.
DType wide(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

// One operation that reads its input and writes a result of the same or another shape.
LayerMemory one_operation(const MemoryRequest& r, std::string_view operation) {
  LayerMemory memory{.read = r.reads(operation, r.given)};
  memory.result = r.writes(operation, memory.read);
  memory.gradient_dtype = memory.read;
  return memory;
}

Weight weight_of(const MemoryRequest& r, std::string_view operation, std::string_view part, int64_t elements,
                 DType dtype) {
  const DType read = r.reads(operation, dtype);
  return {
      .name = r.name + "." + std::string(part), .elements = elements, .dtype = dtype, .read = read, .computed = read};
}

// Weight norm: the weight is computed from a direction and the length of each output, in their dtype; then the operation
// reads it. Its gradient needs the weight as read, and 1 / |v| of each output.
void add_normalised_weight(const MemoryRequest& r, std::string_view operation, int64_t elements, int64_t outputs,
                           LayerMemory& memory) {
  const DType dtype = r.policy.param, read = r.reads(operation, dtype);
  for (const auto& [part, count] : {std::pair{"weight_g", outputs}, {"weight_v", elements}})
    memory.weights.push_back(
        {.name = r.name + "." + part, .elements = count, .dtype = dtype, .read = dtype, .computed = dtype});
  const StoredTensor weight{elements, dtype}, weight_read{elements, read};
  memory.keeps.insert(memory.keeps.end(), {weight_read, {outputs, wide(dtype)}});
  if (read != dtype) memory.before_result.push_back({weight});
  StoredTensors moment = {weight_read};  // its gradient, before and after the cast
  if (read != dtype) moment.push_back(weight);
  if (wider(r.policy.grad, dtype) != dtype) moment.insert(moment.end(), {{elements, dtype}, {outputs, dtype}});
  memory.backward.push_back(std::move(moment));
}

// y = x w + b: the gradient of w needs x, that of x needs w, that of b neither. `outputs`: with weight norm, else 0.
LayerMemory product(const MemoryRequest& r, std::string_view operation, int64_t weight, int64_t bias,
                    int64_t outputs = 0) {
  LayerMemory memory = one_operation(r, operation);
  memory.keeps_input = true;
  if (outputs > 0)
    add_normalised_weight(r, operation, weight, outputs, memory);
  else
    memory.weights.push_back(weight_of(r, operation, "weight", weight, r.policy.param));
  if (bias == 0) return memory;
  memory.weights.push_back(weight_of(r, operation, "bias", bias, r.policy.param));
  memory.weights.back().kept = false;
  return memory;
}

// A copy of an operand in codes: a scale for each tile, f32 for a whole tensor; NVFP4 has both.
void add_codes(const QuantizedOperand& operand, int64_t rows, int64_t depth, StoredTensors& to) {
  const Quantizer& rule = *operand.rule;
  if (operand.is_transformed) depth += (16 - depth % 16) % 16;  // whole groups of the transform
  to.push_back({rows * depth, rule.element});
  const bool has_tiles = rule.tile_rows != 0 || rule.tile_depth != 0;
  const auto count = [](int64_t extent, int64_t tile) { return tile == 0 ? 1 : (extent - 1) / tile + 1; };
  if (has_tiles) to.push_back({count(rows, rule.tile_rows) * count(depth, rule.tile_depth), rule.scale});
  if (!has_tiles || rule.has_tensor_scale) to.push_back({1, DType::f32});
}

// A linear layer under a training recipe: forward needs codes of x and w along the inputs, the gradient of x codes of w and dy
// along the outputs, that of w codes of dy and x along the rows. What backward needs of x and w is kept, and x itself is not.
LayerMemory quantized_product(const MemoryRequest& r, int64_t out, bool has_bias) {
  const QuantizedProducts& recipe = *r.policy.products;
  const int64_t in = r.input[r.input.rank() - 1], rows = r.input.elements() / in;
  LayerMemory memory = one_operation(r, "linear");
  memory.weights.push_back(weight_of(r, "linear", "weight", in * out, r.policy.param));
  memory.weights.back().read = r.policy.param, memory.weights.back().kept = false;
  if (has_bias) {
    memory.weights.push_back(weight_of(r, "linear", "bias", out, r.policy.param));
    memory.weights.back().kept = false;
  }
  const QuantizedOperand &x = recipe.forward.first, &w = recipe.forward.second;
  if (!shares_codes(x, recipe.weights.second)) add_codes(x, rows, in, memory.with_result);
  if (!shares_codes(w, recipe.data.second)) add_codes(w, out, in, memory.with_result);
  add_codes(recipe.weights.second, in, rows, memory.keeps);
  add_codes(recipe.data.second, in, out, memory.kept_casts);
  add_codes(recipe.weights.first, out, rows, memory.with_weight_gradients);
  add_codes(recipe.data.first, rows, out, memory.with_gradient);
  memory.cast_is_last = true;
  // Of x, w and dy each the history and two scales.
  if (recipe.delayed) memory.states = 3 * (static_cast<int64_t>(recipe.delayed->history) + 2);
  return memory;
}

int64_t area(const MemoryRequest& r) {
  const auto kernel = r.arguments.extent("kernel");
  return int64_t{kernel.h} * kernel.w;
}

int64_t last(const Shape& shape) { return shape[shape.rank() - 1]; }

// Scale and shift get their gradients from one operation, together with the input; a gradient that is stored in another dtype,
// or not at all, is temporary first.
void compute_gradients_together(const MemoryRequest& r, LayerMemory& memory) {
  for (const Weight& weight : memory.weights)
    if (!weight.is_trained || weight.computed != wider(r.policy.grad, weight.dtype))
      memory.with_gradient.push_back({weight.elements, weight.computed});
}

// Scale and shift in the dtype of parameters; the statistics of each row; the input, from which the normalised value is
// computed again.
LayerMemory norm_of_rows(const MemoryRequest& r, std::string_view operation, int64_t entries, int64_t rows,
                         bool is_centred) {
  LayerMemory memory = one_operation(r, operation);
  memory.keeps_input = true;
  memory.weights.push_back(weight_of(r, operation, "scale", entries, r.policy.param));
  memory.keeps.push_back({rows, wide(memory.read)});
  if (!is_centred) {
    compute_gradients_together(r, memory);
    return memory;
  }
  memory.weights.push_back(weight_of(r, operation, "shift", entries, r.policy.param));
  memory.weights.back().kept = false;
  memory.keeps.push_back({rows, wide(memory.read)});
  compute_gradients_together(r, memory);
  return memory;
}

}  // namespace

LayerMemory linear(const MemoryRequest& r) {
  const int64_t out = r.arguments.count("out");
  if (r.policy.products && !r.arguments.flag("weight_norm")) return quantized_product(r, out, r.arguments.flag("bias"));
  return product(r, "linear", out * last(r.input), r.arguments.flag("bias") ? out : 0,
                 r.arguments.flag("weight_norm") ? out : 0);
}

LayerMemory tied_linear(const MemoryRequest& r) {
  LayerMemory memory = product(r, "linear", last(r.output) * last(r.input), 0);
  memory.weights[0].name = r.arguments.word("weight_of") + ".weight";
  memory.weights[0].is_own = false;
  return memory;
}

LayerMemory conv2d(const MemoryRequest& r) {
  const int64_t out = r.arguments.count("out");
  return product(r, "conv2d", out * (r.input[1] / r.arguments.count("groups")) * area(r),
                 r.arguments.flag("bias") ? out : 0, r.arguments.flag("weight_norm") ? out : 0);
}

LayerMemory conv_transpose2d(const MemoryRequest& r) {
  const int64_t out = r.arguments.count("out");
  return product(r, "conv_transpose2d", r.input[1] * (out / r.arguments.count("groups")) * area(r),
                 r.arguments.flag("bias") ? out : 0);
}

LayerMemory batchnorm(const MemoryRequest& r) {
  const int64_t channels = r.input[1];
  LayerMemory memory = one_operation(r, "batch_norm");
  memory.keeps_input = true;
  for (const char* part : {"scale", "shift"}) {
    memory.weights.push_back(weight_of(r, "batch_norm", part, channels, r.policy.batch_norm));
    memory.weights.back().is_trained = r.arguments.flag("affine");
  }
  compute_gradients_together(r, memory);
  memory.states = 2 * channels;  // running mean and variance
  memory.states_dtype = statistics_dtype(r.policy, r.arguments.flag("affine"));
  if (!r.arguments.flag("frozen")) memory.keeps = {{channels, wide(memory.read)}, {channels, wide(memory.read)}};
  return memory;
}

LayerMemory layer_norm(const MemoryRequest& r) {
  return norm_of_rows(r, "layer_norm", last(r.input), r.input.elements() / last(r.input), true);
}
LayerMemory rms_norm(const MemoryRequest& r) {
  return norm_of_rows(r, "rms_norm", last(r.input), r.input.elements() / last(r.input), false);
}
LayerMemory group_norm(const MemoryRequest& r) {
  return norm_of_rows(r, "group_norm", r.input[1], r.input[0] * r.arguments.count("groups"), true);
}

// The place of the largest value in its window, in a byte.
LayerMemory max_pool2d(const MemoryRequest& r) {
  LayerMemory memory = one_operation(r, "max_pool2d");
  memory.keeps = {{r.output.elements(), DType::u8}};
  return memory;
}
// Means need nothing for backward.
LayerMemory avg_pool2d(const MemoryRequest& r) { return one_operation(r, "avg_pool2d"); }
LayerMemory adaptive_avg_pool2d(const MemoryRequest& r) { return one_operation(r, "adaptive_avg_pool2d"); }
LayerMemory upsample_bilinear2d(const MemoryRequest& r) { return one_operation(r, "upsample_bilinear2d"); }
LayerMemory upsample_nearest2d(const MemoryRequest& r) { return one_operation(r, "upsample_nearest2d"); }

LayerMemory flatten(const MemoryRequest& r) {
  LayerMemory memory = one_operation(r, "flatten");
  memory.is_view = true, memory.gradient = LayerMemory::Gradient::of_result;
  return memory;
}
LayerMemory rearranged(const MemoryRequest& r) { return one_operation(r, "permute"); }

LayerMemory softmax(const MemoryRequest& r) {
  LayerMemory memory = one_operation(r, "softmax");
  memory.keeps_result = true, memory.gradient_dtype = memory.result;
  return memory;
}

LayerMemory dropout(const MemoryRequest& r) {
  LayerMemory memory = one_operation(r, "dropout");
  memory.keeps = {{r.arguments.flag("channels") ? r.input[0] * r.input[1] : r.input.elements(), DType::u8}};
  return memory;
}

LayerMemory activation(const MemoryRequest& r, std::string_view operation, bool keeps_result) {
  LayerMemory memory = one_operation(r, operation);
  memory.keeps_result = keeps_result, memory.keeps_input = !keeps_result;
  if (keeps_result) memory.gradient_dtype = memory.result;
  return memory;
}

// The indices are kept; the result has the dtype of the table.
LayerMemory embedding(const MemoryRequest& r) {
  LayerMemory memory{.read = r.given};
  memory.weights.push_back(weight_of(r, "embedding", "weight",
                                     r.arguments.count("entries") * r.arguments.count("features"), r.policy.param));
  memory.result = memory.gradient_dtype = memory.weights[0].read;
  memory.weights[0].kept = false;
  memory.keeps_input = true;
  memory.gradient = LayerMemory::Gradient::none;
  return memory;
}

// A sum in the wider dtype: backward needs neither operand, and the gradient of the result is that of the input.
LayerMemory position_embedding(const MemoryRequest& r) {
  LayerMemory memory{.read = r.given};
  memory.weights.push_back(
      weight_of(r, "embedding", "weight", r.arguments.count("length") * last(r.input), r.policy.param));
  memory.read = memory.result = wider(r.given, memory.weights[0].read);
  memory.gradient_dtype = r.given;  // that of the result, cast
  memory.weights[0].kept = false, memory.weights[0].computed = memory.result;
  memory.gradient = memory.result == r.given ? LayerMemory::Gradient::of_result : LayerMemory::Gradient::fresh;
  return memory;
}

// As one operation, which reads q, k and v where they are, backward computes the probabilities again from q, k and the logarithm
// of each row's sum. In steps q, k and v are separated first and the probabilities are kept, in the dtype of the softmax and,
// where it differs, as the product reads them.
LayerMemory self_attention(const MemoryRequest& r) {
  LayerMemory memory = one_operation(r, "scaled_dot_product_attention");
  const DType low = memory.read;
  const int64_t heads = r.arguments.count("heads"), n = r.input[0], t = r.input[1], values = r.output.elements();
  const StoredTensor qkv{3 * values, low}, out{values, low};
  // Of lengths: a byte or an added number for each position.
  const StoredTensor mask{r.arguments.has("lengths") ? n * t : 0, r.arguments.has("mask_value") ? low : DType::u8};
  memory.result = low;
  if (r.arguments.flag("fused")) {
    memory.keeps_input = memory.keeps_result = true;
    memory.keeps = {{n * heads * t, wide(low)}};
    memory.with_result = memory.with_gradient = {mask};
    memory.cast_is_last = true;
    return memory;
  }
  memory.gradient_is_last = true;
  memory.with_gradient = {out, qkv};  // the gradients of the heads' results, and of q, k and v
  const int64_t scores = n * heads * t * t;
  const StoredTensor scaled{2 * values, low};  // q and k times the root of the scale
  const DType softmax_reads = r.reads("softmax", low), probabilities = r.writes("softmax", softmax_reads);
  memory.keeps = {qkv, scaled, {scores, probabilities}};
  StoredTensors forward = {{scores, low}, out, mask},
                backward = {out, qkv, scaled, {scores, low}, {scores, probabilities}};
  if (softmax_reads != low) forward.push_back({scores, softmax_reads});
  if (probabilities != low) {
    memory.keeps.push_back({scores, low});
    backward.push_back({scores, probabilities}), backward.push_back({scores, low});
  }
  memory.before_result = {forward};
  memory.with_result = {out};
  memory.backward = {backward};
  return memory;
}

// Of each direction: the four gates of every step, and c and h of every step and before the first. The input is kept with the
// time first.
LayerMemory lstm(const MemoryRequest& r) {
  const int64_t hidden = r.arguments.count("hidden"), steps = r.input[0] * r.input[1], features = r.input[2];
  const bool is_double = r.arguments.flag("bidirectional");
  const DType low = r.reads("linear", r.given);
  LayerMemory memory{.read = r.given, .result = low, .gradient_dtype = low};
  const StoredTensor x{steps * features, low}, gates{steps * 4 * hidden, low}, h{steps * hidden, low},
      h_and_first{(steps + r.input[0]) * hidden, low}, y{r.output.elements(), low}, one_step{r.input[0] * hidden, low};
  memory.keeps = {x};
  for (const char* direction : {"", "reverse."}) {
    if (*direction && !is_double) break;
    for (const auto& [part, elements] : {std::pair{"weight_ih", 4 * hidden * features},
                                         {"weight_hh", 4 * hidden * hidden},
                                         {"bias_ih", 4 * hidden},
                                         {"bias_hh", 4 * hidden}}) {
      memory.weights.push_back(weight_of(r, "linear", std::string(direction) + part, elements, r.policy.param));
      memory.weights.back().kept = std::string_view(part).starts_with("weight");
    }
    memory.keeps.insert(memory.keeps.end(), {gates, h_and_first, h_and_first});
  }
  // z of all steps; of two directions also the results so far, and that of the second in the order of time.
  StoredTensors forward = {gates}, backward = {y, gates, one_step, one_step};
  if (is_double) {
    forward.push_back(y);
    memory.with_result = {y};
    backward.insert(backward.end(), {gates, h, h});  // dz in the order of the direction; dy of it, in both orders
  }
  memory.before_result = {forward};
  memory.with_weight_gradients = backward;
  StoredTensors last_step = backward;  // dc before and after it, dh, and dh of the step after it
  last_step.insert(last_step.end(), {one_step, one_step});
  backward.push_back(x);
  memory.backward = {last_step, backward};
  memory.with_gradient = {y, x};
  memory.gradient_is_last = true;
  return memory;
}

// The gates and the states before and after are kept, each in memory of its own; x is kept without them.
LayerMemory lstm_cell(const MemoryRequest& r) {
  const int64_t n = r.input[0], hidden = r.arguments.count("hidden"), inputs = r.input[1] - 2 * hidden;
  LayerMemory memory = one_operation(r, "linear");
  const DType low = memory.read;
  for (const auto& [part, elements] : {std::pair{"weight_ih", 4 * hidden * inputs},
                                       {"weight_hh", 4 * hidden * hidden},
                                       {"bias_ih", 4 * hidden},
                                       {"bias_hh", 4 * hidden}}) {
    memory.weights.push_back(weight_of(r, "linear", part, elements, r.policy.param));
    memory.weights.back().kept = std::string_view(part).starts_with("weight");
  }
  const StoredTensor x{n * inputs, low}, state{n * hidden, low}, gates{n * 4 * hidden, low};
  memory.keeps = {x, state, state, state, gates};  // x, h, c, the new c, the gates
  memory.with_result = {gates, state};             // before the gates, and the new h
  memory.with_weight_gradients = {gates, state};
  memory.backward = {{gates, state, state, state}};  // of the gates, of c before; of the new h and c
  memory.with_gradient = {gates, state, x, state};
  return memory;
}

}  // namespace memory_rules
}  // namespace halfmark::models
