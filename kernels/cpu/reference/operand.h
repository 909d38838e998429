// Tensor access for the reference rows: decoded once to logical (row-major) order, whatever the dtype and layout, and
// written back with one rounding. Because rows work on copies, an output may share memory with an input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/dtype.h"

namespace halfmark::kernels::reference {

// Elements that a thread takes at a time; even, so that no two threads share a byte of a packed dtype.
inline constexpr int64_t kGrain = 1 << 14;

// All elements as T (double or float) in logical order. double
// is exact for every dtype, float for all except f64 and i32.
template <class T>
std::vector<T> read(const Tensor& tensor);

// Rounds each value once, to nearest even, to the dtype of the tensor. The tensor must have a layout other than `any`.
void write(Tensor& tensor, const std::vector<double>& values);
void write(Tensor& tensor, const std::vector<float>& values);

// Writes the stored codes, in logical order, to the layout of the tensor.
void write_codes(Tensor& tensor, const std::vector<unsigned char>& codes);

// Gives an output of layout `any` the layout of `like` if their ranks allow it, else plain.
void settle(Tensor& out, const Tensor& like);

// f64 tensors are computed in fp64, all others in fp32 where an operation says so.
bool wants_fp64(const Tensor& tensor);

Refusal refuse_operand(std::string_view name, const Tensor& tensor);

// Products of fp64 in a narrower sum would be rounded twice.
Refusal refuses_math(const Math& math);

struct RefusalVisitor {
  Refusal& refusal;
  void input(std::string_view name, const Tensor& tensor) { see(name, tensor); }
  void output(std::string_view name, const Tensor& tensor) { see(name, tensor); }
  void attribute(const auto&) {}
  void see(std::string_view name, const Tensor& tensor) {
    if (!refusal && !tensor.empty()) refusal = refuse_operand(name, tensor);
  }
};

// What every reference row refuses: layouts of another library, and non-floating dtypes.
template <class Op>
Refusal refuses(const Device&, const Op& op) {
  Refusal refusal;
  op.visit(RefusalVisitor{refusal});
  return refusal;
}

// All emulated: these rows define the correct result, and their time says nothing about any hardware.
template <class Op>
void add_row(KernelTable& table, void (*run)(Device&, const Op&)) {
  table.of<Op>().push_back({"reference", Speed::emulated, &refuses<Op>, run, Repeats::by_construction});
}

// One function per file of this folder, each for one family of rows.
void add_contraction_rows(KernelTable& table);
void add_fused_rows(KernelTable& table);
void add_scaled_matmul_rows(KernelTable& table);
void add_quantize_rows(KernelTable& table);
void add_elementwise_rows(KernelTable& table);
void add_norm_rows(KernelTable& table);
void add_row_norm_rows(KernelTable& table);
void add_pool_rows(KernelTable& table);
void add_image_rows(KernelTable& table);
void add_sequence_rows(KernelTable& table);
void add_loss_rows(KernelTable& table);
void add_element_loss_rows(KernelTable& table);
void add_ctc_rows(KernelTable& table);
void add_training_rows(KernelTable& table);
void add_optimizer_rows(KernelTable& table);

}  // namespace halfmark::kernels::reference
