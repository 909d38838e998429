// show --layers: which tensors lose values, worst first.
#include "reports/text/layers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/record/folder_testing.h"
#include "reports/text/compare.h"

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
  EXPECT_NE(text.find("backward           -        25%        50%    22 bit  0.0003"), text.npos) << text;
  EXPECT_NE(text.find("12.5%"), text.npos) << text;
}

// Casts are no tensors: they are shown where they lose something, and not counted.
TEST(Layers, ShowsWhatCastsLose) {
  NamedReport named = lossy_report();
  for (const auto& [at, overflow, underflow] : {std::tuple{"casts/gradients/f32-f16", 0.0, 0.2109},
                                                {"casts/weights/f32-f16", 0.0625, 0.0},
                                                {"casts/activations/f32-f16", 0.0, 0.0}})
    for (const auto& [metric, value] : {std::pair{"cast_overflow", overflow}, {"cast_underflow", underflow}})
      named.report.records[0].measurements.push_back(range_metric(metric, at, value));
  const std::string text = show_layers(named);
  EXPECT_NE(text.find("casts of gradients/f32-f16  cast "), text.npos) << text;
  EXPECT_NE(text.find("21.1%"), text.npos) << text;
  EXPECT_NE(text.find("casts of weights/f32-f16"), text.npos) << text;
  EXPECT_NE(text.find("6.25%"), text.npos) << text;
  EXPECT_EQ(text.find("casts of activations"), text.npos) << text;
  EXPECT_NE(text.find("fp16: 1 of 4 tensors lose nothing"), text.npos) << text;
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

TEST(Layers, SaysWhichGradientHasNoErrorBecauseItsTermsCancel) {
  NamedReport named{"r.json", {}};
  named.report.records = {
      layer_record(
          "fp16", "range",
          {range_metric("underflow", "gradient/conv.bias", 0.5), range_metric("underflow", "gradient/x", 0.25)}),
      layer_record("fp16", "error", {{.metric = "error.cancelled", .at = "gradient/conv.bias", .value = 1e-16}})};
  const std::string text = show_layers(named), line = text.substr(text.find("d conv.bias"), text.find("d x"));
  EXPECT_NE(line.substr(0, line.find('\n')).find("cancels"), text.npos) << text;
  EXPECT_EQ(text.find("cancels"), text.rfind("cancels")) << "d x was not measured\n" << text;
}

TEST(Layers, CountsAGradientWhoseTermsCancelAsOneThatLosesNothing) {
  NamedReport named{"r.json", {}};
  named.report.records = {layer_record("fp16", "range",
                                       {range_metric("headroom", "gradient/conv.bias", 40),
                                        {.metric = "range.cancelled", .at = "gradient/conv.bias", .value = 1e-16},
                                        range_metric("underflow", "gradient/x", 0.25)})};
  EXPECT_EQ(show_layers(named).find("conv.bias"), std::string::npos);
  EXPECT_SAYS(show_layers(named), "1 of 2 tensors lose nothing");
  const std::string text = show_layers(named, {.all = true});
  EXPECT_SAYS(text.substr(text.find("d conv.bias")), "cancels");
}

TEST(Layers, BreaksTiesByTheNextKindOfLoss) {
  // Worst last, as a report may have them.
  const std::vector<Measurement> tensors = {range_metric("headroom", "activation/nothing", 1),
                                            range_metric("headroom", "activation/near", 0.9),
                                            range_metric("headroom", "activation/nearer", 0.2),
                                            range_metric("subnormal", "activation/bits", 0.05),
                                            range_metric("underflow", "activation/flushed", 0.1),
                                            range_metric("subnormal", "activation/flushed", 0.2),
                                            range_metric("underflow", "activation/flushed_bits", 0.1),
                                            range_metric("subnormal", "activation/flushed_bits", 0.3),
                                            range_metric("underflow", "activation/more_flushed", 0.2),
                                            range_metric("headroom", "activation/unknown", std::nan("")),
                                            range_metric("headroom", "activation/beyond", -0.5),
                                            range_metric("nonfinite", "activation/infinite", 0.1),
                                            range_metric("underflow", "activation/infinite", 0.05),
                                            range_metric("nonfinite", "activation/most_infinite", 0.5)};
  NamedReport named{"r.json", {}};
  named.report.records = {layer_record("fp16", "range", tensors)};
  const std::string text = show_layers(named);
  size_t before = 0;
  for (const char* name : {"most_infinite", "infinite", "beyond", "unknown", "more_flushed", "flushed_bits", "flushed",
                           "bits", "nearer", "near"}) {
    const size_t at = text.find(fmt::format("fp16    {} ", name));
    ASSERT_NE(at, text.npos) << name << "\n" << text;
    EXPECT_GT(at, before) << name << "\n" << text;
    before = at;
  }
  EXPECT_NE(text.find("fp16: 1 of 11 tensors lose nothing"), text.npos) << text;
}

TEST(Layers, TakesTheErrorOfTheSameDeviceAndPrecision) {
  const auto error = [](const char* harness, double value) {
    return layer_record("fp16", harness, {{.metric = "error.nmse", .at = "gradient/w", .value = value}});
  };
  NamedReport named{"r.json", {}};
  std::vector<Record>& records = named.report.records;
  records = {layer_record("fp16", "range", {range_metric("underflow", "gradient/w", 0.5)}), error("error", 1e-3),
             error("error", 2e-3), error("error", 3e-3), error("training", 4e-3)};
  records[2].axes = {{"eval", "half"}};
  records[3].device = "sim:hopper";
  EXPECT_NE(show_layers(named).find("0.001"), std::string::npos) << show_layers(named);
}

TEST(Layers, HasATableForEachSubjectAndDevice) {
  NamedReport named = lossy_report();
  Record other = named.report.records[0];
  other.device = "sim:hopper";
  named.report.records.push_back(other);
  other.subject = "mlp/h32";
  named.report.records.push_back(other);
  const std::string text = show_layers(named);
  for (const char* title : {"\nmlp/h64 on cpu\n", "\nmlp/h64 on sim:hopper\n", "\nmlp/h32 on sim:hopper\n"})
    EXPECT_NE(text.find(title), text.npos) << title << text;
}

TEST(Layers, SaysThatAReportIsPartial) {
  NamedReport named = lossy_report();
  EXPECT_EQ(show_layers(named).find("partial"), std::string::npos);
  named.report.run.complete = false;
  named.report.run.planned = 20;
  EXPECT_SAYS(show_layers(named), "partial   holds 3 of 20 cases");
}

TEST(Layers, ColoursWhatIsLost) {
  const std::string text = show_layers(lossy_report(), {.colour = true, .all = true});
  for (const char* part : {"\x1b[31m12.5%\x1b[0m", "\x1b[31m25%\x1b[0m", "\x1b[31m50%\x1b[0m", "\x1b[31m-2 bit\x1b[0m"})
    EXPECT_SAYS(text, part);
  for (const char* part : {"\x1b[31m0%", "\x1b[31m12 bit"}) EXPECT_EQ(text.find(part), text.npos) << text;
}

TEST(Layers, SaysWhichHarnessIsMissing) {
  NamedReport named = lossy_report();
  named.report.records.erase(named.report.records.begin(), named.report.records.begin() + 2);
  EXPECT_SAYS(complaint([&] { show_layers(named); }), "halfmark run SUBJECT POLICY range error -o range.json");
}

// fc1 ... fc12 lose 12 %, 11 %, ... 1 % under fp16; two of them lose the same under fp16-bn32.
NamedReport deep_report() {
  std::vector<Measurement> fp16;
  for (int i = 12; i >= 1; --i) {
    const std::string at = fmt::format("activation/fc{}", i);
    fp16.push_back(range_metric("underflow", at, 0.13 - i * 0.01));
    fp16.push_back(range_metric("subnormal", at, 0.5));
    fp16.push_back(range_metric("nonfinite", at, 0));
    fp16.push_back(range_metric("headroom", at, 12));
  }
  NamedReport named{"a report.json", {}};
  named.report.records = {
      layer_record("fp16", "range", fp16),
      layer_record("fp16-bn32", "range",
                   {range_metric("underflow", "activation/fc1", 0.12), range_metric("subnormal", "activation/fc1", 0.5),
                    range_metric("nonfinite", "activation/fc1", 0), range_metric("headroom", "activation/fc1", 12)}),
      layer_record("fp32", "range",
                   {range_metric("headroom", "activation/fc1", 120), range_metric("underflow", "activation/fc1", 0)})};
  return named;
}

size_t widest_line(const std::string& text) {
  size_t longest = 0, begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    longest = std::max(longest, end - begin);
  return longest;
}

TEST(WorstLayers, AreEightRowsAndTheCommandThatShowsTheOthers) {
  const std::string text = show(deep_report(), {.width = 80});
  EXPECT_SAYS(text, "where values are lost, worst first\n");
  EXPECT_SAYS(text, "fp16, fp16-bn32  fc1           12%        50%          0%    12 bit");
  EXPECT_SAYS(text, "fp16             fc8            5%        50%          0%    12 bit");
  EXPECT_EQ(text.find("  fc9 "), text.npos) << text;
  EXPECT_SAYS(text, "and 4 more: halfmark show 'a report.json' --layers mlp/h64");
  EXPECT_LT(text.find("  fc1 "), text.find("  fc2 ")) << text;
  EXPECT_EQ(text.find("\nfp32  fc"), text.npos) << "fp32 loses nothing\n" << text;
}

TEST(WorstLayers, FitEveryTerminal) {
  for (const size_t width : {size_t{60}, size_t{80}, size_t{120}})
    EXPECT_LE(widest_line(worst_layers(deep_report(), {.width = width}).at({"mlp/h64", "cpu"})), width) << width;
}

TEST(WorstLayers, AreAllOfThemWithAll) {
  const std::string text = worst_layers(deep_report(), {.all = true}).at({"mlp/h64", "cpu"});
  EXPECT_SAYS(text, "  fc12 ");
  EXPECT_EQ(text.find("more:"), text.npos) << text;
}

TEST(WorstLayers, AreLeftOutForASingleLayerAndWhereNothingIsLost) {
  NamedReport single{"r.json", {}};
  single.report.records = {layer_record(
      "fp16", "range", {range_metric("underflow", "activation/fc", 0.5), range_metric("underflow", "gradient/fc", 1)})};
  EXPECT_TRUE(worst_layers(single).empty());
  NamedReport unharmed{"r.json", {}};
  unharmed.report.records = {layer_record(
      "fp16", "range", {range_metric("underflow", "activation/a", 0), range_metric("underflow", "activation/b", 0)})};
  EXPECT_TRUE(worst_layers(unharmed).empty());
  unharmed.report.records[0].measurements[0].value = 1e-6;
  EXPECT_EQ(worst_layers(unharmed).size(), 1u);
}

}  // namespace
}  // namespace halfmark::reports
