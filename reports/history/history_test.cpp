// Tests of the history: which reports and judgements are compared, what is omitted with which remark, and the changes.
#include "reports/history/history.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "reports/outputs/judgement_json.h"
#include "reports/outputs/sample_report.h"
#include "reports/record/file.h"
#include "reports/record/folder_testing.h"

namespace halfmark::reports::history_test {
namespace {

const std::string kTimed = "mlp/b32_i64_h128_o10/cpu/fp32/throughput";

std::string day(int number, int hour = 1) {
  return fmt::format("2026-{:02}-{:02}T{:02}:00:00Z", 1 + number / 28, 1 + number % 28, hour);
}

std::string text_of_report(Report report, const std::string& build, const std::string& started) {
  report.environment["halfmark"]["git"] = build;
  report.run.started = started;
  return to_json(report).dump();
}

std::string text_of_judgement(const std::string& base, const std::string& candidate, const std::string& started,
                              double ratio, const std::string& id = kTimed) {
  Judgement judgement{.base = "a", .candidate = "b"};
  judgement.where = {started, "bench-01", base, candidate};
  JudgedLine line{.id = id, .question = Question::time, .metric = "time.step", .at = "hot"};
  judgement.lines = {line};
  CaseDecision decision;
  decision.ratio = ratio;
  judgement.timing.cases = {decision};
  judgement.timed = {id};
  return json_of(judgement);
}

const HistorySeries* series_of(const History& history, std::string_view metric, std::string_view at) {
  for (const HistorySeries& one : history.series)
    if (one.metric == metric && one.at == at) return &one;
  return nullptr;
}

std::string all_of(const std::vector<std::string>& remarks) {
  std::string all;
  for (const std::string& remark : remarks) all += remark + "\n";
  return all;
}

// One judgement a night; the ratios drift by 1 % a night, without a change.
TEST(History, CallsNoDriftAChange) {
  HistoryStore store;
  std::mt19937 noise(1);
  for (int i = 0; i < 40; ++i)
    store.add(fmt::format("b{}", i),
              text_of_judgement("anchor", fmt::format("b{}", i), day(i),
                                std::pow(1.01, i) * (1 + 1e-4 * (static_cast<double>(noise() % 41) - 20))));
  const History history = store.history({});
  ASSERT_EQ(history.series.size(), 1u);
  ASSERT_FALSE(history.series[0].changes.empty());
  for (const ChangePoint& one : history.series[0].changes) EXPECT_TRUE(one.undecided);
  const std::string text = text_of(history, {.width = 200});
  EXPECT_SAYS(text, "0 change points in 0 of them");
  EXPECT_SAYS(text, "undecided: the series drifts or its points depend on each other");
  EXPECT_SAYS(text, "undecided, drift or change: +");
  EXPECT_SAYS(to_json(history).dump(), "\"undecided\":true");
}

TEST(History, ListsEveryChangeOfBytes) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  for (int i = 1; i < 4; ++i) {
    Report report = timed_report();
    for (Record& record : report.records)
      for (Measurement& one : record.measurements)
        if (one.metric == "memory.peak") one.kind = Kind::exact, one.value += i == 3 ? 1 : 0;
    store.add(fmt::format("b{}", i), text_of_report(report, fmt::format("b{}", i), day(i)));
  }
  const History history = store.history({});
  const HistorySeries* memory = series_of(history, "memory.peak", "train");
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->exact);
  ASSERT_EQ(memory->changes.size(), 1u) << "one byte more, in the last report only";
  EXPECT_EQ(memory->changes[0].at, 2u);
  EXPECT_FALSE(memory->changes[0].undecided);
}

