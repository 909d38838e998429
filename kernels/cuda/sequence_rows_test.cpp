// Embeddings, dropout, the LSTM cell and clipping in the shapes at which their kernels change: whole accesses and single
// elements, slices that start anywhere, few rows and many.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/devices.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};

std::vector<double> normal(int64_t count, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  return values;
}

// A tensor of random numbers; `apart`: a slice that starts at its second row.
Tensor numbers(Device& device, const Shape& shape, DType dtype, uint64_t seed, bool apart) {
  const Shape whole{shape[0] + 1, shape[1]};
  const Tensor all = Tensor::from(device, whole, dtype, normal(whole.elements(), seed));
  return all.slice(apart ? 1 : 0, shape[0]);
}

class SequenceRows : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped()) cpu_ = open_device("cpu");
  }
  Device& cpu() { return *cpu_; }

 private:
  std::shared_ptr<Device> cpu_;
};

// The sums of an embedding's gradient in the order of the rows, in the arithmetic of the kernel.
template <class Wide>
std::vector<double> summed(const std::vector<double>& indices, const std::vector<double>& dy, int64_t entries,
                           int64_t features, int64_t padding) {
  std::vector<Wide> sums(static_cast<size_t>(entries * features));
  for (size_t row = 0; row < indices.size(); ++row) {
    if (indices[row] < 0 || indices[row] >= static_cast<double>(entries)) continue;
    if (static_cast<int64_t>(indices[row]) == padding) continue;
    for (size_t f = 0; f < static_cast<size_t>(features); ++f)
      sums[static_cast<size_t>(indices[row]) * static_cast<size_t>(features) + f] +=
          static_cast<Wide>(dy[row * static_cast<size_t>(features) + f]);
  }
  return {sums.begin(), sums.end()};
}

struct EmbeddingForm {
  int64_t rows, entries, features, padding;
};

// Entries with 0, 1, 31, 32, 33 and 200 rows, and others at random; some indices are outside of the table.
std::vector<double> some_indices(const EmbeddingForm& form) {
  const RandomKey key(5);
  std::vector<double> indices;
  for (const auto& [entry, count] : {std::pair{1, 1}, {2, 31}, {3, 32}, {4, 33}, {5, 200}})
    for (int k = 0; k < count && static_cast<int64_t>(indices.size()) < form.rows - 2; ++k) indices.push_back(entry);
  indices.push_back(-1), indices.push_back(static_cast<double>(form.entries));
  while (static_cast<int64_t>(indices.size()) < form.rows)
    indices.push_back(static_cast<double>(6 + key.below(indices.size(), static_cast<uint64_t>(form.entries - 6))));
  for (size_t i = indices.size(); i > 1; --i) std::swap(indices[i - 1], indices[key.below(1000000 + i, i)]);
  return indices;
}

TEST_F(SequenceRows, AnEmbeddingsGradientIsSummedInTheOrderOfTheRows) {
  for (const DType dtype : kDTypes)
    for (const EmbeddingForm& form :
         {EmbeddingForm{511, 60, 24, -1}, EmbeddingForm{512, 60, 24, 3}, EmbeddingForm{700, 50, 300, 7},
          EmbeddingForm{600, 5000, 7, -1}, EmbeddingForm{520, 4100, 264, 4},
          // more parts of a row than a grid has blocks
          EmbeddingForm{3, 8, dtype == DType::f32 ? 2097121 : 1, -1}})
      for (const bool apart : {false, true}) {
        const std::vector<double> indices = some_indices(form);
        const Tensor where = Tensor::from(gpu(), {form.rows, 1}, DType::i32, indices),
                     dy = numbers(gpu(), {form.rows, form.features}, dtype, 8, apart)
                              .reshaped({form.rows, 1, form.features});
        Tensor all(gpu(), {form.entries + 1, form.features}, dtype), dtable = all.slice(apart ? 1 : 0, form.entries);
        run(EmbeddingBackward{.indices = where, .dy = dy, .dtable = dtable, .padding = form.padding});
        const std::vector<double> given = dy.values(),
                                  sums = dtype == DType::f64
                                             ? summed<double>(indices, given, form.entries, form.features, form.padding)
                                             : summed<float>(indices, given, form.entries, form.features, form.padding);
        const std::vector<double> expected = Tensor::from(cpu(), dtable.shape(), dtype, sums).values(),
                                  found = dtable.values();
        EXPECT_TRUE(expected == found) << name_of(dtype) << " of " << form.rows << " rows, " << form.entries
                                       << " entries, " << form.features << " features" << (apart ? ", a slice" : "");
      }
}

