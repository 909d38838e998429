// The table of policies. To add a precision, add a row.
#include "models/policy.h"

#include <string>
#include <vector>

#include "kernels/number/named.h"

namespace halfmark::models {
namespace {

std::vector<Policy> policy_table() {
  constexpr DType f64 = DType::f64, f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;
  // On every device the lists for CUDA, because a CPU computes here what a GPU would. PyTorch's autocast on CPUs has lists
  // of its own (torch-cpu); a test compares the bits of all subjects under both.
  const CastRules* const autocast = &cast_rules_named("torch-cuda");
  // If a row does not set `math`, operands of the low dtype are multiplied as they are stored and added in fp32:
  // what CUBLAS_COMPUTE_32F promises, PyTorch's default for f16 and bf16 (aten/src/ATen/cuda/CUDABlas.cpp). NVIDIA A100
  // white paper: fp32 operands rounded to 10 fraction bits, products exact, sums in fp32.
  const Math tf32{.multiply = kTf32};
  const Math exact{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
  // PyTorch torch/amp/grad_scaler.py: init_scale 2^16, growth_factor 2, backoff_factor 0.5, growth_interval 2000.
  const ScalerSpec dynamic{
      .kind = ScalerSpec::Kind::dynamic, .initial = 65536, .growth = 2, .backoff = 0.5, .interval = 2000};
  return {
      // IEEE 754 binary32 throughout: PyTorch with fp32_precision = "ieee"; apex O0.
      {.name = "fp32",
       .about = "single precision throughout (IEEE)",
       .param = f32,
       .low = f32,
       .norm = f32,
       .state = f32,
       .grad = f32},
      // torch.backends.{cuda.matmul,cudnn}.allow_tf32 = True: storage stays fp32, matmul and convolution multiply in
      // tf32.
      {.name = "tf32",
       .about = "fp32 storage, matmul and convolution multiply in tf32",
       .param = f32,
       .low = f32,
       .norm = f32,
       .state = f32,
       .grad = f32,
       .math = tf32},
      // model.half(), no scaler: apex O3 (apex/amp/frontend.py: cast_model_type float16, keep_batchnorm_fp32 False,
      // master_weights False, loss_scale 1.0).
      {.name = "fp16",
       .about = "everything stored in f16, no loss scaling (apex O3)",
       .param = f16,
       .low = f16,
       .norm = f16,
       .state = f16,
       .grad = f16},
      // apex O3 with keep_batchnorm_fp32=True, apex's "speed of light": batch norm takes half input with float
      // parameters.
      {.name = "fp16-bn32",
       .about = "as fp16, batch norm parameters and statistics in f32",
       .param = f16,
       .low = f16,
       .norm = f32,
       .state = f32,
       .grad = f16},
      // torch.autocast("cuda", torch.float16) with torch.amp.GradScaler().
      {.name = "amp-fp16",
       .about = "f32 parameters, autocast to f16 (lists for CUDA), dynamic loss scaling",
       .param = f32,
       .low = f16,
       .norm = f32,
       .state = f32,
       .grad = f32,
       .rules = autocast,
       .scaler = dynamic},
      // apex/fp16_utils/fp16_optimizer.py with network_to_half: parameters in f16 but those of batch norm, each with an f32
      // copy that the optimizer updates from an f32 copy of the gradient; loss.float() is scaled.
      {.name = "fp16-master",
       .about =
           "as fp16-bn32, with f32 master weights and gradients, loss in f32, dynamic loss scaling (FP16_Optimizer)",
       .param = f16,
       .low = f16,
       .norm = f32,
       .state = f32,
       .grad = f32,
       .master = true,
       .rules = &cast_rules_named("loss-in-fp32"),
       .scaler = dynamic},
      // model.bfloat16(): as fp16, in the format with fp32's range.
      {.name = "bf16",
       .about = "everything stored in bf16",
       .param = bf16,
       .low = bf16,
       .norm = bf16,
       .state = bf16,
       .grad = bf16},
      // DeepSpeed's BF16_Optimizer: f32 copies of the parameters and of the gradients beside a model in bf16.
      {.name = "bf16-master",
       .about = "as bf16, with f32 master weights and gradients (BF16_Optimizer)",
       .param = bf16,
       .low = bf16,
       .norm = bf16,
       .state = bf16,
       .grad = f32,
       .master = true},
      // torch.autocast("cuda", torch.bfloat16): a format with the range of fp32 needs no scaler.
      {.name = "amp-bf16",
       .about = "f32 parameters, autocast to bf16 (lists for CUDA), no loss scaling",
       .param = f32,
       .low = bf16,
       .norm = f32,
       .state = f32,
       .grad = f32,
       .rules = autocast},
      // IEEE 754 binary64 throughout, for the fp64 references.
      {.name = "fp64",
       .about = "double precision throughout, for the fp64 references",
       .param = f64,
       .low = f64,
       .norm = f64,
       .state = f64,
       .grad = f64,
       .math = exact,
       .hidden = true},
  };
}

}  // namespace

std::span<const Policy> policies() {
  static const std::vector<Policy> rows = policy_table();
  return rows;
}

const Policy& policy_named(std::string_view name) {
  return named("policy", policies(), name, &Policy::name, [](const Policy& policy) { return !policy.hidden; });
}

}  // namespace halfmark::models