TEST(History, ComparesEachReportWithTheAnchorReportOfTheSameNight) {
  // The machine drifts by 3 % a day; the build of day 12 is a tenth slower.
  HistoryStore store;
  std::mt19937 noise(1);
  for (int i = 0; i < 20; ++i) {
    const double drift = std::pow(1.03, i), jitter = 1 + 1e-6 * (noise() % 41 - 20.0);
    store.add(fmt::format("a{}", i), text_of_report(timed_report(drift), "anchor", day(i, 1)));
    store.add(fmt::format("b{}", i),
              text_of_report(timed_report(drift * jitter * (i < 12 ? 1 : 1.1)), fmt::format("b{}", i), day(i, 2)));
  }
  const History history = store.history({});
  EXPECT_EQ(history.anchor, "anchor");
  EXPECT_EQ(history.reports, 40u);
  EXPECT_TRUE(history.remarks.empty()) << all_of(history.remarks);
  const HistorySeries* step = series_of(history, "time.step", "hot");
  ASSERT_TRUE(step);
  ASSERT_EQ(step->points.size(), 20u);
  EXPECT_NEAR(step->points[19].ratio, 1.1, 0.003);
  ASSERT_EQ(step->changes.size(), 1u);
  EXPECT_EQ(step->points[step->changes[0].at].build, "b12");
  EXPECT_TRUE(step->worse(step->changes[0]));
  EXPECT_NEAR(std::exp(step->changes[0].change()), 1.1, 0.005);
  const HistorySeries* memory = series_of(history, "memory.peak", "train");
  ASSERT_TRUE(memory);
  EXPECT_TRUE(memory->changes.empty());

  const std::string text = text_of(history, {.width = 100});
  EXPECT_SAYS(text, "40 reports and 0 judgements, ratios to anchor");
  EXPECT_SAYS(text, "+10.0 % worse  b11 (2026-01-12) -> b12 (2026-01-13), 12 points before and 8 after");
  EXPECT_SAYS(text, "confirm: halfmark ab BUILD-b11 BUILD-b12 mlp b32_i64_h128_o10 cpu fp32 throughput");
  EXPECT_SAYS(text, "The command after \"confirm:\" gives one");
  EXPECT_SAYS(text, "|");
}

TEST(History, OmitsTimesWithoutANearAnchorRunWithARemark) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  for (int i = 0; i < 8; ++i)
    store.add(fmt::format("b{}.json", i), text_of_report(timed_report(), fmt::format("b{}", i), day(i)));
  const History history = store.history({.anchor = "anch"});
  EXPECT_EQ(series_of(history, "time.step", "hot")->points.size(), 2u) << "the same day and the next";
  EXPECT_EQ(series_of(history, "memory.peak", "train")->points.size(), 8u) << "bytes do not drift";
  EXPECT_SAYS(all_of(history.remarks), "times of 6 reports omitted (b2.json): the anchor was not run within 24 hours");
}

TEST(History, DoesNotCompareOtherMachinesOrLibraries) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  Report elsewhere = timed_report();
  elsewhere.environment["machine"] = "bench-02";
  store.add("elsewhere.json", text_of_report(elsewhere, "b", day(0)));
  Report other = timed_report();
  other.environment["libraries"] = {{"onednn", "3.1"}};
  store.add("other.json", text_of_report(other, "c", day(0)));
  const History history = store.history({});
  EXPECT_TRUE(history.series.empty());
  EXPECT_SAYS(all_of(history.remarks),
              "2 reports omitted (elsewhere.json): the anchor anchor has no report from the same");
}

TEST(History, AnotherVersionOfACaseIsAnotherSeries) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  Report changed = timed_report();
  changed.records[0].case_version = 2;
  store.add("b", text_of_report(changed, "b", day(0)));
  const History history = store.history({});
  EXPECT_FALSE(series_of(history, "time.step", "hot"));
  EXPECT_TRUE(series_of(history, "memory.peak", "train"));
}

