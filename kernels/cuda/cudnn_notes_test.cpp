// Which engines of cuDNN a row may use, by their numerical notes.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/cudnn_engines.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr auto kTensor = CUDNN_NUMERICAL_NOTE_TENSOR_CORE, kNan = CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
using Notes = std::vector<cudnnBackendNumericalNote_t>;

TEST(CudnnNotes, OnlyKnownNotesThatChangeNoNumberPass) {
  for (int note = 0; note < CUDNN_NUMERICAL_NOTE_TYPE_COUNT + 3; ++note) {
    const auto one = static_cast<cudnnBackendNumericalNote_t>(note);
    const bool harmless = one == kTensor || one == kNan;
    EXPECT_EQ(unwanted_note(TensorCores::allowed, Notes{one}).empty(), harmless) << note;
    EXPECT_EQ(unwanted_note(TensorCores::needed, Notes{kTensor, one}).empty(), harmless) << note;
    EXPECT_EQ(unwanted_note(TensorCores::excluded, Notes{one}).empty(), one == kNan) << note;
  }
  EXPECT_TRUE(unwanted_note(TensorCores::excluded, Notes{}).empty());
  EXPECT_FALSE(unwanted_note(TensorCores::needed, Notes{}).empty()) << "TF32 must not silently be FP32";
  EXPECT_TRUE(unwanted_note(TensorCores::allowed, Notes{}).empty());
}

}  // namespace
}  // namespace halfmark::kernels::cuda
