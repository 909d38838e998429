#include "kernels/tensor/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace {

class TensorTest : public testing::Test {
 protected:
  std::shared_ptr<Device> device_ = open_device("cpu");
  Device& cpu_ = *device_;
  static std::vector<double> counting(int64_t n) {
    std::vector<double> values(static_cast<size_t>(n));
    std::iota(values.begin(), values.end(), 0.0);
    return values;
  }
};

TEST_F(TensorTest, ValuesAreInLogicalOrderWhateverTheLayout) {
  const Shape shape{2, 3, 4, 5};
  for (const Layout layout : {Layout::plain, Layout::nhwc}) {
    const Tensor tensor = Tensor::from(cpu_, shape, DType::f16, counting(120), layout);
    EXPECT_EQ(tensor.values(), counting(120)) << name_of(layout);
    const std::array<int64_t, 4> index{1, 2, 3, 4};
    EXPECT_EQ(load(DType::f16, tensor.data(), static_cast<size_t>(Tensor::offset(shape, layout, index))), 119);
    const std::array<int64_t, 4> other{1, 0, 2, 3};
    EXPECT_EQ(load(DType::f16, tensor.data(), static_cast<size_t>(Tensor::offset(shape, layout, other))), 73);
  }
  const Tensor nhwc = Tensor::from(cpu_, {1, 2, 1, 2}, DType::f32, counting(4), Layout::nhwc);
  EXPECT_EQ(nhwc.as<float>()[1], 2) << "channels lie next to each other";
}

TEST_F(TensorTest, ValuesAreRoundedOnceToTheDtype) {
  const Tensor tensor = Tensor::from(cpu_, {2}, DType::f16, std::vector<double>{1 + 0x1p-11 + 0x1p-40, 1e6});
  EXPECT_EQ(tensor.values()[0], 1 + 0x1p-10);
  EXPECT_TRUE(std::isinf(tensor.values()[1]));
  RoundEvents events;
  Tensor again(cpu_, {2}, DType::f16);
  again.set_values(std::vector<double>{1 + 0x1p-20, 1e6}, Rounding::toward_zero, &events);
  EXPECT_EQ(again.values(), (std::vector<double>{1, 65504}));
  EXPECT_EQ(events.values, 2u);
  EXPECT_EQ(events.overflow, 1u);
}

TEST_F(TensorTest, PackedElementsTakeHalfAByteInEveryLayout) {
  const std::vector<double> e2m1{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -6};
  std::vector<double> values;
  for (size_t i = 0; i < 105; ++i) values.push_back(e2m1[i % e2m1.size()]);
  for (const Layout layout : {Layout::plain, Layout::nhwc}) {
    Tensor tensor = Tensor::from(cpu_, {1, 3, 5, 7}, DType::e2m1, values, layout);
    EXPECT_EQ(tensor.bytes(), 53u);
    EXPECT_EQ(tensor.codes().size(), 53u);
    EXPECT_EQ(tensor.values(), values) << name_of(layout);
    EXPECT_EQ(tensor.clone().values(), values);
    tensor.fill(-1.5);
    EXPECT_EQ(tensor.values(), std::vector<double>(105, -1.5));
  }
  EXPECT_EQ(Tensor(cpu_, {1, 3, 5, 7}, DType::e2m3).bytes(), 105u);
  const Tensor nhwc =
      Tensor::from(cpu_, {1, 3, 1, 2}, DType::e2m1, std::vector<double>{1, 2, 3, 4, 6, 0}, Layout::nhwc);
  EXPECT_EQ(nhwc.as<uint8_t>()[0], 0x52) << "channels lie next to each other: 1, then 3";
  EXPECT_EQ(nhwc.as<uint8_t>()[1], 0x47) << "6, then 2";
}