TEST(History, DoesNotCompareAnotherSubjectOfTheSameName) {
  const auto with_work = [](double parameters) {
    Report report = timed_report();
    report.records[0].measurements.push_back({.metric = "work.parameters", .value = parameters});
    return report;
  };
  HistoryStore store;
  store.add("a", text_of_report(with_work(100), "anchor", day(0)));
  store.add("same", text_of_report(with_work(100), "b", day(0)));
  store.add("older", text_of_report(timed_report(), "c", day(0)));  // does not describe its subjects
  store.add("other.json", text_of_report(with_work(200), "d", day(0)));
  const History history = store.history({});
  ASSERT_TRUE(series_of(history, "time.step", "hot"));
  EXPECT_EQ(series_of(history, "time.step", "hot")->points.size(), 2u);
  EXPECT_EQ(series_of(history, "memory.peak", "train")->points.size(), 3u) << "a case without these facts";
  EXPECT_SAYS(all_of(history.remarks), "1 case of other.json omitted: another subject of the same name");
}

TEST(History, ReportsThatTheAnchorIsTheOnlyBuild) {
  HistoryStore store;
  for (int i = 0; i < 3; ++i) store.add(fmt::format("a{}", i), text_of_report(timed_report(), "anchor", day(i)));
  EXPECT_SAYS(all_of(store.history({}).remarks), "the anchor anchor is the only build");
}

TEST(History, FindsBytesThatChanged) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  for (int i = 0; i < 10; ++i) {
    Report report = timed_report();
    for (Record& record : report.records)
      for (Measurement& one : record.measurements)
        if (one.metric == "memory.peak" && i >= 6) one.value *= 0.5;
    store.add(fmt::format("b{}", i), text_of_report(report, fmt::format("b{}", i), day(i)));
  }
  const History history = store.history({});
  ASSERT_EQ(history.series.front().metric, "memory.peak") << "the largest change comes first";
  ASSERT_EQ(history.series.front().changes.size(), 1u);
  EXPECT_EQ(history.series.front().changes[0].at, 6u);
  EXPECT_FALSE(history.series.front().worse(history.series.front().changes[0]));
  EXPECT_SAYS(text_of(history), "-50.0 % better  b5");
}

TEST(History, TakesTheRatiosOfJudgementsAndLinksAnchors) {
  HistoryStore store;
  for (int i = 0; i < 6; ++i)
    store.add(fmt::format("{}", i), text_of_judgement("first", fmt::format("b{}", i), day(i), 1.01));
  store.add("link", text_of_judgement("first", "second", day(6), 0.5));
  for (int i = 7; i < 13; ++i)
    store.add(fmt::format("{}", i), text_of_judgement("second", fmt::format("b{}", i), day(i), 2.02));
  store.add("lonely", text_of_judgement("third", "b13", day(13), 3));
  const History history = store.history({});
  EXPECT_EQ(history.anchor, "first");
  ASSERT_EQ(history.series.size(), 1u);
  const HistorySeries& series = history.series[0];
  EXPECT_EQ(series.id, kTimed);
  EXPECT_EQ(series.machine, "bench-01");
  ASSERT_EQ(series.points.size(), 13u) << "the linking judgement is a point as well";
  EXPECT_DOUBLE_EQ(series.points[12].ratio, 1.01);
  EXPECT_TRUE(series.changes.empty()) << "except for the new anchor itself, which is an outlier";
  EXPECT_SAYS(all_of(history.remarks), "1 judgement against third omitted: no judgement of third against the anchor");
}

TEST(History, RefusesAnUnknownOrAmbiguousAnchor) {
  HistoryStore store;
  EXPECT_SAYS(complaint([&] { store.history({}); }), "no report and no judgement");
  store.add("a", text_of_report(timed_report(), "abc1", day(0)));
  store.add("b", text_of_report(timed_report(), "abd2", day(0)));
  EXPECT_SAYS(complaint([&] { store.history({.anchor = "xyz"}); }),
              "no build in the folder starts with this; known builds: abc1");
  EXPECT_SAYS(complaint([&] { store.history({.anchor = "ab"}); }), "several builds start with this");
  EXPECT_EQ(store.history({.anchor = "abd"}).anchor, "abd2");
}

