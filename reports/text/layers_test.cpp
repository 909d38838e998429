// show --layers: which tensors lose values, worst first.
#include "reports/text/layers.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "reports/record/folder_testing.h"

namespace halfmark::reports {
namespace {

Measurement range_metric(const std::string& metric, const std::string& at, double value) {
  return {.metric = "range." + metric, .at = at, .value = value};
}

Record layer_record(const std::string& policy, const std::string& harness, std::vector<Measurement> measurements) {
  Record record;
  record.subject = "mlp/h64", record.device = "cpu", record.policy = policy, record.harness = harness;
  record.id = "mlp/h64/cpu/" + policy + "/" + harness;
  record.measurements = std::move(measurements);
  return record;
}

NamedReport lossy_report() {
  NamedReport named{"r.json", {}};
  named.report.records = {
      layer_record(
          "fp16", "range",
          {range_metric("headroom", "activation/fc1", 12), range_metric("underflow", "activation/fc1", 0),
           range_metric("subnormal", "activation/fc1", 0), range_metric("nonfinite", "activation/fc1", 0),
           range_metric("headroom", "gradient/fc2", 20), range_metric("underflow", "gradient/fc2", 0.004),
           range_metric("subnormal", "gradient/fc2", 0.5), range_metric("headroom", "gradient/fc1.weight", 22),
           range_metric("underflow", "gradient/fc1.weight", 0.25),
           range_metric("subnormal", "gradient/fc1.weight", 0.5), range_metric("headroom", "activation/loss", -2),
           range_metric("nonfinite", "activation/loss", 0.125), range_metric("underflow", "gradients", 0.1)}),
      layer_record("fp32", "range",
                   {range_metric("headroom", "activation/fc1", 120), range_metric("underflow", "activation/fc1", 0)}),
      layer_record("fp16", "error", {{.metric = "error.nmse", .at = "gradient/fc1.weight", .value = 3e-4}})};
  return named;
}

TEST(Layers, PutsOverflowFirstThenWhatWasFlushed) {
  const std::string text = show_layers(lossy_report());
  const size_t overflow = text.find("fp16    loss"), most = text.find("fp16    d fc1.weight"),
               less = text.find("fp16    d fc2");
  ASSERT_NE(less, text.npos) << text;
  EXPECT_LT(overflow, most) << text;
  EXPECT_LT(most, less) << text;
  EXPECT_NE(text.find("backward           -           25%        50%    22 bit  0.0003"), text.npos) << text;
  EXPECT_NE(text.find("12.5%"), text.npos) << text;
}

TEST(Layers, LeavesOutWhatLosesNothingAndSaysHowMuch) {
  const std::string text = show_layers(lossy_report());
  EXPECT_EQ(text.find("  fc1  "), text.npos) << text;
  EXPECT_NE(text.find("fp16: 1 of 4 tensors lose nothing"), text.npos) << text;
  EXPECT_NE(text.find("fp32: 1 of 1 tensors lose nothing"), text.npos) << text;
  EXPECT_EQ(text.find("gradients"), text.npos) << "sums over tensors are no tensor\n" << text;
  const std::string all = show_layers(lossy_report(), {.all = true});
  EXPECT_NE(all.find("fp32    fc1"), all.npos) << all;
  EXPECT_EQ(all.find("lose nothing"), all.npos) << all;
}

TEST(Layers, SaysWhichHarnessIsMissing) {
  NamedReport named = lossy_report();
  named.report.records.erase(named.report.records.begin(), named.report.records.begin() + 2);
  EXPECT_SAYS(complaint([&] { show_layers(named); }), "halfmark run SUBJECT POLICY range error -o range.json");
}

}  // namespace
}  // namespace halfmark::reports
