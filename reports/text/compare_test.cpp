// The output of show and compare, and text that it must not contain.
#include "reports/text/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include "reports/record/sample_report_testing.h"
#include "reports/text/selection.h"
#include "reports/text/summary.h"

namespace halfmark::reports {
namespace {

Record record_of(const std::string& policy, const std::string& harness, std::vector<Measurement> measurements,
                 const std::string& device = "cuda:0") {
  Record record;
  record.subject = "mlp/h64";
  record.device = device;
  record.policy = policy;
  record.harness = harness;
  record.id = record.subject + "/" + device + "/" + policy + "/" + harness;
  record.measurements = std::move(measurements);
  return record;
}

Measurement step(double seconds, const char* at = "hot") {
  return {
      .metric = "time.step", .at = at, .value = seconds, .unit = "s", .better = Better::lower, .kind = Kind::sampled};
}

Measurement nmse(double value, const char* at = "output") {
  return {.metric = "error.nmse", .at = at, .value = value, .better = Better::lower};
}

Measurement speed_up(double value, double half_width) {
  Measurement one{
      .metric = "speedup.step", .at = "hot", .value = value, .better = Better::higher, .kind = Kind::sampled};
  one.interval = Range{value - half_width, value + half_width};
  return one;
}

NamedReport three_precisions() {
  NamedReport named{"base.json", {}};
  named.report.records = {record_of("fp32", "throughput", {step(4e-3)}),
                          record_of("bf16", "throughput", {step(2e-3), speed_up(1.9, 0.019)}),
                          record_of("fp16", "throughput", {step(1e-3), speed_up(3.8, 0.38)}),
                          record_of("fp32", "error", {nmse(1e-14)}),
                          record_of("bf16", "error", {nmse(1e-5), nmse(3e-5, "gradient/w"), nmse(2e-5, "gradient/b")}),
                          record_of("fp16", "error", {nmse(1e-7)})};
  return named;
}

// The first line that starts with `name`, from its first space on.
std::string row(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + " ")) return line.substr(name.size());
  }
  return {};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Show, SaysThatAReportIsPartial) {
  NamedReport named = three_precisions();
  EXPECT_FALSE(has(show(named), "partial"));
  EXPECT_FALSE(has(compare({named}), "partial"));
  named.report.run.planned = 7;
  EXPECT_TRUE(has(show(named), "partial   holds 6 cases, its run had 7: was it edited?"));
  named.report.run.planned = 6;
  NamedReport selected = named;
  select_records(selected, {"fp32"}, {});
  EXPECT_LT(selected.report.records.size(), 6u);
  EXPECT_FALSE(has(show(selected), "partial")) << "selected by words, not edited";
  named.report.run.complete = false;
  named.report.run.planned = 20;
  EXPECT_TRUE(has(show(named), "partial   holds 6 of 20 cases"));
  EXPECT_TRUE(has(compare({named}), "note: partial, holds 6 of 20 cases"));
  EXPECT_TRUE(has(compare({three_precisions(), named}), "base.json is partial, holds 6 of 20 cases"));
}

TEST(Compare, AndShowSayThatASoftwareGpuIsNone) {
  NamedReport gpu = three_precisions(), software = three_precisions();
  software.name = "new.json";
  for (Record& record : software.report.records) record.numerics = "software GPU: PTX interpreted on the CPU";
  const std::string note =
      "cuda:0 is not a GPU: software GPU: PTX interpreted on the CPU; its numbers say nothing about one";
  const TextOptions wide{.width = 300};
  EXPECT_NE(compare({gpu, software}, wide).find("new.json: " + note), std::string::npos);
  EXPECT_NE(show(software, wide).find(note), std::string::npos);
  EXPECT_EQ(compare({gpu, gpu}, wide).find("not a GPU"), std::string::npos);
  EXPECT_EQ(show(gpu, wide).find("not a GPU"), std::string::npos);
  // A run without a finished case has the device in its environment only.
  software.report.records.clear();
  software.report.environment = {{"devices", {{"cuda:0", {{"numerics", "software GPU: PTX interpreted on the CPU"}}}}}};
  EXPECT_NE(show(software, wide).find(note), std::string::npos);
  for (Record& record : gpu.report.records) record.device = "sim:hopper", record.numerics = "instruction-exact";
  EXPECT_EQ(show(gpu, wide).find("not a GPU"), std::string::npos) << "its name says that it is simulated";
}

