// What happens to the sums before they are stored: bias, activations, their gradients, the scale and the largest
// magnitude of narrow results.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_problem.h"

namespace halfmark::kernels::software_gpu::cublaslt {

// Reads and writes vectors and auxiliary matrices on the device. GELU is its tanh form.
class Epilogue {
 public:
  explicit Epilogue(const Problem& problem);
  // values [m, n], a [m, k] and b [k, n] of one matrix of the batch, row-major.
  void apply(std::vector<double>& values, const std::vector<double>& a, const std::vector<double>& b, int64_t matrix);
  void finish();  // stores the largest magnitude of all matrices

 private:
  void add_bias(std::vector<double>& values, int64_t matrix) const;
  void activate(std::vector<double>& values, int64_t matrix) const;
  void differentiate(std::vector<double>& values, int64_t matrix) const;
  void store_sums(const std::vector<double>& matrix, int64_t rows, int64_t columns, bool of_rows, int64_t which) const;
  std::vector<int64_t> aux_columns(int64_t matrix) const;
  size_t at(int64_t row, int64_t column) const { return static_cast<size_t>(row * problem_.n + column); }
  double rounded(double value) const;

  const Problem& problem_;
  double largest_ = 0;
};

}  // namespace halfmark::kernels::software_gpu::cublaslt
