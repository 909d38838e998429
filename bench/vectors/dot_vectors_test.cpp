// Tests of dot product vectors on simulated devices: input, output and error messages.
#include "bench/vectors/dot_vectors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

std::string dots(const std::string& device, const DotQuestion& question, const std::string& input) {
  std::istringstream in(input);
  std::ostringstream out;
  answer_dots(in, out, *open_device(device), question);
  return out.str();
}

std::string complaint(const std::string& device, const DotQuestion& question, const std::string& input) {
  try {
    dots(device, question, input);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const DotQuestion kF16{"f16", "f16", "f32", "f32", MatrixInstruction::mma_m8n8k4};

TEST(DotVectors, AnswerOneCodePerRowAndChainLongerRows) {
  // 1 x 1 + 2 x 2 + 1; then twice as long, and the same with columns in another order.
  EXPECT_EQ(dots("sim:volta", kF16, "a,b,c\n3c00400000000000,3c00400000000000,3f800000\n"), "d\n40c00000\n");
  EXPECT_EQ(dots("sim:volta", kF16,
                 "c,b,x,a\n00000000,3c003c003c003c003c003c003c003c00,?,3c003c003c003c003c003c003c003c00\n"
                 "BF800000,3C00000000000000,!,3C00000000000000\n"),
            "d\n41000000\n00000000\n");
  EXPECT_EQ(dots("sim:volta", kF16,
                 "a,b,c\n3c00400000000000,3c00400000000000,3f800000\n3c00000000000000,3c00000000000000,3f800000\n"),
            "d\n40c00000\n40000000\n");
  EXPECT_EQ(dots("sim:volta", kF16, "a,b,c\n"), "d\n");
}

TEST(DotVectors, ReproduceTheWorkedExamples) {
  const std::string file = test_folders::data() + "/tensor_core_worked_examples.csv";
  std::ifstream stream(file);
  if (!stream) GTEST_SKIP() << "no worked examples at " << file;
  std::string line;
  std::getline(stream, line);
  ASSERT_EQ(line, "device,instruction,a_type,b_type,d_type,scale,a,b,c,scale_a,scale_b,d");
  int rows = 0;
  while (std::getline(stream, line)) {
    std::vector<std::string> f;
    std::stringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) f.push_back(field);
    ASSERT_EQ(f.size(), 12u);
    DotQuestion question{f[2], f[3], f[4], f[4], matrix_instruction_named(f[1])};
    if (const size_t slash = f[5].find('/'); slash != std::string::npos)
      question.scale_type = f[5].substr(0, slash), question.scale_block = std::stoi(f[5].substr(slash + 1));
    EXPECT_EQ(dots("sim:" + f[0], question,
                   "a,b,c,scale_a,scale_b\n" + f[6] + "," + f[7] + "," + f[8] + "," + f[9] + "," + f[10] + "\n"),
              "d\n" + f[11] + "\n")
        << line;
    ++rows;
  }
  EXPECT_EQ(rows, 30);
}

TEST(DotVectors, ReportWhichRowIsInvalid) {
  const std::string good = "a,b,c\n3c00400000000000,3c00400000000000,3f800000\n";
  EXPECT_EQ(complaint("sim:volta", kF16, good + "3c00,3c00400000000000,3f800000\n"),
            "line 3, column 'b': '3c00400000000000' contains 4 operands, but column 'a' contains 1");
  EXPECT_EQ(complaint("sim:volta", kF16, good + "3c00,3c00,3f800000\n"),
            "line 3, column 'a': '3c00' contains 1 operands, not a multiple of the K of mma.m8n8k4");
  EXPECT_EQ(complaint("sim:volta", kF16, good + "3c00400000000000,3c00400000000000,3f8000003f800000\n"),
            "line 3, column 'c': '3f8000003f800000' must contain one number");
  EXPECT_NE(complaint("sim:volta", kF16, "a,b\n").find("no column 'c'"), std::string::npos);
}

TEST(DotVectors, ReportMissingInstructions) {
  const std::string row = "a,b,c\n00000000,00000000,00000000\n";
  EXPECT_NE(complaint("sim:volta", {"e4m3", "e4m3", "f32", "f32"}, row).find("volta has no instruction for e4m3"),
            std::string::npos);
  EXPECT_NE(complaint("cpu", kF16, "a,b,c\n3c00400000000000,3c00400000000000,3f800000\n").find("dot_products"),
            std::string::npos);
  EXPECT_EQ(complaint("sim:hopper", {"f8", "f16", "f32", "f32"}, row),
            "--a f8: operands are f16, bf16, tf32, e4m3, e5m2, e2m1 or f64");
  EXPECT_EQ(complaint("sim:hopper", {"e2m1", "e2m1", "f32", "f32", MatrixInstruction::usual, "ue8m0"}, row),
            "--scale-type and --scale-block go together");
}

}  // namespace
}  // namespace halfmark::bench