TEST(Compare, NamesFailedCasesOtherBuildsAndGivesNoRatioOfOtherUnits) {
  NamedReport base = three_precisions(), other = three_precisions();
  EXPECT_FALSE(has(compare({base, other}), "failed"));
  other.report.records[0].status = Status::failed, other.report.records[0].reason = "crash";
  base.report.environment["halfmark"]["build_type"] = "Release";
  other.report.environment["halfmark"]["build_type"] = "Debug";
  std::string text = compare({base, other}, {.width = 300});
  EXPECT_TRUE(has(text, "1 case of base.json failed: " + other.report.records[0].id + ": crash")) << text;
  EXPECT_TRUE(has(text, "was built with build_type 'Debug', base.json with 'Release': this alone")) << text;
  other = three_precisions();
  for (Record& record : other.report.records)
    for (Measurement& one : record.measurements) one.unit = "ms";
  text = compare({three_precisions(), other}, {.width = 300});
  EXPECT_FALSE(has(text, "1.00x")) << text;
}

TEST(Show, PutsTheFastestFirstWithItsSpeedUp) {
  const std::string text = show(three_precisions());
  EXPECT_LT(text.find("\nfp16 "), text.find("\nbf16 ")) << text;
  EXPECT_LT(text.find("\nbf16 "), text.find("\nfp32 ")) << text;
  EXPECT_TRUE(has(row(text, "fp16"), "3.80x +-10%")) << "measured in turn, not the ratio of the times\n" << text;
  EXPECT_FALSE(has(text, "4.00x")) << text;
  EXPECT_TRUE(has(row(text, "bf16"), "2 ms")) << text;
  EXPECT_TRUE(has(row(text, "bf16"), "3e-05")) << "the worst gradient\n" << text;
}

TEST(Show, TakesTheRateOfTheHotStepAsItTakesTheStep) {
  const auto rate = [](double flops, const char* at) {
    return Measurement{.metric = "throughput.flops",
                       .at = at,
                       .value = flops,
                       .unit = "FLOP/s",
                       .better = Better::higher,
                       .kind = Kind::sampled};
  };
  // On a noisy machine a cold step may come out faster than a hot one.
  NamedReport named{"noisy.json", {}};
  named.report.records = {
      record_of("fp32", "throughput", {step(4e-3), rate(3e9, "hot"), step(2e-3, "cold"), rate(6e9, "cold")})};
  const std::string text = show(named);
  EXPECT_TRUE(has(row(text, "fp32"), "3 GFLOP/s")) << text;
  EXPECT_FALSE(has(row(text, "fp32"), "6 GFLOP/s")) << text;
}

TEST(Show, NeverPrintsASuspectTime) {
  NamedReport named = three_precisions();
  named.report.records[2].status = Status::suspect;
  named.report.records[2].reason = "emulated kernel in the timed region";
  for (const std::string& text : {show(named), compare({named}), compare({named, three_precisions()})}) {
    EXPECT_TRUE(has(text, "suspect")) << text;
    EXPECT_FALSE(has(text, "4.00x")) << text;
  }
  const std::string text = show(named);
  EXPECT_FALSE(has(row(text, "fp16"), "1 ms")) << text;
  EXPECT_GT(text.find("\nfp16 "), text.find("\nfp32 ")) << text;
  EXPECT_TRUE(has(text, "1 suspect emulated kernel in the timed region")) << text;
}

TEST(Show, GivesNoSpeedUpOverASuspectBaseline) {
  NamedReport named = three_precisions();
  named.report.records[0].status = Status::suspect;
  EXPECT_FALSE(has(show(named), "4.00x")) << show(named);
}

TEST(Show, PrefersARealTimeToASuspectOneOfTheSameCase) {
  NamedReport named = three_precisions();
  Record other = record_of("fp16", "throughput", {step(1e-6)});
  other.axes = {{"layout", "nhwc"}};
  other.status = Status::suspect;
  named.report.records.push_back(other);
  const std::string text = show(named);
  EXPECT_TRUE(has(row(text, "fp16"), "1 ms")) << text;
  EXPECT_TRUE(has(text, "over layout: best time, worst of every other metric")) << text;
  EXPECT_FALSE(has(text, "fp16 at layout=nhwc")) << text;
}

TEST(Show, NamesTheSettingOfTheWorstValue) {
  NamedReport named = three_precisions();
  for (const auto& [sum, error] : {std::pair("fp16", 0.5), std::pair("pairwise", 0.001)}) {
    Record one = record_of("fp16", "accumulation", {});
    one.axes = {{"sum", sum}};
    one.measurements.emplace_back();
    one.measurements[0].metric = "accumulation.backward_error", one.measurements[0].value = error;
    named.report.records.push_back(one);
  }
  const std::string text = show(named);
  EXPECT_TRUE(has(text, "  sum error: fp16 at sum=fp16\n")) << text;
}

