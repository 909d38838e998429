// Lists of subjects in files: both forms, published lists, and one clear line for every broken one.
#include "bench/commands/shapes.h"

#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "bench/namespaces.h"
#include "kernels/number/error.h"
#include "models/zoo.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

using Ids = std::vector<std::string>;

std::string complaint_about(const std::string& text) {
  try {
    (void)subjects_in(text, "list");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void expect_complaint(const std::string& text, const std::string& words) {
  const std::string complaint = complaint_about(text);
  EXPECT_TRUE(complaint.starts_with("list")) << complaint;
  EXPECT_NE(complaint.find(words), std::string::npos) << complaint << "\nof: " << text;
  EXPECT_EQ(complaint.find('\n'), std::string::npos) << complaint;
}

TEST(Shapes, AreReadFromCsv) {
  EXPECT_EQ(subjects_in("# sizes of mine\r\nsubject, b,c ,o,s,k,t,p\r\n\r\n"
                        "conv2d,8,3,16,9x7,3,,0\r\nconv2d,1,2,2,5,1x3,2,\r\nlinear/b2_i3_o4,,,,,,,\r\n",
                        "list"),
            (Ids{"conv2d/b8_c3_o16_s9x7_k3_p0", "conv2d/b1_c2_o2_s5_k1x3_t2", "linear/b2_i3_o4"}));
  EXPECT_EQ(subjects_in("\xEF\xBB\xBFsubject\nlinear/b2_i3_o4", "list"), (Ids{"linear/b2_i3_o4"})) << "a BOM";
  EXPECT_EQ(subjects_in("\xEF\xBB\xBF[\"linear/b2_i3_o4\"]", "list"), (Ids{"linear/b2_i3_o4"}));
  EXPECT_EQ(subjects_in("subject\nlinear/b2_i3_o4\nrelu/s5_c1_b1\nlinear/o4_b2_i3", "list"),
            (Ids{"linear/b2_i3_o4", "relu/b1_c1_s5"}))
      << "each subject once";
}

TEST(Shapes, AreReadFromJson) {
  EXPECT_EQ(subjects_in(R"( ["linear/b2_i3_o4", {"subject": "conv2d", "b": 8, "c": 3, "o": 16, "s": "9x7", "k": 3}] )",
                        "list"),
            (Ids{"linear/b2_i3_o4", "conv2d/b8_c3_o16_s9x7_k3"}));
}

TEST(Shapes, OfDeepBenchAreSubjects) {
  const std::filesystem::path folder = std::filesystem::path(test_folders::source()) / "bench" / "shapes";
  EXPECT_EQ(subjects_in_file((folder / "deepbench_gemm_training.csv").string()).size(), 83u);
  const Ids convolutions = subjects_in_file((folder / "deepbench_conv_training.csv").string());
  EXPECT_EQ(convolutions.size(), 90u);
  EXPECT_EQ(convolutions.front(), "conv2d/b4_c1_o32_s161x700_k5x20_t2_p0");
  for (const std::string& id : convolutions) EXPECT_EQ(subject_named(id).id(), id);
}

TEST(Shapes, OfTritonBenchAreSubjects) {
  const std::filesystem::path folder = std::filesystem::path(test_folders::source()) / "bench" / "shapes";
  const Ids products = subjects_in_file((folder / "tritonbench_llama.csv").string());
  EXPECT_EQ(products.size(), 17u * 12u);
  EXPECT_EQ(products.front(), "linear/b1_i4096_o12288");
  EXPECT_EQ(products.back(), "linear/b65536_i6656_o16384");
  const Ids rows = subjects_in_file((folder / "tritonbench_rows.json").string());
  EXPECT_EQ(rows.size(), 30u + 98u);
  EXPECT_EQ(rows.front(), "layernorm/b4096_d1024");
  EXPECT_EQ(rows.back(), "softmax/b4096_d12672");
  for (const Ids* ids : {&products, &rows})
    for (const std::string& id : *ids) EXPECT_EQ(subject_named(id).id(), id);
}

TEST(Shapes, ThatAreBrokenAreOneLine) {
  expect_complaint("", "list: names no subject");
  expect_complaint("subject,b\n", "list: names no subject");
  expect_complaint("[]", "list: names no subject");
  expect_complaint("name,b\nlinear,2\n",
                   "list:1: the header begins with 'name', not with 'subject'; fields are separated by commas");
  expect_complaint("\"subject\",\"b\"\n\"linear\",2\n", "have no quotes");
  expect_complaint("subject,b\nmlp,\n",
                   "list:2: mlp needs sizes, as mlp/b32_i64_h128_o10; its letters: b batch, i inputs");
  expect_complaint("subject,batch\nlinear,2\n", "list:1: column 'batch' is not a letter of sizes");
  expect_complaint("subject,b,b\nlinear,2,2\n", "list:1: two columns 'b'");
  expect_complaint("subject,b,i,o\nlinear,2,3\n", "list:2: 3 fields, the header has 4");
  expect_complaint("subject,b,i,o\nlinear,2,3,\n", "list:2: linear/b2_i3: without o (outputs)");
  expect_complaint("subject,b,i,o\n\nlinear,2,3,x\n", "list:3: linear/b2_i3_ox: 'ox' is not o (outputs)");
  expect_complaint("subject,b,i,o\nliner,2,3,4\n", "list:2: unknown subject 'liner'");
  expect_complaint("subject,b,c,o,s,k,g\nconv2d,2,4,4,8,3,3\n", "list:2: conv2d/b2_c4_o4_s8_k3_g3: 3 groups do not");
  expect_complaint("subject,b,c,s\nlenet5,2,1,28\nlenet5,2,1,8\n",
                   "list:3: lenet5/b2_c1_s8: layer conv2 (conv2d): the kernel");
  expect_complaint("[\"linear/b2_i3_o4\", 5]", "list: entry 2: neither an id nor an object");
  expect_complaint("[{\"subject\": 5}]", "list: entry 1: neither an id nor an object");
  expect_complaint("[{\"subject\": \"linear\", \"bat\": 5}]", "list: entry 1: 'bat' is not a letter of sizes");
  expect_complaint("[{\"subject\": \"linear\", \"b\": -5}]", "list: entry 1: b is neither a whole number nor text");
  expect_complaint("[{\"subject\": \"linear\", \"b\": 2.5}]", "list: entry 1: b is neither a whole number nor text");
  expect_complaint("[{\"subject\": \"linear\", \"b\": 1, \"b\": 2}]",
                   "list: has \"b\" twice in one object, again in line 1");
  expect_complaint("[\"linear/b2_i3_o4\"", "ends in the middle");
}

}  // namespace
}  // namespace halfmark::bench
