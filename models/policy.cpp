// The table of policies. To add a precision, add a row.
#include "models/policy.h"

#include <string>
#include <vector>

#include "kernels/number/error.h"

namespace halfmark::models {
namespace {

std::vector<Policy> policy_table() {
  constexpr DType f64 = DType::f64, f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;
  const CastRules* const none = nullptr;
  const CastRules* const autocast = &cast_rules_named("torch-cuda");
  // Operands of the low dtype are multiplied as stored and accumulated in fp32. CUBLAS_COMPUTE_32F specifies this; it
  // is PyTorch's default for f16 and bf16 (aten/src/ATen/cuda/CUDABlas.cpp).
  const Math wide{};
  // NVIDIA A100 white paper: fp32 operands rounded to 10 fraction bits, products exact, sums in fp32.
  const Math tf32{.multiply = kTf32};
  const Math exact{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
  // PyTorch torch/amp/grad_scaler.py: init_scale 2^16, growth_factor 2, backoff_factor 0.5, growth_interval 2000.
  const ScalerSpec dynamic{
      .kind = ScalerSpec::Kind::dynamic, .initial = 65536, .growth = 2, .backoff = 0.5, .interval = 2000};
  const ScalerSpec off{};
  constexpr bool no = false;
  // clang-format off
  return {
      // name, about, param, low, norm, state, grad, master, rules, math, scaler

      // IEEE 754 binary32 throughout: PyTorch with fp32_precision = "ieee"; apex O0.
      {"fp32", "single precision throughout (IEEE)", f32, f32, f32, f32, f32, no, none, wide, off},
      // torch.backends.{cuda.matmul,cudnn}.allow_tf32 = True:
      // storage stays fp32, matmul and convolution multiply in tf32.
      {"tf32", "fp32 storage, matmul and convolution multiply in tf32", f32, f32, f32, f32, f32, no, none, tf32, off},
      // model.half(), no scaler: apex O3 (apex/amp/frontend.py: cast_model_type float16, keep_batchnorm_fp32 False,
      // master_weights False, loss_scale 1.0).
      {"fp16", "everything stored in f16, no loss scaling (apex O3)", f16, f16, f16, f16, f16, no, none, wide, off},
      // apex O3 with keep_batchnorm_fp32=True, apex's "speed of
      // light": batch norm takes half input with float parameters.
      {"fp16-bn32", "as fp16, batch norm parameters and statistics in f32", f16, f16, f32, f32, f16, no, none, wide, off},
      // torch.autocast("cuda", torch.float16) with torch.amp.GradScaler().
      {"amp-fp16", "f32 parameters, autocast to f16, dynamic loss scaling", f32, f16, f32, f32, f32, no, autocast, wide, dynamic},
      // model.bfloat16(): as fp16, in the format with fp32's range.
      {"bf16", "everything stored in bf16", bf16, bf16, bf16, bf16, bf16, no, none, wide, off},
      // torch.autocast("cuda", torch.bfloat16): a format with the range of fp32 needs no scaler.
      {"amp-bf16", "f32 parameters, autocast to bf16, no loss scaling", f32, bf16, f32, f32, f32, no, autocast, wide, off},
      // IEEE 754 binary64 throughout: the fp64 reference.
      {"fp64", "double precision throughout, for the fp64 reference", f64, f64, f64, f64, f64, no, none, exact, off, true},
  };
  // clang-format on
}

}  // namespace

std::span<const Policy> policies() {
  static const std::vector<Policy> rows = policy_table();
  return rows;
}

const Policy& policy_named(std::string_view name) {
  std::string known;
  for (const Policy& policy : policies()) {
    if (policy.name == name) return policy;
    if (!policy.hidden) known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  throw Error("unknown policy '" + std::string(name) + "'; known: " + known);
}

}  // namespace halfmark::models
