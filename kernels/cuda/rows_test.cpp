// What the rows of halfmark's own kernels promise beyond the bounds of EveryRow: the bits of the CPU where the operation
// defines them, operands that start anywhere, and what becomes of indices at which the device cannot stop.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu_testing.h"
#include "kernels/devices.h"
#include "kernels/ops/ops.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {
namespace {

class GpuRows : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped()) cpu_ = open_device("cpu");
  }
  Device& cpu() { return *cpu_; }

 private:
  std::shared_ptr<Device> cpu_;
};

std::vector<double> normal(int64_t count, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = key.normal(i);
  return values;
}

TEST_F(GpuRows, AMaskOfDropoutIsThatOfTheCpu) {
  for (const double p : {0.0, 0.1, 0.5, 1 - 0x1p-33, 1.0}) {
    std::vector<unsigned char> masks[2];
    for (const bool on_gpu : {false, true}) {
      Device& device = on_gpu ? gpu() : cpu();
      const Tensor x = Tensor::zeros(device, {7, 31}, DType::f32);
      Tensor mask(device, x.shape(), DType::u8), out(device, x.shape(), DType::f32);
      run(Dropout{.x = x, .mask = mask, .out = out, .p = p, .seed = 0xfedcba9876543210});
      masks[on_gpu] = mask.codes();
    }
    EXPECT_EQ(masks[0], masks[1]) << p;
  }
}

// Three tensors, whose lengths are no multiples of the blocks of the noise.
std::vector<UpdatedTensors> parameters(Device& device, DType dtype, bool adam, std::optional<DType> low) {
  std::vector<UpdatedTensors> all;
  for (const int64_t count : {5, 1027, 6}) {
    const auto make = [&](uint64_t seed) { return Tensor::from(device, {count}, dtype, normal(count, seed)); };
    UpdatedTensors t;
    t.parameter = make(1), t.gradient = make(2), t.first = make(3);
    if (low) t.low = Tensor(device, {count}, *low);
    if (adam) {
      std::vector<double> squares = normal(count, 4);
      for (double& one : squares) one = one * one + 0.25;
      t.second = Tensor::from(device, {count}, dtype, squares);
    }
    all.push_back(t);
  }
  return all;
}

TEST_F(GpuRows, AStepThatRoundsAtRandomGivesTheBitsOfTheCpu) {
  using Forms = std::vector<std::pair<DType, std::optional<DType>>>;
  for (const auto& [dtype, low] :
       Forms{{DType::f16, {}}, {DType::bf16, {}}, {DType::f32, DType::bf16}, {DType::bf16, DType::f32}})
    for (const bool adam : {false, true}) {
      std::vector<std::vector<unsigned char>> codes[2];
      for (const bool on_gpu : {false, true}) {
        std::vector<UpdatedTensors> tensors = parameters(on_gpu ? gpu() : cpu(), dtype, adam, low);
        if (adam)
          run(AdamStep{
              .tensors = tensors, .rate = 0.01, .weight_decay = 0.1, .noise = 99, .storage = Storage::stochastic});
        else
          run(SgdStep{.tensors = tensors, .rate = 0.01, .momentum = 0.9, .noise = 99, .storage = Storage::stochastic});
        for (const UpdatedTensors& t : tensors) {
          codes[on_gpu].push_back(t.parameter.codes()), codes[on_gpu].push_back(t.first.codes());
          if (low) codes[on_gpu].push_back(t.low.codes());
        }
      }
      EXPECT_EQ(codes[0], codes[1]) << name_of(dtype) << (adam ? " adam" : " sgd");
    }
}

