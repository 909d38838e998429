// Labels and indices of 64 bits: the same training as with 32 bits, twice the memory of a batch, and one conversion in each
// pass.
#include "models/index_storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/trial_testing.h"

namespace halfmark::models {
namespace {

TEST(IndexStorage, HoldsTheHalvesOfAnInt64) {
  const auto device = open_device("cpu");
  const std::vector<double> values = {0, 1, -1, 0x1p31 - 1, -0x1p31, 0x1p31, 0x1p32 + 5, -0x1p40 - 3};
  const Tensor wide = stored_indices(*device, {2, 4}, values, IndexType::i64);
  EXPECT_EQ(wide.shape(), (Shape{2, 4, 2}));
  ASSERT_EQ(wide.elements() * static_cast<int64_t>(sizeof(int32_t)), 8 * static_cast<int64_t>(sizeof(int64_t)));
  const auto* stored = reinterpret_cast<const int64_t*>(wide.as<int32_t>());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(stored[i], static_cast<int64_t>(values[i])) << i;
  EXPECT_THROW(stored_indices(*device, {1}, {0.5}, IndexType::i64), Error);
  EXPECT_THROW(stored_indices(*device, {1}, {0x1p54}, IndexType::i64), Error);
}

TEST(IndexStorage, GivesTheKernels32BitsOrRefusesInOneLine) {
  const auto device = open_device("cpu");
  const auto narrow = [&](const std::vector<double>& values) {
    const Shape shape = {static_cast<int64_t>(values.size())};
    return indices_for_kernels(stored_indices(*device, shape, values, IndexType::i64), IndexType::i64);
  };
  const std::vector<double> fit = {0, 7, -1, 0x1p31 - 1, -0x1p31};
  const Tensor same = narrow(fit);
  EXPECT_EQ(same.values(), fit);
  EXPECT_EQ(same.shape(), (Shape{5}));
  EXPECT_EQ(same.purpose(), Purpose::temporary);
  for (const auto& [value, text] :
       {std::pair{0x1p31, "2147483648"}, {-0x1p31 - 1, "-2147483649"}, {0x1p32, "4294967296"}}) {
    std::string said;
    try {
      narrow({3, value});
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_EQ(said, std::string("narrow_indices: the index ") + text + " does not fit 32 bits");
  }
  const Tensor plain = stored_indices(*device, {2}, {3, 4}, IndexType::i32);
  EXPECT_EQ(indices_for_kernels(plain, IndexType::i32).data(), plain.data()) << "nothing is copied";
}

// Labels alone, indices and labels, sequences of labels, a label for each pixel, and targets that are no indices.
TEST(IndexStorage, ChangesMemoryAndKernelsOfATrainingAndNoNumber) {
  const struct {
    const char* subject;
    int64_t indices, conversions;  // of a batch; in one step
  } rows[] = {{"mlp/b8_i16_h24_o10", 8, 1},
              {"gpt/b2_t8_n1_h2_d8_v27", 2 * 2 * 8, 2},
              {"lstm_classifier/b2_t8_n1_e8_h8_v64_o4", 2 * 8 + 2, 2},
              {"erfnet/b1_s8x16_n1_w4_o4", 8 * 16, 1},
              {"detector/b2_s32", 0, 0}};
  for (const auto& [id, indices, conversions] : rows) {
    double losses[2], gradients[2];
    size_t bytes[2];
    int64_t counted[2];
    for (const IndexType type : {IndexType::i32, IndexType::i64}) {
      const auto at = static_cast<size_t>(type);
      TrialSpec spec = test_spec(id, "fp32");
      spec.device = open_device("cpu");
      spec.settings.indices = type;
      Trial trial(spec);
      trial.load_batch(0);
      bytes[at] = spec.device->memory().live().by_purpose[static_cast<size_t>(Purpose::input)];
      KernelLog log;
      log.clear();
      losses[at] = trial.train_step(0).loss;
      gradients[at] = 0;
      for (const Param* param : trial.params())
        for (const double value : trial.gradient(*param)) gradients[at] += value * value;
      counted[at] = 0;
      for (const LoggedKernel& entry : log.entries())
        if (entry.operation == "narrow_indices") {
          counted[at] += static_cast<int64_t>(entry.calls);
          EXPECT_EQ(entry.phase, "forward");
        }
      const Evaluation held_out = trial.evaluate(4);
      losses[at] += held_out.loss + held_out.accuracy;
    }
    EXPECT_EQ(losses[0], losses[1]) << id;
    EXPECT_EQ(gradients[0], gradients[1]) << id;
    EXPECT_EQ(bytes[1] - bytes[0], static_cast<size_t>(4 * indices)) << id;
    EXPECT_EQ(counted[0], 0) << id;
    EXPECT_EQ(counted[1], conversions) << id;
    EXPECT_EQ(has_indices_in_batch(subject_named(id)), indices > 0) << id;
  }
  EXPECT_FALSE(has_indices_in_batch(subject_named("linear/b4_i16_o8")));
}

}  // namespace
}  // namespace halfmark::models
