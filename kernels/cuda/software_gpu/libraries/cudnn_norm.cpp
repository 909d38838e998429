// Layer norm, RMS norm and batch norm, forward for training and backward.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_backend.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_layers.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

struct Norm {
  int mode = CUDNN_LAYER_NORM;
  bool backward = false, training = true;
  // Forward: x, result, scale, shift, mean, inverse, epsilon, momentum, running statistics before and after.
  // Backward: x, dy, dx, scale, dscale, dshift, mean, inverse.
  std::optional<FormulaTensor> x, y, scale, shift, mean, inverse, epsilon, momentum, running_mean, running_variance,
      next_mean, next_variance, dy, dx, dscale, dshift;

  bool is_batch() const { return mode == CUDNN_BATCH_NORM; }
  bool has_mean() const { return mode != CUDNN_RMS_NORM; }
  std::array<const std::optional<FormulaTensor>*, 16> all() const {
    return {&x,
            &y,
            &scale,
            &shift,
            &mean,
            &inverse,
            &epsilon,
            &momentum,
            &running_mean,
            &running_variance,
            &next_mean,
            &next_variance,
            &dy,
            &dx,
            &dscale,
            &dshift};
  }
};

struct Slot {
  int attribute;
  std::optional<FormulaTensor> Norm::*tensor;
};
constexpr Slot kForwardSlots[] = {
    {CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, &Norm::x},
    {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, &Norm::y},
    {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, &Norm::scale},
    {CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, &Norm::shift},
    {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, &Norm::mean},
    {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, &Norm::inverse},
    {CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, &Norm::epsilon},
    {CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, &Norm::momentum},
    {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, &Norm::running_mean},
    {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, &Norm::running_variance},
    {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, &Norm::next_mean},
    {CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, &Norm::next_variance},
};
constexpr Slot kBackwardSlots[] = {
    {CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, &Norm::x},
    {CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, &Norm::dy},
    {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, &Norm::dx},
    {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, &Norm::scale},
    {CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, &Norm::dscale},
    {CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, &Norm::dshift},
    {CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, &Norm::mean},
    {CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, &Norm::inverse},
};

constexpr cudnnStatus_t kOtherShape = CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;

cudnnStatus_t check_forward(const Norm& n) {
  if (!n.x || !n.y || n.x->extents != n.y->extents) return refuse(kOtherShape, "x and its result have other extents");
  if (n.training && n.has_mean() && !n.inverse) return refuse(kOtherShape, "training has no inverse deviation");
  if (n.has_mean() && !n.scale) return refuse(kBad, "the norm has no scale");
  if (n.is_batch() && (!n.mean || !n.training)) return refuse(kBad, "batch norm for training has a mean");
  if (!n.is_batch() && (n.next_mean || n.next_variance))
    return refuse(kBad, "norms of rows have no running statistics");
  if (!n.epsilon) return refuse(kBad, "the norm has no epsilon");
  return kFine;
}
cudnnStatus_t check_backward(const Norm& n) {
  if (!n.x || !n.dy || !n.dx || n.x->extents != n.dy->extents || n.x->extents != n.dx->extents)
    return refuse(kOtherShape, "x and the gradients have other extents");
  if (n.has_mean() && !n.inverse) return refuse(kOtherShape, "there is no inverse deviation");
  if (!n.scale || !n.dscale || (n.has_mean() && !n.mean)) return refuse(kBad, "a tensor of the norm is not there");
  return kFine;
}

class NormLayer final : public Layer {
 public:
  explicit NormLayer(const Norm& norm) : n_(norm) {}

