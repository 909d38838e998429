// Reference row of quantisation: the rules of number/quantizer.h on tensors.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/reference/operand.h"
#include "kernels/number/quantizer.h"

namespace halfmark::kernels::reference {
namespace {

// [rows, depth of the codes]: transposed, transformed, as the operation says.
std::vector<float> numbers_of(const Quantize& op) {
  const std::vector<float> x = read<float>(op.x);
  const auto rows = static_cast<size_t>(op.rows()), depth = static_cast<size_t>(op.depth()),
             width = static_cast<size_t>(depth_of_codes(op.depth(), op.transform));
  std::vector<float> numbers(rows * width, 0.0F);
  for (size_t row = 0; row < rows; ++row)
    for (size_t k = 0; k < depth; ++k) numbers[row * width + k] = x[op.transpose ? k * rows + row : row * depth + k];
  if (!op.transform) return numbers;
  std::vector<float> sixteen(16);
  for (size_t first = 0; first < numbers.size(); first += 16) {
    const std::span<float, 16> group(&numbers[first], 16);
    std::ranges::copy(group, sixteen.begin());
    hadamard_16(std::span<const float, 16>(sixteen.data(), 16), group);
  }
  return numbers;
}

void write_bytes(Tensor& tensor, const std::vector<unsigned char>& codes) {
  if (!is_packed(tensor.dtype())) return write_codes(tensor, codes);
  std::vector<unsigned char> packed(bytes_for(tensor.dtype(), codes.size()));
  for (size_t i = 0; i < codes.size(); ++i) store_code(tensor.dtype(), packed.data(), i, codes[i]);
  write_codes(tensor, packed);
}

void run(Device&, const Quantize& op) {
  const std::vector<float> numbers = numbers_of(op);
  const auto rows = static_cast<size_t>(op.rows()),
             depth = static_cast<size_t>(depth_of_codes(op.depth(), op.transform));
  const Quantized result = op.factor.empty() ? quantize(op.rule, numbers, rows, depth, op.x.dtype(),
                                                        op.stochastic ? std::optional(op.noise) : std::nullopt)
                                             : quantize_with(op.rule, read<float>(op.factor)[0], numbers, rows, depth);
  write_bytes(op.codes, result.codes);
  if (!op.scales.empty() && op.rule.scale != DType::f32) {
    std::vector<unsigned char> codes;
    for (const TileScale& tile : result.tiles) codes.push_back(tile.code);
    write_codes(op.scales, codes);
  } else if (!op.scales.empty()) {
    std::vector<double> decodes;
    for (const TileScale& tile : result.tiles) decodes.push_back(static_cast<double>(tile.decode));
    write(op.scales, decodes);
  }
  const auto write_one = [](Tensor& tensor, float value) {
    if (!tensor.empty()) write(tensor, std::vector<float>{value});
  };
  write_one(op.tensor_scale, op.rule.has_tensor_scale ? result.amax : result.tiles[0].decode);
  write_one(op.amax, result.amax);
  if (op.losses.empty()) return;
  const QuantizationLosses losses = losses_of(result, numbers);
  write(op.losses, std::vector<double>{static_cast<double>(losses.flushed), static_cast<double>(losses.saturated)});
}

void step(Device&, const DelayedScalingStep& op) {
  for (DelayedScale& one : op.scales) {
    std::vector<float> history = read<float>(one.history);
    observe_amax(history, read<float>(one.amax)[0]);
    if (op.ends_step) {
      const std::vector<float> scale = read<float>(one.scale);
      if (!one.used.empty()) write(one.used, scale);
      write(one.scale, std::vector<float>{scale_after_step(history, history[0], scale[0], one.most, one.choice)});
    }
    write(one.history, history);
  }
}

}  // namespace

void add_quantize_rows(KernelTable& table) {
  add_row<Quantize>(table, &run), add_row<DelayedScalingStep>(table, &step);
}

}  // namespace halfmark::kernels::reference
