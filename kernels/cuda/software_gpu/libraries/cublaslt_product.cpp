#include "kernels/cuda/software_gpu/libraries/cublaslt_product.h"

#include <cstdint>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cublaslt_epilogue.h"
#include "kernels/cuda/software_gpu/libraries/reference.h"
#include "kernels/cuda/software_gpu/silent_errors.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::cublaslt {
namespace {

DType dtype_of_layout(const Layout& layout) { return *dtype_of(static_cast<cudaDataType_t>(layout.type)); }

// The starts of the columns (of a row-major matrix: the rows) of one matrix of a batch, and their length.
struct Lines {
  std::vector<int64_t> first;
  int64_t length = 0;
  Lines(const Layout& layout, int64_t matrix) {
    const bool by_column = layout.order == CUBLASLT_ORDER_COL;
    length = static_cast<int64_t>(by_column ? layout.rows : layout.columns);
    const auto count = static_cast<int64_t>(by_column ? layout.columns : layout.rows);
    for (int64_t i = 0; i < count; ++i) first.push_back(matrix * layout.batch_stride + i * layout.ld);
  }
};

// Row-major [rows, columns] from the order of memory, and back; a transposed matrix is the other order.
std::vector<double> by_rows(const std::vector<double>& memory, int64_t rows, int64_t columns, bool is_by_rows) {
  if (is_by_rows) return memory;
  std::vector<double> values(memory.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      values[static_cast<size_t>(r * columns + c)] = memory[static_cast<size_t>(c * rows + r)];
  return values;
}

std::vector<double> read_matrix(const void* address, const Layout& layout, int64_t matrix, bool transposed) {
  const Lines lines(layout, matrix);
  const auto rows = static_cast<int64_t>(transposed ? layout.columns : layout.rows),
             columns = static_cast<int64_t>(transposed ? layout.rows : layout.columns);
  return by_rows(read_runs(address, dtype_of_layout(layout), lines.first, lines.length), rows, columns,
                 (layout.order == CUBLASLT_ORDER_ROW) != transposed);
}

void write_matrix(void* address, const Layout& layout, int64_t matrix, const std::vector<double>& values) {
  const Lines lines(layout, matrix);
  const auto rows = static_cast<int64_t>(layout.rows), columns = static_cast<int64_t>(layout.columns);
  const bool by_row = layout.order == CUBLASLT_ORDER_ROW;
  write_runs(address, dtype_of_layout(layout), lines.first, lines.length,
             by_row ? values : by_rows(values, columns, rows, false));
}

Runs runs_of(const void* address, const Layout& layout, int64_t matrix) {
  const Lines lines(layout, matrix);
  return {address, dtype_of_layout(layout), lines.first, lines.length};
}

Math math_of(const Product& product) {
  const Numerics numerics = *numerics_of(product.algorithm, product.problem.architecture);
  Math math;
  math.multiply = numerics.multiply, math.accumulate = numerics.accumulate;
  math.split_k = product.algorithm.split_k;
  const bool in_compute_type = product.algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  math.partial = math.split_k == 1 || in_compute_type ? math.accumulate : format_of(dtype_of_layout(product.problem.d));
  math.fast_accumulate = product.problem.description.fast_accumulation != 0;
  return math;
}

std::vector<double> sums(const Product& product, const std::vector<double>& a, const std::vector<double>& b) {
  const Problem& p = product.problem;
  std::vector<double> result;
  with_reference_rows([&](Device& device) {
    const Tensor left = Tensor::from(device, Shape{p.m, p.k}, dtype_of_layout(p.a), a),
                 right = Tensor::from(device, Shape{p.k, p.n}, dtype_of_layout(p.b), b);
    Tensor out(device, Shape{p.m, p.n}, p.types->compute == Compute::wide ? DType::f64 : DType::f32);
    run(Matmul{left, right, out, false, false, math_of(product)});
    result = out.values();
  });
  return result;
}

// "it is necessary to still allocate full tile for storage and fill out of bounds values with zeroes"
void check_tiles(const void* address, int64_t rows, int64_t blocks) {
  const int64_t all_rows = (rows + 127) / 128 * 128, all_blocks = (blocks + 3) / 4 * 4;
  const std::byte* codes = check_access(address, static_cast<size_t>(all_rows * all_blocks), Access::read);
  for (int64_t r = 0; r < all_rows; ++r)
    for (int64_t s = 0; s < all_blocks; ++s)
      if ((r >= rows || s >= blocks) && codes[block_scale_place(r, s, blocks)] != std::byte{0})
        throw Fault(cudaErrorUnknown, "a block scale beyond the matrix is not zero");
}

// Scales of a matrix whose rows are those of the product's result (A) or its columns (B).
Tensor scales_of(Device& device, const void* address, int mode, int64_t rows, int64_t k) {
  const int64_t block = scale_block(mode), blocks = (k + block - 1) / block;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) {
    // "1D Block Scaling" of FP32: M by K / 128 with the rows together; "2D": blocks of k together.
    const bool vector = mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    const int64_t tiles = vector ? rows : (rows + 127) / 128, first = 0;
    const int64_t stride = vector ? tiles : (blocks + 3) / 4 * 4;
    std::vector<double> values(static_cast<size_t>(tiles * blocks));
    const std::vector<double> memory =
        read_runs(address, DType::f32, {&first, 1}, vector ? tiles * blocks : (tiles - 1) * stride + blocks);
    for (int64_t r = 0; r < tiles; ++r)
      for (int64_t s = 0; s < blocks; ++s)
        values[static_cast<size_t>(r * blocks + s)] =
            memory[static_cast<size_t>(vector ? s * stride + r : r * stride + s)];
    return Tensor::from(device, Shape{tiles, blocks}, DType::f32, values);
  }
  const DType dtype = mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0 ? DType::e8m0 : DType::e4m3;
  check_tiles(address, rows, blocks);
  std::vector<double> values;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < blocks; ++s) {
      const auto place = static_cast<int64_t>(block_scale_place(r, s, blocks));
      values.push_back(read_runs(address, dtype, {&place, 1}, 1)[0]);
    }
  return Tensor::from(device, Shape{rows, blocks}, dtype, values);
}

