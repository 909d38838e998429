// Layers with hand-written forward and backward, one implementation for every precision. A layer holds parameters and
// state only. What backward needs goes into Saved, so one instance may run forward several times before backward.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/random.h"
#include "models/cast_counts.h"
#include "models/namespaces.h"
#include "models/pass_casts.h"
#include "models/policy.h"
#include "models/quantized_products.h"

namespace halfmark::models {

using Tensors = std::vector<Tensor>;

struct Param {
  std::string name;  // "conv1.weight", unique in a model
  Tensor value;      // what the layer computes with
  Tensor
      grad;  // empty until the first backward; each backward overwrites it, unless Pass::accumulate; layers that share it add
  Tensor master;  // f32, when the policy keeps one
};

struct State {  // changed by forward, not by the optimizer: running statistics
  std::string name;
  Tensor value;
};

// A hook that sees every activation and gradient. Names: "activation/conv1", "gradient/conv1" (of the loss with respect
// to the layer's output, still multiplied by the loss scale), "gradient/conv1.weight".
using Tap = std::function<void(const std::string& name, const Tensor& tensor)>;

// One forward or backward run of a model: the device, the policy
// and the tap. All casts happen here, by the policy's cast rules.
class Pass {
 public:
  Pass(Device& device, const Policy& policy, bool training, RandomKey key = RandomKey(0), Tap tap = {});

  Device& device;
  bool training;
  RandomKey key;
  Tap tap;
  Tap recomputed_tap{};     // for what a checkpoint layer computes again
  bool accumulate = false;  // add gradients to those of the previous backward: micro-batches
  bool recomputes = false;  // a forward that ran before in this step: a checkpoint
  // Casts of parameters are kept until the pass ends. Off, as torch.autocast(cache_enabled=False): each use casts anew.
  bool caches_casts = true;
  // Product and bias, batch norm and ReLU, a norm and the cast of its result are one operation, and so are the casts of gradients:
  // these may run as late as when the pass ends (pass_casts.h).
  bool fuses = false;
  CastCounts* counts = nullptr;  // counts the casts of this pass, which run one by one then; null: nobody does
  CastOf casts_tensors = CastOf::activation;  // what the casts are of, but for those of parameters and their gradients
  ScaleUpdates updates;                       // of delayed scaling, made when the pass ends

  const Policy& policy() const { return *policy_; }  // of the layer that runs
  // The input of a layer of a model whose layers have different policies: in the low dtype, unless cast rules say more.
  Tensor entering(const Tensor& x) const;
  // The input of any layer: in the low dtype where the cast rules cast the inputs of every layer (Keras), else x itself.
  Tensor layer_input(const Tensor& x) const;
  // The input in the dtype that the policy sets for `operation`
  // ("conv2d", "linear", "batch_norm", ...): a cast of x, or x itself.
  Tensor input(std::string_view operation, const Tensor& x);
  DType input_dtype(std::string_view operation, DType given) const { return wanted(operation, given); }
  // The same for a parameter; the cast is kept as `caches_casts` says, like autocast's weight cache (purpose `casts`).
  // `shared`: of another layer, which may have another policy.
  Tensor weight(std::string_view operation, const Param& param, bool shared = false);
  // Casts these parameters as one operation, for weight(), if the pass fuses and keeps casts; else nothing.
  void cast_ahead(const ParameterCasts& casts);
  // Those that weight() was asked for, each once: what the next pass of the same kind casts ahead. Not those of large parameters
  // (is_cast_with_others), nor any of a pass that keeps no casts.
  const ParameterCasts& casts_asked_for() const { return asked_for_; }
  // The dtype of an operation's output given its (already cast) input.
  DType output_dtype(std::string_view operation, DType input) const;
  // Sets a parameter's gradient: `compute` writes it into a plain tensor of dtype `computed`. The pass stores it as
  // Param::grad in the wider of policy.grad and the parameter's dtype, and calls the tap. Without a tap, a pass that fuses may
  // cast it as late as when the pass ends. If that fails, a first gradient is empty again.
  void gradient(Param& param, DType computed, const std::function<void(Tensor&)>& compute);
  // The arithmetic of matmul and convolution on operands of this dtype.
  Math math(DType operands) const;
  // A new tensor whose layout the kernel may choose; purpose `temporary`.
  Tensor fresh(const Shape& shape, DType dtype) const;
  // A fresh cast of x, or x itself when it has the dtype already.
  Tensor cast(const Tensor& x, DType dtype) const;
  // x itself when its layout is plain, else a reordered copy.
  // The reorder is an operation and appears in the kernel log.
  Tensor plain(const Tensor& x) const;
  // The same for an operand of a single operation: the copy is scratch, as a kernel's own reordered operands.
  Tensor operand(const Tensor& x) const;
  // The sum in the wider dtype, as in PyTorch's type promotion. Operands of different layouts are both made plain.
  Tensor sum(const Tensor& a, const Tensor& b) const;
  // A tensor that waits for another layer of this pass, under a name. Throws Error if one waits already, or if none does.
  void leave(const std::string& name, Tensor tensor);
  Tensor collect(const std::string& name);
  void look(const std::string& name, const Tensor& tensor) const {
    if (tap) tap(name, tensor);
  }