TEST(History, ParsesTimesOfEveryTimeZone) {
  EXPECT_EQ(seconds_since_1970("1970-01-02T00:00:00Z", "f"), 86400);
  EXPECT_EQ(seconds_since_1970("2026-11-22T01:19:40Z", "f"), 1795310380);  // date -u -d ... +%s
  EXPECT_EQ(seconds_since_1970("2026-11-22T02:19:40+01:00", "f"), 1795310380);
  EXPECT_EQ(seconds_since_1970("2026-11-21T19:49:40-05:30", "f"), 1795310380);
  for (const char* wrong : {"", "yesterday", "2026-11-22", "2026-11-22T01:19:40", "2026-11-22T01:19:40 UTC",
                            "2026-11-22T01:19:40+1", "2026-11-22T01:19:40Zx"})
    EXPECT_SAYS(complaint([&] { seconds_since_1970(wrong, "f.json"); }), "f.json: has no valid start time");
}

class HistoryFolder : public FolderTest {};

TEST_F(HistoryFolder, IsReadWithRemarksAboutBrokenFiles) {
  EXPECT_SAYS(complaint([&] { history_in(folder_ / "none", {}); }), "none: cannot be read: No such file");
  EXPECT_SAYS(complaint([&] { history_in(folder_, {}); }), "contains no report and no judgement");
  std::filesystem::create_directories(folder_ / "2026" / "01");
  write_file(folder_ / "notes.txt", "no report");
  write_file(folder_ / "broken.json", "{");
  EXPECT_SAYS(complaint([&] { history_in(folder_, {}); }), "contains no report and no judgement; broken.json: ");
  write_file(folder_ / "a.json", text_of_report(timed_report(), "anchor", day(0)));
  write_file(folder_ / "2026" / "01" / "b.json", text_of_report(timed_report(1.5), "b", day(0, 2)));
  write_file(folder_ / "ab.json", text_of_judgement("anchor", "c", day(1), 1.2));
  write_file(folder_ / "old.json", text_of_judgement("", "", "", 1.2));
  const History history = history_in(folder_, {});
  EXPECT_EQ(history.reports, 2u);
  EXPECT_EQ(history.judgements, 1u);
  const HistorySeries* step = series_of(history, "time.step", "hot");
  ASSERT_TRUE(step);
  ASSERT_EQ(step->points.size(), 2u);
  EXPECT_EQ(step->points[0].file, "2026/01/b.json");
  EXPECT_DOUBLE_EQ(step->points[0].ratio, 1.5);
  EXPECT_DOUBLE_EQ(step->points[1].ratio, 1.2);
  EXPECT_SAYS(all_of(history.remarks), "omitted: broken.json: ends in the middle");
  EXPECT_SAYS(all_of(history.remarks), "omitted: old.json: has no valid start time");
}

TEST_F(HistoryFolder, IsReadAroundWhatIsNoFile) {
  namespace fs = std::filesystem;
  write_file(folder_ / "a.json", text_of_report(timed_report(), "anchor", day(0)));
  write_file(folder_ / "b.json", text_of_report(timed_report(1.5), "b", day(0, 2)));
  ASSERT_EQ(::mkfifo((folder_ / "pipe.json").c_str(), 0600), 0);
  fs::create_symlink("loop.json", folder_ / "loop.json");
  fs::create_symlink("/dev/zero", folder_ / "endless.json");
  fs::create_symlink("absent", folder_ / "dangling.json");
  fs::create_directory(folder_ / "folder.json");
  write_file(folder_ / "folder.json" / "c.json", text_of_report(timed_report(1.4), "c", day(0, 3)));
  fs::create_symlink(".", folder_ / "circle");
  write_file(folder_ / "huge.json", "");
  fs::resize_file(folder_ / "huge.json", kLongestFile + 1);
  const History history = history_in(folder_, {});
  EXPECT_EQ(history.reports, 3u);
  const std::string remarks = all_of(history.remarks);
  for (const char* about :
       {"pipe.json: is not a regular file", "loop.json: cannot be read: Too many levels",
        "endless.json: is not a regular file", "dangling.json: cannot be read: No such file",
        "folder.json: is a folder with the name of a file", "huge.json: cannot be read: it is longer than 1024 MiB"})
    EXPECT_SAYS(remarks, about);
  EXPECT_EQ(history.remarks.size(), 6u);
}

