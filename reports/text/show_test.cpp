// Tests of show: each column holds the figure of its title, in its unit. Of several values it shows the best or the
// worst one, as its explanation says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reports/record/sample_report_testing.h"
#include "reports/text/compare.h"

namespace halfmark::reports {
namespace {

constexpr TextOptions kWide{.width = 1000};

struct ShownMetric {
  const char *title, *metric, *at;
  double value;
  const char *unit, *text;
};

Measurement measured(const char* metric, const char* at, double value, const char* unit = "1",
                     Better better = Better::lower) {
  return {.metric = metric, .at = at, .value = value, .unit = unit, .better = better};
}

Record measured_record(const std::string& policy, std::vector<Measurement> measurements, const std::string& axis = "") {
  Record record;
  record.subject = "mlp/h64", record.device = "cpu", record.policy = policy, record.harness = "any";
  record.id = "mlp/h64/cpu/" + policy + "/any" + axis;
  if (!axis.empty()) record.axes = {{"layout", axis}};
  record.measurements = std::move(measurements);
  return record;
}

NamedReport report_of(std::vector<Record> records) {
  NamedReport named{"r.json", {}};
  named.report.records = std::move(records);
  return named;
}

std::string line_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + " ")) return line;
  return {};
}

// The text below a title in the line of a policy. Numbers and titles are right-aligned, so both end in one column.
std::string under(const std::string& text, const std::string& title, const std::string& policy) {
  const std::string titles = line_of(text, "policy"), row = line_of(text, policy);
  const size_t begin = titles.find("  " + title);
  if (begin == titles.npos) return "no column " + title;
  const std::string before = row.substr(0, begin + 2 + title.size());
  const size_t gap = before.rfind("  ");
  return gap == before.npos ? before : before.substr(gap + 2);
}

std::string with_single_blanks(const std::string& text) {
  std::string result;
  for (const char c : text)
    if (c != ' ' || result.empty() || result.back() != ' ') result += c;
  return result;
}

TEST(Show, ANumberOfTheWholeCaseIsShownAndNotTheWorstOfItsParts) {
  const std::vector<Measurement> whole = {measured("moved.ratio", "backward", 1.4), measured("moved.ratio", "", 0.5),
                                          measured("part.ratio", "backward", 1.4), measured("part.ratio", "", 0.5)};
  const std::vector<Measurement> parts = {measured("moved.ratio", "", 0.6), measured("part.ratio", "forward", 1.2)};
  const std::string text = show(report_of({measured_record("fp16", whole), measured_record("bf16", parts)}), kWide);
  EXPECT_EQ(under(text, "moved.ratio", "fp16"), "0.5") << text;
  EXPECT_EQ(under(text, "moved.ratio", "bf16"), "0.6") << text;
  EXPECT_EQ(under(text, "part.ratio", "fp16"), "1.4") << "bf16 has none of the whole case: the worst of both\n" << text;
  EXPECT_EQ(under(text, "part.ratio", "bf16"), "1.2") << text;
}

TEST(ShowColumns, HoldTheirOwnMetricInItsUnit) {
  const ShownMetric shown[] = {{"train step", "time.step", "hot", 4e-3, "s", "4 ms"},
                               {"FLOP rate", "throughput.flops", "hot", 3e9, "FLOP/s", "3 GFLOP/s"},
                               {"tensors", "memory.tensors", "train", 2048, "B", "2 KiB"},
                               {"output NMSE", "error.nmse", "output", 2e-7, "1", "2e-07"},
                               {"1 - cosine", "error.cosine", "output", 0.75, "1", "0.25"},
                               {"gradient NMSE", "error.nmse", "gradient/w", 3e-5, "1", "3e-05"},
                               {"zeroed", "error.zeroed", "gradient/w", 0.125, "1", "12.5%"},
                               {"overflow", "error.infinite", "output", 0.5, "1", "50%"},
                               {"headroom", "range.headroom", "output", 12, "bit", "12 bit"},
                               {"BatchNorm drift", "batchnorm.running_var_drift", "bn1", -0.75, "1", "-0.75"},
                               {"final loss", "training.final_loss", "", 0.3, "1", "0.3"},
                               {"skipped steps", "training.skipped_steps", "", 7, "1", "7"},
                               {"lost updates", "training.noop_updates", "", 0.0625, "1", "6.25%"},
                               {"loss gap", "convergence.loss_gap", "", -0.25, "1", "-0.25"},
                               {"fp32 spread", "convergence.fp32_spread", "", 0.125, "1", "0.125"},
                               {"as fp32", "convergence.as_fp32", "", 1, "1", "yes"},
                               {"sum error", "accumulation.backward_error", "", 1e-3, "1", "0.001"}};
  std::vector<Measurement> all = {measured("time.step", "cold", 9e-3, "s"), measured("time.forward", "hot", 1e-3, "s"),
                                  measured("memory.peak", "train", 4096, "B"), measured("error.nan", "output", 0.01),
                                  measured("range.underflow", "output", 0.02)};
  for (const ShownMetric& one : shown) all.push_back(measured(one.metric, one.at, one.value, one.unit));
  const std::string text = show(report_of({measured_record("fp16", all)}), kWide);
  for (const ShownMetric& one : shown) EXPECT_EQ(under(text, one.title, "fp16"), one.text) << one.title << "\n" << text;
  const std::string titles = line_of(text, "policy");
  for (const char* other : {"step cold", "forward", "peak memory", "NaN", "underflow"})
    EXPECT_EQ(titles.find(other), titles.npos) << "its family has another column: " << other;
}