 private:
  friend class PolicyScope;
  DType wanted(std::string_view operation, DType input) const;
  void compute_gradient(Param& param, DType computed, const std::function<void(Tensor&)>& compute, bool is_new,
                        bool adds);
  Tensor cast_of(CastOf kind, const Tensor& x, DType dtype) const;
  void run_cast(CastOf kind, const Tensor& x, Tensor& out) const;
  const Policy* policy_;
  struct KeptCast {
    Tensor tensor;
    bool is_asked_for = false;
  };
  std::map<std::pair<uint64_t, DType>, KeptCast> casts_;  // by identity of the parameter's memory
  ParameterCasts asked_for_;
  GradientCasts gradient_casts_;
  std::set<const Param*> delivered_;  // those that have got a gradient in this pass
  std::map<std::string, Tensor> waiting_;
};

// Until its end the pass runs under another policy, which must outlive it.
class PolicyScope {
 public:
  PolicyScope(Pass& pass, const Policy& policy) : pass_(pass), before_(std::exchange(pass.policy_, &policy)) {}
  ~PolicyScope() { pass_.policy_ = before_; }
  PolicyScope(const PolicyScope&) = delete;
  PolicyScope& operator=(const PolicyScope&) = delete;

 private:
  Pass& pass_;
  const Policy* before_;
};

// At its start the pass casts ahead what the last pass of the same kind asked for; at its end that becomes what this one asked for.
class CastAhead {
 public:
  CastAhead(Pass& pass, ParameterCasts& of_last) : pass_(pass), of_last_(of_last) { pass.cast_ahead(of_last); }
  ~CastAhead() { of_last_ = pass_.casts_asked_for(); }
  CastAhead(const CastAhead&) = delete;
  CastAhead& operator=(const CastAhead&) = delete;

 private:
  const Pass& pass_;
  ParameterCasts& of_last_;
};

// The wider of two floating dtypes, as in PyTorch's type promotion: f16 with bf16 gives f32.
DType wider(DType a, DType b);

// Shape and dtype of a tensor whose values backward does not need.
struct TensorSpec {
  Shape shape;
  DType dtype;
};

// What forward keeps for backward: a stack. A tensor of purpose `temporary` is retagged to purpose `saved`; weights,
// casts of weights and the model's input keep their purpose.
class Saved {
 public:
  void keep(Tensor tensor);
  void keep_spec(const Tensor& tensor);  // holds no memory
  void keep_spec(TensorSpec form);
  Tensor take();  // throws Error when the next entry is missing or holds no tensor
  TensorSpec take_spec();
  void keep_key(RandomKey key);  // that of the pass, for a forward that is computed again
  RandomKey take_key();
  bool empty() const { return kept_.empty(); }

 private:
  struct Entry {
    Tensor tensor;
    TensorSpec form;
    std::optional<RandomKey> key{};
  };
  Entry pop();
  std::vector<Entry> kept_;
};

class FusibleWithRelu;

class Layer {
 public:
  explicit Layer(std::string name) : name_(std::move(name)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // saved == nullptr: inference, nothing is kept.
  virtual Tensor forward(Pass& pass, const Tensor& x, Saved* saved) = 0;
  // dy in any floating dtype; returns dx, and sets the gradient of every parameter.
  virtual Tensor backward(Pass& pass, const Tensor& dy, Saved& saved) = 0;
  virtual std::vector<Param*> params() { return {}; }
  virtual std::vector<State*> states() { return {}; }
  virtual double forward_flops(const Shape& input) const { return (void)input, 0; }  // multiply-adds count two
  virtual Shape output_shape(const Shape& input) const { return input; }
  // The activation that this layer is, if the layer before can apply it under the policy of the pass (layers/fusible.h).
  virtual FusedActivation fused_activation(const Pass& pass) const { return (void)pass, FusedActivation::none; }
  // This layer, if under this pass it can compute a ReLU after it too, and before that, if `adds`, the addition of another
  // branch (layers/fusible.h); else null.
  virtual FusibleWithRelu* fusible_with_relu(const Pass& pass, bool adds) { return (void)pass, (void)adds, nullptr; }

  const std::string& name() const { return name_; }
  // Whether another place of the model runs this layer too, with its state.
  bool runs_again() const { return runs_again_; }
  void set_runs_again() { runs_again_ = true; }

 private:
  std::string name_;
  bool runs_again_ = false;
};
using LayerPtr = std::unique_ptr<Layer>;

// What the layer factories below need; the layer classes are private to layers/*.cpp. Initial values are drawn in fp64
// from the key and rounded once to the policy's dtypes, so that every policy starts from the same numbers.
struct Init {
  Device& device;
  const Policy& policy;
  RandomKey key;
  // Set for the fp64 reference on rounded inputs: values are rounded to this format before anything else.
  const Format* round_first = nullptr;
  bool draws = true;  // false: memory without values, for shapes and counts only

