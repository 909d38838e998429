// The harness what_if: views and losses by hand, and formats against their unit roundoffs.
#include "accuracy/experiments/what_if.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "accuracy/experiments/whole_models_testing.h"

namespace halfmark::accuracy {
namespace {

const WhatIfFormat& format_called(std::string_view name) {
  for (const WhatIfFormat& format : what_if_formats())
    if (format.name == name) return format;
  throw Error("no format " + std::string(name));
}

TEST(WhatIf, ViewsOfAnImageHaveChannelsAsDepthOrAsRows) {
  const std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};  // [2, 2, 1, 2]: n, channel, pixel
  const Shape shape{2, 2, 1, 2};
  const MatrixView products = view_of_tensor(x, shape, false, ViewOfTensor::products);
  EXPECT_EQ(products.rows, 4u);
  EXPECT_EQ(products.depth, 2u);
  EXPECT_EQ(products.values, (std::vector<float>{1, 3, 2, 4, 5, 7, 6, 8}));
  const MatrixView channels = view_of_tensor(x, shape, false, ViewOfTensor::channels);
  EXPECT_EQ(channels.rows, 2u);
  EXPECT_EQ(channels.values, (std::vector<float>{1, 2, 5, 6, 3, 4, 7, 8}));
  const MatrixView weight = view_of_tensor(x, shape, true, ViewOfTensor::channels);
  EXPECT_EQ(weight.rows, 2u);
  EXPECT_EQ(weight.values, x);
}

TEST(WhatIf, LossesAreCountedByHand) {
  const WhatIfLoss lost = what_is_lost({3, 4, 0, 0}, {3, 0, 0, 0});
  EXPECT_NEAR(lost.nmse, 16.0 / 25, 1e-12);
  EXPECT_NEAR(lost.flushed, 0.25, 1e-12);
  EXPECT_EQ(what_is_lost({0, 0}, {0, 0}).nmse, 0);
  EXPECT_TRUE(std::isinf(what_is_lost({1}, {INFINITY}).nmse));
}

TEST(WhatIf, ACastClipsAndFlushesWhatAScaleKeeps) {
  // e4m3 ends at 448, and 464 is half a step beyond; it begins at 2^-9, half of which is 2^-10.
  const MatrixView large{{1000, 463, 1, -500}, 1, 4}, small{{0x1p-11F, 0x1p-12F, 0x1p-13F, 0}, 1, 4};
  EXPECT_EQ(format_called("e4m3").in_format(large).clipped, 0.5);
  EXPECT_EQ(format_called("e4m3").in_format(large).values[0], 448);
  EXPECT_EQ(what_is_lost(small.values, format_called("e4m3").in_format(small).values).flushed, 0.75);
  for (const char* scaled :
       {"e4m3_tensor", "e4m3_channel", "e4m3_block32", "e5m2_tensor", "mxfp8_e4m3", "mxfp8_e5m2"}) {
    EXPECT_EQ(format_called(scaled).in_format(large).clipped, 0) << scaled;
    EXPECT_EQ(what_is_lost(small.values, format_called(scaled).in_format(small).values).flushed, 0) << scaled;
  }
  EXPECT_TRUE(std::isinf(format_called("fp16").in_format({{70000}, 1, 1}).values[0]));
  EXPECT_EQ(format_called("fp16").in_format({{70000}, 1, 1}).clipped, 1);
  EXPECT_EQ(format_called("bf16").in_format({{70000}, 1, 1}).clipped, 0);
  // A tie between the largest number and the next goes to the even one: 448 of e4m3 is even, 57344 and 65504 are odd.
  EXPECT_EQ(format_called("e4m3").in_format({{464, 464.5, -464, INFINITY}, 1, 4}).clipped, 0.5);
  EXPECT_EQ(format_called("e5m2").in_format({{61439, 61440, -61440, 57344}, 1, 4}).clipped, 0.5);
  EXPECT_EQ(format_called("fp16").in_format({{65519, 65520}, 1, 2}).clipped, 0.5);
}

// One large number: with one scale all small ones become 0, with blocks only those beside it.
TEST(WhatIf, AnOutlierCostsItsTileOnly) {
  MatrixView matrix{std::vector<float>(128, 0x1p-4F), 2, 64};
  matrix.values[0] = 0x1p18F;
  const auto flushed = [&](const char* name) {
    return what_is_lost(matrix.values, format_called(name).in_format(matrix).values).flushed;
  };
  EXPECT_EQ(flushed("e4m3_tensor"), 127.0 / 128);
  EXPECT_EQ(flushed("e4m3_channel"), 63.0 / 128);
  EXPECT_EQ(flushed("e4m3_block32"), 31.0 / 128);
  EXPECT_EQ(flushed("mxfp8_e4m3"), 31.0 / 128);
  EXPECT_EQ(flushed("e5m2_tensor"), 0) << "2^-22 of the largest number is within 5 bits of exponent";
}

TEST(WhatIf, ErrorsOfTheTensorsOfAStepAreThoseOfTheFormats) {
  const Findings findings =
      findings_of(what_if_harness(), experiment_spec("mlp/b8_i16_h24_o10", "fp32", {{"steps", "2"}}));
  for (const char* kind : {"weight/", "activation/", "weight_gradient/", "gradient/"}) {
    const auto nmse = [&](const char* format) {
      return number_at(findings, "what_if.nmse", std::string(kind) + format);
    };
    // Errors of a rounding: at most the unit roundoff, squared; a third of it at the least significand.
    EXPECT_LE(nmse("bf16"), 0x1p-16) << kind;
    EXPECT_GE(nmse("bf16"), 0x1p-16 / 24) << kind;
    EXPECT_GT(nmse("e5m2_tensor"), nmse("e4m3_tensor")) << kind;
    EXPECT_GT(nmse("e2m1_block16"), nmse("mxfp8_e4m3")) << kind;
  }
  EXPECT_EQ(number_at(findings, "what_if.elements", "weight"), 16 * 24 + 24 * 24 + 24 * 10);
  EXPECT_EQ(number_at(findings, "what_if.tensors", "weight"), 3);
  EXPECT_EQ(number_at(findings, "what_if.tensors", "weight_gradient"), 3);
  EXPECT_EQ(number_at(findings, "what_if.elements", "weight_gradient"), 16 * 24 + 24 * 24 + 24 * 10);
  // 8 samples: the gradients of the five layers' outputs and of the input.
  EXPECT_EQ(number_at(findings, "what_if.elements", "gradient"), 8 * (4 * 24 + 10 + 16));
  EXPECT_EQ(measured(findings, "what_if.nmse", "weight/fp16").samples.size(), 3u);
  EXPECT_GT(number_at(findings, "what_if.nmse", "weight/fp16"), 0);
}

TEST(WhatIf, TensorsThatAreFp16AlreadyLoseNothingInFp16) {
  const Findings findings =
      findings_of(what_if_harness(), experiment_spec("mlp/b8_i16_h24_o10", "fp16", {{"steps", "2"}}));
  for (const char* kind : {"weight/", "activation/", "weight_gradient/", "gradient/"}) {
    EXPECT_EQ(number_at(findings, "what_if.nmse", std::string(kind) + "fp16"), 0) << kind;
    EXPECT_GT(number_at(findings, "what_if.nmse", std::string(kind) + "bf16"), 0) << kind;
  }
}

}  // namespace
}  // namespace halfmark::accuracy
