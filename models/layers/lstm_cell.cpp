// One step of a long short-term memory as a layer, from a given state: torch.nn.LSTMCell. Casts as in lstm.cpp.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class LstmCellLayer : public TappedLayer {
 public:
  LstmCellLayer(const Init& init, std::string name, int64_t inputs, int64_t hidden)
      : TappedLayer(std::move(name)), inputs_(inputs), hidden_(hidden) {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));  // torch.nn.LSTMCell
    const DType dtype = init.policy.param;
    input_weight_ = init.uniform(this->name() + ".weight_ih", {4 * hidden, inputs}, dtype, bound);
    hidden_weight_ = init.uniform(this->name() + ".weight_hh", {4 * hidden, hidden}, dtype, bound);
    input_bias_ = init.uniform(this->name() + ".bias_ih", {4 * hidden}, dtype, bound);
    hidden_bias_ = init.uniform(this->name() + ".bias_hh", {4 * hidden}, dtype, bound);
  }
  std::vector<Param*> params() override { return {&input_weight_, &hidden_weight_, &input_bias_, &hidden_bias_}; }
  double forward_flops(const Shape& x) const override {
    return 2.0 * static_cast<double>(x[0]) *
           static_cast<double>(input_weight_.value.elements() + hidden_weight_.value.elements());
  }
  Shape output_shape(const Shape& x) const override { return {x[0], 2 * hidden_}; }

 private:
  // Columns of a matrix, and the matrix of parts side by side.
  static Tensor columns(Pass& pass, const Tensor& all, int64_t from, int64_t count) {
    Tensor part(pass.device, {all.shape()[0], count}, all.dtype());
    run(CopyChannels{.x = all, .out = part, .from = from, .to = 0, .count = count});
    return part;
  }
  static Tensor side_by_side(Pass& pass, const std::vector<Tensor>& parts) {
    int64_t width = 0;
    for (const Tensor& part : parts) width += part.shape()[1];
    Tensor all(pass.device, {parts[0].shape()[0], width}, parts[0].dtype());
    int64_t to = 0;
    for (const Tensor& part : parts) {
      run(CopyChannels{.x = part, .out = all, .from = 0, .to = to, .count = part.shape()[1]});
      to += part.shape()[1];
    }
    return all;
  }

  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor all = pass.plain(pass.input("linear", x_given));
    const Tensor x = columns(pass, all, 0, inputs_), h = columns(pass, all, inputs_, hidden_),
                 c = columns(pass, all, inputs_ + hidden_, hidden_);
    const Tensor wx = pass.weight("linear", input_weight_), wh = pass.weight("linear", hidden_weight_);
    const Math math = pass.math(x.dtype());
    const int64_t n = x.shape()[0];
    Tensor z(pass.device, {n, 4 * hidden_}, x.dtype()), gates(pass.device, {n, 4 * hidden_}, x.dtype());
    run(Matmul{.a = x, .b = wx, .out = z, .transpose_b = true, .math = math});
    run(AddBias{.x = z, .bias = pass.weight("linear", input_bias_), .out = z});
    run(AddBias{.x = z, .bias = pass.weight("linear", hidden_bias_), .out = z});
    run(Matmul{.a = h, .b = wh, .out = z, .transpose_b = true, .math = math, .beta = 1});
    Tensor c_after(pass.device, {n, hidden_}, x.dtype()), h_after(pass.device, {n, hidden_}, x.dtype());
    run(LstmCell{.z = z, .c_before = c, .gates = gates, .c = c_after, .h = h_after});
    if (saved) {
      saved->keep_spec(x_given), saved->keep(wx), saved->keep(wh), saved->keep(x), saved->keep(h), saved->keep(c);
      saved->keep(c_after), saved->keep(gates);
    }
    return side_by_side(pass, {h_after, c_after});
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const Tensor gates = saved.take(), c_after = saved.take(), c = saved.take(), h = saved.take(), x = saved.take();
    const Tensor wh = saved.take(), wx = saved.take();
    const Tensor dy = pass.plain(pass.cast(dy_given, x.dtype()));
    const Math math = pass.math(x.dtype());
    const int64_t n = x.shape()[0];
    Tensor dz(pass.device, {n, 4 * hidden_}, x.dtype()), dc(pass.device, {n, hidden_}, x.dtype());
    run(LstmCellBackward{.gates = gates,
                         .c_before = c,
                         .c = c_after,
                         .dh = columns(pass, dy, 0, hidden_),
                         .dc = columns(pass, dy, hidden_, hidden_),
                         .dz = dz,
                         .dc_before = dc});
    pass.gradient(input_weight_, wx.dtype(),
                  [&](Tensor& dw) { run(Matmul{.a = dz, .b = x, .out = dw, .transpose_a = true, .math = math}); });
    pass.gradient(hidden_weight_, wh.dtype(),
                  [&](Tensor& dw) { run(Matmul{.a = dz, .b = h, .out = dw, .transpose_a = true, .math = math}); });
    for (Param* bias : {&input_bias_, &hidden_bias_})
      pass.gradient(*bias, wx.dtype(), [&](Tensor& db) { run(BiasGradient{.dy = dz, .dbias = db}); });
    Tensor dx(pass.device, {n, inputs_}, x.dtype()), dh(pass.device, {n, hidden_}, x.dtype());
    run(Matmul{.a = dz, .b = wx, .out = dx, .math = math});
    run(Matmul{.a = dz, .b = wh, .out = dh, .math = math});
    return pass.cast(side_by_side(pass, {dx, dh, dc}), saved.take_spec().dtype);
  }

  int64_t inputs_, hidden_;
  Param input_weight_, hidden_weight_;  // [4 hidden, inputs], [4 hidden, hidden]
  Param input_bias_, hidden_bias_;      // [4 hidden]
};

}  // namespace

LayerPtr lstm_cell(const Init& init, std::string name, int64_t inputs, int64_t hidden) {
  return std::make_unique<LstmCellLayer>(init, std::move(name), inputs, hidden);
}

}  // namespace halfmark::models
