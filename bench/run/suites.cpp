// The rows of the suites smoke, quick and full.
#include "bench/run/suites.h"

namespace halfmark::bench {

namespace {

using Names = std::vector<std::string_view>;

const Names kPairs = {"fp32", "fp16", "fp16-bn32", "amp-fp16", "bf16", "amp-bf16"};
const Names kPairsAndTf32 = {"fp32", "tf32", "fp16", "fp16-bn32", "amp-fp16", "bf16", "amp-bf16"};
// Layers that are large enough for a meaningful throughput, and models that learn within seconds.
const Names kLayers = {"linear/b64_i1024_o1024", "conv2d/b16_c64_o64_s28_k3", "batchnorm2d/b16_c64_s28"};
const Names kModels = {"mlp/b32_i64_h128_o10", "convnet/b16_c3_s16_w16"};
// Networks that people know, small enough to learn in a minute.
const Names kNetworks = {"lenet5/b64_c1_s28", "resnet/b64_s16_n1_w8", "gpt/b32_t64_n2_h4_d64_v64",
                         "lstm_classifier/b64_t32_n1_e32_h64_v64_o4", "speech/b32_f16_t64_h32"};
const Names kDrift = {"", "momentum=0.01", "noise=0.1", "momentum=0.01 noise=0.1"};

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

// Sums of products by length: with the policy's accumulator, in fp16, and with split K and narrow partial sums.
const Names kSums = {"", "data=same_sign", "data=cancelling", "sum=split_k", "data=same_sign sum=split_k"};
const SuiteRow kHalfSums = {
    {"linear"}, {"fp16", "amp-fp16"}, {"accumulation"}, {"sum=fp16", "data=same_sign sum=fp16"}};

const std::vector<SuiteRow>& quick() {
  static const std::vector<SuiteRow> rows = {
      {kLayers, kPairsAndTf32, {"error", "range", "memory", "throughput"}},
      {kModels, kPairsAndTf32, {"error", "range", "memory", "throughput"}},
      {{"mlp/b32_i64_h128_o10"},
       kPairsAndTf32,
       {"training"},
       {"steps=100", "steps=100 replicate=1", "steps=100 replicate=2"}},
      {{"convnet/b16_c3_s16_w16"}, kPairsAndTf32, {"training"}, {"steps=40"}},
      {{"attention/b8_h8_t128_d32", "lstm/b32_t32_i128_h128"}, kPairs, {"error", "range", "memory"}},
      {kNetworks, kPairs, {"error", "range", "memory"}},
      {{"lstm_classifier/b64_t32_n1_e32_h64_v64_o4", "speech/b32_f16_t64_h32"}, kPairs, {"training"}, {"steps=40"}},
      {{"batchnorm2d"}, kPairs, {"batchnorm_drift"}, kDrift},
      {{"linear"}, {"fp32", "tf32", "amp-fp16", "bf16"}, {"accumulation"}, {"data=same_sign"}},
      {{"linear"}, {"amp-fp16"}, {"accumulation"}, {"sum=split_k", "data=same_sign sum=fp16"}},
      kUnderflowControl,
      kSmallRateControl,
      kScaleTooHighControl,
  };
  return rows;
}

const std::vector<SuiteRow>& full() {
  static const std::vector<SuiteRow> rows = {
      {{"*"}, {"*"}, {"error", "range", "memory", "throughput"}},
      {{"*"}, {"*"}, {"memory"}, {"steps=100"}},  // no step may leave memory behind
      {{"mlp/*", "logistic/*", "convnet/*", "lenet5/*", "lstm_classifier/*", "speech/*"},
       {"*"},
       {"training"},
       {"steps=100", "steps=100 replicate=1", "steps=100 replicate=2"}},
      {{"resnet/*", "resnet50/*", "xception/*", "erfnet/*", "gpt/*", "bert/*"}, kPairs, {"training"}, {"steps=100"}},
      {{"*"}, {"*"}, {"batchnorm_drift"}, kDrift},
      {{"batchnorm2d"},
       {"fp16-bn32"},
       {"batchnorm_drift"},
       {"storage=f16", "storage=f16 momentum=0.01", "storage=bf16", "storage=bf16 momentum=0.01"}},
      {{"linear"}, {"*"}, {"accumulation"}, kSums},
      kHalfSums,
      kUnderflowControl,
      kSmallRateControl,
      kScaleTooHighControl,
  };
  return rows;
}

}  // namespace

const std::vector<Suite>& suites() {
  static const std::vector<Suite> list = {
      {"smoke", "layers and small models in seconds: error, range, memory"},
      {"quick", "the default, about a minute: also throughput, training, drift and the negative controls"},
      {"full", "every subject, policy and harness"},
  };
  return list;
}

std::span<const SuiteRow> rows_of(std::string_view suite) {
  if (suite == "smoke") return smoke();
  if (suite == "quick") return quick();
  if (suite == "full") return full();
  return {};
}

}  // namespace halfmark::bench
