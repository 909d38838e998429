// The rows of the suites.
#include "bench/run/suites.h"

#include <algorithm>

#include "bench/namespaces.h"
#include "models/zoo.h"

namespace halfmark::bench {

namespace {

using Names = std::vector<std::string_view>;

const Names kPairs = {"fp32", "fp16", "fp16-bn32", "amp-fp16", "bf16", "amp-bf16"};
const Names kPairsOfNoBatchNorm = {"fp32", "fp16", "amp-fp16", "bf16", "amp-bf16"};  // fp16-bn32 is fp16 there
const Names kPairsAndTf32 = {"fp32", "tf32", "fp16", "fp16-bn32", "amp-fp16", "bf16", "amp-bf16"};
const Names kPairsAndTf32OfNoBatchNorm = {"fp32", "tf32", "fp16", "amp-fp16", "bf16", "amp-bf16"};
// What most people choose between, on every subject; the recipes of single frameworks on a few.
const Names kCommon = {"fp32",        "tf32", "fp16",        "fp16-bn32", "amp-fp16",
                       "fp16-master", "bf16", "bf16-master", "amp-bf16"};
const Names kRecipes = {"fp64",         "fp16-static",         "apex-o1", "apex-o2",   "apex-o3", "cpu-amp-bf16",
                        "cpu-amp-fp16", "keras-mixed-float16", "bf16-sr", "bf16-kahan"};
// The recipes that quantise linear layers; elsewhere they do what amp-bf16 does.
const Names kQuantized = {"fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4"};
const Names kOfRecipes = {"mlp/b32_i64_h128_o10", "gpt/b8_t32_n2_h2_d32_v27"};
// Layers that are large enough for a meaningful throughput, and models that learn within seconds.
const Names kTimedInQuick = {"linear/b64_i1024_o1024", "conv2d/b16_c64_o64_s28_k3", "mlp/b32_i64_h128_o10"};
const Names kTimedInQuickOfBatchNorm = {"batchnorm2d/b16_c64_s28", "convnet/b16_c3_s16_w16"};
// Networks that people know, small enough to learn in a minute.
const Names kNetworks = {"lenet5/b64_c1_s28", "gpt/b32_t64_n2_h4_d64_v64", "lstm_classifier/b64_t32_n1_e32_h64_v64_o4"};
const Names kNetworksOfBatchNorm = {"resnet/b64_s16_n1_w8", "speech/b32_f16_t64_h32"};
// Small forms that learn in a hundred steps of some milliseconds: each is trained under every policy with several seeds.
const Names kTrained = {"mlp/b32_i64_h128_o10", "erfnet/b4_s32x64_n1_w4_o4", "detector/b16_s64",
                        "gpt/b8_t32_n2_h2_d32_v27"};
// At the rate of the others, the losses after a hundred steps differ too much between seeds to say anything about a precision.
// At a lower rate and after more steps they differ several times less.
const Names kTrainedSlowly = {"convnet/b16_c3_s16_w16", "resnet/b16_s16_n1_w8", "resnet50/b16_s16_n1_w8_o10"};
const Names kImageModels = {"lenet5/b64_c1_s28", "convnet/b16_c3_s16_w16", "resnet/b16_s16_n1_w8",
                            "resnet50/b16_s16_n1_w8_o10", "xception/b16_s16_n2_w4_o10"};
// These learn little in a hundred steps.
const Names kTrainedLonger = {"bert/b16_t16_n2_h2_d32_v64_o4", "lstm_classifier/b16_t16_n1_e32_h32_v64_o4",
                              "speech/b16_f16_t32_h32"};
// Work that is large enough for a time to say something: by its batch, and what is large at a small one.
const Names kTimed = {"*/b16_*", "*/b32_*", "*/b64_*", "*/b128_*", "*/b512_*", "attention/b8_*", "erfnet/b8_*"};
// Steps of many small kernels, whose launches cost much; refused where a device records no graphs.
const Names kAsGraphs = {"mlp/b32_i64_h128_o10", "resnet/b64_s16_n1_w8", "gpt/b32_t64_n2_h4_d64_v64"};
// The smallest of each model with running statistics, and the layer.
const Names kWithStatistics = {"batchnorm2d", "convnet", "resnet", "speech"};
const Names kDeepWithStatistics = {"resnet50", "xception", "erfnet"};
const Names kDrift = {"", "momentum=0.01", "noise=0.1", "momentum=0.01 noise=0.1"};

Names smallest_of_each_family() {
  Names names;
  for (const models::Subject& subject : models::subjects())
    if (std::ranges::find(names, subject.name) == names.end()) names.emplace_back(subject.name);
  return names;
}

const std::vector<SuiteRow>& smoke() {
  static const std::vector<SuiteRow> rows = {
      {{"linear", "conv2d", "batchnorm2d", "layernorm", "gelu", "softmax", "attention", "lstm", "mlp", "convnet",
        "gpt"},
       kPairs,
       {"error", "range", "memory"}},
  };
  return rows;
}

// The negative controls: trainings with a known outcome.
const SuiteRow kUnderflowControl = {{"mlp"}, {"fp16", "amp-fp16"}, {"training"}, {"control=underflow"}};
const SuiteRow kSmallRateControl = {{"mlp"}, {"bf16", "amp-bf16"}, {"training"}, {"control=small_rate"}};
const SuiteRow kScaleTooHighControl = {{"mlp"}, {"amp-fp16"}, {"training"}, {"control=scale_too_high"}};

// Statistics of a batch whose sums are rounded to a format after each addition; at scale 512 those in fp16 overflow.
const SuiteRow kNarrowStatistics = {
    {"batchnorm2d"},
    {"amp-fp16"},
    {"batchnorm_drift"},
    {"accumulate=f32", "accumulate=f16", "accumulate=bf16", "accumulate=f16 scale=512", "accumulate=bf16 scale=512"}};

// Whether the loss is that of fp32: Adam in fp16, and a rate so small that bf16 parameters ignore it.
const SuiteRow kAdamInFp16Control = {{"mlp"}, {"fp16", "amp-fp16"}, {"convergence"}, {"control=adam_in_fp16"}};
const SuiteRow kLargeEpsilonControl = {
    {"mlp", "gpt/b8_t32_n2_h2_d32_v27", "lstm_classifier/b16_t16_n1_e32_h32_v64_o4", "detector/b16_s64"},
    {"fp16"},
    {"convergence"},
    {"control=adam_large_epsilon seeds=3"}};
const SuiteRow kLargeEpsilonLongerControl = {
    {"speech/b16_f16_t32_h32"}, {"fp16"}, {"convergence"}, {"control=adam_large_epsilon seeds=3 steps=200"}};
const SuiteRow kLostUpdatesInQuick = {
    {"mlp/b32_i64_h128_o10"}, {"bf16"}, {"convergence"}, {"control=small_rate seeds=3 steps=400"}};
const SuiteRow kLostUpdatesControl = {
    {"mlp/b32_i64_h128_o10"},
    {"bf16"},
    {"convergence"},
    {"control=small_rate seeds=3 steps=400", "control=small_rate_kahan seeds=3 steps=400",
     "control=small_rate_stochastic seeds=3 steps=400"}};
const SuiteRow kKeptUpdatesControl = {
    {"mlp/b32_i64_h128_o10"}, {"amp-bf16"}, {"convergence"}, {"control=small_rate seeds=3 steps=400"}};

// Sums of products by length: with the policy's accumulator, in fp16, and with split K and narrow partial sums.
const Names kSums = {"", "data=same_sign", "data=cancelling", "sum=split_k", "data=same_sign sum=split_k"};
const SuiteRow kHalfSums = {
    {"linear"}, {"fp16", "amp-fp16"}, {"accumulation"}, {"sum=fp16", "data=same_sign sum=fp16"}};

const SuiteRow kSanity = {{"convnet/b16_c3_s16_w16"}, kPairsAndTf32, {"sanity"}, {"", "check=nan", "check=batchnorm"}};
const SuiteRow kSanityOfScalers = {{"convnet/b16_c3_s16_w16"},
                                   {"amp-fp16", "fp16-master", "apex-o1", "apex-o2", "keras-mixed-float16"},
                                   {"sanity"},
                                   {"check=scaler"}};

// The linter: each mistake that can be planted in a policy is found, and a right training has none.
const Names kMistakes = {"mistake=no_unscale",
                         "mistake=clip_before_unscale",
                         "mistake=unscale_twice",
                         "mistake=stale_cast_cache",
                         "mistake=update_inside_autocast",
                         "mistake=half_loss_sum",
                         "mistake=bn_half_statistics",
                         "mistake=wrong_accumulation_order",
                         "mistake=missing_train",
                         "mistake=skip_without_bn_rollback",
                         "mistake=stochastic_rounding_zeros",
                         "mistake=stale_amax",
                         "mistake=columnwise_from_rowwise"};
const SuiteRow kLintOfConvnet = {{"convnet/b4_c1_s8_w4"}, {"amp-fp16"}, {"lint"}, kMistakes};
const SuiteRow kLintOfAdam = {{"mlp/b8_i16_h24_o10"}, {"fp16"}, {"lint"}, {"mistake=adam_epsilon"}};
const SuiteRow kLintOfMasks = {{"gpt/b8_t32_n2_h2_d32_v27"}, {"amp-fp16"}, {"lint"}, {"mistake=mask_1e9"}};

const std::vector<SuiteRow>& sanity() {
  static const std::vector<SuiteRow> rows = {kSanity, kSanityOfScalers};
  return rows;
}

const std::vector<SuiteRow>& quick() {
  static const std::vector<SuiteRow> rows = {
      {kTimedInQuick, kPairsAndTf32OfNoBatchNorm, {"error", "range", "memory", "throughput"}},
      {kTimedInQuickOfBatchNorm, kPairsAndTf32, {"error", "range", "memory", "throughput"}},
      {{"mlp/b32_i64_h128_o10"},
       kPairsAndTf32OfNoBatchNorm,
       {"training"},
       {"steps=100", "steps=100 replicate=1", "steps=100 replicate=2"}},
      {{"convnet/b16_c3_s16_w16"}, kPairs, {"training"}, {"steps=40"}},
      {{"mlp/b32_i64_h128_o10", "lstm_classifier/b16_t16_n1_e32_h32_v64_o4"},
       kPairsOfNoBatchNorm,
       {"convergence"},
       {"seeds=3"}},
      {{"attention/b8_h8_t128_d32", "lstm/b32_t32_i128_h128"}, kPairsOfNoBatchNorm, {"error", "range", "memory"}},
      {kNetworksOfBatchNorm, kPairs, {"error", "range", "memory"}},
      {kNetworks, kPairsOfNoBatchNorm, {"error", "range", "memory"}},
      {{"lstm_classifier/b16_t16_n1_e32_h32_v64_o4"}, kPairsOfNoBatchNorm, {"training"}, {"steps=40"}},
      {{"batchnorm2d"}, kPairs, {"batchnorm_drift"}, kDrift},
      {{"linear"}, {"fp32", "amp-fp16", "bf16"}, {"accumulation"}, {"data=same_sign"}},
      {{"linear"}, {"amp-fp16"}, {"accumulation"}, {"sum=split_k", "data=same_sign sum=fp16"}},
      kUnderflowControl,
      kSmallRateControl,
      kScaleTooHighControl,
      kAdamInFp16Control,
      {{"mlp"}, {"fp16"}, {"convergence"}, {"control=adam_large_epsilon seeds=3"}},
      kLostUpdatesInQuick,
      kKeptUpdatesControl,
  };
  return rows;
}

const std::vector<SuiteRow>& full() {
  static const std::vector<SuiteRow> rows = {
      {{"*"}, kCommon, {"error", "range", "memory"}},
      {smallest_of_each_family(), kPairs, {"memory"}, {"steps=100"}},  // no step may leave memory behind
      {kTimed, kCommon, {"throughput"}},
      {kAsGraphs, {"fp32", "amp-fp16", "amp-bf16"}, {"throughput"}, {"launch=graph"}},
      {kTrained, kCommon, {"convergence"}},
      {kTrainedSlowly, kCommon, {"convergence"}, {"rate=0.01 steps=200"}},
      {{"lenet5/b64_c1_s28"}, kCommon, {"convergence"}, {"rate=0.01 steps=400"}},
      {{"xception/b16_s16_n2_w4_o10"}, kCommon, {"convergence"}, {"rate=0.002 steps=200"}},
      {kTrainedLonger, kCommon, {"convergence"}, {"steps=200"}},
      {{"mlp/b32_i64_h128_o10", "erfnet/b4_s32x64_n1_w4_o4", "gpt/b8_t32_n2_h2_d32_v27"},
       kPairs,
       {"training"},
       {"steps=40"}},
      {kImageModels, kPairs, {"training"}, {"steps=40"}},
      {kTrainedLonger, kPairs, {"training"}, {"steps=100"}},
      {{"mlp/b32_i64_h128_o10", "logistic/b16_c3_s16"},
       kCommon,
       {"training"},
       {"steps=100", "steps=100 replicate=1", "steps=100 replicate=2"}},
      {{"mlp/b32_i64_h128_o10"}, kCommon, {"training"}, {"steps=100 optimizer=adamw"}},
      {{"mlp/b32_i64_h128_o10"},
       {"fp16", "bf16"},
       {"training"},
       {"steps=100 storage=stochastic", "steps=100 storage=kahan", "steps=100 optimizer=adamw storage=stochastic",
        "steps=100 optimizer=adamw storage=kahan"}},
      {kOfRecipes, kRecipes, {"error", "range", "memory", "convergence"}},
      {kOfRecipes, {"fp16-sum16", "amp-fp16-reduced", "amp-bf16-reduced"}, {"error"}},
      {{"linear", "logistic", "mlp", "gpt", "bert", "lenet5/b64_c1_s28"}, kQuantized, {"error", "range", "memory"}},
      {kOfRecipes, kQuantized, {"quantization"}, {"steps=1", "steps=10", "steps=100"}},
      {kOfRecipes, kQuantized, {"convergence"}},
      {{"bert/b16_t16_n2_h2_d32_v64_o4"}, kQuantized, {"convergence"}, {"steps=200"}},
      {{"mlp/b32_i64_h128_o10"},
       kQuantized,
       {"training"},
       {"steps=100", "steps=100 replicate=1", "steps=100 replicate=2"}},
      {{"detector/b16_s64"}, kPairs, {"training"}, {"steps=100"}},
      {kWithStatistics, kCommon, {"batchnorm_drift"}, kDrift},
      {kDeepWithStatistics, kCommon, {"batchnorm_drift"}},
      {{"batchnorm2d"},
       {"fp16-bn32"},
       {"batchnorm_drift"},
       {"storage=f16", "storage=f16 momentum=0.01", "storage=bf16", "storage=bf16 momentum=0.01"}},
      kNarrowStatistics,
      {{"linear"}, kCommon, {"accumulation"}, kSums},
      kHalfSums,
      kSanity,
      kSanityOfScalers,
      {{"mlp/b8_i16_h24_o10", "convnet/b4_c1_s8_w4"}, kCommon, {"lint"}, {"", "clipping=on micro_batches=2"}},
      {{"mlp/b8_i16_h24_o10"}, kRecipes, {"lint"}},
      {{"gpt/b8_t32_n2_h2_d32_v27", "bert/b16_t16_n2_h2_d32_v64_o4"}, kCommon, {"lint"}},
      kLintOfConvnet,
      kLintOfAdam,
      kLintOfMasks,
      kUnderflowControl,
      kSmallRateControl,
      kScaleTooHighControl,
      kAdamInFp16Control,
      kLargeEpsilonControl,
      kLargeEpsilonLongerControl,
      kLostUpdatesControl,
      kKeptUpdatesControl,
  };
  return rows;
}

// Experiments on single operations, each on the smallest subject that has its shape, and on whole models, about four minutes
// (accuracy/experiments/README.md).
const Names kExperiment = {"fp32", "fp16", "amp-fp16", "bf16", "amp-bf16"};

const SuiteRow kDtypes = {{"convnet/b16_c3_s16_w16", "gpt/b8_t32_n2_h2_d32_v27"}, kCommon, {"dtypes"}};

const std::vector<SuiteRow>& experiments() {
  static const std::vector<SuiteRow> rows = {
      {{"relu/b16_c64_s8"}, kExperiment, {"underflow"}},
      {{"mse", "cross_entropy", "binary_cross_entropy_with_logits"}, kExperiment, {"reduction"}},
      {{"layernorm", "rmsnorm", "linear/b4_i16_o8_w1"}, kExperiment, {"row_statistics"}},
      {{"layernorm"}, {"fp16", "amp-fp16"}, {"row_statistics"}, {"epsilon=1e-08", "epsilon=1e-12"}},
      {{"softmax/b64_d128"}, kExperiment, {"mask"}, {"", "scores=10000"}},
      {{"batchnorm2d/b16_c8_s8", "batchnorm2d/b16_c8_s8_a0", "batchnorm2d/b16_c8_s8_m1", "batchnorm1d/b64_c8",
        "batchnorm3d/b4_c8_d4_s4"},
       {"fp32", "fp16", "fp16-bn32", "amp-fp16", "bf16", "amp-bf16"},
       {"batchnorm_statistics"}},
      // The stall of running statistics.
      {{"batchnorm2d"},
       {"fp32"},
       {"batchnorm_drift"},
       {"storage=f16", "storage=f16 momentum=0.01", "storage=f16 noise=0.1", "storage=f16 momentum=0.01 noise=0.1",
        "storage=bf16", "storage=bf16 momentum=0.01", "storage=bf16 noise=0.1",
        "storage=bf16 momentum=0.01 noise=0.1"}},
      {{"linear/b64_i256_o64", "conv2d/b4_c16_o16_s8_k3"},
       {"fp32", "tf32", "fp16", "amp-fp16", "bf16", "amp-bf16"},
       {"mantissa"}},
      {{"mlp/b32_i64_h128_o10", "gpt/b8_t32_n2_h2_d32_v27"}, {"fp32"}, {"mantissa"}, {"part=training"}},
      {{"convnet/b16_c3_s8_w8"}, {"fp32"}, {"mantissa"}, {"part=training rate=0.01 steps=200"}},
      {{"mlp/b32_i64_h128_o10"}, {"amp-fp16", "amp-bf16", "apex-o1", "cpu-amp-fp16", "cpu-amp-bf16"}, {"cast_lists"}},
      {{"mlp/b32_i64_h128_o10", "gpt/b8_t32_n2_h2_d32_v27", "detector/b16_s64"},
       {"amp-fp16", "amp-bf16"},
       {"cast_cache"}},
      {{"mlp"}, kExperiment, {"all_reduce"}, {"", "scale=1", "scale=0.0001"}},
      kDtypes,
      {{"mlp/b32_i64_h128_o10"}, {"fp16-master"}, {"same_bits"}, {"against=apex-o3"}},
      {{"mlp/b32_i64_h128_o10"}, {"fp16", "bf16"}, {"conversion"}},
      {{"resnet/b16_s16_n1_w8", "gpt/b8_t32_n2_h2_d32_v27", "erfnet/b4_s32x64_n1_w4_o4"},
       {"fp16", "fp16-bn32", "amp-fp16", "amp-bf16"},
       {"capacity"}},
      {{"mlp/b32_i64_h128_o10", "resnet/b16_s16_n1_w8", "gpt/b8_t32_n2_h2_d32_v27", "erfnet/b4_s32x64_n1_w4_o4"},
       kCommon,
       {"traffic"}},
      {{"linear/b32_i64_o32", "linear/b64_i256_o64"}, {"fp32", "fp16", "bf16"}, {"summation"}},
      {{"mlp/b32_i64_h128_o10"}, {"amp-fp16"}, {"loss_scale"}, {"", "loss_factor=1e-05"}},
      // Whole models (accuracy/experiments/whole_models.md).
      {{"mlp/b32_i64_h128_o10", "lstm_classifier/b16_t16_n1_e32_h32_v64_o4", "gpt/b8_t32_n2_h2_d32_v27",
        "erfnet/b4_s32x64_n1_w4_o4", "speech/b16_f16_t32_h32", "detector/b16_s64"},
       {"fp32"},
       {"evaluation"}},
      {{"resnet/b16_s16_n1_w8"}, {"fp32", "amp-fp16"}, {"evaluation"}},
      {{"resnet/b16_s16_n1_w8"}, {"fp32"}, {"evaluation"}, {"part=mid_training"}},
      {{"mlp/b32_i64_h128_o10", "gpt/b8_t32_n2_h2_d32_v27", "resnet/b16_s16_n1_w8", "resnet/b1_s16_n1_w8",
        "resnet/b32_s16_n1_w8"},
       {"fp32"},
       {"evaluation"},
       {"part=memory"}},
      {{"resnet/b256_s16_n1_w8"}, {"fp32"}, {"evaluation"}, {"part=memory batches=8"}},
      {{"mlp/b32_i64_h128_o10"}, {"fp32"}, {"evaluation"}, {"part=rates"}},
      {{"convnet/b16_c3_s16_w16"}, {"fp32"}, {"evaluation"}, {"part=slots"}},
      {{"mlp/b32_i64_h128_o10"}, {"fp16", "amp-fp16", "bf16"}, {"evaluation"}, {"part=conclusions seeds=20"}},
      {{"gpt/b8_t32_n2_h2_d32_v27"}, {"fp16"}, {"evaluation"}, {"part=conclusions seeds=20 steps=40"}},
      {{"mlp/b32_i64_h128_o10", "resnet/b16_s16_n1_w8", "gpt/b8_t32_n2_h2_d32_v27",
        "lstm_classifier/b16_t16_n1_e32_h32_v64_o4"},
       {"fp32"},
       {"evaluation"},
       {"part=int8"}},
      {{"linear/b64_i1024_o1024", "batchnorm2d/b4_c3_s4", "layernorm/b512_d768", "softmax/b6_d12",
        "attention/b2_h2_t6_d4", "mlp/b32_i64_h128_o10", "convnet/b16_c3_s16_w16", "resnet/b16_s16_n1_w8",
        "gpt/b8_t32_n2_h2_d32_v27"},
       {"fp32", "fp16", "bf16"},
       {"batch_invariance"}},
      {{"mlp/b32_i64_h128_o10", "resnet/b16_s16_n1_w8", "gpt/b8_t32_n2_h2_d32_v27", "bert/b16_t16_n2_h2_d32_v64_o4",
        "erfnet/b4_s32x64_n1_w4_o4"},
       {"fp32", "fp16", "amp-fp16", "amp-bf16"},
       {"checkpointing"}},
      {{"mlp/b32_i64_h128_o10", "resnet/b16_s16_n1_w8", "gpt/b8_t32_n2_h2_d32_v27"}, {"fp32", "amp-fp16"}, {"what_if"}},
      // Each layer alone in half (accuracy/experiments/fp32_plan.md).
      {{"mlp/b32_i64_h128_o10", "convnet/b16_c3_s16_w16", "resnet/b16_s16_n1_w8", "gpt/b8_t32_n2_h2_d32_v27"},
       {"fp16", "bf16"},
       {"sensitivity"}},
      {{"mlp/b32_i64_h128_o10"},
       {"fp16", "amp-fp16", "fp16-master", "bf16"},
       {"updates"},
       {"rate=0.001 steps=4000", "", "momentum=0.9", "optimizer=adam"}},
      {{"mlp/b32_i64_h128_o10"}, {"bf16-sr", "bf16-kahan"}, {"updates"}, {"rate=0.001 steps=4000"}},
      {{"mlp/b32_i64_h128_o10"}, {"fp16", "fp32"}, {"updates"}, {"part=epsilon"}},
      {{"mlp/b32_i64_h128_o10", "gpt/b8_t32_n2_h2_d32_v27"}, {"fp32"}, {"updates"}, {"part=accumulation"}},
      {{"mlp/b32_i64_h128_o10"}, {"fp16", "amp-fp16", "bf16"}, {"overflow"}},
      {{"lenet5/b2_c1_s28"}, {"fp16"}, {"overflow"}},
      {{"mlp/b8_i16_h24_o10", "convnet/b4_c1_s8_w4"}, kCommon, {"lint"}},
      kLintOfConvnet,
      kLintOfAdam,
      kLintOfMasks,
  };
  return rows;
}

}  // namespace

const std::vector<Suite>& suites() {
  static const std::vector<Suite> list = {
      {"sanity", "seconds: the precision in use, NaN, batch norm after an infinite input, loss scalers"},
      {"smoke", "layers and small models in seconds: error, range, memory"},
      {"quick", "the default, about a minute: also throughput, training, drift and the negative controls"},
      {"full", "every subject and harness, the common policies and, on a few models, all"},
      {"experiments", "what precision does to operations and to whole models: one harness for each question"},
  };
  return list;
}

std::span<const SuiteRow> rows_of(std::string_view suite) {
  if (suite == "sanity") return sanity();
  if (suite == "smoke") return smoke();
  if (suite == "quick") return quick();
  if (suite == "full") return full();
  if (suite == "experiments") return experiments();
  return {};
}

bool add_experiment(std::string_view harness, std::vector<SuiteRow>& rows) {
  const size_t before = rows.size();
  for (const SuiteRow& row : experiments())
    if (std::ranges::find(row.harnesses, harness) != row.harnesses.end())
      rows.push_back({row.subjects, row.policies, {harness}, row.variants});
  return rows.size() > before;
}

}  // namespace halfmark::bench