// Four neighbours at a time, or one: as the dtypes, the ends and the addresses allow.
TEST_F(GpuRows, AStepGivesTheBitsOfTheCpu) {
  struct Mixture {
    DType parameter, gradient, state, low;
  };
  using enum DType;
  for (const Mixture& m : {Mixture{f32, f32, f32, f32},
                           {f32, f16, f32, f16},
                           {f32, bf16, f32, bf16},
                           {f32, f32, f32, bf16},
                           {f16, f16, f16, f32},
                           {bf16, bf16, bf16, bf16},
                           {bf16, f32, f32, f16},
                           {f64, f32, f64, f32}})
    for (const Storage storage : {Storage::nearest, Storage::kahan})
      for (const int rule : {0, 1, 2, 3}) {
        std::vector<std::vector<unsigned char>> codes[2];
        for (const bool on_gpu : {false, true}) {
          Device& device = on_gpu ? gpu() : cpu();
          std::vector<UpdatedTensors> tensors;
          for (const int64_t rows : {1, 2, 1500}) {
            const auto make = [&](DType dtype, uint64_t seed) {
              std::vector<double> values = normal((rows + 1) * 6, seed);
              if (seed == 4)  // mean squares
                for (double& one : values) one *= one;
              const Tensor all = Tensor::from(device, {rows + 1, 6}, dtype, values);
              return rows == 2 ? all.slice(1, 2) : all;
            };
            UpdatedTensors t;
            t.parameter = make(m.parameter, 1), t.gradient = make(m.gradient, 2), t.low = make(m.low, 5);
            if (rule != 0) t.first = make(m.state, 3);
            if (rule > 1) t.second = make(m.state, 4);
            if (storage == Storage::kahan) t.compensation = make(m.parameter, 6);
            tensors.push_back(t);
          }
          const double decay = rule % 2 == 1 ? 0.1 : 0;
          if (rule < 2)
            run(SgdStep{
                .tensors = tensors, .rate = 0.1, .momentum = 0.9 * rule, .weight_decay = decay, .storage = storage});
          else
            run(AdamStep{.tensors = tensors,
                         .kind = rule == 2 ? AdamKind::adam : AdamKind::adamw,
                         .rate = 0.01,
                         .weight_decay = decay,
                         .storage = storage});
          for (const UpdatedTensors& t : tensors)
            for (const Tensor* one : {&t.parameter, &t.first, &t.second, &t.compensation, &t.low})
              if (!one->empty()) codes[on_gpu].push_back(one->codes());
        }
        EXPECT_EQ(codes[0], codes[1]) << name_of(m.parameter) << " " << name_of(m.gradient) << " rule " << rule
                                      << (storage == Storage::kahan ? " compensated" : "");
      }
}

TEST_F(GpuRows, MoreParametersThanOneLaunchTakesAreAllUpdated) {
  constexpr int kCount = 1001;
  std::vector<UpdatedTensors> tensors(kCount);
  std::vector<Tensor> gradients;
  for (int i = 0; i < kCount; ++i) {
    UpdatedTensors& t = tensors[static_cast<size_t>(i)];
    const DType dtype = i % 7 == 0 ? DType::f64 : DType::f32;  // two arithmetics
    t.parameter = Tensor::from(gpu(), {2}, dtype, std::vector<double>{1.0 * i, 2});
    t.gradient = Tensor::from(gpu(), {2}, dtype, std::vector<double>{1, 1.0 * i});
    gradients.push_back(t.gradient);
  }
  Tensor norm(gpu(), {1}, DType::f64);
  run(GradientNorm{.gradients = gradients, .norm = norm});
  double squares = 0;
  for (int i = 0; i < kCount; ++i) squares += 1 + 1.0 * i * i;
  EXPECT_EQ(norm.values()[0], std::sqrt(squares));
  run(ClipGradients{
      .gradients = gradients, .norm = Tensor::from(gpu(), {1}, DType::f32, std::vector<double>{1}), .limit = 0.5});
  Tensor found_inf = Tensor::zeros(gpu(), {1}, DType::f32);
  run(Unscale{.gradients = gradients, .found_inf = found_inf, .inverse_scale = 4});
  EXPECT_EQ(found_inf.values()[0], 0);
  run(Unscale{.gradients = gradients, .found_inf = found_inf, .inverse_scale = 0.25F});
  run(SgdStep{.tensors = tensors, .rate = 1});
  const double factor[2] = {static_cast<double>(1 / (1.0F + 1e-6F) * 0.5F), 1 / (1 + 1e-6) * 0.5};
  for (int i = 0; i < kCount; ++i) {
    const UpdatedTensors& t = tensors[static_cast<size_t>(i)];
    const double f = factor[i % 7 == 0];
    const std::vector<double> found = t.parameter.values();
    EXPECT_NEAR(found[0], i - f, 1e-4) << i;
    EXPECT_NEAR(found[1], 2 - f * i, 1e-4) << i;
  }
}