TEST_F(HistoryFolder, SaysWhatItMayNotRead) {
  namespace fs = std::filesystem;
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  write_file(folder_ / "a.json", text_of_report(timed_report(), "anchor", day(0)));
  write_file(folder_ / "secret.json", "{}");
  fs::create_directory(folder_ / "secrets");
  fs::permissions(folder_ / "secret.json", fs::perms::none);
  fs::permissions(folder_ / "secrets", fs::perms::none);
  const std::string remarks = all_of(history_in(folder_, {}).remarks);
  fs::permissions(folder_ / "secrets", fs::perms::owner_all);
  EXPECT_SAYS(remarks, "secret.json: cannot be read: Permission denied");
  EXPECT_SAYS(remarks, "secrets: cannot be read: Permission denied");
}

TEST(History, ShowsNoControlCharactersOfAForeignFile) {
  HistoryStore store;
  Report report = timed_report();
  report.records[0].id = "evil\n\x1b[31m/case";
  store.add("a", text_of_report(report, "an\x1b[0mchor", day(0)));
  store.add("b\n", text_of_report(report, "b\n", day(0)));
  const std::string text = text_of(store.history({}), {.all = true});
  EXPECT_EQ(text.find('\x1b'), text.npos);
  EXPECT_SAYS(text, "evil " + std::string(kReplacement) + "[31m/case");
}

TEST(History, CountsACopyOfAFileOnce) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  store.add("b", text_of_report(timed_report(1.1), "b", day(0)));
  store.add("copy", text_of_report(timed_report(1.1), "b", day(0)));
  store.add("other", text_of_report(timed_report(1.2), "b", day(0)));
  store.add("j", text_of_judgement("anchor", "c", day(1), 1.3));
  store.add("copy of j", text_of_judgement("anchor", "c", day(1), 1.3));
  const History history = store.history({});
  EXPECT_EQ(series_of(history, "time.step", "hot")->points.size(), 3u) << "b, other and j";
  EXPECT_SAYS(all_of(history.remarks), "2 copies omitted (copy holds the numbers of b)");
}

TEST(History, NamesSeriesThatEnd) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  store.add("b", text_of_report(timed_report(), "b", day(0, 2)));
  EXPECT_EQ(all_of(store.history({}).remarks), "");
  Report later = timed_report();
  std::erase_if(later.records, [](const Record& one) { return one.id == kTimed; });
  ASSERT_FALSE(later.records.empty());
  store.add("c", text_of_report(later, "c", day(0, 3)));
  EXPECT_SAYS(all_of(store.history({}).remarks),
              "2 series have no point in c, the latest: time.step at cold of " + kTimed);
}

TEST(History, DoesNotCompareAnotherUnitOrDirection) {
  const auto with = [](const std::function<void(Measurement&)>& change) {
    Report report = timed_report();
    for (Record& record : report.records)
      for (Measurement& one : record.measurements)
        if (one.metric == "time.step") change(one);
    return report;
  };
  for (const auto& change :
       {std::function<void(Measurement&)>([](Measurement& one) { one.unit = "ms"; }),
        std::function<void(Measurement&)>([](Measurement& one) { one.better = Better::higher; })}) {
    HistoryStore store;
    store.add("a", text_of_report(timed_report(), "anchor", day(0)));
    store.add("b", text_of_report(with(change), "b", day(0)));
    const History history = store.history({});
    EXPECT_FALSE(series_of(history, "time.step", "hot"));
    EXPECT_TRUE(series_of(history, "memory.peak", "train"));
    EXPECT_SAYS(all_of(history.remarks), "time.step omitted: another unit or direction of improvement");
  }
}

