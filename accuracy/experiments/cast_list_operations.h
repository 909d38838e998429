// The operations of autocast's lists as a framework's kernels compute them in one storage format: operands as stored, functions
// and sums inside a kernel in a wide format (fp64 here, fp32 there, whose 2^-24 is far below what is judged), and one rounding of
// each tensor that a kernel writes. Operations that a framework composes of several kernels have a rounding for each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "accuracy/namespaces.h"
#include "kernels/number/format.h"
#include "kernels/tensor/random.h"

namespace halfmark::accuracy {

// What a kernel writes, in this format; null: in fp64.
struct Stored {
  const Format* format = nullptr;
  double operator()(double x) const { return format ? round_to(*format, x) : x; }
};

using NumberRow = std::vector<double>;
using NumberRows = std::vector<NumberRow>;  // a matrix

enum class OperandKind : uint8_t {
  real,         // N(0, 1)
  positive,     // |N(0, 1)|
  unit,         // within -1 and 1: tanh of a real one
  probability,  // logistic function of a real one times 2
  logarithm,    // minus a positive one
  sign,         // 1 or -1
  weight,       // N(0, 1 / width), as of a layer that keeps the size of its input
};

// How large the operands are. Row r of 16 is that of `ordinary` times 2^r or 2^-r, at most the largest number of the format.
// `unit` and `probability` have their arguments scaled; `sign` and `weight` stay.
enum class OperandSize : uint8_t { ordinary, large, small };
inline constexpr int kOperandRows = 16;
std::string_view name_of(OperandSize size);

// Rounded to the format, so that both formats of a comparison read the same numbers; never 0.
NumberRows operand_rows(OperandKind kind, OperandSize size, size_t width, const Format& format, const RandomKey& key);

struct ListedOperation {
  std::string_view names;  // in the lists, of the same arithmetic; separated by single spaces
  std::vector<OperandKind> operands;
  size_t width;  // of an operand's rows
  int stores;    // the most roundings between an operand and a result
  // From one row of each operand to the results of that row.
  NumberRow (*run)(const Stored& stored, std::span<const NumberRow> operands);
  // Of an elementwise operation with one operand: the gradient for the gradient 1 of the result; its roundings count those of
  // what forward stored. Null: not judged.
  int backward_stores = 0;
  NumberRow (*backward)(const Stored& stored, std::span<const NumberRow> operands) = nullptr;
};

// Lists in two files: functions of one number and sums (cast_list_operations.cpp), losses and distances (cast_list_losses.cpp).
std::vector<ListedOperation> listed_operations();
std::vector<ListedOperation> listed_losses();

}  // namespace halfmark::accuracy
