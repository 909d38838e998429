// The quantisers of training recipes: how their owners' code makes one scale and codes of 8 or 4 bits of the numbers of a
// tile, bit by bit. Where two owners read one specification differently they have a row each. The MX and NVFP4 formats by
// their ideal rules, without intermediate rounding, are in block_scaled.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/number/convert.h"
#include "kernels/number/dtype.h"

namespace halfmark::kernels {

// An element is the code of x * factor, or of x / decode where the rule divides. The product or quotient is rounded to
// fp32 first; the code is rounded to nearest even and saturates: an infinity becomes the largest number, a NaN stays one
// (in e2m1, which has none, it becomes the largest number). The code stands for code * decode.
struct TileScale {
  float factor = 1, decode = 1;
  unsigned char code = 0;  // of `decode`, where it is stored in 8 bits
};

// What a rule knows of a tile.
struct TileFacts {
  float amax;         // largest magnitude; how it sees NaN is Quantizer::nan
  float tensor_amax;  // of all tiles
  DType input;        // in which the tensor was stored before
};

struct Quantizer {
  enum class Nan : uint8_t {
    dropped,  // the largest magnitude of the others, as fmaxf gives it
    spreads,  // the largest magnitude is NaN, as torch.max gives it
  };
  std::string_view name, about;
  DType element, scale;           // f32 scales have no code
  int64_t tile_rows, tile_depth;  // of a tile of a matrix [rows, depth]; 0: all of them
  Nan nan;
  TileScale (*tile)(const TileFacts& facts, const Format& element);
  bool divides = false;
  bool has_tensor_scale = false;
};

std::span<const Quantizer> quantizers();
const Quantizer& quantizer_named(std::string_view name);  // throws Error naming the known ones

// A matrix [rows, depth], depth being the axis over which products are summed. The tiles at its edges may be smaller.
struct Quantized {
  const Quantizer* quantizer;
  size_t rows, depth;
  std::vector<unsigned char> codes;  // [rows, depth], a byte each
  std::vector<TileScale> tiles;      // [tiles along rows, tiles along depth]
  double tensor_decode = 1;          // factor of every element, for rules with a scale of the tensor
  float amax = 0;                    // of all numbers, as the rule sees it

  size_t tile_of(size_t row, size_t k) const;
  double value(size_t row, size_t k) const;
};

// `noise`: e2m1 codes are rounded stochastically with 8 bits, as the code below: element i uses byte i mod 4 of the noise
// word i / 4. Throws Error if the sizes do not fit, or for noise and another element.
Quantized quantize(const Quantizer& quantizer, std::span<const float> values, size_t rows, size_t depth,
                   DType input = DType::f32, std::optional<NoiseStream> noise = {});

// The same with a scale that is known before, as delayed scaling has one: for a rule with one tile.
Quantized quantize_with(const Quantizer& quantizer, float factor, std::span<const float> values, size_t rows,
                        size_t depth);

// What a matrix has lost. `flushed`: a number other than zero whose code stands for zero. `saturated`: one whose nearest code
// without a largest number would be larger than the largest. NaN counts as neither.
struct QuantizationLosses {
  size_t flushed = 0, saturated = 0;
};
QuantizationLosses losses_of(const Quantized& quantized, std::span<const float> values);

// The code of an fp32 number, for a byte of noise: Transformer Engine's rounding in software (common/util/ptx.cuh).
unsigned char stochastic_e2m1(float x, unsigned char noise);

// The random Hadamard transform of 16 numbers, as Transformer Engine's with its fixed signs: x diag(signs) H / 4, summed in
// fp32 in ascending order, rounded to bf16. The product of two transformed operands is that of the operands.
void hadamard_16(std::span<const float, 16> x, std::span<float, 16> out);

enum class AmaxChoice : uint8_t { max, most_recent };  // which entry of the history decides

// Delayed scaling on a history, of which [0] is of this step, then the oldest first. The amax of a tensor, also of several in one
// step: a NaN is dropped, an infinity kept.
void observe_amax(std::span<float> history, float amax);
// The next scale, of a step that ends: `most` / the chosen entry of the history shifted by `last` (its [0], or that of all
// ranks), at most the largest fp32. Nothing changes if `last` is 0; the scale stays if the entry is 0 or infinite.
float scale_after_step(std::span<float> history, float last, float scale, float most, AmaxChoice choice);

// The scale of delayed scaling: that of the largest magnitudes of earlier steps. As the fused kernel of Transformer Engine
// (common/recipe/delayed_scaling.cu): a step without a number leaves the history as it is.
class AmaxHistory {
 public:
  // `element`: the format of the codes. `margin`: binary digits left free.
  AmaxHistory(const Format& element, size_t length = 1024, AmaxChoice choice = AmaxChoice::max, int margin = 0);

  float scale() const { return scale_; }  // that of the next cast; 1 at first
  std::span<const float> history() const { return history_; }
  // The amax of a tensor, also of several in one step. A NaN is dropped, an infinity kept.
  void observe(float amax);
  // At the end of the step. `reduced`: the largest amax over all ranks, where there are several.
  void update(float reduced = 0);

 private:
  std::vector<float> history_;  // [0]: of this step, then the oldest first
  float largest_, scale_ = 1;
  AmaxChoice choice_;
};

}  // namespace halfmark::kernels
