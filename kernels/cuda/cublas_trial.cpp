// Trying a product by cuBLAS on scratch memory. Its functions take a compute type, which only permits, and say nothing of
// what they do: one product is computed of numbers that show it.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cublas.h"
#include "kernels/cuda/rows.h"
#include "kernels/cuda/trial.h"

namespace halfmark::kernels::cuda {
namespace {

// Of the product of two f32 numbers with these bytes: tf32 changes it by 4.6e-4 (nearest) or -7.2e-4 (truncated).
constexpr double kOfTf32 = 1e-4, kLargestError = 2e-3, kOfFp32 = 1e-6;

struct Tried {
  double product = 0, expected = 0;
  double error() const { return std::fabs(product - expected) / expected; }
};

size_t bytes_of_all(const BlasltProblem::Matrix& matrix, int64_t batch) {
  return bytes_for(matrix.dtype, static_cast<size_t>(batch * matrix.rows * matrix.columns));
}

// Scratch that is aligned as the operand is, and no better: what the library chooses may depend on it.
void* scratch_like(Trial& trial, const BlasltProblem::Matrix& matrix, int64_t batch) {
  constexpr uint32_t kBest = 256;
  const size_t offset = matrix.alignment < kBest ? matrix.alignment : 0;
  return static_cast<std::byte*>(trial.memory(bytes_of_all(matrix, batch) + offset, 0)) + offset;
}

// Everything is zero but the first element of a and of b: the first element of the result is their product.
Tried try_once(CudaDevice& device, const Cublas& cublas, const CublasProblem& problem) {
  Trial trial(device);
  const DType in = problem.a.dtype, out = problem.out.dtype;
  // Of bf16 two numbers near each other's inverse, because the result may be as narrow as the sums.
  const int second = in == DType::f32 ? kTriedByte : kSecondByte;
  void *a = scratch_like(trial, problem.a, problem.batch), *b = scratch_like(trial, problem.b, problem.batch),
       *result = scratch_like(trial, problem.out, problem.batch);
  trial.set(a, size_of(in), kTriedByte), trial.set(b, size_of(in), second);
  const cublasStatus_t status = cublas.multiply(problem, {.a = a, .b = b, .out = result});
  wait_for(device);  // a fault of the device is no refusal
  if (status == CUBLAS_STATUS_ALLOC_FAILED) device.note_shortage();
  check(status, problem.is_batched ? "cublasGemmStridedBatchedEx" : "cublasGemmEx");
  unsigned char bytes[8] = {};
  device.copy_out(bytes, result, size_of(out));
  return {load(out, bytes, 0), number_of(in, kTriedByte) * number_of(in, second)};
}

std::string broken_by(const CublasProblem& problem, const Tried& tried) {
  const DType in = problem.a.dtype;
  if (in == DType::bf16 && !(tried.error() < 1.0 / 16)) return "multiplies bf16 as fp16";
  if (in != DType::f32) return {};
  if (problem.rounds_to_tf32 && !(tried.error() > kOfTf32 && tried.error() < kLargestError))
    return "does not multiply in tf32, which it is permitted to";
  if (!problem.rounds_to_tf32 && !(tried.error() < kOfFp32)) return "does not multiply in fp32";
  return {};
}

std::string text_of(const CublasProblem& problem, const Cublas& cublas) {
  const int64_t depth = problem.a.transpose ? problem.a.rows : problem.a.columns;
  return (problem.is_batched ? std::to_string(problem.batch) + " of " : std::string()) +
         std::to_string(problem.out.rows) + "x" + std::to_string(problem.out.columns) + "x" + std::to_string(depth) +
         (problem.is_batched ? ": cublasGemmStridedBatchedEx" : ": cublasGemmEx") + " of cuBLAS " + cublas.version() +
         ", algorithm not stated; " + problem.promise;
}

}  // namespace

const CublasTrial& cublas_trial(const CudaDevice& device, const Signature& key, const CublasProblem& problem) {
  Cublas& cublas = cublas_of(device);
  return cublas.trials.of(device, key, [&](CudaDevice& tried_on) {
    auto result = std::make_unique<CublasTrial>();
    try {
      tried_on.activate();
      const Tried tried = try_once(tried_on, cublas, problem);
      result->broken = broken_by(problem, tried);
      result->choice = text_of(problem, cublas);
    } catch (const Error& error) {
      throw_if_lost(tried_on, error);
      result->broken = std::string("failed when it was tried: ") + error.what();
    }
    return result;
  });
}

}  // namespace halfmark::kernels::cuda
