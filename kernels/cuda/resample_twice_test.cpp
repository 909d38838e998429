// Images of twice the size, whose kernels take several results at a time: sizes at which they change, against fp64; and
// images that start anywhere, which give the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

using Values = std::vector<double>;

// The weight of pixel `from` of `in` pixels in pixel `to` of twice as many: a hat around the place of the result.
double weight(int64_t from, int64_t in, int64_t to) {
  const double place = std::clamp((static_cast<double>(to) + 0.5) / 2 - 0.5, 0.0, static_cast<double>(in - 1));
  return std::max(0.0, 1 - std::fabs(place - static_cast<double>(from)));
}

struct TwiceForm {
  DType dtype;
  Shape shape;  // of the small image
  Layout in, out;
  std::string text() const {
    return std::string(name_of(dtype)) + " " + shape.text() + " " + std::string(name_of(in)) + "-" +
           std::string(name_of(out));
  }
};

constexpr size_t kGuard = 129;

class GpuResampleTwice : public Gpu {
 protected:
  // `values` between sevens, which no kernel may write. Their number is odd, so that the values begin at no wide access.
  struct Between {
    Tensor all, one;
  };
  Between between(const Shape& shape, DType dtype, const Values& values) {
    const int64_t count = shape.elements();
    Values padded(kGuard, 7);
    padded.insert(padded.end(), values.begin(), values.end()), padded.resize(padded.size() + kGuard, 7);
    Between result;
    result.all = Tensor::from(gpu(), {count + 2 * static_cast<int64_t>(kGuard)}, dtype, padded);
    result.one = result.all.slice(kGuard, count).reshaped(shape);
    return result;
  }
  void expect_near(const Values& found, const Values& expected, DType dtype, double largest, const std::string& what) {
    const double unit = dtype == DType::f64   ? 1e-15
                        : dtype == DType::f32 ? 0x1p-24
                        : dtype == DType::f16 ? 0x1p-11
                                              : 0x1p-8;
    const double sums = dtype == DType::f64 ? 1e-14 : 0x1p-19;  // of up to 16 numbers
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (std::isfinite(expected[i]))
        ASSERT_NEAR(found[i], expected[i], std::fabs(expected[i]) * unit + largest * sums) << what << " " << i;
      else
        ASSERT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
            << what << " " << i << ": " << found[i] << ", not " << expected[i];
    }
  }
  void compare(const TwiceForm& form, bool backward, bool special);
};

void GpuResampleTwice::compare(const TwiceForm& form, bool backward, bool special) {
  const int64_t n = form.shape[0], c = form.shape[1], h = form.shape[2], w = form.shape[3];
  const Shape large{n, c, 2 * h, 2 * w};
  const Shape from = backward ? large : form.shape, to = backward ? form.shape : large;
  const RandomKey key(static_cast<uint64_t>(17 + w + 3 * h));
  Values given(static_cast<size_t>(from.elements()));
  for (size_t i = 0; i < given.size(); ++i) given[i] = key.normal(i);
  if (special) {
    given[given.size() / 2] = static_cast<double>(NAN), given[given.size() / 3] = HUGE_VAL;
    given[0] = -HUGE_VAL;
  }
  const Tensor x = Tensor::from(gpu(), from, form.dtype, given, form.in);
  given = x.values();  // rounded
  double largest = 0;
  for (const double value : given)
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  Values expected(static_cast<size_t>(to.elements()));
  for (int64_t plane = 0; plane < n * c; ++plane)
    for (int64_t y = 0; y < 2 * h; ++y)
      for (int64_t i = std::max<int64_t>(0, y / 2 - 1); i < std::min(h, y / 2 + 2); ++i)
        for (int64_t column = 0; column < 2 * w; ++column)
          for (int64_t j = std::max<int64_t>(0, column / 2 - 1); j < std::min(w, column / 2 + 2); ++j) {
            const double share = weight(i, h, y) * weight(j, w, column);
            if (share == 0) continue;
            const auto small_at = static_cast<size_t>((plane * h + i) * w + j),
                       large_at = static_cast<size_t>((plane * 2 * h + y) * 2 * w + column);
            if (backward)
              expected[small_at] += share * given[large_at];
            else
              expected[large_at] += share * given[small_at];
          }
  const auto resample = [&](const Tensor& a, Tensor b) {
    backward ? run(Resample2dBackward{.dy = a, .dx = b}) : run(Resample2d{.x = a, .out = b});
  };
  const std::string what = form.text() + (backward ? " backward" : "");
  Tensor out(gpu(), to, form.dtype, form.out);
  resample(x, out);
  expect_near(out.values(), expected, form.dtype, largest, what);
  if (form.in != Layout::plain || form.out != Layout::plain) return;  // only plain tensors can be sliced
  const Between slice = between(from, form.dtype, given), result = between(to, form.dtype, Values(expected.size(), 5));
  resample(slice.one, result.one);
  EXPECT_EQ(result.one.codes(), out.codes()) << what;
  const Values around = result.all.values();
  for (size_t i = 0; i < kGuard; ++i)
    ASSERT_TRUE(around[i] == 7 && around[around.size() - 1 - i] == 7) << what << ": a write outside of the image";
}

constexpr DType kDTypes[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

TEST_F(GpuResampleTwice, RowsOfEveryWidth) {
  for (const DType dtype : kDTypes)
    for (const int64_t width : {1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 40})
      for (const int64_t height : {1, 2, 3, 6})
        for (const bool backward : {false, true})
          compare({dtype, {2, 3, height, width}, Layout::plain, Layout::plain}, backward, width == 16 && height == 6);
}

TEST_F(GpuResampleTwice, ChannelsLastAndOtherLayouts) {
  for (const DType dtype : kDTypes)
    for (const Layout in : {Layout::plain, Layout::nhwc})
      for (const Layout out : {Layout::plain, Layout::nhwc})
        for (const int64_t channels : {1, 3, 8, 24})
          for (const bool backward : {false, true}) {
            compare({dtype, {2, channels, 5, 3}, in, out}, backward, channels == 24);
            compare({dtype, {1, channels, 1, 8}, in, out}, backward, false);
          }
}

}  // namespace
}  // namespace halfmark::kernels
