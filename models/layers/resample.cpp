// Images of another size: bilinear and nearest upsampling and adaptive average pooling.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "models/layers/tapped_layer.h"

namespace halfmark::models {
namespace {

class Resized : public TappedLayer {
 public:
  // The size of the result: `size`, or that of the input times `scale`.
  Resized(std::string name, Resampling resampling, Size2d size, int scale)
      : TappedLayer(std::move(name)), resampling_(resampling), size_(size), scale_(scale) {}
  Shape output_shape(const Shape& x) const override {
    if (scale_) return {x[0], x[1], x[2] * scale_, x[3] * scale_};
    return {x[0], x[1], size_.h, size_.w};
  }

 private:
  std::string_view operation() const {
    if (resampling_ == Resampling::nearest) return "upsample_nearest2d";
    return resampling_ == Resampling::adaptive_average ? "adaptive_avg_pool2d" : "upsample_bilinear2d";
  }
  Tensor compute(Pass& pass, const Tensor& x_given, Saved* saved) override {
    const Tensor x = pass.input(operation(), x_given);
    Tensor y = pass.fresh(output_shape(x.shape()), pass.output_dtype(operation(), x.dtype()));
    run(Resample2d{.x = x, .out = y, .resampling = resampling_});
    if (saved) saved->keep_spec(x_given), saved->keep_spec(x);
    return y;
  }
  Tensor differentiate(Pass& pass, const Tensor& dy_given, Saved& saved) override {
    const TensorSpec x = saved.take_spec(), given = saved.take_spec();
    const Tensor dy = pass.cast(dy_given, x.dtype);
    Tensor dx = pass.fresh(x.shape, x.dtype);
    run(Resample2dBackward{.dy = dy, .dx = dx, .resampling = resampling_});
    return pass.cast(dx, given.dtype);
  }

  Resampling resampling_;
  Size2d size_;
  int scale_;
};

}  // namespace

LayerPtr adaptive_avg_pool2d(std::string name, Size2d size) {
  return std::make_unique<Resized>(std::move(name), Resampling::adaptive_average, size, 0);
}
LayerPtr upsample_nearest2d(std::string name, int scale) {
  return std::make_unique<Resized>(std::move(name), Resampling::nearest, 1, scale);
}
LayerPtr upsample_bilinear2d(std::string name, int scale, bool align_corners) {
  const Resampling resampling = align_corners ? Resampling::bilinear_corners : Resampling::bilinear;
  return std::make_unique<Resized>(std::move(name), resampling, 1, scale);
}

}  // namespace halfmark::models
