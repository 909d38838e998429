// Max and average pooling, forward and backward.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_backend.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_layers.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"

namespace halfmark::kernels::software_gpu::cudnn {
namespace {

struct Pool {
  bool maximum = false, backward = false;
  std::array<int64_t, 2> pad{}, stride{}, window{};
  FormulaTensor x, y;  // or their gradients
  std::optional<FormulaTensor> indices;
};

using Extents = std::array<int64_t, 4>;
bool is_last(const FormulaTensor& t) {
  const auto& e = t.extents;
  return t.strides == Extents{e[1] * e[2] * e[3], 1, e[3] * e[1], e[1]};
}
bool is_plain(const FormulaTensor& t) {
  const auto& e = t.extents;
  return t.strides == Extents{e[1] * e[2] * e[3], e[2] * e[3], e[3], 1};
}

class PoolLayer final : public Layer {
 public:
  explicit PoolLayer(const Pool& pool) : p_(pool) {}

  cudnnStatus_t check_graph() const override { return kFine; }
  std::vector<FormulaTensor> tensors() const override {
    std::vector<FormulaTensor> found{p_.x, p_.y};
    if (p_.indices) found.push_back(*p_.indices);
    return found;
  }

  std::vector<int> engines(int architecture, cudnnBackendHeurMode_t mode) const override {
    const cudnnDataType_t type = p_.x.type;
    if (p_.y.type != type || (p_.indices && p_.indices->type != CUDNN_DATA_INT8)) return {};
    if (type == CUDNN_DATA_BFLOAT16 && architecture < 80) return {};
    const bool is_half = type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
    const bool is_fallback = mode == CUDNN_HEUR_MODE_FALLBACK;
    if (is_last(p_.x) && is_last(p_.y) && (!p_.indices || is_last(*p_.indices))) {
      if (!is_half && type != CUDNN_DATA_FLOAT) return {};
      return pool_engines(!p_.backward && !p_.indices && !is_fallback);
    }
    if (!is_plain(p_.x) || !is_plain(p_.y) || (p_.indices && !is_plain(*p_.indices))) return {};
    if ((p_.backward && p_.maximum) || !is_fallback) return {};
    return plain_pool_engines();
  }

  void compute(const std::map<int64_t, void*>& pointers) const override {
    const FormulaTensor &from = p_.backward ? p_.y : p_.x, &to = p_.backward ? p_.x : p_.y;
    std::vector<FormulaTensor> operands{from}, results{to};
    if (p_.indices) (p_.backward ? operands : results).push_back(*p_.indices);
    check_apart(operands, results, pointers);
    if (p_.backward)
      backward(pointers);
    else
      forward(pointers);
  }

 private:
  // f(number of an element of x, its place in the window, number of an element of y); places in order.
  template <class F>
  void each(F f) const {
    const auto &x = p_.x.extents, &y = p_.y.extents;
    for (int64_t plane = 0; plane < y[0] * y[1]; ++plane)
      for (int64_t row = 0; row < y[2]; ++row)
        for (int64_t column = 0; column < y[3]; ++column)
          for (int64_t place = 0; place < p_.window[0] * p_.window[1]; ++place) {
            const int64_t h = row * p_.stride[0] - p_.pad[0] + place / p_.window[1],
                          w = column * p_.stride[1] - p_.pad[1] + place % p_.window[1];
            if (h < 0 || h >= x[2] || w < 0 || w >= x[3]) continue;
            f(static_cast<size_t>((plane * x[2] + h) * x[3] + w), place,
              static_cast<size_t>((plane * y[2] + row) * y[3] + column));
          }
  }
  static size_t count(const FormulaTensor& t) {
    return static_cast<size_t>(t.extents[0] * t.extents[1] * t.extents[2] * t.extents[3]);
  }
  double window() const { return static_cast<double>(p_.window[0] * p_.window[1]); }

  void forward(const std::map<int64_t, void*>& pointers) const {
    const LayerValues x = layer_operand(p_.x, pointers);
    LayerValues y(count(p_.y), p_.maximum ? -std::numeric_limits<double>::infinity() : 0), places(y.size(), -1);
    const bool last_wins = planted("last-maximum-has-the-index");
    each([&](size_t i, int64_t place, size_t o) {
      if (!p_.maximum) {
        y[o] += x[i] / window();
      } else if (places[o] < 0 || x[i] > y[o] || std::isnan(x[i]) || (last_wins && x[i] == y[o])) {
        y[o] = x[i], places[o] = static_cast<double>(place);
      }
    });
    layer_result(p_.y, pointers, y);
    if (p_.indices) layer_result(*p_.indices, pointers, places);
  }
  void backward(const std::map<int64_t, void*>& pointers) const {
    const LayerValues dy = layer_operand(p_.y, pointers),
                      places = p_.indices ? layer_operand(*p_.indices, pointers) : LayerValues();
    LayerValues dx(count(p_.x));
    each([&](size_t i, int64_t place, size_t o) {
      if (!p_.maximum)
        dx[i] += dy[o] / window();
      else if (places[o] == static_cast<double>(place))
        dx[i] += dy[o];
    });
    layer_result(p_.x, pointers, dx);
  }

