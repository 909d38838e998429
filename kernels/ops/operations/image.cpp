#include "kernels/ops/operations/image.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernels/ops/operations/checks.h"

namespace halfmark::kernels {

using namespace operation_checks;

namespace {

void check_images(std::string_view operation, const Tensor& x, const Tensor& y) {
  rank(operation, "the image", x, 4), rank(operation, "the result", y, 4);
  need(x.shape()[0] == y.shape()[0] && x.shape()[1] == y.shape()[1], operation,
       "the result " + y.shape().text() + " has other images or channels than " + x.shape().text());
  for (const int axis : {2, 3})
    need(x.shape()[axis] > 0 && y.shape()[axis] > 0, operation, "an image without rows or columns");
}

// Between the two pixels around `source`.
Sources between(double source, int64_t in) {
  const auto first = std::min(static_cast<int64_t>(std::floor(source)), in - 1);
  const double far = source - static_cast<double>(first);
  if (first + 1 >= in || far == 0) return {first, {1}};
  return {first, {1 - far, far}};
}

}  // namespace

std::string_view name_of(Resampling resampling) {
  switch (resampling) {
    case Resampling::bilinear:
      return "bilinear";
    case Resampling::bilinear_corners:
      return "bilinear with aligned corners";
    case Resampling::adaptive_average:
      return "adaptive average";
    case Resampling::nearest:
      return "nearest";
  }
  return "";
}

std::vector<Sources> sources_of(Resampling resampling, int64_t in, int64_t out) {
  std::vector<Sources> all;
  for (int64_t i = 0; i < out; ++i) {
    const auto place = static_cast<double>(i), size = static_cast<double>(in), wanted = static_cast<double>(out);
    switch (resampling) {
      case Resampling::bilinear:
        all.push_back(between(std::max(0.0, (place + 0.5) * size / wanted - 0.5), in));
        break;
      case Resampling::bilinear_corners:
        all.push_back(between(out > 1 ? place * (size - 1) / (wanted - 1) : 0, in));
        break;
      case Resampling::adaptive_average: {
        const int64_t first = i * in / out, count = ((i + 1) * in + out - 1) / out - first;
        all.push_back({first, std::vector<double>(static_cast<size_t>(count), 1 / static_cast<double>(count))});
        break;
      }
      case Resampling::nearest:
        all.push_back({i * in / out, {1}});
        break;
    }
  }
  return all;
}

void CopyChannels::check() const {
  const Shape &xs = x.shape(), &ys = out.shape();
  need(xs.rank() >= 2 && xs.rank() == ys.rank(), name,
       "x " + xs.text() + " and out " + ys.text() + " need channels and one rank");
  for (int axis = 0; axis < xs.rank(); ++axis)
    need(axis == 1 || xs[axis] == ys[axis], name,
         "x " + xs.text() + " and out " + ys.text() + " differ in axis " + std::to_string(axis));
  need(x.dtype() == out.dtype(), name, "x and out have two dtypes");
  need(from >= 0 && to >= 0 && count >= 0 && from + count <= xs[1] && to + count <= ys[1], name,
       "channels " + std::to_string(from) + " ... of " + xs.text() + " do not fit into " + ys.text());
  need(out.layout() == Layout::plain || out.layout() == Layout::nhwc, name, "out has no layout of its own yet");
}

void Resample2d::check() const { check_images(name, x, out); }
void Resample2dBackward::check() const { check_images(name, dx, dy); }

}  // namespace halfmark::kernels
