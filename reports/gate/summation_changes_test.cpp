// Sizes whose matmul adds in another way: a breach for each, and one remark for all.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "reports/gate/gate_testing.h"

namespace halfmark::reports {
namespace {

using namespace gate_test;

// One record for each size, of a matmul that adds in this many partial sums, in blocks of 16 with 25 bits.
Report sizes_report(int sizes, double partial_sums, double fingerprint) {
  Report report = made_report();
  report.records.clear();
  for (int i = 1; i <= sizes; ++i) {
    const std::string subject = "linear/b32_i" + std::to_string(64 * i) + "_o32";
    Record record = made_record(subject + "/cuda:0/fp16/summation");
    record.subject = subject, record.device = "cuda:0", record.harness = "summation";
    const auto exact = [](const char* metric, double value) {
      return number(metric, "", value, Kind::exact, Better::neither);
    };
    record.measurements = {exact("summation.partial_sums", partial_sums), exact("summation.products_per_block", 16),
                           exact("summation.kept_bits", 25), exact("summation.fingerprint", fingerprint)};
    report.records.push_back(record);
  }
  return report;
}

bool remarks_on(const Judgement& judgement, const std::string& text) {
  return std::any_of(judgement.remarks.begin(), judgement.remarks.end(),
                     [&](const std::string& one) { return one.find(text) != std::string::npos; });
}

TEST(SummationChanges, ManySizesThatSplitKGetOneRemarkAndABreachEach) {
  const Judgement judgement = gate(sizes_report(14, 1, 7), sizes_report(14, 4, 8));
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_TRUE(remarks_on(judgement, "14 sizes now add in 4 partial sums, not in 1: linear/b32_i64_o32/cuda:0/fp16"));
  std::set<std::string> cases;
  for (const JudgedLine& line : lines_with(judgement, Outcome::breach)) cases.insert(line.id);
  EXPECT_EQ(cases.size(), 14u);
}

TEST(SummationChanges, AnotherFingerprintWithTheSameBlocksIsNamedAsSuch) {
  const Judgement judgement = gate(sizes_report(1, 1, 7), sizes_report(1, 1, 8));
  EXPECT_EQ(judgement.exit_code, 1);
  EXPECT_TRUE(remarks_on(judgement, "1 size now adds in another way: same blocks and partial sums"));
}

TEST(SummationChanges, EqualSizesGetNoRemark) {
  const Judgement judgement = gate(sizes_report(14, 4, 8), sizes_report(14, 4, 8));
  EXPECT_EQ(judgement.exit_code, 0);
  EXPECT_FALSE(remarks_on(judgement, "add in"));
}

}  // namespace
}  // namespace halfmark::reports