  cudnnStatus_t check_graph() const override {
    if (n_.x->type == CUDNN_DATA_DOUBLE && !n_.is_batch())
      return refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "norms of rows have no doubles");
    if (!n_.training) return refuse(kUnsupported, "only norms for training here");
    if (!n_.scale || !n_.inverse || (n_.has_mean() && !n_.mean))
      return refuse(kBad, "a tensor of the norm is not there");
    const auto& e = n_.x->extents;
    const std::array<int64_t, 4> columns{1, e[1], 1, 1},
        statistics = n_.is_batch() ? columns : std::array<int64_t, 4>{e[0], 1, 1, 1};
    for (const auto* one : {&n_.scale, &n_.shift, &n_.dscale, &n_.dshift})
      if (*one && (*one)->extents != columns) return refuse(kUnsupported, "a parameter has other extents");
    for (const auto* one :
         {&n_.mean, &n_.inverse, &n_.running_mean, &n_.running_variance, &n_.next_mean, &n_.next_variance})
      if (*one && ((*one)->extents != statistics || (*one)->type != CUDNN_DATA_FLOAT))
        return refuse(kBad, "a statistic has other extents or another type");
    for (const auto* one : {&n_.epsilon, &n_.momentum})
      if (*one && (!(*one)->by_value || (*one)->type != CUDNN_DATA_FLOAT))
        return refuse(kUnsupported, "only numbers on the host here");
    if (n_.is_batch() && n_.backward && !n_.dshift) return refuse(kBad, "batch norm has a gradient of its shift");
    if (n_.is_batch() && !n_.backward && !has_running()) return refuse(kBad, "batch norm has running statistics here");
    return kFine;
  }

  std::vector<FormulaTensor> tensors() const override {
    std::vector<FormulaTensor> found;
    for (const auto* one : n_.all())
      if (*one) found.push_back(**one);
    return found;
  }

  std::vector<int> engines(int architecture, cudnnBackendHeurMode_t) const override {
    const cudnnDataType_t type = n_.x->type, parameters = n_.scale->type;
    const int64_t size = type == CUDNN_DATA_FLOAT ? 4 : 2;
    if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16) return {};
    if (parameters != CUDNN_DATA_FLOAT && parameters != type) return {};
    if (type == CUDNN_DATA_BFLOAT16 && architecture < 80) return {};
    for (const auto* one : {&n_.y, &n_.dy, &n_.dx})
      if (*one && ((*one)->type != type || (*one)->strides != n_.x->strides)) return {};
    for (const auto* one : {&n_.shift, &n_.dscale, &n_.dshift})
      if (*one && (*one)->type != parameters) return {};
    // "Alignment requirements for input and output types".
    for (const auto* one : {&n_.x, &n_.y, &n_.dy, &n_.dx})
      if (*one && (*one)->alignment % 16 != 0) return {};
    const auto& e = n_.x->extents;
    const std::array<int64_t, 4> last{e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]},
        plain{e[1] * e[2] * e[3], e[2] * e[3], e[3], 1};
    if (n_.x->strides != last && (n_.x->strides != plain || !n_.is_batch())) return {};
    if (n_.is_batch() && (architecture < 80 || e[1] * size % 16 != 0)) return {};
    return norm_engines();
  }
  size_t workspace() const override { return n_.backward ? 256 : 0; }

  void compute(const std::map<int64_t, void*>& pointers) const override {
    const auto there = [](std::initializer_list<const std::optional<FormulaTensor>*> all) {
      std::vector<FormulaTensor> found;
      for (const auto* one : all)
        if (*one) found.push_back(**one);
      return found;
    };
    if (n_.backward)
      check_apart(there({&n_.x, &n_.dy, &n_.scale, &n_.mean, &n_.inverse}), there({&n_.dx, &n_.dscale, &n_.dshift}),
                  pointers);
    else
      check_apart(there({&n_.x, &n_.scale, &n_.shift, &n_.running_mean, &n_.running_variance}),
                  there({&n_.y, &n_.mean, &n_.inverse, &n_.next_mean, &n_.next_variance}), pointers);
    if (n_.backward)
      backward(pointers);
    else
      forward(pointers);
  }

 private:
  bool has_running() const {
    return n_.momentum && n_.running_mean && n_.running_variance && n_.next_mean && n_.next_variance;
  }
  // f(number of an element, number of its statistic, number of its parameter)
  template <class F>
  void each(F f) const {
    const auto& e = n_.x->extents;
    size_t i = 0;
    for (int64_t a = 0; a < e[0]; ++a)
      for (int64_t b = 0; b < e[1]; ++b)
        for (int64_t pixel = 0; pixel < e[2] * e[3]; ++pixel)
          f(i++, static_cast<size_t>(n_.is_batch() ? b : a), static_cast<size_t>(b));
  }
  size_t groups() const { return static_cast<size_t>(n_.x->extents[n_.is_batch() ? 1 : 0]); }
  double count() const {
    const auto& e = n_.x->extents;
    return static_cast<double>(e[2] * e[3] * (n_.is_batch() ? e[0] : e[1]));
  }

  void forward(const std::map<int64_t, void*>& pointers) const {
    const auto operand = [&](const std::optional<FormulaTensor>& one, size_t elements, double otherwise) {
      return one ? layer_operand(*one, pointers) : LayerValues(elements, otherwise);
    };
    const auto columns = static_cast<size_t>(n_.x->extents[1]);
    const LayerValues x = layer_operand(*n_.x, pointers), scale = operand(n_.scale, columns, 1),
                      shift = operand(n_.shift, columns, 0);
    const double epsilon = layer_operand(*n_.epsilon, pointers)[0];
    LayerValues mean(groups()), variance(groups()), inverse(groups()), y(x.size());
    if (n_.has_mean()) each([&](size_t i, size_t group, size_t) { mean[group] += x[i] / count(); });
    each([&](size_t i, size_t group, size_t) { variance[group] += std::pow(x[i] - mean[group], 2) / count(); });
    for (size_t group = 0; group < groups(); ++group) inverse[group] = 1 / std::sqrt(variance[group] + epsilon);
    each([&](size_t i, size_t group, size_t column) {
      y[i] = scale[column] * (x[i] - mean[group]) * inverse[group] + shift[column];
    });
    if (planted("norms-vary") && ++runs_ % 2 == 1) y[0] *= 1 + 0x1p-22;
    layer_result(*n_.y, pointers, y), layer_result(*n_.inverse, pointers, inverse);
    if (n_.mean) layer_result(*n_.mean, pointers, mean);
    if (!has_running()) return;
    const double momentum = layer_operand(*n_.momentum, pointers)[0];
    LayerValues next_mean = layer_operand(*n_.running_mean, pointers),
                next_variance = layer_operand(*n_.running_variance, pointers);
    const double unbiased = planted("running-variance-is-biased") ? 1 : count() / (count() - 1);
    for (size_t group = 0; group < groups(); ++group) {
      next_mean[group] = (1 - momentum) * next_mean[group] + momentum * mean[group];
      next_variance[group] = (1 - momentum) * next_variance[group] + momentum * variance[group] * unbiased;
    }
    layer_result(*n_.next_mean, pointers, next_mean), layer_result(*n_.next_variance, pointers, next_variance);
  }

  void backward(const std::map<int64_t, void*>& pointers) const {
    const LayerValues x = layer_operand(*n_.x, pointers), dy = layer_operand(*n_.dy, pointers),
                      scale = layer_operand(*n_.scale, pointers), inverse = layer_operand(*n_.inverse, pointers),
                      mean = n_.mean ? layer_operand(*n_.mean, pointers) : LayerValues(groups());
    LayerValues dscale(scale.size()), dshift(scale.size()), dx(x.size()), sum(groups()), product(groups());
    const auto hat = [&](size_t i, size_t group) { return (x[i] - mean[group]) * inverse[group]; };
    each([&](size_t i, size_t group, size_t column) {
      dscale[column] += dy[i] * hat(i, group), dshift[column] += dy[i];
      product[group] += scale[column] * dy[i] * hat(i, group);
      if (n_.has_mean()) sum[group] += scale[column] * dy[i];
    });
    each([&](size_t i, size_t group, size_t column) {
      dx[i] =
          inverse[group] * (scale[column] * dy[i] - sum[group] / count() - hat(i, group) * product[group] / count());
    });
    layer_result(*n_.dx, pointers, dx), layer_result(*n_.dscale, pointers, dscale);
    if (n_.dshift) layer_result(*n_.dshift, pointers, dshift);
  }

  Norm n_;
  mutable int runs_ = 0;
};

}  // namespace