// Element-wise kernels take four or eight neighbours at a time, copies up to 16 bytes.
TEST_F(GpuRows, OperandsMayBeSlicesThatStartAnywhere) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::f64}) {
    const Tensor all = Tensor::from(gpu(), {5, 9}, dtype, normal(45, 1));
    Tensor results = Tensor::zeros(gpu(), {5, 9}, dtype), taken = Tensor::zeros(gpu(), {5, 9}, dtype);
    Tensor out = results.slice(1, 3), copy = taken.slice(1, 3);
    const Tensor x = all.slice(1, 3);
    run(Scale{.x = x, .out = out, .factor = -2});
    run(Permute{.x = x, .out = copy, .order = {{0, 1}, 2}});
    const std::vector<double> given = all.values(), found = results.values(), moved = taken.values();
    for (size_t i = 0; i < given.size(); ++i) {
      const bool inside = i >= 9 && i < 36;
      EXPECT_EQ(found[i], inside ? -2 * given[i] : 0) << name_of(dtype) << " " << i;
      EXPECT_EQ(moved[i], inside ? given[i] : 0) << name_of(dtype) << " " << i;
    }
  }
}

// Runs an activation and its gradient with each choice of operands that begin elsewhere than at 16 bytes.
template <class Row>
void expect_same_bits_wherever_operands_start(Device& device, DType dtype) {
  const auto values_of = [dtype](uint64_t seed) {
    std::vector<double> values = normal(45, seed);
    // The sign of a NaN that arithmetic in f64 gives depends on the order of its operands.
    const double nan = dtype == DType::f64 ? 0 : static_cast<double>(NAN),
                 specials[] = {nan, -nan, HUGE_VAL, -HUGE_VAL, 0.0, -0.0};
    for (size_t k = 0; k < std::size(specials); ++k)  // in whole accesses, and among the last elements
      values[9 + (3 * k + seed) % 24] = specials[k], values[35 - k] = specials[(k + seed) % std::size(specials)];
    return values;
  };
  const auto make = [&](bool apart, uint64_t seed) {
    const std::vector<double> values = values_of(seed);
    if (apart) return Tensor::from(device, {5, 9}, dtype, values).slice(1, 3);
    return Tensor::from(device, {3, 9}, dtype, std::vector<double>(values.begin() + 9, values.begin() + 36));
  };
  std::vector<unsigned char> forward, backward;
  for (const unsigned apart : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U}) {
    const bool first = apart & 1, second = apart & 2, third = apart & 4;
    const std::string what = std::string(Row::name) + " " + std::string(name_of(dtype)) + " " + std::to_string(apart);
    const Tensor x = make(first, 1), dy = make(second, 2);
    Tensor dx = make(third, 3), in_place = make(first, 1);
    run(ActivationBackward<Row>{.kept = x, .dy = dy, .dx = dx});
    run(Activation<Row>{.x = in_place, .out = in_place});
    if (apart == 0) backward = dx.codes(), forward = in_place.codes();
    EXPECT_EQ(dx.codes(), backward) << what;
    EXPECT_EQ(in_place.codes(), forward) << what;
    run(Activation<Row>{.x = x, .out = dx});
    EXPECT_EQ(dx.codes(), forward) << what;
  }
}
template <class... Rows>
void expect_same_bits_of(activations::List<Rows...>, Device& device, DType dtype) {
  (expect_same_bits_wherever_operands_start<Rows>(device, dtype), ...);
}

TEST_F(GpuRows, ActivationsGiveTheSameBitsWhereverOperandsStart) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
    expect_same_bits_of(activations::All(), gpu(), dtype);
}

// Equal numbers, NaNs and infinities.
std::vector<double> coarse(int64_t count, uint64_t seed) {
  std::vector<double> values = normal(count, seed);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 61 == 7 ? static_cast<double>(NAN) : i % 53 == 9 ? HUGE_VAL : std::round(values[i]);
  return values;
}

