// Attention of heads that are not one after the other in memory, in the stand-in of cuDNN.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_formula.h"
#include "kernels/cuda/software_gpu/libraries/device_testing.h"
#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu {
namespace {

using cudnn::Formula;
using cudnn::FormulaKind;
using cudnn::FormulaTensor;
using Four = std::array<int64_t, 4>;

// One sample of 2 heads with 2 positions of 8 numbers: q, k and v beside each other at each position, or each alone.
constexpr int64_t kHeads = 2, kLength = 2, kWidth = 8;
constexpr Four kShape{1, kHeads, kLength, kWidth}, kApart{kHeads * kLength * kWidth, kLength*kWidth, kWidth, 1},
    kTogether{kLength * 3 * kHeads * kWidth, kWidth, 3 * kHeads*kWidth, 1};

FormulaTensor half(int64_t id, const Four& extents, const Four& strides) {
  return {.id = id, .alignment = 16, .type = CUDNN_DATA_HALF, .extents = extents, .strides = strides};
}
// out = (q k^T) v, without softmax.
Formula products(const Four& strides, const Four& of_out) {
  const FormulaTensor q = half(1, kShape, strides), v = half(3, kShape, strides), out = half(4, kShape, of_out);
  const FormulaTensor k = half(2, {1, kHeads, kWidth, kLength}, {strides[0], strides[1], strides[3], strides[2]});
  const FormulaTensor scores{.id = 100,
                             .alignment = 16,
                             .extents = {1, kHeads, kLength, kLength},
                             .strides = {kHeads * kLength * kLength, kLength * kLength, kLength, 1},
                             .is_virtual = true};
  return {{.kind = FormulaKind::product, .operands = {q, k}, .result = scores},
          {.kind = FormulaKind::product, .operands = {scores, v}, .result = out}};
}

TEST(CudnnStrides, AnEngineTakesHeadsInAnyOrderButNotNumbersApart) {
  EXPECT_TRUE(cudnn::has_attention_engine(products(kApart, kApart), 90));
  EXPECT_TRUE(cudnn::has_attention_engine(products(kTogether, kApart), 90));
  const Four twice{2 * kTogether[0], 2 * kTogether[1], 2 * kTogether[2], 2};
  EXPECT_FALSE(cudnn::has_attention_engine(products(twice, kApart), 90));
  EXPECT_FALSE(cudnn::has_attention_engine(products(kTogether, twice), 90));
}

std::vector<double> computed(const Formula& formula, const std::map<int64_t, void*>& pointers) {
  enqueue(nullptr, [&] { cudnn::compute(formula, pointers, {}); });
  EXPECT_EQ(run_enqueued(), cudaSuccess);
  return from_device(pointers.at(4), DType::f16, kHeads * kLength * kWidth);
}
cudaError_t status_of(const Formula& formula, const std::map<int64_t, void*>& pointers) {
  enqueue(nullptr, [&] { cudnn::compute(formula, pointers, {}); });
  return run_enqueued();
}
void* moved_by(void* memory, int64_t elements) { return static_cast<std::byte*>(memory) + elements * 2; }

TEST(CudnnStrides, NumbersAreReadAndWrittenWhereTheStridesSay) {
  reset_device(90);
  const std::vector<double> together = small_numbers(3 * kHeads * kLength * kWidth, 7);
  std::vector<std::vector<double>> apart(3);
  for (size_t part = 0; part < 3; ++part)
    for (size_t head = 0; head < kHeads; ++head)
      for (size_t i = 0; i < kLength; ++i)
        for (size_t e = 0; e < kWidth; ++e)
          apart[part].push_back(together[((i * 3 + part) * kHeads + head) * kWidth + e]);
  const std::vector<double> nothing(apart[0].size(), 0.0);
  const std::vector<double> expected = computed(products(kApart, kApart), {{1, on_device(DType::f16, apart[0])},
                                                                           {2, on_device(DType::f16, apart[1])},
                                                                           {3, on_device(DType::f16, apart[2])},
                                                                           {4, on_device(DType::f16, nothing)}});
  void* const all = on_device(DType::f16, together);
  const std::map<int64_t, void*> parts{{1, all},
                                       {2, moved_by(all, kHeads * kWidth)},
                                       {3, moved_by(all, 2 * kHeads * kWidth)},
                                       {4, on_device(DType::f16, nothing)}};
  EXPECT_EQ(computed(products(kTogether, kApart), parts), expected);
  EXPECT_NE(expected, nothing);
  // Positions first.
  const std::vector<double> turned = computed(products(kTogether, {kApart[0], kWidth, kHeads * kWidth, 1}), parts);
  for (size_t head = 0; head < kHeads; ++head)
    for (size_t i = 0; i < kLength; ++i)
      for (size_t e = 0; e < kWidth; ++e)
        EXPECT_EQ(turned[(i * kHeads + head) * kWidth + e], expected[(head * kLength + i) * kWidth + e]);
}

TEST(CudnnStrides, MemoryThatIsTooShortOrSharedAndRowsThatAreNotAlignedAreFaults) {
  const auto pointers = [](size_t operand, size_t result) {
    reset_device(90);
    void* const all = on_device(DType::f16, std::vector<double>(operand, 1.0));
    return std::map<int64_t, void*>{
        {1, all}, {2, all}, {3, all}, {4, on_device(DType::f16, std::vector<double>(result, 1.0))}};
  };
  // The last number of a part is at 2 x 8 before that of the third one.
  constexpr size_t kAll = 3 * kHeads * kLength * kWidth, kOfPart = kAll - 2 * kHeads * kWidth, kOut = kAll / 3;
  EXPECT_EQ(status_of(products(kTogether, kApart), pointers(kOfPart, kOut)), cudaSuccess);
  EXPECT_NE(status_of(products(kTogether, kApart), pointers(kOfPart - 1, kOut)), cudaSuccess);
  EXPECT_NE(status_of(products(kTogether, kApart), pointers(kOfPart, kOut - 1)), cudaSuccess);
  const Four odd{kTogether[0] + 2, kTogether[1], kTogether[2] + 1, 1};
  EXPECT_EQ(status_of(products(odd, kApart), pointers(2 * kAll, kOut)), cudaErrorMisalignedAddress);
  EXPECT_NE(status_of(products(kTogether, {kApart[0], 0, kWidth, 1}), pointers(kAll, kOut)), cudaSuccess);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
