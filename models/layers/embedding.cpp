// Embeddings of tokens and of positions.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class EmbeddingLayer : public TappedLayer {
 public:
  EmbeddingLayer(const Init& init, std::string name, int64_t entries, int64_t features, double deviation,
                 int64_t padding)
      : TappedLayer(std::move(name)), padding_(padding) {
    table_ = init.normal(this->name() + ".weight", {entries, features}, init.policy.param, deviation);
    if (padding < 0 || !init.draws) return;
    std::vector<double> values = table_.value.values();
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(padding * features), features, 0.0);
    table_.value.set_values(values);
    if (!table_.master.empty()) table_.master.set_values(values);
  }
  std::vector<Param*> params() override { return {&table_}; }
  Shape output_shape(const Shape& x) const override {
    std::vector<int64_t> extents(x.extents().begin(), x.extents().end());
    extents.push_back(table_.value.shape()[1]);
    return Shape(extents);
  }

 private:
  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    const Tensor table = pass.weight("embedding", table_);
    Tensor y(pass.device, output_shape(x.shape()), table.dtype());
    run(Embedding{.indices = x, .table = table, .out = y});
    if (saved) saved->keep(x);
    return y;
  }
  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor indices = saved.take(), dy = pass.operand(dy_given);
    pass.gradient(table_, dy.dtype(), [&](Tensor& dtable) {
      run(EmbeddingBackward{.indices = indices, .dy = dy, .dtable = dtable, .padding = padding_});
    });
    return {};
  }

  int64_t padding_;
  Param table_;  // [entries, features]
};

class PositionEmbedding : public TappedLayer {
 public:
  PositionEmbedding(const Init& init, std::string name, int64_t length, int64_t features, double deviation)
      : TappedLayer(std::move(name)) {
    table_ = init.normal(this->name() + ".weight", {length, features}, init.policy.param, deviation);
  }
  std::vector<Param*> params() override { return {&table_}; }

 private:
  // The rows of the table as one bias of the sequence as one row.
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor table = pass.weight("embedding", table_);
    const Tensor x = pass.operand(pass.cast(x_given, wider(x_given.dtype(), table.dtype())));
    const Shape& shape = x.shape();
    const int64_t row = shape[1] * shape[2];
    Tensor y(pass.device, {shape[0], row}, x.dtype());
    run(AddBias{.x = x.reshaped({shape[0], row}), .bias = table.slice(0, shape[1]).reshaped({row}), .out = y});
    if (saved) saved->keep_spec(x_given);
    return y.reshaped(shape);
  }
  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const TensorSpec x = saved.take_spec();
    const Tensor dy = pass.operand(dy_given);
    const int64_t t = x.shape[1], row = t * x.shape[2];
    pass.gradient(table_, dy.dtype(), [&](Tensor& dtable) {
      if (t < dtable.shape()[0]) dtable.fill(0);
      Tensor first = dtable.slice(0, t).reshaped({row});
      run(BiasGradient{.dy = dy.reshaped({x.shape[0], row}), .dbias = first});
    });
    return pass.cast(dy, x.dtype);
  }

  Param table_;  // [length, features]
};

}  // namespace

LayerPtr embedding(const Init& init, std::string name, int64_t entries, int64_t features, double deviation,
                   int64_t padding) {
  return std::make_unique<EmbeddingLayer>(init, std::move(name), entries, features, deviation, padding);
}
LayerPtr position_embedding(const Init& init, std::string name, int64_t length, int64_t features, double deviation) {
  return std::make_unique<PositionEmbedding>(init, std::move(name), length, features, deviation);
}

}  // namespace halfmark::models
