// A long short-term memory over all steps of a sequence. As PyTorch's decomposed cell under autocast, every product is in the
// low dtype, and gates, c and h are stored in it.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

// One direction, on sequences with the time first: [t, n, features].
class Direction {
 public:
  // torch.nn.LSTM: weights of the input and of h and two biases, for the gates i, f, g, o; all U(+-1 / sqrt(hidden)).
  Direction(const Init& init, const std::string& name, int64_t inputs, int64_t hidden, bool reversed)
      : hidden_(hidden), reversed_(reversed) {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    const DType dtype = init.policy.param;
    input_weight_ = init.uniform(name + ".weight_ih", {4 * hidden, inputs}, dtype, bound);
    hidden_weight_ = init.uniform(name + ".weight_hh", {4 * hidden, hidden}, dtype, bound);
    input_bias_ = init.uniform(name + ".bias_ih", {4 * hidden}, dtype, bound);
    hidden_bias_ = init.uniform(name + ".bias_hh", {4 * hidden}, dtype, bound);
  }
  std::vector<Param*> params() { return {&input_weight_, &hidden_weight_, &input_bias_, &hidden_bias_}; }
  double flops(int64_t steps, int64_t n) const {
    const int64_t weights = input_weight_.value.elements() + hidden_weight_.value.elements();
    return 2.0 * static_cast<double>(steps * n * weights);
  }

  // h of all steps, [t, n, hidden].
  Tensor forward(Pass& pass, const Tensor& x, Saved* saved) {
    const int64_t steps = x.shape()[0], n = x.shape()[1];
    const Tensor wx = pass.weight("linear", input_weight_), wh = pass.weight("linear", hidden_weight_);
    const Math math = pass.math(x.dtype());
    // The part of the input of all steps at once.
    Tensor z(pass.device, {steps * n, 4 * hidden_}, x.dtype());
    run(Matmul{.a = x.reshaped({steps * n, x.shape()[2]}), .b = wx, .out = z, .transpose_b = true, .math = math});
    run(AddBias{.x = z, .bias = pass.weight("linear", input_bias_), .out = z});
    run(AddBias{.x = z, .bias = pass.weight("linear", hidden_bias_), .out = z});
    // Entry s is that before the step s of this direction; the first is 0.
    Tensor h(pass.device, {steps + 1, n, hidden_}, x.dtype()), c(pass.device, {steps + 1, n, hidden_}, x.dtype());
    entry(h, 0, n, hidden_).fill(0), entry(c, 0, n, hidden_).fill(0);
    Tensor gates(pass.device, {steps * n, 4 * hidden_}, x.dtype());
    for (int64_t s = 0; s < steps; ++s) {
      Tensor z_of_step = rows(z, place(s, steps), n), gates_of_step = rows(gates, place(s, steps), n);
      const Tensor before = entry(h, s, n, hidden_), c_before = entry(c, s, n, hidden_);
      if (s > 0) run(Matmul{.a = before, .b = wh, .out = z_of_step, .transpose_b = true, .math = math, .beta = 1});
      Tensor c_after = entry(c, s + 1, n, hidden_), h_after = entry(h, s + 1, n, hidden_);
      run(LstmCell{.z = z_of_step, .c_before = c_before, .gates = gates_of_step, .c = c_after, .h = h_after});
    }
    if (saved) {
      saved->keep(wx), saved->keep(wh), saved->keep(x);
      saved->keep(gates), saved->keep(c), saved->keep(h);
    }
    return in_time(pass, h.slice(1, steps));
  }

  // dx [t, n, inputs] from dh of all steps.
  Tensor backward(Pass& pass, const Tensor& dy_in_time, Saved& saved) {
    const Tensor h = saved.take(), c = saved.take(), gates = saved.take();
    const Tensor x = saved.take(), wh = saved.take(), wx = saved.take();
    const Tensor dy = in_time(pass, dy_in_time);  // in the order of this direction
    const int64_t steps = x.shape()[0], n = x.shape()[1], inputs = x.shape()[2];
    const Math math = pass.math(x.dtype());
    Tensor dz(pass.device, {steps * n, 4 * hidden_}, x.dtype());
    Tensor dz_in_order = reversed_ ? Tensor(pass.device, {steps * n, 4 * hidden_}, x.dtype()) : dz;
    Tensor dc = Tensor::zeros(pass.device, {n, hidden_}, x.dtype()), carried;
    for (int64_t s = steps; s-- > 0;) {
      Tensor dh = entry(dy, s, n, hidden_);
      if (!carried.empty()) {
        Tensor sum(pass.device, {n, hidden_}, x.dtype());
        run(Add{.a = dh, .b = carried, .out = sum});
        dh = sum;
      }
      Tensor dz_of_step = rows(dz, place(s, steps), n), dc_before(pass.device, {n, hidden_}, x.dtype());
      run(LstmCellBackward{.gates = rows(gates, place(s, steps), n),
                           .c_before = entry(c, s, n, hidden_),
                           .c = entry(c, s + 1, n, hidden_),
                           .dh = dh,
                           .dc = dc,
                           .dz = dz_of_step,
                           .dc_before = dc_before});
      dc = dc_before;
      if (s == 0) break;
      carried = Tensor(pass.device, {n, hidden_}, x.dtype());
      run(Matmul{.a = dz_of_step, .b = wh, .out = carried, .math = math});
    }
    if (reversed_) {  // h is in the order of this direction
      for (int64_t s = 0; s < steps; ++s) copy(rows(dz, place(s, steps), n), rows(dz_in_order, s, n));
    }
    const Tensor before = h.slice(0, steps).reshaped({steps * n, hidden_}),
                 inputs_of_all = x.reshaped({steps * n, inputs});
    pass.gradient(input_weight_, wx.dtype(), [&](Tensor& dw) {
      run(Matmul{.a = dz, .b = inputs_of_all, .out = dw, .transpose_a = true, .math = math});
    });
    pass.gradient(hidden_weight_, wh.dtype(), [&](Tensor& dw) {
      run(Matmul{.a = dz_in_order, .b = before, .out = dw, .transpose_a = true, .math = math});
    });
    for (Param* bias : {&input_bias_, &hidden_bias_})
      pass.gradient(*bias, wx.dtype(), [&](Tensor& db) { run(BiasGradient{.dy = dz, .dbias = db}); });
    Tensor dx(pass.device, {steps * n, inputs}, x.dtype());
    run(Matmul{.a = dz, .b = wx, .out = dx, .math = math});
    return dx.reshaped({steps, n, inputs});
  }