cudnnStatus_t make_norm(const Node& operation, std::shared_ptr<const Layer>& layer) {
  Norm norm;
  norm.backward = operation.type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR;
  const int mode = norm.backward ? int{CUDNN_ATTR_OPERATION_NORM_BWD_MODE} : int{CUDNN_ATTR_OPERATION_NORM_FWD_MODE};
  norm.mode = operation.one<int>(mode, CUDNN_LAYER_NORM);
  if (norm.mode != CUDNN_LAYER_NORM && norm.mode != CUDNN_RMS_NORM && norm.mode != CUDNN_BATCH_NORM)
    return refuse(kUnsupported, "only layer norm, RMS norm and batch norm here");
  norm.training = norm.backward || operation.one<int>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_INFERENCE) ==
                                       CUDNN_NORM_FWD_TRAINING;
  const auto fill = [&](const auto& slots) {
    for (const Slot& slot : slots) {
      FormulaTensor tensor;
      if (!operation.values.contains(slot.attribute)) continue;
      if (const cudnnStatus_t status = tensor_of(operation, slot.attribute, tensor); status != kFine) return status;
      norm.*slot.tensor = tensor;
    }
    return kFine;
  };
  if (const cudnnStatus_t status = norm.backward ? fill(kBackwardSlots) : fill(kForwardSlots); status != kFine)
    return status;
  if (const cudnnStatus_t status = norm.backward ? check_backward(norm) : check_forward(norm); status != kFine)
    return status;
  layer = std::make_shared<NormLayer>(norm);
  return kFine;
}

}  // namespace halfmark::kernels::software_gpu::cudnn
