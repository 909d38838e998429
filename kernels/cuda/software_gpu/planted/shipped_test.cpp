// The plugin that is installed holds nothing of the software GPU; the one of the tests does.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "reports/record/paths_testing.h"

namespace halfmark::kernels::software_gpu {
namespace {

std::string contents(const std::string& file) {
  std::ifstream stream(test_folders::binary() + "/" + file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

TEST(ShippedPlugin, HoldsNothingOfTheSoftwareGpu) {
  const std::string shipped = contents("halfmark_cuda.so"), tested = contents("software_gpu/halfmark_cuda.so");
  ASSERT_GT(shipped.size(), 100000u);
  ASSERT_GT(tested.size(), 100000u);
  for (const char* words : {"software GPU", "software_gpu", "HALFMARK_SOFTWARE_GPU", "PTX interpreted"}) {
    EXPECT_EQ(shipped.find(words), std::string::npos) << words;
    EXPECT_NE(tested.find(words), std::string::npos) << words;
  }
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