 private:
  // The time of step s of this direction.
  int64_t place(int64_t s, int64_t steps) const { return reversed_ ? steps - 1 - s : s; }
  static Tensor rows(const Tensor& all, int64_t step, int64_t n) { return all.slice(step * n, n); }
  static Tensor entry(const Tensor& all, int64_t step, int64_t n, int64_t hidden) {
    return all.slice(step, 1).reshaped({n, hidden});
  }
  static void copy(const Tensor& from, Tensor to) { run(Reorder{.x = from, .out = to}); }
  // Between the order of this direction and that of time.
  Tensor in_time(Pass& pass, const Tensor& all) const {
    if (!reversed_) return all;
    const int64_t steps = all.shape()[0], n = all.shape()[1];
    Tensor other(pass.device, all.shape(), all.dtype());
    for (int64_t s = 0; s < steps; ++s) copy(entry(all, s, n, hidden_), entry(other, steps - 1 - s, n, hidden_));
    return other;
  }

  int64_t hidden_;
  bool reversed_;
  Param input_weight_, hidden_weight_;  // [4 hidden, inputs], [4 hidden, hidden]
  Param input_bias_, hidden_bias_;      // [4 hidden]
};

class Lstm : public TappedLayer {
 public:
  Lstm(const Init& init, std::string name, int64_t inputs, int64_t hidden, bool bidirectional)
      : TappedLayer(std::move(name)), hidden_(hidden) {
    directions_.emplace_back(init, this->name(), inputs, hidden, false);
    if (bidirectional) directions_.emplace_back(init, this->name() + ".reverse", inputs, hidden, true);
  }
  std::vector<Param*> params() override {
    std::vector<Param*> all;
    for (Direction& direction : directions_)
      for (Param* param : direction.params()) all.push_back(param);
    return all;
  }
  double forward_flops(const Shape& x) const override {
    double flops = 0;
    for (const Direction& direction : directions_) flops += direction.flops(x[1], x[0]);
    return flops;
  }
  Shape output_shape(const Shape& x) const override {
    return {x[0], x[1], static_cast<int64_t>(directions_.size()) * hidden_};
  }

 private:
  static constexpr AxisOrder kSwap{{1, 0, 2}, 3};  // between [n, t, f] and [t, n, f]

  static Tensor swapped(Pass& pass, const Tensor& x) {
    Tensor y(pass.device, permuted(x.shape(), kSwap), x.dtype());
    run(Permute{.x = pass.operand(x), .out = y, .order = kSwap});
    return y;
  }

  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    const Tensor a = swapped(pass, pass.input("linear", x));
    if (saved) saved->keep_spec(x);
    if (directions_.size() == 1) return swapped(pass, directions_[0].forward(pass, a, saved));
    const int64_t all = a.shape()[0] * a.shape()[1];
    Tensor both(pass.device, {all, 2 * hidden_}, a.dtype());
    for (size_t i = 0; i < 2; ++i) {
      const Tensor h = directions_[i].forward(pass, a, saved).reshaped({all, hidden_});
      run(CopyChannels{.x = h, .out = both, .from = 0, .to = static_cast<int64_t>(i) * hidden_, .count = hidden_});
    }
    return swapped(pass, both.reshaped({a.shape()[0], a.shape()[1], 2 * hidden_}));
  }

  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const DType low = pass.input_dtype("linear", dy_given.dtype());
    const Tensor dy = swapped(pass, pass.cast(dy_given, low));
    if (directions_.size() == 1) {
      const Tensor dx = swapped(pass, directions_[0].backward(pass, dy, saved));
      return pass.cast(dx, saved.take_spec().dtype);
    }
    const int64_t steps = dy.shape()[0], n = dy.shape()[1];
    Tensor sum;
    for (size_t i = 2; i-- > 0;) {
      Tensor part(pass.device, {steps * n, hidden_}, low);
      run(CopyChannels{.x = dy.reshaped({steps * n, 2 * hidden_}),
                       .out = part,
                       .from = static_cast<int64_t>(i) * hidden_,
                       .to = 0,
                       .count = hidden_});
      const Tensor dx = directions_[i].backward(pass, part.reshaped({steps, n, hidden_}), saved);
      if (sum.empty()) {
        sum = dx;
        continue;
      }
      Tensor added(pass.device, dx.shape(), dx.dtype());
      run(Add{.a = sum, .b = dx, .out = added});
      sum = added;
    }
    return pass.cast(swapped(pass, sum), saved.take_spec().dtype);
  }

  int64_t hidden_;
  std::vector<Direction> directions_;
};

}  // namespace

LayerPtr lstm(const Init& init, std::string name, int64_t inputs, int64_t hidden, bool bidirectional) {
  return std::make_unique<Lstm>(init, std::move(name), inputs, hidden, bidirectional);
}

}  // namespace halfmark::models