  // A parameter or state with these values, in logical order; random ones are drawn from key.child(name).
  Param param(std::string name, const Shape& shape, DType dtype, std::span<const double> values) const;
  Param uniform(std::string name, const Shape& shape, DType dtype, double bound) const;     // U(-bound, bound)
  Param normal(std::string name, const Shape& shape, DType dtype, double deviation) const;  // N(0, deviation^2)
  // In policy.state; all entries alike, or each with its own.
  State state(std::string name, const Shape& shape, double value) const;
  State state(std::string name, const Shape& shape, DType dtype, std::span<const double> values) const;
};
// Initial values of a layer with a weight.
struct Start {
  enum class Kind : uint8_t {
    torch,       // of PyTorch's layer: uniform, U(-1 / sqrt(fan_in), 1 / sqrt(fan_in))
    he_fan_in,   // normal with variance 2 / fan_in (He et al. 2015, arXiv:1502.01852)
    he_fan_out,  // normal with variance 2 / fan_out
    normal,      // with `deviation`
    mean,        // every weight 1 / fan_in: each output is the mean of its inputs
  } kind = Kind::torch;
  double deviation = 0.02;
  std::optional<double> bias{};  // of all entries of the bias; empty: as PyTorch's layer
};
// Numbers of a weight: `fan_in` is the number of products in one output, `fan_out` that of outputs that one input enters.
// Drawn from key.child(name), neither rounded nor stored.
std::vector<double> drawn_weight(const Init& init, const std::string& name, const Shape& shape, int64_t fan_in,
                                 int64_t fan_out, const Start& start);
Param weight_of(const Init& init, std::string name, const Shape& shape, int64_t fan_in, int64_t fan_out,
                const Start& start);
Param bias_of(const Init& init, std::string name, int64_t entries, int64_t fan_in, const Start& start);

struct Size2d {  // of a window: height and width, or one number for both
  int h, w;
  Size2d(int height, int width) : h(height), w(width) {}
  Size2d(int both) : h(both), w(both) {}  // NOLINT(google-explicit-constructor)
};
// Over the last axis of x. `weight_norm`: layers/weight.h.
LayerPtr linear(const Init& init, std::string name, int64_t in, int64_t out, bool bias = true, const Start& start = {},
                bool weight_norm = false);
// Without bias, with the weight [out, in] of another layer, which is not among its own parameters.
LayerPtr tied_linear(std::string name, Param& weight);
LayerPtr conv2d(const Init& init, std::string name, int64_t in, int64_t out, Size2d kernel, Window window = {},
                int groups = 1, bool bias = true, const Start& start = {}, bool weight_norm = false);
// The result has (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 rows.
LayerPtr conv_transpose2d(const Init& init, std::string name, int64_t in, int64_t out, Size2d kernel,
                          const Window& window = {}, Size2d output_padding = 0, int groups = 1, bool bias = true,
                          const Start& start = {});
struct BatchNormOptions {
  double momentum = 0.1, epsilon = 1e-5;
  std::optional<DType> accumulate = {};  // Settings::batchnorm_accumulate
  bool affine = true;                    // with scale and shift
  bool frozen = false;                   // training too uses the running statistics, and leaves them as they are
  // Scale U(0.5, 1.5), shift N(0, 0.25), running mean N(0, 0.25) and variance U(0.5, 2), as after a training; else as
  // PyTorch. Numbers of 8 bits, so that they are the same in every dtype.
  bool drawn_start = false;
};
// Over all axes but the channels: [n, c], [n, c, t], [n, c, h, w] or [n, c, d, h, w].
LayerPtr batchnorm(const Init& init, std::string name, int64_t channels, const BatchNormOptions& options = {});
// Over the last axis. PyTorch's default epsilon of RMSNorm is 2^-23 for every dtype.
LayerPtr layer_norm(const Init& init, std::string name, int64_t features, double epsilon = 1e-5);
LayerPtr rms_norm(const Init& init, std::string name, int64_t features, double epsilon = 0x1p-23);
// Over the pixels and channels of each group; `groups` divides `channels`.
LayerPtr group_norm(const Init& init, std::string name, int64_t channels, int64_t groups, double epsilon = 1e-5);
// `kind`: a name of kernels/ops/activations.h ("relu"). Throws Error naming the known ones.
LayerPtr activation(std::string_view kind, std::string name);
LayerPtr relu(std::string name);
LayerPtr max_pool2d(std::string name, Size2d kernel, const Window& window);
LayerPtr avg_pool2d(std::string name, Size2d kernel, const Window& window);
LayerPtr global_avg_pool2d(std::string name);
LayerPtr adaptive_avg_pool2d(std::string name, Size2d size);  // of the result
LayerPtr upsample_bilinear2d(std::string name, int scale, bool align_corners = false);
LayerPtr upsample_nearest2d(std::string name, int scale);
LayerPtr channel_shuffle(std::string name, int64_t groups);  // channel i of group g becomes channel i groups + g
LayerPtr flatten(std::string name);

// Sequences: [n, t, features], or indices [n, t].
LayerPtr softmax(std::string name);
LayerPtr dropout(std::string name, double p, bool channels = false);  // identity in evaluation
// [n, anchors f, h, w] -> [n, h w anchors, f], as torchvision's permute_and_flatten.
LayerPtr to_anchors(std::string name, int64_t anchors);
LayerPtr to_sequence(std::string name);              // [n, c, h, w] -> [n, w, c h]
LayerPtr take_step(std::string name, int64_t step);  // [n, t, c] -> [n, c]; -1: the last
// indices -> rows of a table with `entries`; N(0, 1) as torch.nn.Embedding, or N(0, deviation^2). Row `padding` starts at 0
// and has no gradient. The input has no gradient: backward returns an empty tensor.
LayerPtr embedding(const Init& init, std::string name, int64_t entries, int64_t features, double deviation = 1,
                   int64_t padding = -1);
// x + the first t rows of a table with `length`.
LayerPtr position_embedding(const Init& init, std::string name, int64_t length, int64_t features, double deviation = 1);
struct AttentionOptions {
  bool causal = false;  // a position attends to none after it
  bool fused =
      true;  // one operation; else products, softmax and casts as autocast makes them, with q and k multiplied by
             // the root of the scale before their product, as in PyTorch's scaled_dot_product_attention
  // Sample i attends to its first lengths[i mod size] positions: padded sequences. Empty: to all. 0: its result is 0.
  std::vector<int64_t> lengths{};
  // Added to the scores of the positions left out, as stored in the dtype of q. Empty: a boolean mask, so -infinity.
  std::optional<double> mask_value{};
  // Only in steps: a position that attends to none gets 0, as in PyTorch's scaled_dot_product_attention. Else NaN where every
  // score is -infinity, as a softmax gives it.
  bool guarded = true;
};
// [n, t, 3 c] of q, k and v -> [n, t, c].
LayerPtr self_attention(std::string name, int64_t heads, const AttentionOptions& options = {});
// torch.nn.LSTM(batch_first=True) with one layer: [n, t, inputs] -> [n, t, hidden], or 2 hidden if bidirectional.
LayerPtr lstm(const Init& init, std::string name, int64_t inputs, int64_t hidden, bool bidirectional = false);
// torch.nn.LSTMCell: [n, inputs + 2 hidden] of x, h and c side by side -> [n, 2 hidden] of the new h and c.
LayerPtr lstm_cell(const Init& init, std::string name, int64_t inputs, int64_t hidden);
LayerPtr sequential(std::string name, std::vector<LayerPtr> layers);
LayerPtr residual(std::string name, LayerPtr body, LayerPtr shortcut = nullptr);  // body(x) + shortcut(x), or + x
// Along the channels (axis 1), or the last axis; null: the input itself.
LayerPtr concat(std::string name, std::vector<LayerPtr> branches, bool last_axis = false);
LayerPtr again(std::string name, Layer& layer);    // runs a layer of the same model again, which is not owned
LayerPtr side(std::string name, LayerPtr branch);  // the input; the branch's result waits for a join
LayerPtr join(std::string name, std::string side, const Shape& of_side, bool adds);  // else along axis 1
LayerPtr under_policy(const Policy& policy, LayerPtr body);  // its parameters too have to be made under this policy
LayerPtr checkpoint(std::string name, LayerPtr body);        // keeps the input of the body only, and computes it twice

}  // namespace halfmark::models
