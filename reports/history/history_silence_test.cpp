// What a history once left out without a word: zeros and NaN, short levels, failed cases, facts that changed with a
// change, an anchor that disagrees with itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "reports/history/history.h"
#include "reports/outputs/sample_report.h"
#include "reports/record/folder_testing.h"

namespace halfmark::reports::history_test {
namespace {

std::string night(int number, int hour) {
  return fmt::format("2026-{:02}-{:02}T{:02}:00:00Z", 1 + number / 28, 1 + number % 28, hour);
}

using Change = std::function<void(Report& report, int night)>;

// 30 nights with a run of the anchor and one of a new build, whose times vary by about 1 %.
History nights(
    const Change& change, const Change& of_anchor = [](Report&, int) {}) {
  HistoryStore store;
  for (int i = 0; i < 30; ++i) {
    Report anchor = timed_report(), found = timed_report(1 + 0.01 * std::sin(37.0 * i));
    change(found, i), of_anchor(anchor, i);
    anchor.environment["halfmark"]["git"] = "anchor", found.environment["halfmark"]["git"] = fmt::format("b{}", i);
    anchor.run.started = night(i, 1), found.run.started = night(i, 2);
    store.add(fmt::format("a{}", i), to_json(anchor).dump());
    store.add(fmt::format("b{}", i), to_json(found).dump());
  }
  return store.history({});
}

void each(Report& report, const std::string& metric, const std::function<void(Measurement&)>& change) {
  for (Record& record : report.records)
    for (Measurement& one : record.measurements)
      if (one.metric == metric) change(one);
}

void times(Report& report, double factor) {
  each(report, "time.step", [&](Measurement& one) { one.value *= factor; });
}

std::string remarks_of(const History& history) {
  std::string all;
  for (const std::string& remark : history.remarks) all += remark + "\n";
  return all;
}

TEST(HistorySilence, NamesLevelsThatAreTooShortToBeAChange) {
  EXPECT_EQ(remarks_of(nights([](Report&, int) {})), "");
  std::string remarks = remarks_of(nights([](Report& report, int i) { times(report, i >= 12 && i < 15 ? 3 : 1); }));
  EXPECT_SAYS(remarks, "3 points are far from the others, too few to be a change (b12 to b14)");
  remarks = remarks_of(nights([](Report& report, int i) { times(report, i == 29 ? 2 : 1); }));
  EXPECT_SAYS(remarks, "1 point is far from the others, too few to be a change (b29, ");
}

TEST(HistorySilence, FindsThePlaceOfAChangeNearAnEnd) {
  for (const int first : {2, 15, 27, 28}) {
    const History history = nights([&](Report& report, int i) { times(report, i >= first ? 2 : 1); });
    ASSERT_FALSE(history.series.empty());
    const HistorySeries& series = history.series.front();
    ASSERT_EQ(series.changes.size(), 1u) << first;
    EXPECT_EQ(series.points[series.changes[0].at].build, fmt::format("b{}", first));
    EXPECT_NEAR(series.changes[0].change(), std::log(2), 0.02);
  }
}

TEST(HistorySilence, TellsZeroAndWhatIsNotFinite) {
  std::string remarks = remarks_of(
      nights([](Report& report,
                int i) { each(report, "memory.peak", [&](Measurement& one) { one.value = i >= 15 ? 4096 : 0; }); },
             [](Report& report, int) { each(report, "memory.peak", [](Measurement& one) { one.value = 0; }); }));
  EXPECT_SAYS(remarks,
              "memory.peak at train of mlp/b32_i64_h128_o10/cpu/fp32/memory: 4 KiB, 0 B in the anchor's report: "
              "no ratio (15 reports, the first b15)");
  remarks = remarks_of(nights([](Report& report, int i) {
    each(report, "error.nmse", [&](Measurement& one) {
      if (i >= 10 && i < 20) one.value = NAN;
    });
  }));
  EXPECT_SAYS(remarks, "error.nmse at output of mlp/b32_i64_h128_o10/cpu/fp32/error: NaN, 2.19e-07 in the anchor's");
}

TEST(HistorySilence, SaysWhyASeriesEnds) {
  std::string remarks = remarks_of(nights([](Report& report, int i) {
    if (i >= 15) report.records[0].status = Status::failed, report.records[0].reason = "crash";
  }));
  EXPECT_SAYS(remarks, "2 series have no point in b29, the latest: time.step at ");
  EXPECT_SAYS(remarks, "throughput (failed: crash)");
  remarks = remarks_of(nights([](Report& report, int i) { report.records[0].case_version = i >= 15 ? 2 : 1; }));
  EXPECT_SAYS(remarks, "throughput (version 2)");
}

TEST(HistorySilence, NamesTheFactsThatChangedWithAChange) {
  const History history = nights([](Report& report, int i) {
    times(report, i >= 15 ? 1.5 : 1);
    report.environment["compiler"] = {{"flags", i >= 15 ? "-O0" : "-O3"}};
  });
  EXPECT_SAYS(text_of(history, {.width = 200}), "changed there too: compiler.flags -O3 -> -O0");
  EXPECT_SAYS(to_json(history).dump(), "\"environment\":\"compiler.flags -O3 -> -O0\"");
}

TEST(HistorySilence, ComparesNoOtherSeed) {
  const History history = nights([](Report& report, int i) { report.run.seed = i >= 15 ? 7 : 0; });
  EXPECT_SAYS(remarks_of(history),
              "15 reports omitted (b15): the anchor anchor has no report from the same machine, "
              "libraries and seed");
}

TEST(HistorySilence, NamesAnAnchorThatDisagreesWithItself) {
  const auto exact = [](Report& report, double factor) {
    each(report, "memory.peak", [&](Measurement& one) { one.kind = Kind::exact, one.value *= factor; });
  };
  const History history = nights([&](Report& report, int) { exact(report, 1); },
                                 [&](Report& report, int i) { exact(report, i >= 15 ? 2 : 1); });
  EXPECT_SAYS(remarks_of(history), "the anchor's own reports disagree: memory.peak at train of ");
}

TEST(HistorySilence, NamesNoCommandWhereItHasNone) {
  std::vector<HistorySeries> all(1);
  all[0].metric = "error.nmse", all[0].better = Better::lower;
  for (int i = 0; i < 4; ++i) all[0].points.push_back({.build = "b" + std::to_string(i), .ratio = i < 2 ? 1.0 : 2.0});
  all[0].changes = {{.at = 2, .after = std::log(2.0)}}, all[0].beside = {""};
  const std::string text = text_of(History{.series = all}, {.width = 100});
  EXPECT_SAYS(text, "A change point is not a verdict.");
  EXPECT_EQ(text.find("confirm:"), text.npos) << text;
}

}  // namespace
}  // namespace halfmark::reports::history_test