TEST(ShowColumns, HoldTheBestTimeAndTheWorstOfAllElse) {
  const auto record = [](const char* axis, double step, double zeroed, double drift, double cosine, double nmse) {
    return measured_record(
        "fp16",
        {measured("time.step", "hot", step, "s"), measured("error.zeroed", "output", zeroed),
         measured("batchnorm.running_var_drift", "bn1", drift, "1", Better::neither),
         measured("error.cosine", "output", cosine, "1", Better::higher), measured("error.nmse", "output", nmse)},
        axis);
  };
  for (const bool turned : {false, true}) {
    std::vector<Record> records = {record("a", 4e-3, 0.2, -0.5, 0.75, std::nan("")),
                                   record("b", 2e-3, 0.1, 0.25, 0.875, 1)};
    if (turned) std::swap(records[0], records[1]);
    const std::string text = show(report_of(records), kWide);
    EXPECT_EQ(under(text, "train step", "fp16"), "2 ms");
    EXPECT_EQ(under(text, "zeroed", "fp16"), "20%");
    EXPECT_EQ(under(text, "BatchNorm drift", "fp16"), "-0.5");
    EXPECT_EQ(under(text, "1 - cosine", "fp16"), "0.25");
    EXPECT_EQ(under(text, "output NMSE", "fp16"), "NaN");
  }
}

TEST(ShowTitle, NamesTheFilesThatWereMeasuredOn) {
  Record record = measured_record("fp16", {measured("training.final_loss", "", 1)});
  EXPECT_NE(show(report_of({record}), {}).find("mlp/h64 on cpu\n"), std::string::npos);
  record.data =
      DataOrigin{.kind = "mnist", .name = "digits", .hash = "0a", .hashed = "", .normalisation = "", .unit = ""};
  EXPECT_NE(show(report_of({record}), {}).find("mlp/h64 on cpu, data digits (mnist)\n"), std::string::npos);
}

// A loss that is best because few steps were made is no better precision.
TEST(ShowColumns, ListAPolicyThatSkippedManyStepsAfterTheOthers) {
  const auto order = [](double skipped) {
    std::vector<Record> records;
    for (const auto& [policy, loss, steps] : {std::tuple("fp32", 1.0, 0.0), std::tuple("fp16", 0.5, skipped)}) {
      records.push_back(measured_record(
          policy, {measured("training.final_loss", "", loss), measured("training.skipped_steps", "", steps)}));
      records.back().series = {
          {.metric = "training.loss", .at = "", .x = std::vector<double>(40, 1), .y = std::vector<double>(40, 1)}};
    }
    const std::string text = show(report_of(records), kWide);
    const bool is_marked = text.find(" !") != text.npos;
    return std::pair(text.find("\nfp16 ") < text.find("\nfp32 "), is_marked);
  };
  EXPECT_EQ(order(4), std::pair(true, false)) << "a tenth";
  EXPECT_EQ(order(5), std::pair(false, true));
  EXPECT_EQ(order(40), std::pair(false, true));
}

TEST(ShowColumns, SayWhetherATrainingEndedLikeFp32) {
  for (const auto& [number, word] : {std::pair{1.0, "yes"}, {0.0, "open"}, {-1.0, "no"}}) {
    const Record record = measured_record("fp16", {measured("convergence.as_fp32", "", number, "1", Better::higher)});
    EXPECT_EQ(under(show(report_of({record}), kWide), "as fp32", "fp16"), word);
  }
}

Record evaluated(const char* policy, const char* seed, double accuracy, std::optional<double> error, double samples) {
  Record record = measured_record(policy, {});
  record.harness = "training";
  record.axes = {{"steps", "100"}, {"replicate", seed}};
  record.measurements = {measured("evaluation.accuracy", "fp32", accuracy, "1", Better::higher)};
  record.measurements[0].standard_error = error;
  if (samples > 0) record.measurements.push_back(measured("evaluation.samples", "", samples));
  return record;
}