  Pool p_;
};

std::optional<std::array<int64_t, 2>> two_of(const Node& how, int attribute) {
  const auto values = how.all<int64_t>(attribute);
  if (values.size() != 2) return {};
  return std::array{values[0], values[1]};
}

cudnnStatus_t read_window(const Node& how, Pool& pool) {
  const auto before = two_of(how, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS),
             after = two_of(how, CUDNN_ATTR_RESAMPLE_POST_PADDINGS), stride = two_of(how, CUDNN_ATTR_RESAMPLE_STRIDES),
             window = two_of(how, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS);
  if (!before || !after || !stride || !window) return refuse(kBad, "the window is not complete");
  if (*before != *after) return refuse(kUnsupported, "only equal paddings here");
  if (std::min({(*stride)[0], (*stride)[1], (*window)[0], (*window)[1]}) < 1 ||
      std::min((*before)[0], (*before)[1]) < 0)
    return refuse(kBad, "a stride or a window is not positive");
  pool.pad = *before, pool.stride = *stride, pool.window = *window;
  return kFine;
}

bool has_extents(const Pool& p) {
  if (p.x.extents[0] != p.y.extents[0] || p.x.extents[1] != p.y.extents[1]) return false;
  for (size_t i = 0; i < 2; ++i)
    if ((p.x.extents[i + 2] + 2 * p.pad[i] - p.window[i]) / p.stride[i] + 1 != p.y.extents[i + 2]) return false;
  return true;
}

}  // namespace

cudnnStatus_t check_resample(const Node& how) {
  const int mode = how.one<int>(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_RESAMPLE_NEAREST);
  if (mode != CUDNN_RESAMPLE_MAXPOOL && mode != CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING)
    return refuse(kUnsupported, "only maxima and averages with padding here");
  if (how.one<int64_t>(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 0) != 2) return refuse(kUnsupported, "only two axes here");
  for (const int attribute : {CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_ATTR_RESAMPLE_POST_PADDINGS,
                              CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS})
    if (how.values.contains(attribute) && !two_of(how, attribute))
      return refuse(kUnsupported, "a list has another number of axes");
  return kFine;
}

cudnnStatus_t make_pool(const Node& operation, std::shared_ptr<const Layer>& layer) {
  Pool pool;
  pool.backward = operation.type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
  const auto name = [&](int forward, int backward) { return pool.backward ? backward : forward; };
  const int how_name = name(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC),
            x_name = name(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC),
            y_name = name(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC),
            index_name = name(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC);
  const auto how =
      finalized_node(operation.one<cudnnBackendDescriptor_t>(how_name, nullptr), CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
  if (!how) return refuse(kBad, "how to resample is not there or not finalized");
  const int mode = how->one<int>(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_RESAMPLE_NEAREST);
  pool.maximum = mode == CUDNN_RESAMPLE_MAXPOOL;
  // A maximum over zeros as padding is another operation.
  const int padding = how->one<int>(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_ZERO_PAD);
  if (const cudnnStatus_t status = read_window(*how, pool); status != kFine) return status;
  if (const cudnnStatus_t status = tensor_of(operation, x_name, pool.x); status != kFine) return status;
  if (const cudnnStatus_t status = tensor_of(operation, y_name, pool.y); status != kFine) return status;
  if (operation.values.contains(index_name)) {
    FormulaTensor indices;
    if (const cudnnStatus_t status = tensor_of(operation, index_name, indices); status != kFine) return status;
    pool.indices = indices;
  }
  if (!has_extents(pool)) return refuse(kBad, "the result has other extents than the window gives");
  if (pool.indices && pool.indices->extents != pool.y.extents) return refuse(kBad, "the indices have other extents");
  if (pool.backward && pool.maximum && !pool.indices) return refuse(kBad, "max pooling backward needs indices here");
  if (padding != (pool.maximum ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD))
    return refuse(kUnsupported, "only padding that does not count in a maximum, and zeros in an average, here");
  layer = std::make_shared<PoolLayer>(pool);
  return kFine;
}

}  // namespace halfmark::kernels::software_gpu::cudnn
