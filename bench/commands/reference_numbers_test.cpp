// The numbers of the fp64 reference on this machine, with this compiler, against those of another machine: they are the
// same up to the rounding of fp64. A change of the mathematics that nobody intended is seen here before it is committed.
//
// After an intended change: HALFMARK_WRITE=1 bench_tests --gtest_filter='*ReferenceNumbers*' writes the fixture anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "bench/run/program_testing.h"
#include "reports/gate/acknowledgement.h"
#include "reports/gate/gate_reference.h"
#include "reports/gate/judgement.h"
#include "reports/record/folder_testing.h"
#include "reports/record/paths_testing.h"
#include "reports/record/report.h"

namespace halfmark::bench {
namespace {

const std::filesystem::path kFixture =
    std::filesystem::path(test_folders::source()) / "reports/fixtures/reference_numbers.json";

// Each kind of layer, each model, and the controls with an overflow.
constexpr const char* kCases =
    "run --no-probes --suite quick --device cpu --policy fp32,amp-fp16 --harness error,training,batchnorm_drift "
    "linear/b4_i16_o8 conv2d/b2_c4_o6_s6_k3 batchnorm2d/b4_c3_s4 relu/b2_c4_s5 maxpool/b2_c4_s7_k3_t2 "
    "avgpool/b2_c4_s6_k2 globalpool/b2_c4_s5 mlp/b8_i16_h24_o10 logistic/b4_c1_s8 convnet/b4_c1_s8_w4 -o new.json";

// The report with nothing but the numbers of the reference.
Report reduced(Report report) {
  std::erase_if(report.records, [](Record& record) {
    std::erase_if(record.measurements, [](const Measurement& one) { return !is_reference(one); });
    record.series.clear(), record.kernels.clear();
    return record.measurements.empty();
  });
  return report;
}

class ReferenceNumbers : public ProcessTest {};

TEST_F(ReferenceNumbers, AreThoseOfAnotherMachineAndCompiler) {
  const Result result = halfmark(kCases);
  ASSERT_EQ(result.code, 0) << result.err;
  const Report found = reduced(Report::load(folder_ / "new.json"));
  if (std::getenv("HALFMARK_WRITE")) found.save(kFixture);
  const Report base = Report::load(kFixture);
  ASSERT_EQ(found.records.size(), base.records.size());
  Acknowledgements none;
  for (size_t i = 0; i < base.records.size(); ++i) {
    Judgement judgement;
    judge_reference(base.records[i], found.records[i], "", none, "2026-01-01", judgement);
    ASSERT_EQ(judgement.lines.size(), 1u);
    EXPECT_EQ(judgement.lines[0].outcome, Outcome::pass) << base.records[i].id << ": " << judgement.lines[0].words;
  }
}

}  // namespace
}  // namespace halfmark::bench