TEST(Show, PutsWhatCameOutAsNaNLastHoweverFast) {
  NamedReport named = three_precisions();
  named.report.records[5].measurements[0].value = std::numeric_limits<double>::quiet_NaN();
  const std::string text = show(named);
  EXPECT_GT(text.find("\nfp16 "), text.find("\nfp32 ")) << text;
  EXPECT_TRUE(has(text, "worth noticing")) << text;
  EXPECT_TRUE(has(text, "fp16 on cuda:0: error.nmse at output is NaN (mlp/h64)")) << text;
}

TEST(Show, ShowsMetricsItHasNeverHeardOf) {
  NamedReport named = three_precisions();
  named.report.records[0].measurements.push_back(
      {.metric = "karma.total", .value = 7, .unit = "point", .better = Better::higher});
  EXPECT_TRUE(has(show(named), "karma.total")) << show(named);
  EXPECT_TRUE(has(show(named, {.all = true}), "7 point"));
  EXPECT_TRUE(has(compare({named}), "karma.total"));
}

TEST(Show, ShowsALayerThatHasNoTrainingStep) {
  NamedReport named{"layer.json", {}};
  named.report.records = {
      record_of("fp32", "throughput",
                {{.metric = "time.forward", .at = "hot", .value = 2e-6, .unit = "s", .better = Better::lower}})};
  EXPECT_TRUE(has(show(named), "forward")) << show(named);
  EXPECT_TRUE(has(row(show(named), "fp32"), "2 us")) << show(named);
}

TEST(Show, SaysOnceWhatSuspectMeansAndLeavesTheKernelsToAll) {
  NamedReport named = three_precisions();
  for (size_t i : {1u, 2u}) {
    named.report.records[i].status = Status::suspect;
    named.report.records[i].reason = fmt::format("emulated arithmetic: matmul by row{}", i);
  }
  const std::string text = show(named);
  EXPECT_TRUE(has(text, "2 suspect emulated arithmetic\n")) << text;
  EXPECT_FALSE(has(text, "row1")) << text;
  const size_t first = text.find("suspect: measured, but its time would mislead");
  EXPECT_NE(first, text.npos) << text;
  EXPECT_EQ(text.find("would mislead", first + 60), text.npos) << text;
  EXPECT_TRUE(has(show(named, {.all = true}), "matmul by row1"));
}

TEST(Show, NamesOnlyLibrariesWhoseKernelsRan) {
  NamedReport named = three_precisions();
  named.report.environment = {{"libraries", {{"onednn", "2.6.3"}, {"cudnn", "9.19.0"}, {"cublaslt", "13.1"}}}};
  EXPECT_FALSE(has(show(named), "9.19.0")) << "no kernel is in the records";
  named.report.records[0].kernels = {{"matmul", "forward", "f16,f16->f16", "upcast", "emulated", 1, {}}};
  const std::string text = show(named);
  EXPECT_TRUE(has(text, "2.6.3")) << text;
  EXPECT_FALSE(has(text, "9.19.0")) << text;
  named.report.records[1].kernels = {{"conv2d", "forward", "f16,f16->f16", "cudnn", "real", 1, {}}};
  EXPECT_TRUE(has(show(named), "9.19.0"));
  EXPECT_TRUE(has(show(three_precisions(), {.all = true}), "records"));
  EXPECT_FALSE(has(show(named), "13.1"));
  EXPECT_TRUE(has(show(named, {.all = true}), "13.1")) << "--all prints the whole environment";
}

// A negative control does not represent its precision.
TEST(Show, KeepsNegativeControlsOutOfTheTables) {
  NamedReport named = three_precisions();
  Record control = record_of("fp16", "training", {{.metric = "training.noop_updates", .value = 0.98}});
  control.axes = {{"control", "underflow"}};
  control.expectation = Expectation{"training.noop_updates", "", ">=", 0.95, 0.98, true};
  named.report.records.push_back(control);
  std::string text = show(named);
  EXPECT_FALSE(has(text, "lost updates")) << text;
  EXPECT_FALSE(has(text, "worth noticing")) << text;
  EXPECT_TRUE(has(text, "control=underflow")) << text;
  EXPECT_TRUE(has(text, "training.noop_updates >= 0.95")) << text;
  EXPECT_TRUE(has(text, "as expected")) << text;
  Record& unmet = named.report.records.back();
  unmet.status = Status::failed, unmet.reason = "control not met", unmet.expectation->met = false;
  text = show(named);
  EXPECT_TRUE(has(text, "NOT MET")) << text;
  EXPECT_TRUE(has(text, "fp16 on cuda:0: expected training.noop_updates >= 0.95")) << text;
}