// Channels last a thread has several channels, and where windows are two apart several rows and columns; of rows of 8, 16
// and more columns a thread has several results.
TEST_F(GpuRows, PoolingGivesTheSameBitsInBothLayouts) {
  struct Form {
    int kernel, stride, pad;
  };
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::e4m3})
    for (const Form& form : {Form{2, 2, 0}, Form{3, 2, 1}, Form{3, 2, 0}, Form{4, 2, 1}, Form{3, 1, 1}, Form{5, 3, 2}})
      for (const auto& size : {std::array<int64_t, 3>{3, 11, 8},
                               {16, 11, 8},
                               {8, 6, 16},
                               {5, 4, 24},
                               {3, 2, 8},
                               {5, 4, 12},
                               {3, 2, 4},
                               {3, 6, 6},
                               {3, 2, 2}}) {
        const int64_t channels = size[0], height = size[1], width = size[2];
        if (height + 2 * form.pad < form.kernel) continue;
        const Window window{.stride_h = form.stride, .stride_w = form.stride, .pad_h = form.pad, .pad_w = form.pad};
        const auto pooled = [&](int64_t extent) {
          return window_extent(extent, form.kernel, form.stride, form.pad, 1);
        };
        const Shape large{2, channels, height, width}, small{2, channels, pooled(height), pooled(width)};
        std::vector<std::vector<unsigned char>> codes[2];
        for (const Layout layout : {Layout::plain, Layout::nhwc}) {
          const auto made = [&](const Shape& shape, uint64_t seed) {
            const Tensor plain = Tensor::from(
                gpu(), shape, dtype, width == 16 ? coarse(shape.elements(), seed) : normal(shape.elements(), seed));
            Tensor out(gpu(), shape, dtype, layout);
            run(Reorder{.x = plain, .out = out});
            return out;
          };
          const Tensor x = made(large, 1), dy = made(small, 2);
          const auto any = [&](const Shape& shape, DType type) { return Tensor(gpu(), shape, type, Layout::any); };
          Tensor largest = any(small, dtype), indices = any(small, DType::u8), average = any(small, dtype),
                 dx = any(large, dtype), from_average = any(large, dtype);
          const int k = form.kernel;
          run(MaxPool2d{.x = x, .out = largest, .indices = indices, .kernel_h = k, .kernel_w = k, .window = window});
          run(AvgPool2d{.x = x, .out = average, .kernel_h = k, .kernel_w = k, .window = window});
          run(MaxPool2dBackward{
              .dy = dy, .indices = indices, .dx = dx, .kernel_h = k, .kernel_w = k, .window = window});
          run(AvgPool2dBackward{.dy = dy, .dx = from_average, .kernel_h = k, .kernel_w = k, .window = window});
          for (const Tensor* one : {&largest, &indices, &average, &dx, &from_average}) {
            EXPECT_EQ(one->layout(), layout);
            Tensor plain(gpu(), one->shape(), one->dtype());
            run(Reorder{.x = *one, .out = plain});
            codes[layout == Layout::nhwc].push_back(plain.codes());
          }
        }
        EXPECT_EQ(codes[0], codes[1]) << name_of(dtype) << " kernel " << form.kernel << " stride " << form.stride
                                      << " image " << height << "x" << width;
      }
}

// Few channels or pixels, many of both, more than a block holds, odd numbers, several images in one block, and slices.
TEST_F(GpuRows, ImagesOfEveryShapeChangeTheirLayout) {
  const Shape shapes[] = {{1, 1, 1, 1},    {3, 2, 1, 1},   {5, 16, 3, 3},   {7, 24, 3, 3}, {2, 1100, 3, 3},
                          {4, 7, 3, 5},    {2, 3, 40, 41}, {2, 3, 160, 67}, {9, 3, 7, 7},  {2, 5, 6, 5},
                          {300, 8, 2, 2},  {3, 16, 4, 4},  {3, 17, 4, 4},   {2, 33, 7, 5}, {2, 18, 6, 6},
                          {1, 64, 17, 16}, {2, 9000, 1, 2}};
  for (const DType dtype : {DType::e4m3, DType::f16, DType::f32, DType::f64})
    for (const Shape& shape : shapes)
      for (const int64_t first : {0, 1}) {
        const auto extents = shape.extents();
        const Tensor all = Tensor::from(gpu(), {extents[0] + 1, extents[1], extents[2], extents[3]}, dtype,
                                        normal(shape.elements() / extents[0] * (extents[0] + 1), 1));
        const Tensor plain = all.slice(first, extents[0]);
        Tensor last(gpu(), shape, dtype, Layout::nhwc), back(gpu(), shape, dtype);
        run(Reorder{.x = plain, .out = last});
        EXPECT_EQ(last.values(), plain.values()) << name_of(dtype) << " " << shape.text() << " from " << first;
        run(Reorder{.x = last, .out = back});
        EXPECT_EQ(back.codes(), plain.codes()) << name_of(dtype) << " " << shape.text() << " from " << first;
      }
}

