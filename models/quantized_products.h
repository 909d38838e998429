// Training recipes that quantise the operands of linear layers to 8 or 4 bits, as rows of one table; what a policy says about
// them, and a log of what the quantisation loses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/number/quantizer.h"
#include "kernels/ops/ops.h"
#include "models/namespaces.h"

namespace halfmark::models {

struct QuantizedOperand {
  const Quantizer* rule = nullptr;
  bool is_transformed = false;  // by the random Hadamard transform first, along the axis of the sums
  bool is_stochastic = false;   // rounding of its codes
};

// Both operands of one product. The first has the rows of the result.
struct QuantizedProduct {
  QuantizedOperand first, second;
  // Whether the sums may have the fewer bits of an FP8 instruction. False is Transformer Engine's split accumulator.
  bool fast_accumulate = false;
};

// Scales from the largest magnitudes of earlier steps (kernels::DelayedScalingStep). One history for each operand of a layer.
struct DelayedScaling {
  size_t history = 1024;
  AmaxChoice algorithm = AmaxChoice::max;
  int margin = 0;
};

// The three products of a linear layer y = x w^T. Everything else of such a policy is that of automatic mixed precision.
// - Only linear layers with a weight of their own are quantised. A convolution, an LSTM, attention, a layer with weight norm and
//   one that shares the weight of an embedding stay in the policy's low dtype: Transformer Engine has FP8 modules for linear layers,
//   and the papers keep the output layer of a language model in 16 bits.
// - x and dy are quantised from the policy's low dtype, w from the parameter as it is stored (Transformer Engine, linear.py:
//   quantize_weight of the parameter, without a cast).
// - An operand with the same rule in two products whose tiles are square keeps its codes; else the second copy is made from the
//   tensor again, never from the codes of the first.
// - Extents: Transformer Engine refuses what is not a multiple of 8 and 16 (FP8), of 16 (NVFP4) or 32 (MXFP8), and frameworks then
//   fill the tensors with zeros. So does this: zeros change neither a scale nor a sum.
struct QuantizedProducts {
  std::string_view name;
  QuantizedProduct forward;  // y = x w^T: x, w
  QuantizedProduct data;     // dx = dy w: dy, w
  QuantizedProduct weights;  // dw = dy^T x: dy, x
  std::optional<DelayedScaling> delayed{};
};

std::span<const QuantizedProducts> quantized_products();
const QuantizedProducts& quantized_products_named(std::string_view name);  // throws Error naming the known ones

// Whether the codes of an operand serve both products.
bool shares_codes(const QuantizedOperand& one, const QuantizedOperand& other);

// One operand of a layer under delayed scaling: its history and its scales, on the device, so that the host never waits for them.
class DelayedOperand {
 public:
  DelayedOperand(Device& device, DType element, const DelayedScaling& form);
  // f32 [1]. That of the next cast; `again`: that of the cast that is repeated, as a checkpoint does with the scale of the first
  // forward, like Transformer Engine. By then that forward may have updated the history.
  const Tensor& scale(bool again);
  // The operands of an update by an amax; `ends_step` as of DelayedScalingStep, whose end must be told.
  kernels::DelayedScale step(const Tensor& amax, bool ends_step) const;
  void has_stepped() { has_stepped_ = true; }

 private:
  kernels::DelayedScale state_;
  bool has_stepped_ = false;  // since the last cast that was not repeated
};

// Operands whose scales change when a pass ends: forward's after forward, backward's after backward.
class ScaleUpdates {
 public:
  ScaleUpdates();
  // Updates each once. If an exception passes, nothing changes. Throws what an operation throws.
  ~ScaleUpdates() noexcept(false);
  ScaleUpdates(const ScaleUpdates&) = delete;
  ScaleUpdates& operator=(const ScaleUpdates&) = delete;
  void add(const std::shared_ptr<DelayedOperand>& operand, const Tensor& amax);

 private:
  struct Observed {
    std::shared_ptr<DelayedOperand> operand;
    std::vector<Tensor> amaxes;  // several of a layer that runs several times in the pass
  };
  std::vector<Observed> observed_;
  int exceptions_;
};

// What one quantisation did to its operand.
struct QuantizedOnce {
  std::string layer, operand, product;  // "fc1", "x", "forward"
  double elements = 0;
  double flushed = 0, saturated = 0;  // how many (QuantizationLosses)
  double amax = 0;                    // after the transform
  double scale = 0;                   // by which the numbers were multiplied; of tiles the median
  std::vector<unsigned char> codes;
};

// While it exists, every quantisation of this thread is recorded, but not those of a forward that is computed again.
class QuantizationLog {
 public:
  QuantizationLog();
  ~QuantizationLog();
  QuantizationLog(const QuantizationLog&) = delete;
  QuantizationLog& operator=(const QuantizationLog&) = delete;
  const std::vector<QuantizedOnce>& entries() const { return entries_; }
  void clear() { entries_.clear(); }
  static bool exists();
  static void record(const QuantizedOnce& entry);

 private:
  std::vector<QuantizedOnce> entries_;
  QuantizationLog* outer_;
};

}  // namespace halfmark::models