TEST(Show, ExplainsEveryColumnThatItCanPrint) {
  const std::string help = columns_text();
  for (const Figure& figure : known_figures()) {
    EXPECT_TRUE(has(help, "  " + figure.title + "  ")) << figure.title;
    EXPECT_GT(figure.about.size(), 20u) << figure.title;
  }
}

TEST(Show, FitsTheTerminal) {
  for (size_t width : {60u, 80u, 120u}) {
    std::istringstream lines(show(three_precisions(), {.width = width}));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), width) << line;
  }
}

TEST(Show, SaysWhyAPrecisionDidNotRun) {
  NamedReport named{"r.json", sample_report()};
  named.report.records[0].status = Status::failed;
  named.report.records[0].reason = "out of memory";
  const std::string text = show(named, {.width = 200});
  EXPECT_TRUE(has(text, "amp-fp16 failed: out of memory")) << text;
  EXPECT_TRUE(has(text, "error failed: out of memory [halfmark run --case ")) << text;
  EXPECT_TRUE(has(text, "amp-fp16 skipped: a simulated device has no speed")) << text;
}

TEST(Show, SurvivesAnEmptyReport) {
  EXPECT_TRUE(has(show({"empty.json", {}}), "records   0"));
  EXPECT_FALSE(compare({{"empty.json", {}}}).empty());
  EXPECT_FALSE(compare({{"empty.json", {}}, {"empty.json", {}}}).empty());
  EXPECT_FALSE(compare({}).empty());
}

TEST(Compare, PutsPrecisionsBesideTheBaseline) {
  const std::string text = compare({three_precisions()});
  EXPECT_LT(text.find("4 ms "), text.find("2 ms ")) << text;
  EXPECT_LT(text.find("2 ms "), text.find("1 ms\n")) << "no ratio of times that were not taken in turn\n" << text;
  EXPECT_TRUE(has(row(text, "speed-up"), "1.90x +-1%")) << text;
  EXPECT_TRUE(has(row(text, "output NMSE"), "1e-05 (1.0e+09x)")) << text;
}

TEST(Compare, PutsMachinesSideBySide) {
  NamedReport other = three_precisions();
  other.name = "new.json";
  other.report.run.seed = 7;
  for (Record& record : other.report.records) {
    record.device = "cuda:1";
    for (Measurement& one : record.measurements) one.value *= one.metric == "time.step" ? 0.5 : 1;
  }
  other.report.records[3].case_version = 2;
  const std::string text = compare({three_precisions(), other});
  EXPECT_TRUE(has(text, "base.json cuda:0")) << text;
  EXPECT_TRUE(has(text, "new.json cuda:1")) << text;
  EXPECT_TRUE(has(text, "2 ms (2.00x)")) << text;
  EXPECT_TRUE(has(text, "new.json ran with seed 7")) << text;
  EXPECT_TRUE(has(text, "mlp/h64/error changed its meaning")) << text;
}

TEST(Compare, GivesNoRatiosBetweenDifferentSubjectsOfOneName) {
  NamedReport base = three_precisions(), other = three_precisions();
  other.name = "other.json";
  for (Record& record : other.report.records)
    record.measurements.push_back({.metric = "work.parameters", .value = 200});
  EXPECT_TRUE(has(compare({base, other}), "(1.00x)")) << "an older report does not describe its subjects";
  for (Record& record : base.report.records) record.measurements.push_back({.metric = "work.parameters", .value = 100});
  const std::string text = compare({base, other}, {.width = 200});
  EXPECT_TRUE(has(text, "mlp/h64 is not the same subject in these reports (work.parameters 100 -> 200): no ratios"))
      << text;
  EXPECT_FALSE(has(text, "x)")) << text;
  EXPECT_TRUE(has(text, "4 ms")) << text;
}

// One figure for each place of a metric: a lookup by place must find what a search through all figures would.
TEST(SlowCompare, FindsThousandsOfPlaces) {
  NamedReport named{"wide.json", {}};
  for (int i = 0; i < 20'000; ++i) {
    Record record = record_of("fp32", "error", {nmse(i, fmt::format("layer{}", i).c_str()), nmse(0.5)});
    record.subject = fmt::format("net{}", i);
    named.report.records.push_back(std::move(record));
  }
  const std::string text = compare({named, named}, {.all = true});
  EXPECT_TRUE(has(text, "\nnet19999\n")) << text.size();
  EXPECT_TRUE(has(text, "error.nmse @ layer19999")) << text.size();
  EXPECT_EQ(std::count(text.begin(), text.end(), '@'), 20'000);
}

}  // namespace
}  // namespace halfmark::reports
