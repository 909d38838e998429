// The rows of the policies. To add a precision, add a row.
#include "models/policy.h"

#include <algorithm>
#include <string>
#include <vector>

#include "models/quantized_products.h"

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
  const CastRules* const on_cpu = &cast_rules_named("torch-cpu");
  const CastRules* const loss_in_fp32 = &cast_rules_named("loss-in-fp32");
  const ScalerSpec dynamic = scaler_of("torch"), of_apex = scaler_of("apex");
  // amp-bf16 with a recipe for linear layers.
  const auto quantizes = [&](std::string_view recipe, std::string_view about) -> Policy {
    return {.name = recipe,
            .about = about,
            .param = f32,
            .low = bf16,
            .batch_norm = f32,
            .state = f32,
            .grad = f32,
            .rules = autocast,
            .products = &quantized_products_named(recipe)};
  };
  return {
      // IEEE 754 binary32 throughout: PyTorch with fp32_precision = "ieee"; apex O0.
      {.name = "fp32",
       .about = "single precision throughout (IEEE)",
       .param = f32,
       .low = f32,
       .batch_norm = f32,
       .state = f32,
       .grad = f32},
      // torch.backends.{cuda.matmul,cudnn}.allow_tf32 = True: storage stays fp32, matmul and convolution multiply in
      // tf32.
      {.name = "tf32",
       .about = "fp32 storage, matmul and convolution multiply in tf32",
       .param = f32,
       .low = f32,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .math = tf32},
      // model.half(), no scaler, the loss in half as well.
      {.name = "fp16",
       .about = "everything stored in f16, no loss scaling",
       .param = f16,
       .low = f16,
       .batch_norm = f16,
       .state = f16,
       .grad = f16},
      // apex O3 with keep_batchnorm_fp32=True, apex's "speed of light": batch norm takes half input with float
      // parameters.
      {.name = "fp16-bn32",
       .about = "as fp16, batch norm parameters and statistics in f32",
       .param = f16,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f16},
      // torch.autocast("cuda", torch.float16) with torch.amp.GradScaler().
      {.name = "amp-fp16",
       .about = "f32 parameters, autocast to f16 (lists for CUDA), dynamic loss scaling",
       .param = f32,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = autocast,
       .scaler = dynamic},
      // As amp-fp16, with torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True, PyTorch's default.
      {.name = "amp-fp16-reduced",
       .about = "as amp-fp16, cublasLt may keep partial sums of a matrix product in f16 (PyTorch's default); equal "
                "elsewhere",
       .param = f32,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = autocast,
       .math = {.partial = kFp16},
       .scaler = dynamic},
      // apex/fp16_utils/fp16_optimizer.py with network_to_half: parameters in f16 but those of batch norm, each with an f32
      // copy that the optimizer updates from an f32 copy of the gradient; loss.float() is scaled. BN_convert_float makes float
      // only batch norms that are affine.
      {.name = "fp16-master",
       .about =
           "as fp16-bn32, with f32 master weights and gradients, loss in f32, dynamic loss scaling (FP16_Optimizer)",
       .param = f16,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .halves_plain_batch_norm = true,
       .master = true,
       .rules = loss_in_fp32,
       .scaler = dynamic},
      // model.bfloat16(): as fp16, in the format with fp32's range.
      {.name = "bf16",
       .about = "everything stored in bf16",
       .param = bf16,
       .low = bf16,
       .batch_norm = bf16,
       .state = bf16,
       .grad = bf16},
      // DeepSpeed's BF16_Optimizer: f32 copies of the parameters and of the gradients beside a model in bf16.
      {.name = "bf16-master",
       .about = "as bf16, with f32 master weights and gradients (BF16_Optimizer)",
       .param = bf16,
       .low = bf16,
       .batch_norm = bf16,
       .state = bf16,
       .grad = f32,
       .master = true},
      // torch.autocast("cuda", torch.bfloat16): a format with the range of fp32 needs no scaler.
      {.name = "amp-bf16",
       .about = "f32 parameters, autocast to bf16 (lists for CUDA), no loss scaling",
       .param = f32,
       .low = bf16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = autocast},
      // As amp-bf16, with allow_bf16_reduced_precision_reduction = True, PyTorch's default.
      {.name = "amp-bf16-reduced",
       .about = "as amp-bf16, cublasLt may keep partial sums of a matrix product in bf16 (PyTorch's default); equal "
                "elsewhere",
       .param = f32,
       .low = bf16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = autocast,
       .math = {.partial = kBf16}},
      // IEEE 754 binary64 throughout. The fp64 references run under it.
      {.name = "fp64",
       .about = "double precision throughout",
       .param = f64,
       .low = f64,
       .batch_norm = f64,
       .state = f64,
       .grad = f64,
       .math = exact},
      // As fp16 with a static loss scale, as training in half did before dynamic scaling. Gradients are unscaled in f16: what
      // the scale saved from underflow is lost again if the step needs it smaller.
      {.name = "fp16-static",
       .about = "as fp16, the loss in f32 multiplied by 128 (+scaler=static:SCALE for another)",
       .param = f16,
       .low = f16,
       .batch_norm = f16,
       .state = f16,
       .grad = f16,
       .rules = loss_in_fp32,
       .scaler = scaler_of("static:128")},
      // apex/amp/frontend.py, opt levels: O1 patch_torch_functions, loss_scale dynamic.
      {.name = "apex-o1",
       .about = "f32 parameters, casts by the lists of apex, its loss scaler",
       .param = f32,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = &cast_rules_named("apex-o1"),
       .scaler = of_apex},
      // O2: cast_model_type float16, keep_batchnorm_fp32, master_weights, loss_scale dynamic; results are cast to f32
      // before the loss (apex/amp/_initialize.py). convert_network leaves only affine batch norms in float.
      {.name = "apex-o2",
       .about = "f16 parameters but those of batch norm, f32 master weights and gradients, the loss scaler of apex",
       .param = f16,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .halves_plain_batch_norm = true,
       .master = true,
       .rules = loss_in_fp32,
       .scaler = of_apex},
      // O3: cast_model_type float16, keep_batchnorm_fp32 False, master_weights False, loss_scale 1.0.
      {.name = "apex-o3",
       .about = "everything stored in f16 but the loss, no loss scaling",
       .param = f16,
       .low = f16,
       .batch_norm = f16,
       .state = f16,
       .grad = f16,
       .rules = loss_in_fp32},
      // torch.autocast("cpu", torch.bfloat16).
      {.name = "cpu-amp-bf16",
       .about = "f32 parameters, autocast to bf16 (lists for CPUs), no loss scaling",
       .param = f32,
       .low = bf16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = on_cpu},
      // torch.autocast("cpu", torch.float16) with torch.amp.GradScaler("cpu").
      {.name = "cpu-amp-fp16",
       .about = "f32 parameters, autocast to f16 (lists for CPUs), dynamic loss scaling",
       .param = f32,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = on_cpu,
       .scaler = dynamic},
      // keras.mixed_precision "mixed_float16"; compile() adds LossScaleOptimizer.
      {.name = "keras-mixed-float16",
       .about = "f32 variables, every layer computes in f16, the loss scaler of Keras",
       .param = f32,
       .low = f16,
       .batch_norm = f32,
       .state = f32,
       .grad = f32,
       .rules = &cast_rules_named("keras"),
       .scaler = scaler_of("keras")},
      // As fp16, and products are summed in fp16: CUBLAS_COMPUTE_16F (NVIDIA, cuBLAS library, cublasComputeType_t: "the
      // default ... mode for 16-bit half precision floating point and all compute and intermediate storage precisions with
      // at least 16-bit half precision").
      {.name = "fp16-sum16",
       .about = "as fp16, products summed in fp16 (CUBLAS_COMPUTE_16F)",
       .param = f16,
       .low = f16,
       .batch_norm = f16,
       .state = f16,
       .grad = f16,
       .math = {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}},
      // As bf16; the optimizer rounds parameters at random (Gupta et al. 2015, arXiv:1502.02551).
      {.name = "bf16-sr",
       .about = "as bf16, updated parameters are rounded stochastically",
       .param = bf16,
       .low = bf16,
       .batch_norm = bf16,
       .state = bf16,
       .grad = bf16,
       .storage = Storage::stochastic},
      // As bf16; the optimizer keeps what the rounded parameter lacks (Zamirai et al. 2020, arXiv:2010.06192).
      {.name = "bf16-kahan",
       .about = "as bf16, what rounding takes from a parameter is kept and added to its next update",
       .param = bf16,
       .low = bf16,
       .batch_norm = bf16,
       .state = bf16,
       .grad = bf16,
       .storage = Storage::kahan},
      // Transformer Engine inside torch.autocast("cuda", torch.bfloat16): models/quantized_products.h. No loss scaling.
      quantizes("fp8-delayed",
                "amp-bf16, linear layers in e4m3 and e5m2, scales from earlier steps (Transformer Engine)"),
      quantizes("fp8-current", "amp-bf16, linear layers in e4m3 and e5m2, scales from the tensor itself"),
      quantizes("fp8-block", "amp-bf16, linear layers in e4m3, scales of 1 x 128 numbers, of weights 128 x 128"),
      quantizes("mxfp8", "amp-bf16, linear layers in e4m3 with a power of two for 32 numbers (MXFP8)"),
      quantizes("nvfp4", "amp-bf16, linear layers in e2m1 with scales of 16 numbers and of the tensor (NVFP4)"),
  };
}

}  // namespace

std::span<const Policy> policies() {
  static const std::vector<Policy> rows = policy_table();
  return rows;
}

namespace {

bool any_products(const Policy& policy, auto&& which) {
  if (policy.products && which(*policy.products)) return true;
  return std::ranges::any_of(
      policy.layers, [&](const LayerPolicy& one) { return one.policy->products && which(*one.policy->products); });
}

}  // namespace

bool quantizes_products(const Policy& policy) {
  return any_products(policy, [](const QuantizedProducts&) { return true; });
}
bool has_delayed_scaling(const Policy& policy) {
  return any_products(policy, [](const QuantizedProducts& products) { return products.delayed.has_value(); });
}

}  // namespace halfmark::models