TEST(ShowAccuracy, IsTheMeanOfTheSeedsWithItsStandardError) {
  // Standard deviation 0.02, over the root of 3: 0.0115. Their own standard errors give 0.01 / sqrt(3).
  std::vector<Record> records;
  for (const auto& [seed, value] : {std::pair{"0", 0.88}, {"1", 0.90}, {"2", 0.92}})
    records.push_back(evaluated("fp32", seed, value, 0.01, 1024));
  // Equal by chance: only their own errors say how sure the mean is. 0.02 / sqrt(2) = 0.0141.
  records.push_back(evaluated("fp16", "0", 0.5, 0.02, 1024));
  records.push_back(evaluated("fp16", "1", 0.5, 0.02, 1000));
  const std::string text = show(report_of(records), kWide);
  EXPECT_EQ(under(text, "accuracy", "fp32"), "90% +-1.15%") << text;
  EXPECT_EQ(under(text, "accuracy", "fp16"), "50% +-1.41%") << text;
  EXPECT_NE(text.find("accuracy: 1000 to 1024 samples for each of 2 to 3 seeds; +- standard error\n"), text.npos)
      << text;
  EXPECT_NE(text.find("mean accuracy of the seeds"), text.npos) << text;
  EXPECT_EQ(text.find("fp32 at replicate"), text.npos) << "a mean belongs to no single seed\n" << text;
}

TEST(ShowAccuracy, OfOneSeedSaysThatOtherSeedsAreNotIncluded) {
  const std::string text = show(report_of({evaluated("fp32", "0", 0.75, 0.0135, 1024)}), kWide);
  EXPECT_EQ(under(text, "accuracy", "fp32"), "75% +-1.35%") << text;
  EXPECT_NE(text.find("1024 samples of one seed; +- standard error, which does not include other seeds"), text.npos)
      << text;
}

TEST(ShowAccuracy, IsNotShownWithoutItsSampleOrItsError) {
  const std::string text =
      show(report_of({evaluated("fp32", "0", 0.75, 0.0135, 1024), evaluated("fp16", "0", 0.75, {}, 1024),
                      evaluated("bf16", "0", 0.75, 0.0135, 0)}),
           kWide);
  EXPECT_EQ(text.find("75%", text.find("75%") + 1), text.npos) << text;
}

TEST(ShowColumns, ColourWhatIsBetterAndWhatIsWorse) {
  const auto record = [](const char* policy, double step, double bytes) {
    return measured_record(policy,
                           {measured("time.step", "hot", step, "s"), measured("memory.tensors", "train", bytes, "B")});
  };
  const NamedReport named = report_of({record("fp32", 4e-3, 1024), record("fp16", 2e-3, 256),
                                       record("slow", 8e-3, 3072), record("same", 4.1e-3, 1000)});
  const std::string text = show(named, {.width = 1000, .colour = true});
  for (const char* part : {"\x1b[32m0.25x\x1b[0m", "\x1b[31m3.00x\x1b[0m"})
    EXPECT_NE(text.find(part), text.npos) << part << text;
  for (const char* ratio : {"2.00x", "0.50x"})
    EXPECT_EQ(text.find(ratio), text.npos) << "a ratio of times that were not taken in turn\n" << text;
  EXPECT_NE(text.find(" 0.98x"), text.npos) << "a little is noise and has no colour\n" << text;
}

// A record with a speed-up and its interval.
Record with_speed_up(const char* policy, double value, std::optional<Range> interval, double same = 0) {
  Record record =
      measured_record(policy, {measured("time.step", "hot", 1e-3, "s"), measured("speedup.step", "hot", value),
                               measured("speedup.same_kernels", "hot", same)});
  record.measurements[1].interval = interval;
  return record;
}

TEST(ShowSpeedUp, IsNoGainIfItsIntervalHolds1) {
  const auto cell = [](const Record& record) {
    return under(show(report_of({record}), kWide), "speed-up", record.policy);
  };
  EXPECT_EQ(cell(with_speed_up("bf16", 1.84, Range{1.8, 1.9})), "1.84x +-3.3%");
  EXPECT_EQ(cell(with_speed_up("bf16", 0.5, Range{0.45, 0.52})), "0.50x +-10%");
  EXPECT_EQ(cell(with_speed_up("bf16", 1.21, Range{0.97, 1.4})), "no gain +-20%");
  EXPECT_EQ(cell(with_speed_up("bf16", 1, Range{1, 1.0001})), "no gain +-0.1%");
  EXPECT_EQ(cell(with_speed_up("tf32", 1.3, Range{1.2, 1.4}, 1)), "same kernels");
  EXPECT_EQ(cell(with_speed_up("bf16", 1.3, std::nullopt)), "unknown");
  Record suspect = with_speed_up("bf16", 1.3, Range{1.2, 1.4});
  suspect.status = Status::suspect, suspect.reason = "other processes";
  EXPECT_EQ(cell(suspect), "suspect");
}

