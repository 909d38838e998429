// The cast rules of autocast, one table per framework backend. The tables are complete: they also list operations that
// this suite does not implement.
#include <span>
#include <string>

#include "kernels/number/named.h"
#include "models/policy.h"

namespace halfmark::models {
namespace {

// Source: PyTorch aten/src/ATen/autocast_mode.h (commit d70fe7f): AT_FORALL_LOWER_PRECISION_FP,
// _FP32, _FP32_SET_OPT_DTYPE, _DIFFERENT_REDISPATCH_SIGNATURE (norm), _PROMOTE, and
// binary_cross_entropy_banned; autocast_RNN.cpp (_cudnn_rnn); the same for f16 and bf16. Unlisted operations run in the
// dtype of their input: batch_norm, relu, gelu, pooling, dropout, add, mean, embedding. cross_entropy_loss is not listed
// because it decomposes into log_softmax (f32 out) and nll_loss (f32). Compared with PyTorch 2.15.0: the macros of its
// header, and the operations that its dispatcher has for AutocastCUDA (kCountOfTorchCuda in policy_test.cpp); the rule of
// linalg_matrix_sqrth, which is not in the header, is the dtype of its result for f16.
constexpr CastRules::Group kTorchCuda[] = {
    {CastRule::lower,
     "_convolution convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d "
     "cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear "
     "addbmm baddbmm bmm chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
     "_thnn_fused_lstm_cell _thnn_fused_gru_cell _cudnn_rnn scaled_dot_product_attention "
     "_scaled_dot_product_flash_attention"},
    {CastRule::fp32,
     "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm "
     "native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity dist pdist cdist renorm "
     "logsumexp "
     "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss "
     "huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss "
     "multi_margin_loss binary_cross_entropy_with_logits upsample_nearest1d _upsample_nearest_exact1d "
     "upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d "
     "upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa "
     "linalg_matrix_sqrth"},
    {CastRule::fp32_out, "softmax log_softmax prod cumprod cumsum sum linalg_vector_norm linalg_matrix_norm norm"},
    {CastRule::widest, "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add"},
    {CastRule::refused, "binary_cross_entropy"},
};

// Source: PyTorch aten/src/ATen/autocast_mode.cpp (commit 008ec6b), the registrations for AutocastCPU. Softmax,
// log_softmax, layer_norm, rms_norm, group_norm, exp, log, pow, sum and norm are not listed: on a CPU they stay in the low
// dtype. Compared with the operations that the dispatcher of PyTorch 2.15.0 has for AutocastCPU: it adds
// linalg_matrix_sqrth and no longer has cholesky and qr.
constexpr CastRules::Group kTorchCpu[] = {
    {CastRule::lower,
     "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d bmm mm "
     "linalg_vecdot baddbmm addmm _addmm_activation addbmm linear matmul mkldnn_rnn_layer prelu "
     "scaled_dot_product_attention _native_multi_head_attention"},
    {CastRule::fp32,
     "avg_pool3d binary_cross_entropy grid_sampler polar prod quantile nanquantile stft cdist grid_sampler_2d "
     "_grid_sampler_2d_cpu_fallback grid_sampler_3d trace view_as_complex cholesky cholesky_inverse cholesky_solve "
     "inverse lu_solve orgqr ormqr pinverse max_pool3d max_unpool2d max_unpool3d adaptive_avg_pool3d reflection_pad1d "
     "reflection_pad2d replication_pad1d replication_pad2d replication_pad3d mse_loss cosine_embedding_loss nll_loss "
     "nll_loss2d hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy_loss l1_loss huber_loss "
     "margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss ctc_loss kl_div "
     "multilabel_margin_loss binary_cross_entropy_with_logits fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn "
     "fft_rfft fft_irfft fft_rfft2 fft_irfft2 fft_rfftn fft_irfftn fft_hfft fft_ihfft linalg_cond linalg_matrix_rank "
     "linalg_solve linalg_cholesky linalg_svdvals linalg_eigvals linalg_eigvalsh linalg_inv linalg_householder_product "
     "linalg_tensorinv linalg_tensorsolve fake_quantize_per_tensor_affine geqrf _lu_with_info qr svd triangular_solve "
     "fractional_max_pool2d fractional_max_pool3d adaptive_max_pool3d multilabel_margin_loss_forward linalg_qr "
     "linalg_cholesky_ex linalg_svd linalg_eig linalg_eigh linalg_lstsq linalg_inv_ex linalg_matrix_sqrth"},
    {CastRule::widest, "stack cat index_copy"},
};

// Source: apex/fp16_utils/fp16_optimizer.py (commit cb65b8e^): the output is cast to float before the loss, and the model runs
// in the dtype of its parameters.
constexpr CastRules::Group kLossInFp32[] = {
    {CastRule::fp32,
     "cross_entropy_loss mse_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits ctc_loss"},
};

// Source: apex/amp/lists/torch_overrides.py and functional_overrides.py for PyTorch 1.1 or later and CUDA 9.1 or later:
// functions of Python that opt level O1 replaces, so an operation inside another one is not cast. interpolate is the
// upsampling, and cross_entropy the loss of that name. batch_norm is not listed.
constexpr CastRules::Group kApexO1[] = {
    {CastRule::lower,
     "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc prelu addmm addmv addr matmul "
     "mm mv "
     "addbmm baddbmm bmm linear"},
    {CastRule::fp32,
     "acos asin cosh erfinv exp expm1 log log10 log2 reciprocal rsqrt sinh tan pow cumprod cumsum dist norm prod std "
     "sum var renorm upsample_nearest2d upsample_bilinear2d grid_sample softplus gelu softmin log_softmax softmax "
     "layer_norm group_norm ctc_loss "
     "local_response_norm normalize cosine_similarity poisson_nll_loss cosine_embedding_loss cross_entropy_loss "
     "hinge_embedding_loss kl_div l1_loss mse_loss margin_ranking_loss multilabel_margin_loss "
     "multilabel_soft_margin_loss multi_margin_loss nll_loss binary_cross_entropy_with_logits smooth_l1_loss "
     "soft_margin_loss triplet_margin_loss"},
    {CastRule::widest, "addcdiv addcmul atan2 cross bilinear dot add div mul cat stack"},
    {CastRule::refused, "binary_cross_entropy"},
};

// Source: keras/src/layers/layer.py (Keras 3): __call__ casts every floating input of a layer to the policy's compute
// dtype (casts_layer_inputs below), and its result has that dtype. The table says which variables are cast as well. Those of
// normalisation are not (autocast=False in keras/src/layers/normalization/*.py): it computes in fp32 and gives the compute
// dtype. Losses compute in floatx, which is fp32 (keras/src/losses/loss.py).
constexpr CastRules::Group kKeras[] = {
    {CastRule::lower,
     "linear conv2d conv_transpose2d relu gelu silu sigmoid tanh exp pow softmax "
     "max_pool2d avg_pool2d adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d embedding add "
     "scaled_dot_product_attention"},
    {CastRule::fp32,
     "cross_entropy_loss mse_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits ctc_loss"},
};

constexpr CastRules kTables[] = {
    {"torch-cuda", kTorchCuda},   {"torch-cpu", kTorchCpu}, {"apex-o1", kApexO1}, {"keras", kKeras, true}, {"none", {}},
    {"loss-in-fp32", kLossInFp32}};

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

}  // namespace

CastRule CastRules::of(std::string_view operation) const {
  for (const Group& group : groups)
    if (has_word(group.operations, operation)) return group.rule;
  return CastRule::as_is;
}

std::span<const CastRules> cast_rules() { return kTables; }

const CastRules& cast_rules_named(std::string_view name) { return named("cast rules", kTables, name); }

}  // namespace halfmark::models
