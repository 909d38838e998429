// Row `cublaslt` of products of codes with scales: FP8 with a scale of the tensor (compute capability 8.9 and later), of
// rows or of blocks of 128 (9.0), MXFP8 and NVFP4 (10.0 and later). The scales are put into the library's layout before
// each product, inside what is timed.
#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/scaled_layout.h"

namespace halfmark::kernels::cuda {
namespace {

using Mode = cublasLtMatmulMatrixScale_t;
constexpr Mode kScalar = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, kOuter = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
               kVectors = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
               kSquares = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, kMx = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0,
               kNv = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;

bool is_tiled(Mode mode) { return mode == kMx || mode == kNv; }

ScaleTiles tiles_of(const Scaled& matrix) {
  ScaleTiles tiles{matrix.scales.data(),
                   static_cast<uint32_t>(matrix.scales.shape()[1]),
                   static_cast<uint32_t>(matrix.tile_rows),
                   0,
                   matrix.transposed,
                   static_cast<uint32_t>(matrix.rows()),
                   0,
                   static_cast<uint32_t>(matrix.block())};
  const int64_t stored_depth = matrix.codes.shape()[1];
  tiles.tile_depth =
      static_cast<uint32_t>(matrix.tile_depth != 0 ? matrix.tile_depth : stored_depth / matrix.scales.shape()[1]);
  tiles.blocks = static_cast<uint32_t>((matrix.depth() + matrix.block() - 1) / matrix.block());
  return tiles;
}

size_t scale_bytes(const Scaled& matrix, Mode mode) {
  if (mode == kScalar) return matrix.tensor_scale.empty() ? 0 : sizeof(float);
  const ScaleTiles tiles = tiles_of(matrix);
  if (is_tiled(mode)) return bytes_of_tiled(tiles.rows, tiles.blocks);
  return mode == kSquares ? bytes_of_squares(tiles.rows, tiles.blocks) : bytes_of_vectors(tiles.rows, tiles.blocks);
}

// How the scales of one operand are given to the library, or why they are not.
Refusal mode_of(int capability, const Scaled& matrix, Mode& mode) {
  const DType dtype = matrix.codes.dtype();
  const bool fp4 = dtype == DType::e2m1;
  if (matrix.scales.empty()) {
    if (fp4) return "multiplies e2m1 only with e4m3 scales of 16 elements";
    mode = kScalar;
    return {};
  }
  const DType scale = matrix.scales.dtype();
  if (scale != DType::f32) {
    const int64_t block = fp4 ? 16 : 32;
    if (scale != (fp4 ? DType::e4m3 : DType::e8m0) || matrix.block() != block)
      return "multiplies fp8 with e8m0 scales of 32 elements and e2m1 with e4m3 scales of 16, not " +
             std::string(name_of(dtype)) + " with " + std::string(name_of(scale)) + " scales of " +
             std::to_string(matrix.block());
    if (capability < 100) return "has block scales of 16 and 32 elements from compute capability 10.0 on";
    if (matrix.depth() % block != 0) return "needs whole blocks of " + std::to_string(block) + " along k";
    mode = fp4 ? kNv : kMx;
    return {};
  }
  if (capability != 90) return "has f32 scales of rows and blocks only on compute capability 9.0";
  if (matrix.transposed) return "needs k contiguous for f32 scales";
  if (matrix.tile_rows == 1 && matrix.scales.shape()[1] == 1) {
    mode = kOuter;
    return {};
  }
  if (matrix.tile_depth != 128 || (matrix.tile_rows != 1 && matrix.tile_rows != 128))
    return "has f32 scales of rows, of 128 elements along k and of 128 x 128 elements, not of " +
           std::to_string(matrix.tile_rows) + " x " + std::to_string(matrix.tile_depth);
  if (matrix.rows() % 4 != 0) return "needs multiples of 4 rows for f32 scales of blocks";
  mode = matrix.tile_rows == 1 ? kVectors : kSquares;
  return {};
}

Refusal problem_of(const CudaDevice& device, const ScaledMatmul& op, BlasltProblem& problem) {
  const auto matrix = [](const Tensor& tensor, bool transpose) {
    return BlasltProblem::Matrix{tensor.dtype(), tensor.shape()[0], tensor.shape()[1], transpose, alignment_of(tensor)};
  };
  problem.a = matrix(op.a.codes, op.a.transposed), problem.b = matrix(op.b.codes, !op.b.transposed);
  problem.out = matrix(op.out, false);
  const int capability = device.compute_capability();
  if (Refusal r = blaslt_arithmetic(capability, op.a.codes.dtype(), op.b.codes.dtype(), op.out.dtype(), Math{},
                                    op.a.depth(), problem.arithmetic))
    return r;
  if (Refusal r = mode_of(capability, op.a, problem.mode_a)) return r;
  if (Refusal r = mode_of(capability, op.b, problem.mode_b)) return r;
  const Mode a = problem.mode_a, b = problem.mode_b;
  const bool blocks_of_128 = (a == kVectors && b == kSquares) || (a == kSquares && b == kVectors);
  if ((a != b && !blocks_of_128) || (a == kSquares && b == kSquares))
    return "has no product of operands with these two kinds of scales";
  problem.scale_bytes_a = scale_bytes(op.a, a), problem.scale_bytes_b = scale_bytes(op.b, b);
  problem.device_factor = a != kScalar && op.has_factor();
  problem.fast_accumulate = op.fast_accumulate && op.a.codes.dtype() != DType::e2m1;
  return not_for_narrow(capability, problem);
}

const BlasltPlan& plan_for(const CudaDevice& device, const BlasltProblem& problem) {
  Signature key;
  for (const auto* one : {&problem.a, &problem.b, &problem.out}) add_to(key, *one);
  for (const int64_t one :
       {int64_t{problem.mode_a}, int64_t{problem.mode_b}, static_cast<int64_t>(problem.scale_bytes_a),
        static_cast<int64_t>(problem.scale_bytes_b), int64_t{problem.device_factor}, int64_t{problem.fast_accumulate}})
    key.add(one);
  return blaslt_plan(device, key, problem);
}

Refusal refuses(const Device& device, const ScaledMatmul& op) {
  if (op.a.codes.elements() == 0 || op.b.codes.elements() == 0) return "does not take an empty matrix";
  for (const Scaled* one : {&op.a, &op.b}) {
    const DType dtype = one->codes.dtype();
    if (dtype != DType::e4m3 && dtype != DType::e5m2 && dtype != DType::e2m1)
      return "takes codes of e4m3, e5m2 and e2m1, not " + std::string(name_of(dtype));
    if (!one->tensor_scale.empty() && one->tensor_scale.dtype() != DType::f32)
      return "takes a tensor's scale of f32, not " + std::string(name_of(one->tensor_scale.dtype()));
    if (Refusal r = not_readable({&one->codes, &one->scales, &one->tensor_scale})) return r;
    if (Refusal r = not_plain({&one->codes, &one->scales, &one->tensor_scale})) return r;
    if (Refusal r = not_indexable({&one->codes, &one->scales})) return r;
  }
  if (Refusal r = not_plain({&op.out})) return r;
  BlasltProblem problem;
  if (Refusal r = problem_of(of(device), op, problem)) return r;
  const BlasltPlan& plan = plan_for(of(device), problem);
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}

std::string choice(const Device& device, const ScaledMatmul& op) {
  BlasltProblem problem;
  (void)problem_of(of(device), op, problem);
  return plan_for(of(device), problem).choice();
}

// Where the library reads the scales of an operand; `kept` is the workspace that they are in.
const void* scales_for(CudaDevice& device, const Scaled& matrix, Mode mode, Tensor& kept) {
  if (mode == kScalar) return matrix.tensor_scale.empty() ? nullptr : matrix.tensor_scale.data();
  kept = workspace(device, scale_bytes(matrix, mode));
  const ScaleTiles tiles = tiles_of(matrix);
  if (is_tiled(mode))
    launch_tiled_scales(device.stream(), tiles, kept.data());
  else if (mode == kSquares)
    launch_square_scales(device.stream(), tiles, static_cast<float*>(kept.data()));
  else
    launch_vector_scales(device.stream(), tiles, static_cast<float*>(kept.data()));
  return kept.data();
}

void run(Device& device, const ScaledMatmul& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  BlasltProblem problem;
  if (const Refusal r = problem_of(cuda, op, problem)) throw Error("cublaslt " + *r);
  const BlasltPlan& plan = plan_for(cuda, problem);
  HM_CHECK(plan.refusal().empty(), "cublaslt " + plan.refusal());
  Tensor scratch, scales_a, scales_b, factor;
  if (plan.workspace_bytes()) scratch = workspace(device, plan.workspace_bytes());
  BlasltPointers pointers{.a = op.a.codes.data(), .b = op.b.codes.data(), .out = op.out.data()};
  pointers.scale_a = scales_for(cuda, op.a, problem.mode_a, scales_a);
  pointers.scale_b = scales_for(cuda, op.b, problem.mode_b, scales_b);
  const float by = 1 / (op.a.divisor * op.b.divisor);
  if (problem.device_factor) {
    factor = workspace(device, 2 * sizeof(float));
    auto* memory = static_cast<float*>(factor.data());
    const auto of_tensor = [](const Scaled& one) {
      return one.tensor_scale.empty() ? nullptr : one.tensor_scale.as<float>();
    };
    launch_scale_factor(cuda.stream(), of_tensor(op.a), of_tensor(op.b), by, memory);
    pointers.factor = memory;
  } else {
    pointers.alpha = static_cast<double>(by);
  }
  plan.run(cuda, pointers, scratch.empty() ? nullptr : scratch.data());
}

}  // namespace

// Where the library has such products: a row that supports nothing is not listed.
void add_scaled_rows(KernelTable& table, const CudaDevice& device) {
  if (device.compute_capability() < 89) return;
  Kernel<ScaledMatmul> row{"cublaslt", Speed::real, refuses, run};
  row.choice = choice;
  table.of<ScaledMatmul>().push_back(row);
}

}  // namespace halfmark::kernels::cuda
