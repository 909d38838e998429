// Tests of files of probe vectors: parsing, refusals, and the consistent hypotheses where the answer is known.
#include "bench/vectors/probe_vectors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

class ProbeVectors : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::string answer(const std::string& device, const std::string& rows) {
    std::ofstream(path_) << "probe,instruction,fmt_a,fmt_b,fmt_c,k,a,b,c,predictions\n" << rows;
    TextOptions options;
    options.width = 200;
    return probe_vectors(*open_device(device), path_, options);
  }

  std::string path_ =
      (std::filesystem::temp_directory_path() / ("halfmark-vectors-" + std::to_string(::getpid()) + ".csv")).string();
};

// 1 1 - 1 1 + 2^-12 2^-12 in a block of four with c = 0: F = 23 loses the last product, F = 24 keeps it.
constexpr char kKept[] =
    "kept,any "
    "mma.m8n8k4.f32.f16.f16.f32,f16,f16,f32,4,3c00bc000c000000,3c003c000c000000,00000000,F23=00000000;F24=33800000\n";

TEST_F(ProbeVectors, NameTheHypothesesThatPredictEveryAnswer) {
  EXPECT_NE(answer("sim:volta", kKept).find("F23 of 2"), std::string::npos);
  EXPECT_NE(answer("sim:turing", kKept).find("F24 of 2"), std::string::npos);
  const std::string other =
      std::string(kKept).replace(0, 8, "kept,any").replace(std::string(kKept).find("F23=0"), 5, "F23=1");
  EXPECT_NE(answer("sim:volta", other).find("none of 2"), std::string::npos);
}

TEST_F(ProbeVectors, StateThatAModelIsNotAMeasurement) {
  EXPECT_NE(answer("sim:volta", kKept).find("what the model assumes, not what a GPU does"), std::string::npos);
}

TEST_F(ProbeVectors, LeaveOutRowsForOtherGpus) {
  const std::string text = answer("sim:turing", std::string(kKept).replace(5, 3, "volta"));
  EXPECT_NE(text.find("1 rows of"), std::string::npos) << text;
  EXPECT_EQ(text.find("F24"), std::string::npos) << text;
}

TEST_F(ProbeVectors, AreRefusedWithFileAndLine) {
  for (const char* rows : {"kept,any\n", "kept,any mma.m8n8k4,f16,f16,f32,4,3c00,3c00,00000000,x=00000000\n",
                           "kept,any mma.m8n8k4,f17,f16,f32,1,3c00,3c00,00000000,x=00000000\n",
                           "kept,any mma.m8n8k4,f16,f16,f32,1,3c0g,3c00,00000000,x=00000000\n",
                           "kept,any mma.m8n8k4,f16,f16,f32,1,3c00,3c00,00000000,scale_a=38\n",
                           "kept,any mma.m8n8k4,f16,f16,f32,1,3c00,3c00,00000000,x=\n"}) {
    try {
      answer("sim:volta", rows);
      ADD_FAILURE() << rows;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path_ + ": line 2"), std::string::npos) << error.what();
    }
  }
}

TEST_F(ProbeVectors, KnownAnswersOfThePublishedFileAreReproduced) {
  const std::string file = test_folders::data() + "/tensor_core_probes.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  TextOptions options;
  options.width = 250;
  const std::string hopper = probe_vectors(*open_device("sim:hopper"), file, options);
  EXPECT_NE(hopper.find("one_block_of_16 of 4"), std::string::npos) << hopper;
  EXPECT_NE(hopper.find("plus_zero of 2"), std::string::npos) << hopper;
  EXPECT_NE(hopper.find("interleaved_hmma_then_fadd of 4"), std::string::npos) << hopper;
  EXPECT_EQ(hopper.find("none of"), std::string::npos) << hopper;
}

}  // namespace
}  // namespace halfmark::bench