TEST(History, RefusesAMetricThatTheFolderDoesNotHold) {
  HistoryStore store;
  store.add("a", text_of_report(timed_report(), "anchor", day(0)));
  store.add("b", text_of_report(timed_report(), "b", day(0)));
  EXPECT_SAYS(complaint([&] {
                store.history({.metrics = {"time.*", "nope"}, .metrics_are_given = true});
              }),
              "--metric nope: the folder holds no such number with a direction of improvement; it holds: ");
  EXPECT_FALSE(store.history({.metrics = {"time.*"}, .metrics_are_given = true}).series.empty());
  EXPECT_FALSE(store.history({}).series.empty()) << "of the metrics by default, a folder may hold some only";
}

TEST(History, KnowsWhichDirectionIsWorse) {
  const ChangePoint up{.at = 1, .before = 0, .after = 0.1, .p = 0}, down{.at = 1, .before = 0, .after = -0.1, .p = 0};
  HistorySeries series;
  series.better = Better::lower;
  EXPECT_TRUE(series.worse(up) && !series.worse(down));
  series.better = Better::higher;
  EXPECT_TRUE(series.worse(down) && !series.worse(up));
}

TEST(History, LeavesOutWhatHasNoRatioOrNoDirection) {
  HistoryStore store;
  int hour = 0;
  for (const double ratio : {1.5, 0.0, -1.0, std::nan(""), HUGE_VAL})
    store.add(fmt::format("{}", ratio), text_of_judgement("a", "b", day(0, ++hour), ratio));
  Report report = timed_report();
  report.records[0].measurements = {{.metric = "x.any", .at = "", .value = 1},
                                    {.metric = "x.down", .at = "", .value = 1, .better = Better::lower}};
  for (const char* build : {"a", "b"}) store.add(build, text_of_report(report, build, day(0, ++hour)));
  HistoryRules rules;
  rules.metrics = {"*"};
  const History history = store.history(rules);
  const HistorySeries* step = series_of(history, "time.step", "hot");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->points.size(), 1u);
  EXPECT_TRUE(series_of(history, "x.down", ""));
  EXPECT_FALSE(series_of(history, "x.any", ""));
}

TEST_F(HistoryFolder, IsReadInTheOrderOfTheNames) {
  write_file(folder_ / "a.json", text_of_report(timed_report(), "anchor", day(0)));
  for (int i = 0; i < 30; ++i) write_file(folder_ / fmt::format("{:02}.json", 7 * i % 30), "broken");
  const std::vector<std::string> remarks = history_in(folder_, {}).remarks;
  std::vector<std::string> broken;
  for (const std::string& remark : remarks)
    if (remark.starts_with("omitted: ")) broken.push_back(remark);
  EXPECT_EQ(broken.size(), 30u);
  EXPECT_TRUE(std::is_sorted(broken.begin(), broken.end()));
}

TEST(History, QuotesTheCommandThatConfirmsForAShell) {
  HistoryStore store;
  for (int i = 0; i < 24; ++i)
    store.add(fmt::format("{}", i), text_of_judgement("a", fmt::format("b{} *", i), day(i), i < 12 ? 1.0 : 1.3,
                                                      "my subject/$(touch x)/\x1b[31m"));
  EXPECT_SAYS(text_of(store.history({}), {}),
              "confirm: halfmark ab 'BUILD-b11 *' 'BUILD-b12 *' 'my subject' '$(touch x)' '\uFFFD[31m'\n");
}

TEST(History, CurvesFitTheTerminal) {
  HistoryStore store;
  for (int i = 0; i < 300; ++i)
    store.add(fmt::format("{}", i), text_of_judgement("a", fmt::format("b{}", i), day(i), i < 150 ? 1.0 : 1.3));
  for (const size_t width : {40u, 80u, 120u}) {
    const std::string text = text_of(store.history({}), {.width = width});
    const size_t begin = text.find("\n  \xE2") + 3;  // the first bar
    ASSERT_GE(begin, 3u);
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(static_cast<size_t>(columns) + 2, width);
  }
}

}  // namespace
}  // namespace halfmark::reports::history_test