TEST(ShowCounts, CountEveryStatusAndNameTheReasonsThatAreMost) {
  Report report;
  const auto add = [&](Status status, const std::string& reason, int count) {
    for (int i = 0; i < count; ++i) {
      report.records.push_back(measured_record("fp16", {}, fmt::format("{}", report.records.size())));
      report.records.back().status = status, report.records.back().reason = reason;
    }
  };
  add(Status::ok, "", 3);
  add(Status::failed, "out of memory", 2);
  for (int i = 0; i < 12; ++i) add(Status::skipped, fmt::format("reason {}", i), 1 + (i == 11));
  const std::string text = with_single_blanks(show({"r.json", report}, kWide));
  EXPECT_NE(text.find("records 18: 3 ok, 13 skipped, 2 failed\n"), text.npos) << text;
  EXPECT_NE(text.find("2 failed out of memory\n"), text.npos) << text;
  EXPECT_LT(text.find("2 skipped reason 11\n"), text.find("1 skipped reason 0\n")) << text;
  EXPECT_NE(text.find("and 4 more reasons\n"), text.npos) << text;
}

TEST(ShowBits, AreThoseOfCasesThatRanInSeveralProcesses) {
  Report report;
  const auto text = [&] { return with_single_blanks(show({"r.json", report}, kWide)); };
  const auto add = [&](int processes, int differing, std::string_view fingerprint) {
    report.records.push_back(measured_record("fp16", {}, fmt::format("{}", report.records.size())));
    report.records.back().determinism = {.processes = processes, .differing = differing};
    report.records.back().fingerprint = fingerprint;
  };
  add(0, 0, "af9e"), add(1, 0, "af9e"), add(3, 0, kOfNothing);
  EXPECT_EQ(text().find("bits "), std::string::npos) << "one process, or a case of times only, shows nothing";
  add(3, 0, "af9e"), add(3, 0, "9dd4");
  EXPECT_NE(text().find("bits of 2 cases in 3 processes: the same every time\n"), std::string::npos) << text();
  add(2, 1, "9dd4");
  EXPECT_NE(text().find("bits of 3 cases in 2 or 3 processes: 1 differs\n"), std::string::npos) << text();
}

TEST(ShowControls, HaveWhatWasFoundBesideWhatWasExpected) {
  Record control = measured_record("fp16", {measured("training.noop_updates", "", 0.98)}, "a");
  control.expectation = Expectation{"training.noop_updates", "", ">=", 0.95, 0.98, true};
  const std::string text = with_single_blanks(show(report_of({control}), kWide));
  EXPECT_NE(text.find("layout=a training.noop_updates >= 0.95 0.98 as expected"), text.npos) << text;
}

TEST(ShowNotices, AreTwentyAndTheRestAreCounted) {
  Report report;
  for (int i = 0; i < 25; ++i)
    report.records.push_back(measured_record(fmt::format("p{}", i), {measured("error.nan", "output", 0.5)}));
  EXPECT_NE(show({"r.json", report}, kWide).find("\n  and 5 more\n"), std::string::npos);
  TextOptions all = kWide;
  all.all = true;
  EXPECT_EQ(show({"r.json", report}, all).find("\n  and 5 more\n"), std::string::npos);
}

TEST(ShowAll, PrintsEveryPartOfARecord) {
  TextOptions options = kWide;
  options.all = true;
  const std::string text = with_single_blanks(show({"r.json", sample_report()}, options));
  for (const char* part :
       {"\n status ok\n", "\n numbers instruction-exact\n",
        "\n again halfmark run --case mlp/b16_i32_h64_o8/sim:hopper/amp-fp16/error/eval=half\n",
        "\n kernel forward matmul f16,f16->f16: tensor-core, emulated, 2 calls\n",
        "\n refused by onednn: no f16 here\n", "\n expects error.nmse < 0.001, found 2.19e-07: met\n",
        "\n metric at value interval bound samples kind\n", "\n error.nmse output 2.19e-07 1.1e-06 2 bounded\n",
        "\n curve error.ulp_histogram @ output: 3 points, x 0 .. 2, y 1 .. 90\n",
        "\n status skipped: a simulated device has no speed\n"})
    EXPECT_NE(text.find(part), text.npos) << part << text;
}

}  // namespace
}  // namespace halfmark::reports
