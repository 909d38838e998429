// What the vector paths of dot_matrix share: which rows they support, how panels are packed, and the tile that a path
// computes. Private to dot_matrix and its tests. For the method see kernels/sim/README.md, "How the fast paths work".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/sim/dot_matrix.h"

namespace halfmark::kernels::dot_engine {

// Operands and addends that the vector paths handle; dot() computes an element with any other value in its chain.
// - A non-zero operand has an exponent of at most kLargestOperand, and at least one that is chosen for each panel
//   (least_operands). No product is then below kLeastExponent, so products are exact in fp32.
// - A non-zero fp32 addend is in 2^kLeastExponent .. 2^kAddendLimit; an fp16 addend is finite.
// Then no fp32 sum overflows, every kept bit is above 2^(kLeastExponent - F), and with that exponent as the lower bound
// of the alignment nothing is lost. A zero's exponent is -128: added to kLargestOperand it stays below that bound.
inline constexpr int kLargestOperand = 27, kLeastExponent = -100, kAddendLimit = 126;

inline constexpr size_t kBlocksOfGroup = 4;  // blocks whose exponents share the four bytes of a lane

inline constexpr size_t kMostUnmasked = 8;  // products of blocks so small that an extra operation shows in the time

// A row of the table in the form that the vector paths use.
struct Plan {
  size_t products;       // per fused sum; zeros pad a smaller one
  size_t row_products;   // products that the row has
  bool interleaved;      //
  bool half;             // fp16 results
  bool carries;          // sums may need a 33rd bit
  int kept;              // F
  int floor;             // the smallest alignment exponent
  uint32_t result_mask;  // bits of an fp32 result that are kept: all, or those of E8M13 (above kMostUnmasked products)

  size_t chunk() const { return (kBlocksOfGroup + 1) * products; }  // words per group of blocks, one vector
};
std::optional<Plan> plan_for(const TensorCore& core, const Format& left, const Format& right);

// The smallest exponents allowed in the two panels: their sum
// is kLeastExponent, divided according to the panels' numbers.
struct LeastOperands {
  int left, right;
};
LeastOperands least_operands(const Plan& plan, const Panel& left, const Panel& right);

// Vectors packed side by side, `lanes` at a time. For each group of four blocks: 4 x products rows of fp32 values, then
// `products` rows of words that hold the exponents of the four blocks' terms, one byte each.
// right: a row is one word per lane.      left: the rows of one lane are contiguous, lane after lane.
class Packed {
 public:
  Packed(const Plan& plan, const Panel& panel, size_t lanes, bool right, int least_operand);
  const float* tile(size_t i) const { return words_.get() + i * tile_words_; }
  size_t tiles() const { return tiles_; }
  size_t blocks() const { return blocks_; }
  bool hard(size_t vector) const { return hard_[vector]; }  // contains an operand that the vector paths do not handle

 private:
  struct Free {
    void operator()(float* words) const;
  };
  size_t tiles_, blocks_, tile_words_;
  std::unique_ptr<float, Free> words_;
  std::vector<unsigned char> hard_;
};

// Rows and columns of one tile, and its part of d; the vector paths handle the c of every element.
struct Tile {
  const float* left;
  const float* right;
  size_t blocks, rows, columns;
  uint32_t* d;
  size_t stride;
};

inline constexpr size_t kTileRows = 32;

struct Engine {
  size_t lanes;  // columns of a tile
  void (*run)(const Plan& plan, const Tile& tile);
};
const Engine& avx512_engine();
const Engine& avx2_engine();

}  // namespace halfmark::kernels::dot_engine
