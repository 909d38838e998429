// Cases of quantisation and of matmul on codes with scales.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/number/named.h"
#include "kernels/ops/cases/contraction.h"
#include "kernels/ops/cases/operands.h"

namespace halfmark::kernels::ops_cases {

namespace {

// A matrix [rows, k] under a block format or the rule of a training recipe; stored as [k, rows] if `transposed`.
Scaled scaled_matrix(const CaseRequest& request, std::string_view format, int64_t rows, int64_t k, bool transposed,
                     uint64_t seed) {
  const std::vector<double> values =
      request.filled ? random_values(rows * k, seed) : std::vector<double>(static_cast<size_t>(rows * k));
  const std::vector<float> narrow(values.begin(), values.end());
  Device& device = request.device;
  for (const BlockFormat& one : block_formats())
    if (one.name == format) return to_scaled(device, one, narrow, rows, k);
  const Quantizer& rule = quantizer_named(format);
  if (transposed) std::swap(rows, k);
  const Quantized quantized = quantize(rule, narrow, static_cast<size_t>(rows), static_cast<size_t>(k));
  Scaled result{.codes = Tensor(device, {rows, k}, rule.element), .scales = {}, .transposed = transposed};
  std::vector<unsigned char> packed(bytes_for(rule.element, quantized.codes.size()));
  for (size_t i = 0; i < quantized.codes.size(); ++i) store_code(rule.element, packed.data(), i, quantized.codes[i]);
  result.codes.set_codes(packed);
  std::vector<double> decodes;
  for (const TileScale& tile : quantized.tiles) decodes.push_back(static_cast<double>(tile.decode));
  if (has_one_tile(rule)) {
    result.tensor_scale = Tensor::from(device, {1}, DType::f32, decodes);
    return result;
  }
  result.tile_rows = rule.tile_rows, result.tile_depth = rule.tile_depth;
  result.scales = Tensor::from(device, shape_of_scales(rule, rows, k), rule.scale, decodes);
  if (rule.has_tensor_scale) {
    const auto amax = static_cast<double>(quantized.amax);
    result.tensor_scale = Tensor::from(device, {1}, DType::f32, std::vector<double>{amax});
    result.divisor = 448 * 6;
  }
  return result;
}

}  // namespace

template <>
void Cases<ScaledMatmul>::each(const CaseRequest& request, const RunCase<ScaledMatmul>& run_case) {
  for (const ScaledTypes& types : request.axes.scaled)
    for (const MatmulSize size : request.axes.scaled_sizes) {
      const bool is_format = std::ranges::any_of(block_formats(), [&](const auto& one) { return one.name == types.a; });
      if (is_format && size.k % 32 != 0) continue;  // its blocks are whole
      const Scaled a = scaled_matrix(request, types.a, size.m, size.k, types.transpose_a, 1),
                   b = scaled_matrix(request, types.b, size.n, size.k, types.transpose_b, 2);
      Tensor out(request.device, {size.m, size.n}, types.out);
      const std::string name = std::string(types.a) + " " + std::string(types.b) + " m" + std::to_string(size.m) +
                               " n" + std::to_string(size.n) + " k" + std::to_string(size.k);
      const ScaledMatmul op{.a = a, .b = b, .out = out, .fast_accumulate = types.fast_accumulate};
      run_case(name, op, [&](CaseResult& result) {
        const std::vector<double> av = a.values(), bv = b.values();
        const bool may_have_few_bits = !request.strict && (a.scales.empty() || a.scales.dtype() == DType::f32);
        std::vector<double> expected, slack;
        for (int64_t i = 0; i < size.m; ++i)
          for (int64_t j = 0; j < size.n; ++j) {
            double value = 0, magnitude = 0;
            for (int64_t l = 0; l < size.k; ++l) {
              const double product = av[static_cast<size_t>(i * size.k + l)] * bv[static_cast<size_t>(j * size.k + l)];
              value += product, magnitude += std::fabs(product);
            }
            // Steps beyond the products: the factor from the tensors' scales has three roundings, its product with the
            // sum one, and a block with f32 scales three.
            const double steps = static_cast<double>(size.k) + 4 + 3 * static_cast<double>(size.k) / 128 + 3;
            expected.push_back(value);
            slack.push_back(gamma(steps, may_have_few_bits ? kFastSum : kFp32) * magnitude);
          }
        result.expect_close(out, expected, slack);
      });
    }
}

// Codes times scales are the numbers, within half a place of the code, and where the scale is itself rounded (e4m3) a
// sixteenth: then the largest number of a block may be that much beyond the largest code.
template <>
void Cases<Quantize>::each(const CaseRequest& request, const RunCase<Quantize>& run_case) {
  for (const QuantizedForm& form : request.axes.quantized)
    for (const DType dtype : request.axes.quantized_dtypes) {
      const Quantizer& rule = quantizer_named(form.rule);
      const int64_t rows = request.axes.quantized_shape[0], k = request.axes.quantized_shape[1],
                    width = depth_of_codes(k, form.transform);
      const Tensor x =
          random_tensor(request, form.transpose ? Shape{k, rows} : Shape{rows, k}, dtype, Layout::plain, 5);
      Device& device = request.device;
      Tensor factor, scales, tensor_scale, codes(device, {rows, width}, rule.element), amax(device, {1}, DType::f32),
          losses(device, {2}, DType::f64);
      if (form.factor != 0) factor = Tensor::from(device, {1}, DType::f32, std::vector<double>{form.factor});
      if (!has_one_tile(rule)) scales = Tensor(device, shape_of_scales(rule, rows, width), rule.scale);
      if (has_one_tile(rule) || rule.has_tensor_scale) tensor_scale = Tensor(device, {1}, DType::f32);
      const Quantize op{.x = x,
                        .factor = factor,
                        .codes = codes,
                        .scales = scales,
                        .tensor_scale = tensor_scale,
                        .amax = amax,
                        .losses = losses,
                        .rule = rule,
                        .transpose = form.transpose,
                        .transform = form.transform,
                        .stochastic = form.stochastic,
                        .noise = {.seed = 9, .first = 0}};
      const std::string name = std::string(form.rule) + " of " + std::string(name_of(dtype)) +
                               (form.transpose ? " transposed" : "") + (form.transform ? " transformed" : "");
      run_case(name, op, [&](CaseResult& result) {
        const std::vector<double> given = x.values();
        std::vector<double> numbers(static_cast<size_t>(rows * width), 0.0);
        for (int64_t row = 0; row < rows; ++row)
          for (int64_t l = 0; l < k; ++l)
            numbers[static_cast<size_t>(row * width + l)] =
                given[static_cast<size_t>(form.transpose ? l * rows + row : row * k + l)];
        double largest = 0;
        if (form.transform) {
          // Sylvester's matrix: entry (i, j) is negative if i & j has an odd number of ones.
          constexpr int kSigns[16] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1};
          for (size_t first = 0; first < numbers.size(); first += 16) {
            double group[16];
            for (int j = 0; j < 16; ++j) {
              double sum = 0;
              for (int i = 0; i < 16; ++i) {
                int ones = 0;
                for (int bit = i & j; bit != 0; bit >>= 1) ones += bit & 1;
                sum += (ones % 2 ? -1 : 1) * kSigns[i] * numbers[first + static_cast<size_t>(i)];
              }
              group[j] = sum / 4;
            }
            std::copy(group, group + 16, &numbers[first]);
          }
        }
        for (const double one : numbers) largest = std::max(largest, std::fabs(one));
        const double bf16 = form.transform ? kBf16.unit_roundoff() * 1.01 : 0;  // of the result of the transform
        result.expect_close(amax, {largest}, {largest * bf16}, "amax");
        const Scaled found{.codes = codes,
                           .scales = scales,
                           .tensor_scale = tensor_scale,
                           .divisor = rule.has_tensor_scale ? 448.0F * 6 : 1.0F,
                           .tile_rows = has_one_tile(rule) ? 1 : rule.tile_rows,
                           .tile_depth = has_one_tile(rule) || rule.tile_depth != 0 ? rule.tile_depth : width};
        const std::vector<double> values = found.values(), code_values = codes.values();
        const Format& format = format_of(rule.element);
        const double last = std::ldexp(form.stochastic ? 1.0 : 0.5, -format.fraction_bits) + bf16 +
                            (rule.has_tensor_scale ? 1.0 / 16 : 0) + 0x1p-20;
        int zeros = 0;
        for (size_t i = 0; i < values.size(); ++i) {
          const double decode = code_values[i] == 0 ? 0 : values[i] / code_values[i],
                       least = smallest(format) * (form.stochastic ? 1 : 0.5) * std::fabs(decode);
          zeros += values[i] == 0 && numbers[i] != 0;
          const bool is_within = std::fabs(values[i] - numbers[i]) <= last * std::fabs(numbers[i]) + least;
          const bool is_flushed = values[i] == 0 && std::fabs(numbers[i]) < largest / 4;
          if (!is_within && !is_flushed)
            return result.add("element " + std::to_string(i) + " is " + std::to_string(values[i]) + ", not " +
                              std::to_string(numbers[i]));
        }
        result.expect_exact(losses, {static_cast<double>(zeros), 0}, "flushed and saturated");
      });
    }
}