TEST_F(GpuRows, AnEmbeddingOfAnUnknownIndexIsNaN) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::f64}) {
    const Tensor table = Tensor::from(gpu(), {3, 6}, dtype, std::vector<double>(18, 1)),
                 indices = Tensor::from(gpu(), {3}, DType::i32, std::vector<double>{2, 3, -1});
    Tensor out(gpu(), {3, 6}, dtype);
    run(Embedding{.indices = indices, .table = table, .out = out});
    const std::vector<double> values = out.values();
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(values[i]), i >= 6) << name_of(dtype) << " " << i;
  }
}

TEST_F(GpuRows, AnIndexBeyond32BitsIsOutsideOfEveryTable) {
  const Tensor wide = Tensor::from(gpu(), {3, 2}, DType::i32, std::vector<double>{5, 1, -1, 0, -7, -1});
  Tensor narrow(gpu(), {3}, DType::i32);
  run(NarrowIndices{.wide = wide, .narrow = narrow});
  EXPECT_EQ(narrow.values(), (std::vector<double>{-0x1p31, -0x1p31, -7}));
  const Tensor all = Tensor::from(gpu(), {5}, DType::i32, std::vector<double>{9, 5, 0, -7, -1});
  Tensor of_slice(gpu(), {2}, DType::i32);  // which begins at 4 bytes
  run(NarrowIndices{.wide = all.slice(1, 4).reshaped({2, 2}), .narrow = of_slice});
  EXPECT_EQ(of_slice.values(), (std::vector<double>{5, -7}));
}

TEST_F(GpuRows, AnUnknownLabelMakesTheCrossEntropyAndItsGradientNaN) {
  const Tensor logits = Tensor::zeros(gpu(), {2, 4}, DType::f32), none;
  const Tensor labels = Tensor::from(gpu(), {2}, DType::i32, std::vector<double>{1, 4});
  Tensor loss(gpu(), {1}, DType::f32), logs(gpu(), {2, 4}, DType::f32), total(gpu(), {1}, DType::f32),
      gradient(gpu(), {2, 4}, DType::f32);
  run(CrossEntropy{.logits = logits,
                   .labels = labels,
                   .weights = none,
                   .loss = loss,
                   .log_probabilities = logs,
                   .total_weight = total});
  EXPECT_TRUE(std::isnan(loss.values()[0]));
  run(CrossEntropyBackward{
      .log_probabilities = logs, .labels = labels, .weights = none, .total_weight = total, .dlogits = gradient});
  for (const double value : gradient.values()) EXPECT_TRUE(std::isnan(value));
}

// The first sequence is one; the second has wrong steps, too many labels, a label that is no class, or the blank.
TEST_F(GpuRows, TargetsOfCtcThatAreNoSequenceMakeTheLossNaN) {
  const Tensor logits = Tensor::zeros(gpu(), {2, 3, 4}, DType::f32);
  for (const std::vector<double>& wrong : {std::vector<double>{4, 1, 1}, {0, 1, 1}, {3, 2, 1}, {3, 1, 4}, {3, 1, 0}}) {
    std::vector<double> rows{3, 1, 2};
    rows.insert(rows.end(), wrong.begin(), wrong.end());
    const Tensor targets = Tensor::from(gpu(), {2, 3}, DType::i32, rows);
    Tensor loss(gpu(), {1}, DType::f32), logs(gpu(), {2, 3, 4}, DType::f32), alpha(gpu(), {2, 3, 3}, DType::f32),
        gradient(gpu(), {2, 3, 4}, DType::f32);
    run(CtcLoss{.logits = logits, .targets = targets, .loss = loss, .log_probabilities = logs, .alpha = alpha});
    EXPECT_TRUE(std::isnan(loss.values()[0]));
    run(CtcLossBackward{.log_probabilities = logs, .targets = targets, .alpha = alpha, .dlogits = gradient});
    const std::vector<double> g = gradient.values();
    for (size_t i = 0; i < g.size(); ++i) EXPECT_EQ(std::isnan(g[i]), i >= 12) << i;
  }
}

}  // namespace
}  // namespace halfmark::kernels