TEST_F(SequenceRows, DropoutOfEveryFormIsThatOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::e4m3})
    for (const bool apart : {false, true})
      for (const bool channels : {false, true})
        for (const double p : {0.3, 1.0}) {
          const auto drop = [&](Device& device) {
            const Tensor x = numbers(device, {11, 29}, dtype, 3, apart);
            Tensor out(device, x.shape(), dtype), dx(device, x.shape(), dtype);
            Tensor masks(device, {12, channels ? 1 : 29}, DType::u8), mask = masks.slice(apart ? 1 : 0, 11);
            if (channels) {
              const Tensor image = x.reshaped({1, 11, 29, 1});
              Tensor to = out.reshaped({1, 11, 29, 1}), back = dx.reshaped({1, 11, 29, 1});
              Tensor of_channels = mask.reshaped({1, 11});
              run(Dropout{.x = image, .mask = of_channels, .out = to, .p = p, .seed = 77});
              run(DropoutBackward{.dy = image, .mask = of_channels, .dx = back, .p = p});
            } else {
              run(Dropout{.x = x, .mask = mask, .out = out, .p = p, .seed = 77});
              run(DropoutBackward{.dy = x, .mask = mask, .dx = dx, .p = p});
            }
            return std::array{mask.values(), out.values(), dx.values()};
          };
          EXPECT_EQ(drop(gpu()), drop(cpu())) << name_of(dtype) << (apart ? " slice" : "") << channels << " " << p;
        }
}

// Hidden sizes of whole accesses and others; the state in the dtype of the gates or in fp32.
TEST_F(SequenceRows, AnLstmCellOfEveryFormAgreesWithTheCpu) {
  for (const DType dtype : kDTypes)
    for (const int64_t hidden : {16, 5})
      for (const bool wide_state : {false, true})
        for (const bool apart : {false, true}) {
          const auto cell = [&](Device& device) {
            const DType state = wide_state && dtype != DType::f64 ? DType::f32 : dtype;
            const Tensor z = numbers(device, {9, 4 * hidden}, dtype, 1, apart),
                         before = numbers(device, {9, hidden}, state, 2, apart),
                         dh = numbers(device, {9, hidden}, state, 3, apart),
                         dc = numbers(device, {9, hidden}, state, 4, apart);
            Tensor gates(device, z.shape(), dtype), c(device, before.shape(), state), h(device, before.shape(), state),
                dz(device, z.shape(), dtype), dc_before(device, before.shape(), state);
            run(LstmCell{.z = z, .c_before = before, .gates = gates, .c = c, .h = h});
            run(LstmCellBackward{
                .gates = gates, .c_before = before, .c = c, .dh = dh, .dc = dc, .dz = dz, .dc_before = dc_before});
            std::vector<double> all;
            for (const Tensor* one : {&gates, &c, &h, &dz, &dc_before})
              for (const double value : one->values()) all.push_back(value);
            return all;
          };
          const std::vector<double> found = cell(gpu()), expected = cell(cpu());
          const double unit = dtype == DType::f64   ? 1e-13
                              : dtype == DType::f32 ? 1e-5
                              : dtype == DType::f16 ? 0x1p-8
                                                    : 0x1p-5;
          ASSERT_EQ(found.size(), expected.size());
          for (size_t i = 0; i < found.size(); ++i)
            ASSERT_NEAR(found[i], expected[i], unit * (1 + std::fabs(expected[i])))
                << name_of(dtype) << " hidden " << hidden << (apart ? " slice" : "") << " value " << i;
        }
}

// Lengths around a block's and around an access's; a slice; each dtype, also in one list with others.
TEST_F(SequenceRows, UnscalingAndClippingScaleEveryElementOfEveryTensor) {
  for (const std::vector<DType>& dtypes :
       {std::vector<DType>{DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2},
        std::vector<DType>{DType::f64, DType::f16}}) {
    // `infinite`: the gradient with an infinity.
    const auto scaled = [&](Device& device, size_t infinite) {
      std::vector<Tensor> gradients;
      for (const DType dtype : dtypes)
        for (const int64_t count : {1, 7, 4095, 4096, 4100, 9001}) {
          std::vector<double> values = normal(count, 6);
          if (gradients.size() == infinite && dtype != DType::e4m3) values.back() = HUGE_VAL;
          gradients.push_back(Tensor::from(device, {count}, dtype, values));
          gradients.push_back(numbers(device, {count, 3}, dtype, 7, true));
        }
      const Tensor norm = Tensor::from(device, {1}, dtypes[0], std::vector<double>{12});
      run(ClipGradients{.gradients = gradients, .norm = norm, .limit = 5});
      Tensor found_inf = Tensor::zeros(device, {1}, DType::f32);
      run(Unscale{.gradients = gradients, .found_inf = found_inf, .inverse_scale = 1.0F / 3});
      std::vector<std::vector<double>> values{found_inf.values()};
      for (const Tensor& one : gradients) values.push_back(one.values());
      return values;
    };
    const size_t count = dtypes.size() * 12;
    for (const size_t infinite : {count, size_t{0}, size_t{14}, count - 2}) {
      const auto found = scaled(gpu(), infinite), expected = scaled(cpu(), infinite);
      EXPECT_EQ(expected[0][0], infinite == count ? 0 : 1);
      for (size_t t = 0; t < found.size(); ++t) EXPECT_TRUE(found[t] == expected[t]) << "tensor " << t;
    }
  }
}

}  // namespace
}  // namespace halfmark::kernels
