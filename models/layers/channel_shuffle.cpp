// The channels of groups dealt out in turn, so that the next grouped convolution sees all groups (ShuffleNet, Zhang et al.
// 2017, arXiv:1707.01083). Values are copied bit for bit.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class ChannelShuffle : public TappedLayer {
 public:
  ChannelShuffle(std::string name, int64_t groups) : TappedLayer(std::move(name)), groups_(groups) {}

 private:
  static constexpr AxisOrder kSwap{{0, 2, 1, 3}, 4};

  // The channels as [rows, columns] are transposed; the result is plain.
  static Tensor transposed(Pass& pass, const Tensor& x, int64_t rows) {
    const Shape& shape = x.shape();
    const Shape split{shape[0], rows, shape[1] / rows, shape[2] * shape[3]};
    Tensor out(pass.device, permuted(split, kSwap), x.dtype());
    run(Permute{.x = pass.operand(x).reshaped(split), .out = out, .order = kSwap});
    return out.reshaped(shape);
  }
  Tensor compute(Pass& pass, const Tensor& x, Saved* saved) override {
    if (saved) saved->keep_spec(x);
    return transposed(pass, x, groups_);
  }
  Tensor differentiate(Pass& pass, const Tensor& dy, Saved& saved) override {
    const TensorSpec x = saved.take_spec();
    return pass.cast(transposed(pass, dy, x.shape[1] / groups_), x.dtype);
  }

  int64_t groups_;
};

}  // namespace

LayerPtr channel_shuffle(std::string name, int64_t groups) {
  return std::make_unique<ChannelShuffle>(std::move(name), groups);
}

}  // namespace halfmark::models