TEST_F(TensorTest, TheLedgerSplitsByPurposeAndSumsToTheTotal) {
  std::vector<Tensor> kept;
  {
    const PurposeScope weights(Purpose::weights);
    kept.emplace_back(cpu_, Shape{10}, DType::f32);
    {
      const PurposeScope inner(Purpose::gradients);
      kept.emplace_back(cpu_, Shape{10}, DType::f16);
    }
    kept.emplace_back(cpu_, Shape{10}, DType::f64);
  }
  kept.emplace_back(cpu_, Shape{10}, DType::u8);
  const MemoryUse& live = cpu_.memory().live();
  const auto of = [&](Purpose p) { return live.by_purpose[static_cast<size_t>(p)]; };
  EXPECT_EQ(of(Purpose::weights), 120u);
  EXPECT_EQ(of(Purpose::gradients), 20u);
  EXPECT_EQ(of(Purpose::temporary), 10u);
  EXPECT_EQ(live.total, 150u);
  EXPECT_EQ(std::accumulate(live.by_purpose.begin(), live.by_purpose.end(), size_t{0}), live.total);
  kept[0].set_purpose(Purpose::saved);
  EXPECT_EQ(of(Purpose::saved), 40u);
  EXPECT_EQ(of(Purpose::weights), 80u);
  EXPECT_EQ(live.total, 150u) << "a retag moves bytes and allocates none";
  kept.clear();
  EXPECT_EQ(live.total, 0u);
  EXPECT_EQ(cpu_.memory().peak().total, 150u);
  EXPECT_EQ(std::accumulate(cpu_.memory().peak().by_purpose.begin(), cpu_.memory().peak().by_purpose.end(), size_t{0}),
            150u);
  cpu_.memory().reset_peak();
  EXPECT_EQ(cpu_.memory().peak().total, 0u);
}

TEST_F(TensorTest, CopiesOfAHandleShareMemoryAndAreCountedOnce) {
  Tensor a(cpu_, {4}, DType::f32);
  Tensor b = a, view = a.reshaped({2, 2});
  EXPECT_EQ(cpu_.memory().live().total, 16u);
  b.fill(3);
  EXPECT_EQ(a.values()[2], 3);
  EXPECT_EQ(view.values()[2], 3);
  EXPECT_EQ(a.id(), view.id());
  const Tensor c = a.clone();
  EXPECT_NE(c.id(), a.id());
  EXPECT_EQ(cpu_.memory().live().total, 32u);
}

TEST_F(TensorTest, AWriteRaisesTheVersionSeenByEveryHandle) {
  Tensor a(cpu_, {4}, DType::f32);
  const Tensor b = a.reshaped({2, 2});
  const uint64_t before = b.version();
  a.fill(1);
  EXPECT_GT(b.version(), before);
  const uint64_t filled = b.version();
  a.touch();
  EXPECT_EQ(b.version(), filled + 1);
}

TEST_F(TensorTest, AnOpenLayoutHasNoMemoryUntilItIsMaterialised) {
  Tensor a(cpu_, {1, 2, 3, 4}, DType::f32, Layout::any);
  const Tensor b = a;
  EXPECT_EQ(a.bytes(), 0u);
  EXPECT_EQ(cpu_.memory().live().total, 0u);
  EXPECT_THROW(a.data(), Error);
  a.materialize(Layout::nhwc);
  EXPECT_EQ(b.layout(), Layout::nhwc) << "every copy of the handle sees it";
  EXPECT_EQ(b.bytes(), 96u);
  a.materialize(Layout::plain);
  EXPECT_EQ(a.layout(), Layout::nhwc) << "a tensor that has memory does not change";
  Tensor matrix(cpu_, {2, 2}, DType::f32, Layout::any);
  EXPECT_THROW(matrix.materialize(Layout::nhwc), Error);
}

TEST_F(TensorTest, WrongUseIsAnError) {
  EXPECT_THROW(Tensor(cpu_, {2, 3}, DType::f32, Layout::nhwc), Error);
  EXPECT_THROW(Tensor(cpu_, {2}, DType::f32, Layout::opaque), Error);
  EXPECT_THROW(Tensor::from(cpu_, {3}, DType::f32, counting(4)), Error);
  EXPECT_THROW(Tensor(cpu_, {2, 3}, DType::f32).reshaped({7}), Error);
  EXPECT_THROW(Tensor().shape(), Error);
  EXPECT_THROW(Shape({1, -1}), Error);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST_F(TensorTest, EmptyTensorsHaveNoBytesAndDoNoHarm) {
  Tensor a(cpu_, {0, 3}, DType::f32);
  EXPECT_EQ(a.elements(), 0);
  a.fill(1);
  EXPECT_TRUE(a.values().empty());
  EXPECT_EQ(Shape({}).elements(), 1);
}

}  // namespace
}  // namespace halfmark::kernels
