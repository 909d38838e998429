// Norms and pooling beside those of the stand-in: right and wrong uses that cuDNN checks without a GPU.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/asked_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr auto kNanType = CUDNN_TYPE_NAN_PROPOGATION;

Node tensor(Asked& asked, int64_t id, const std::vector<int64_t>& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT,
            bool by_value = false) {
  const std::vector<int64_t> strides{extents[1] * extents[2] * extents[3], 1, extents[3] * extents[1], extents[1]};
  const bool is_virtual = false;
  const Node node = asked.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  asked.set(node, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
  asked.numbers(node, CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
  asked.numbers(node, CUDNN_ATTR_TENSOR_STRIDES, strides);
  asked.numbers(node, CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
  asked.numbers(node, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
  asked.set(node, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  asked.set(node, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  return asked.finalized(node);
}
// Of right uses only: of wrong ones that finalising the operation accepts, the stand-in refuses more.
void graph(Asked& asked, Node operation) {
  const Node node = asked.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  asked.part(node, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  asked.finalized(node);
}

struct NormForm {
  cudnnBackendNormMode_t mode = CUDNN_LAYER_NORM;
  cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
  cudnnDataType_t type = CUDNN_DATA_FLOAT, parameters = CUDNN_DATA_FLOAT;
  std::vector<int64_t> x{6, 16, 1, 1}, result{6, 16, 1, 1}, columns{1, 16, 1, 1}, statistics{6, 1, 1, 1};
  int lacks = -1;  // the attribute that is not set
  bool is_right = false;
};

void norm(Asked& asked, const NormForm& form) {
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
  const auto part = [&](int name, int64_t id, const std::vector<int64_t>& extents, cudnnDataType_t type) {
    if (form.lacks != name) asked.part(operation, name, tensor(asked, id, extents, type));
  };
  if (form.lacks != CUDNN_ATTR_OPERATION_NORM_FWD_MODE)
    asked.set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, std::vector{form.mode});
  if (form.lacks != CUDNN_ATTR_OPERATION_NORM_FWD_PHASE)
    asked.set(operation, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, std::vector{form.phase});
  part(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, 1, form.x, form.type);
  part(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, 2, form.result, form.type);
  part(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, 3, form.columns, form.parameters);
  if (form.mode != CUDNN_RMS_NORM) {
    part(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, 4, form.columns, form.parameters);
    part(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, 5, form.statistics, CUDNN_DATA_FLOAT);
  }
  part(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, 6, form.statistics, CUDNN_DATA_FLOAT);
  if (form.lacks != CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC)
    asked.part(operation, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
               tensor(asked, 7, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, true));
  if (form.mode == CUDNN_BATCH_NORM) {
    if (form.lacks != CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC)
      asked.part(operation, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
                 tensor(asked, 8, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, true));
    int64_t id = 9;
    for (const int name :
         {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
          CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
          CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC})
      part(name, id++, form.statistics, CUDNN_DATA_FLOAT);
  }
  asked.finalized(operation);
  if (form.is_right) graph(asked, operation);
}

void norm_backward(Asked& asked, const NormForm& form) {
  const Node operation = asked.make(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
  const auto part = [&](int name, int64_t id, const std::vector<int64_t>& extents, cudnnDataType_t type) {
    if (form.lacks != name) asked.part(operation, name, tensor(asked, id, extents, type));
  };
  if (form.lacks != CUDNN_ATTR_OPERATION_NORM_BWD_MODE)
    asked.set(operation, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, std::vector{form.mode});
  part(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, 1, form.x, form.type);
  part(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, 2, form.result, form.type);
  part(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, 3, form.x, form.type);
  part(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, 4, form.columns, form.parameters);
  part(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, 5, form.columns, form.parameters);
  part(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, 6, form.statistics, CUDNN_DATA_FLOAT);
  if (form.mode != CUDNN_RMS_NORM) {
    part(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, 7, form.statistics, CUDNN_DATA_FLOAT);
    part(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, 8, form.columns, form.parameters);
  }
  asked.finalized(operation);
  if (form.is_right) graph(asked, operation);
}

Answers norms_of(const Library& library) {
  Asked asked(library);
  NormForm batch{.mode = CUDNN_BATCH_NORM, .x = {2, 16, 5, 3}, .result = {2, 16, 5, 3}};
  batch.statistics = batch.columns;
  const NormForm forms[] = {{}, {.mode = CUDNN_RMS_NORM}, batch};
  for (NormForm form : forms) {
    const bool has_mean = form.mode != CUDNN_RMS_NORM, has_running = form.mode == CUDNN_BATCH_NORM;
    for (int lacks = CUDNN_ATTR_OPERATION_NORM_FWD_MODE - 1; lacks <= CUDNN_ATTR_OPERATION_NORM_FWD_YDESC; ++lacks) {
      const bool is_running = lacks >= CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC &&
                              lacks <= CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC;
      const bool is_of_mean =
          lacks == CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC || lacks == CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC;
      if ((is_running && !has_running) || (is_of_mean && !has_mean)) continue;
      form.lacks = lacks, norm(asked, form);
    }
    for (int lacks = CUDNN_ATTR_OPERATION_NORM_BWD_MODE - 1; lacks <= CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC; ++lacks)
      form.lacks = lacks, norm_backward(asked, form);
    form.lacks = -1;
    form.is_right = true, norm(asked, form), norm_backward(asked, form);
    for (const auto type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_DOUBLE}) {
      form.type = type, form.is_right = type != CUDNN_DATA_DOUBLE;
      for (const auto parameters : {CUDNN_DATA_FLOAT, type}) {
        form.parameters = parameters;
        norm(asked, form), norm_backward(asked, form);
      }
    }
    form.type = form.parameters = CUDNN_DATA_FLOAT, form.is_right = false;
    const NormForm right = form;
    form.result[0] = 5, norm(asked, form), norm_backward(asked, form), form = right;
    form.columns[1] = 8, norm(asked, form), norm_backward(asked, form), form = right;
    form.statistics = {3, 1, 1, 1}, norm(asked, form), norm_backward(asked, form);
  }
  return asked.answers;
}

struct PoolForm {
  cudnnResampleMode_t mode = CUDNN_RESAMPLE_MAXPOOL;
  cudnnPaddingMode_t padding = CUDNN_NEG_INF_PAD;
  cudnnDataType_t type = CUDNN_DATA_FLOAT, index = CUDNN_DATA_INT8;
  std::vector<int64_t> x{2, 8, 7, 6}, y{2, 8, 4, 3}, indices{2, 8, 4, 3}, pad{1, 0}, window{3, 2}, stride{2, 2};
  int64_t axes = 2;
  bool has_indices = false, backward = false;
  int lacks = -1;
  bool is_right = false;
};

void pool(Asked& asked, const PoolForm& form) {
  const Node how = asked.make(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
  const auto choose = [&](int name, cudnnBackendAttributeType_t type, int value) {
    if (form.lacks != name) asked.set(how, name, type, std::vector{value});
  };
  const auto numbers = [&](int name, const std::vector<int64_t>& values) {
    if (form.lacks != name) asked.numbers(how, name, values);
  };
  choose(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, form.mode);
  choose(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, form.padding);
  choose(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, kNanType, CUDNN_PROPAGATE_NAN);
  choose(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  numbers(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, {form.axes});
  numbers(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, form.pad), numbers(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, form.pad);
  numbers(CUDNN_ATTR_RESAMPLE_STRIDES, form.stride), numbers(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, form.window);
  asked.finalized(how);
  const bool back = form.backward;
  const Node operation = asked.make(back ? CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR
                                         : CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
  const auto part = [&](int forward, int backward, Node node) {
    if (form.lacks != forward) asked.part(operation, back ? backward : forward, node);
  };
  part(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, how);
  part(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC,
       tensor(asked, 1, form.x, form.type));
  part(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC,
       tensor(asked, 2, form.y, form.type));
  if (form.has_indices)
    part(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC,
         tensor(asked, 3, form.indices, form.index));
  asked.finalized(operation);
  if (form.is_right) graph(asked, operation);
}

Answers pools_of(const Library& library) {
  Asked asked(library);
  const PoolForm average{.mode = CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, .padding = CUDNN_ZERO_PAD};
  for (const bool backward : {false, true})
    for (const bool has_indices : {false, true})
      for (PoolForm form : {PoolForm{}, average}) {
        form.backward = backward, form.has_indices = has_indices;
        const PoolForm right = form;
        form.is_right = true;
        if (has_indices == (form.mode == CUDNN_RESAMPLE_MAXPOOL) || !backward) pool(asked, form);
        form = right;
        for (int lacks = CUDNN_ATTR_RESAMPLE_COMP_TYPE; lacks <= CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION; ++lacks)
          form.lacks = lacks, pool(asked, form);
        for (int lacks = CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC; lacks <= CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC;
             ++lacks)
          form.lacks = lacks, pool(asked, form);
        form = right;
        for (const auto type : {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16, CUDNN_DATA_DOUBLE})
          form.type = type, pool(asked, form);
        form = right;
        for (const auto index : {CUDNN_DATA_UINT8, CUDNN_DATA_INT32, CUDNN_DATA_FLOAT})
          form.index = index, pool(asked, form);
        form = right, form.y[2] = 3, pool(asked, form);
        form = right, form.y[1] = 4, pool(asked, form);
        form = right, form.indices[2] = 3, pool(asked, form);
        form = right, form.stride = {0, 2}, pool(asked, form);
        form = right, form.window = {0, 2}, pool(asked, form);
        form = right, form.pad = {-1, 0}, pool(asked, form);
        form = right, form.pad = {1}, pool(asked, form);
        form = right, form.axes = 3, pool(asked, form);
      }
  return asked.answers;
}

TEST(RealLibraries, NormsAndPoolingAnswerAlike) {
  const Library real(HALFMARK_CUDNN), ours(nullptr);
  if (!real.is_open()) GTEST_SKIP() << "cannot load " << HALFMARK_CUDNN;
  EXPECT_EQ(first_difference(norms_of(real), norms_of(ours)), -1);
  EXPECT_EQ(first_difference(pools_of(real), pools_of(ours)), -1);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