namespace {

// What DelayedScalingStep does to one operand, from the text of Transformer Engine's delayed_scaling.cu: the amax history is
// rolled by one, its last entry becomes the amax of this step, and its first one 0.
struct ExpectedDelayedScale {
  std::vector<double> history;
  double scale;

  void step(double amax, bool ends_step, double most, AmaxChoice choice) {
    if (std::fabs(amax) > history[0]) history[0] = std::fabs(amax);  // false for a NaN
    if (!ends_step || history[0] == 0) return;
    const double last = history[0];
    history.erase(history.begin()), history.push_back(last);
    const double chosen = choice == AmaxChoice::max ? *std::ranges::max_element(history) : last;
    history[0] = 0;
    const auto largest = static_cast<double>(std::numeric_limits<float>::max());
    if (std::isfinite(chosen)) scale = static_cast<double>(static_cast<float>(std::min(most / chosen, largest)));
  }
};

}  // namespace

template <>
void Cases<DelayedScalingStep>::each(const CaseRequest& request, const RunCase<DelayedScalingStep>& run_case) {
  struct Form {
    int64_t entries;
    AmaxChoice choice;
    double most, amax, first;  // first: of an earlier tensor of this step
  };
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Form> forms;
  for (const AmaxChoice choice : {AmaxChoice::max, AmaxChoice::most_recent})
    for (const int64_t entries : {1, 2, 5, 256, 257, 1024})
      for (const auto& [amax, first] : {std::pair(2.0, 0.0),
                                        {-3.0, 0.0},
                                        {0.25, 6.5},
                                        {9.0, 6.5},
                                        {0.0, 0.0},
                                        {nan, 0.0},
                                        {nan, 6.5},
                                        {infinity, 0.0},
                                        {0x1p-140, 0.0}})
        forms.push_back({entries, choice, forms.size() % 2 ? 57344.0 : 448.0, amax, first});
  // More than one launch of a GPU takes.
  while (request.filled && forms.size() < 600) forms.push_back(forms[forms.size() % 101]);
  for (const DelayedStep& step : request.axes.delayed_steps) {
    std::vector<DelayedScale> scales;
    for (const Form& form : forms) {
      std::vector<double> history = random_values(form.entries, static_cast<uint64_t>(scales.size()));
      for (double& entry : history) entry = std::fabs(static_cast<double>(static_cast<float>(entry)));
      if (scales.size() % 7 == 0) history.back() = infinity;
      history[0] = form.first;
      const auto one = [&](double value) {
        return Tensor::from(request.device, {1}, DType::f32, std::vector<double>{value});
      };
      scales.push_back({.amax = one(form.amax),
                        .history = Tensor::from(request.device, {form.entries}, DType::f32, history),
                        .scale = one(3.5),
                        .used = step.keeps_scale ? Tensor(request.device, {1}, DType::f32) : Tensor(),
                        .most = static_cast<float>(form.most),
                        .choice = form.choice});
    }
    const std::string name =
        std::string(step.ends_step ? "end of a step" : "within a step") + (step.keeps_scale ? ", kept" : "");
    run_case(name, DelayedScalingStep{.scales = scales, .ends_step = step.ends_step}, [&](CaseResult& result) {
      for (size_t i = 0; i < scales.size(); ++i) {
        const Form& form = forms[i];
        const double before = result.before(scales[i].scale)[0];
        ExpectedDelayedScale expected{result.before(scales[i].history), before};
        expected.step(form.amax, step.ends_step, form.most, form.choice);
        result.expect_exact(scales[i].history, expected.history, "history " + std::to_string(i));
        result.expect_exact(scales[i].scale, {expected.scale}, "scale " + std::to_string(i));
        if (step.keeps_scale) result.expect_exact(scales[i].used, {before}, "used " + std::to_string(i));
      }
    });
  }
}

}  // namespace halfmark::kernels::ops_cases
