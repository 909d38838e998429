#include "kernels/cpu/blas_core.h"

#include <gtest/gtest.h>

namespace halfmark::kernels {
namespace {

TEST(BlasCore, OfAProcessorThatOpenBlasDoesNotKnowIsByItsInstructions) {
  EXPECT_EQ(better_blas_core("Prescott", true, true), "SkylakeX");
  EXPECT_EQ(better_blas_core("Prescott", true, false), "Haswell");
  EXPECT_EQ(better_blas_core("Prescott", false, false), "") << "it may be one";
}

TEST(BlasCore, OfAKnownProcessorIsTheChoiceOfOpenBlas) {
  for (const char* known : {"Zen", "Haswell", "SkylakeX", "Cooperlake", "Nehalem", "armv8", ""})
    EXPECT_EQ(better_blas_core(known, true, true), "") << known;
}

}  // namespace
}  // namespace halfmark::kernels