std::vector<double> block_scaled_sums(const Product& product, const std::vector<double>& a,
                                      const std::vector<double>& b) {
  const Problem& p = product.problem;
  const Description& d = p.description;
  const std::vector<double> right = by_rows(b, p.n, p.k, false);  // [n, k]
  std::vector<double> result;
  with_reference_rows([&](Device& device) {
    const auto scaled = [&](const std::vector<double>& values, const Layout& layout, int64_t rows, const void* scales,
                            int mode) {
      Scaled matrix;
      matrix.codes = Tensor::from(device, Shape{rows, p.k}, dtype_of_layout(layout), values);
      matrix.scales = scales_of(device, scales, mode, rows, p.k);
      matrix.tile_depth = scale_block(mode);
      matrix.tile_rows = mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F ? 128 : 1;
      return matrix;
    };
    const Scaled left = scaled(a, p.a, p.m, d.scale_a, d.mode_a), other = scaled(right, p.b, p.n, d.scale_b, d.mode_b);
    Tensor out(device, Shape{p.m, p.n}, DType::f32);
    run(ScaledMatmul{left, other, out, d.fast_accumulation != 0});
    result = out.values();
  });
  return result;
}

double scalar_scale(const void* address) { return address ? read_one(address, DType::f32) : 1; }

}  // namespace

size_t block_scale_place(int64_t row, int64_t block, int64_t blocks) {
  const int64_t tiles = (blocks + 3) / 4, tile = row / 128 * tiles + block / 4, r = row % 128;
  return static_cast<size_t>(tile * 512 + r % 32 * 16 + r / 32 * 4 + block % 4);
}

void compute(const Product& product) {
  const Problem& p = product.problem;
  const Description& d = p.description;
  const DType scale_type = *dtype_of(p.types->scale);
  const Format& format = format_of(scale_type);
  spoil(product.workspace, product.workspace_bytes);
  const double alpha = product.alpha_pointer ? read_one(product.alpha_pointer, scale_type) : product.alpha;
  const double beta = product.beta_pointer ? read_one(product.beta_pointer, scale_type) : product.beta;

  for (int64_t read = 0; read < p.d.batch; ++read)
    for (int64_t written = 0; written < p.d.batch; ++written) {
      const Runs result = runs_of(product.d, p.d, written);
      check_apart(runs_of(product.a, p.a, read), result);
      check_apart(runs_of(product.b, p.b, read), result);
      if (beta != 0 && product.c != product.d) check_apart(runs_of(product.c, p.c, read), result);
    }

  Epilogue epilogue(p);
  for (int64_t matrix = 0; matrix < p.d.batch; ++matrix) {
    const std::vector<double> a = read_matrix(product.a, p.a, matrix, p.transposes(p.a)),
                              b = read_matrix(product.b, p.b, matrix, p.transposes(p.b));
    std::vector<double> values = scale_block(d.mode_a) ? block_scaled_sums(product, a, b) : sums(product, a, b);
    std::vector<double> before;
    if (beta != 0) before = read_matrix(product.c, p.c, matrix, false);

    double factor = alpha;
    std::vector<double> row_scales, column_scales;
    if (d.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F) {
      const int64_t first = 0;
      row_scales = read_runs(d.scale_a, DType::f32, {&first, 1}, p.m);
      column_scales = read_runs(d.scale_b, DType::f32, {&first, 1}, p.n);
    } else if (d.mode_a == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F) {
      factor = round_to(format, factor * scalar_scale(d.scale_a));
      factor = round_to(format, factor * scalar_scale(d.scale_b));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t row = i / static_cast<size_t>(p.n), column = i % static_cast<size_t>(p.n);
      double scale = factor;
      if (!row_scales.empty())
        scale = round_to(format, round_to(format, scale * row_scales[row]) * column_scales[column]);
      values[i] = round_to(format, scale * values[i]);
      if (beta != 0) values[i] = fused_multiply_add(format, beta, before[i], values[i]);
    }
    epilogue.apply(values, a, b, matrix);
    if (inverts_bits()) {
      const DType dtype = dtype_of_layout(p.d);
      for (double& x : values) x = decode(dtype, with_silent_errors(encode(dtype, x), bits_of(dtype)));
    }
    write_matrix(product.d, p.d, matrix, values);
  }
  epilogue.finish();
}

}  // namespace halfmark::kernels::software_gpu::cublaslt
