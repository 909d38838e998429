// halfmark check from end to end, on this machine's processor and on the software GPU with and without silent errors.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "bench/run/program_testing.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

class CheckCommand : public ProcessTest {
 protected:
  // The program with the plugin that runs on the software GPU.
  static std::string software_gpu() { return test_folders::binary() + "/software_gpu/halfmark"; }
  static bool has_software_gpu() {
    return std::filesystem::exists(test_folders::binary() + "/software_gpu/halfmark_cuda.so") &&
           std::filesystem::exists(software_gpu());
  }

  // `errors`: one inverted bit in so many; empty: none.
  nlohmann::json checked(const std::string& arguments, const std::string& errors, int code) const {
    const std::string variables =
        "HALFMARK_SOFTWARE_GPU=sm_90 " + (errors.empty() ? "" : "HALFMARK_SOFTWARE_GPU_FLIP=" + errors) + " ";
    const Result result =
        shell(variables + quoted(software_gpu()) + " check --device cuda:0 --minutes 0.001 --json " + arguments);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_TRUE(result.err.empty()) << result.err;
    return nlohmann::json::parse(result.out);
  }

  static uint64_t code_of(const nlohmann::json& hex) { return std::stoull(hex.get<std::string>(), nullptr, 16); }
};

constexpr const char* kDots = "--instructions-only --problems 512";
constexpr const char* kMatmuls = "--matmuls-only --shape 64x64x32 --types 'f16>f32,f32>f32'";

TEST_F(CheckCommand, FindsNothingWrongWithThisProcessor) {
  const Result result = halfmark("check --device cpu --minutes 0.001 --types 'f32>f32' --shape 48x48x32");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(says(result.out, "no wrong result: their share is below")) << result.out;
  EXPECT_TRUE(says(result.out, "matrix instructions: no simulated device stands for this one")) << result.out;
}

TEST_F(CheckCommand, RefusesMistakesWithOneLineAndExitCode2) {
  expect_complaint("check --device sim:hopper", "sim:hopper is a simulation");
  expect_complaint("check --device nonsense", "unknown device 'nonsense'");
  expect_complaint("check --minutes 0", "'0' is not a positive number");
  expect_complaint("check --shape 32x32", "--shape '32x32': write MxNxK");
  expect_complaint("check --problems 0", "'0' is not");
  expect_complaint("check --types nonsense", "types 'nonsense': write A>D");
  expect_complaint("check --instructions-only --matmuls-only", "exclude each other");
  expect_complaint("check --instructions-only --types 'f32>f32'", "--types selects matmuls");
}

TEST_F(CheckCommand, EndsWith3WhereNothingCouldBeChecked) {
  const Result result = halfmark("check --device cpu --minutes 0.001 --instructions-only");
  EXPECT_EQ(result.code, 3) << result.err;
}

TEST_F(CheckCommand, StoppedByASignalItShowsWhatItHasChecked) {
  const pid_t child =
      start({program(), "check", "--device", "cpu", "--minutes", "10", "--types", "f32>f32", "--shape", "48x48x32"});
  std::this_thread::sleep_for(std::chrono::seconds(3));
  ::kill(child, SIGINT);
  const Result result = wait(child);
  EXPECT_EQ(result.code, 130) << result.err;
  EXPECT_TRUE(says(result.out, "no wrong result")) << result.out;
}

TEST_F(CheckCommand, FindsNothingWrongWithTheSoftwareGpu) {
  if (!has_software_gpu()) GTEST_SKIP() << "built without CUDA";
  const nlohmann::json dots = checked(kDots, "", 0);
  EXPECT_EQ(dots["wrong"], 0);
  EXPECT_GE(dots["subjects"].size(), 20u);
  for (const auto& subject : dots["subjects"]) {
    EXPECT_EQ(subject["expected_from"], "sim:hopper");
    EXPECT_GE(subject["results"], 512) << subject;
  }
  EXPECT_EQ(checked(kMatmuls, "", 0)["wrong"], 0);
}

// The operands that are given with a wrong result lead to the expected result.
TEST_F(CheckCommand, NamesTheMultiprocessorAndTheOperandsOfAnInvertedBit) {
  if (!has_software_gpu()) GTEST_SKIP() << "built without CUDA";
  const nlohmann::json check = checked(kDots, "30000", 1);
  ASSERT_GT(check["wrong"], 0);
  uint64_t placed = 0;
  for (const auto& [multiprocessor, count] : check["wrong_on_multiprocessor"].items()) placed += count.get<uint64_t>();
  EXPECT_EQ(placed, check["wrong"]);
  int replayed = 0;
  for (const auto& wrong : check["wrong_results"]) {
    // An inverted bit of the first of two instructions is an addend of the second.
    EXPECT_NE(code_of(wrong["expected"]), code_of(wrong["got"])) << wrong;
    const std::string subject = wrong["subject"], wanted = "mma.m16n8k16 f16>f32";
    if (subject != wanted) continue;
    std::ofstream(folder_ / "question.csv") << "a,b,c\n"
                                            << wrong["a"].get<std::string>() << "," << wrong["b"].get<std::string>()
                                            << "," << wrong["c"].get<std::string>() << "\n";
    const Result answer = halfmark("dot --device sim:hopper --instruction mma.m16n8k16 --a f16 < question.csv");
    EXPECT_EQ(answer.out, "d\n" + wrong["expected"].get<std::string>() + "\n") << answer.err;
    ++replayed;
  }
  EXPECT_GT(replayed, 0) << check["wrong_results"];
}

TEST_F(CheckCommand, FindsInvertedBitsInProductsOfLibraries) {
  if (!has_software_gpu()) GTEST_SKIP() << "built without CUDA";
  const nlohmann::json check = checked(kMatmuls, "200000", 1);
  ASSERT_GT(check["wrong"], 0);
  for (const auto& wrong : check["wrong_results"])
    EXPECT_EQ(std::popcount(code_of(wrong["expected"]) ^ code_of(wrong["got"])), 1) << wrong;
}

class SlowCheckCommand : public CheckCommand {};

// One round has 33,554,432 results of 32 bits, so that one of them is wrong at least.
TEST_F(SlowCheckCommand, FindsOneInvertedBitInABillionOfProducts) {
  if (!has_software_gpu()) GTEST_SKIP() << "built without CUDA";
  const nlohmann::json check = checked("--matmuls-only --shape 1024x4096x16 --types 'f16>f32'", "1000000000", 1);
  EXPECT_EQ(check["results"], 33554432);
  EXPECT_TRUE(check["wrong"] == 1 || check["wrong"] == 2) << check["wrong"];
  for (const auto& wrong : check["wrong_results"])
    EXPECT_EQ(std::popcount(code_of(wrong["expected"]) ^ code_of(wrong["got"])), 1) << wrong;
}

// HALFMARK_LONG=1: two minutes, because the instructions are interpreted. The place of the bit is drawn from a fixed seed,
// and is among those of the first round.
TEST_F(SlowCheckCommand, FindsOneInvertedBitInABillionOfMatrixInstructions) {
  if (!has_software_gpu()) GTEST_SKIP() << "built without CUDA";
  if (!std::getenv("HALFMARK_LONG")) GTEST_SKIP() << "takes minutes: with HALFMARK_LONG=1 only";
  const nlohmann::json check = checked("--instructions-only", "1000000000", 1);
  EXPECT_EQ(check["wrong"], 1) << check["results"];
  EXPECT_EQ(check["wrong_on_multiprocessor"].size(), 1u) << check["wrong_on_multiprocessor"];
}

}  // namespace
}  // namespace halfmark::bench
