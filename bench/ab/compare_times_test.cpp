// Tests of the comparison of two builds, with fake builds that report given times.
#include "bench/ab/compare_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include "bench/ab/fake_build_testing.h"
#include "bench/run/child_process.h"
#include "kernels/number/error.h"
#include "reports/outputs/text.h"

namespace halfmark::bench {
namespace {

AbOptions quick_options() {
  AbOptions options;
  options.timeout = 20;
  return options;
}

Judgement compared(const FakeBuild& a, const FakeBuild& b, const AbOptions& options = quick_options()) {
  const TemporaryFolder folder("test");
  return compare_times(Build::open(a.write(folder / "a")), Build::open(b.write(folder / "b")), options);
}

TEST(Builds, OfAFolderTheProgramThatRunsIsNamedAndIsTheOnlyOne) {
  const TemporaryFolder folder("test");
  std::filesystem::create_directories(folder / "around/new/bin");
  const std::string program = FakeBuild().write(folder / "around/new/bin/halfmark"),
                    around = (folder / "around").string();
  EXPECT_EQ(Build::open(around).description(), program + ", halfmark fake");
  EXPECT_EQ(Build::open(program).description(), program + ", halfmark fake");
  std::filesystem::create_directories(folder / "around/old");
  const std::string other = FakeBuild().write(folder / "around/old/halfmark");
  try {
    Build::open(around);
    FAIL() << "one of two builds was chosen";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), around + ": contains " + program + " and " + other + "; name one of them");
  }
}

const JudgedLine* line_about(const Judgement& judgement, const std::string& id) {
  const auto found = std::find_if(judgement.lines.begin(), judgement.lines.end(),
                                  [&](const JudgedLine& line) { return line.id == id; });
  return found == judgement.lines.end() ? nullptr : &*found;
}

Outcome outcome_of(const Judgement& judgement, const std::string& id) {
  const JudgedLine* line = line_about(judgement, id);
  EXPECT_NE(line, nullptr) << id;
  return line ? line->outcome : Outcome::lost;
}

TEST(Ab, OneBuildUnderTwoNamesPasses) {
  const Judgement judgement = compared({}, {});
  EXPECT_EQ(judgement.verdict, Verdict::pass);
  EXPECT_EQ(judgement.exit_code, 0);
  for (const char* id : {"one", "two", "three"}) EXPECT_EQ(outcome_of(judgement, id), Outcome::pass);
  EXPECT_EQ(outcome_of(judgement, "canary/clock"), Outcome::information);
}

TEST(Ab, ReportsTheSlowerCaseWithItsRatioAndACommandToRerunIt) {
  const Judgement judgement = compared({}, {.seconds = {{"two", "0.011"}}});
  EXPECT_EQ(judgement.verdict, Verdict::regression);
  EXPECT_EQ(judgement.exit_code, 1);
  ASSERT_EQ(outcome_of(judgement, "two"), Outcome::breach);
  const JudgedLine& line = judgement.lines.front();
  EXPECT_EQ(line.id, "two") << "the worst comes first";
  EXPECT_NEAR(line.found, 1.1, 1e-12);
  const std::string text = text_of(judgement, {});
  EXPECT_NE(text.find("+10.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find("24 pairs"), std::string::npos) << text;
  EXPECT_EQ(line.rerun, "halfmark run --case two");
  EXPECT_EQ(outcome_of(judgement, "one"), Outcome::pass);
}

TEST(Ab, ComparesProgramsWithSubjectsOfTheirOwn) {
  const std::string version = "mysuite 1.0, halfmark 0.1.0 (abc)";
  const Judgement judgement = compared({.version = version}, {.seconds = {{"two", "0.011"}}, .version = version});
  ASSERT_EQ(outcome_of(judgement, "two"), Outcome::breach);
  EXPECT_EQ(judgement.lines.front().rerun, "mysuite run --case two");
  EXPECT_NE(judgement.candidate.find(version), std::string::npos);
}

TEST(Ab, TheCommandToRerunACaseHasTheDataInEveryFolder) {
  AbOptions options = quick_options();
  options.data = "my digits/train";
  const Judgement judgement = compared({}, {.seconds = {{"two", "0.011"}}}, options);
  EXPECT_EQ(judgement.lines.front().rerun,
            "halfmark run --case two --data '" + (std::filesystem::current_path() / "my digits/train").string() + "'");
}

TEST(Ab, SlowerByLessThanTheMinimumEffectIsNoRegression) {
  EXPECT_EQ(compared({}, {.seconds = {{"two", "0.010250"}}}).verdict, Verdict::inconclusive)
      << "2.5 % is above extend_from and below the minimum effect";
  EXPECT_EQ(compared({}, {.seconds = {{"two", "0.010150"}}}).verdict, Verdict::pass);
}

TEST(Ab, ANoisyCaseHasItsOwnMinimumEffect) {
  AbOptions options = quick_options();
  options.noise.emplace();
  options.noise->cases["two"] = {{0.2}, {0.0}};  // three standard errors of 24 pairs are 12.5 %
  EXPECT_EQ(outcome_of(compared({}, {.seconds = {{"two", "0.011"}}}, options), "two"), Outcome::inconclusive);
  EXPECT_EQ(outcome_of(compared({}, {.seconds = {{"two", "0.012"}}}, options), "two"), Outcome::breach);
}

std::string all_remarks(const Judgement& judgement) {
  std::string all;
  for (const std::string& one : judgement.remarks) all += one + "\n";
  return all;
}

TEST(Ab, LeavesUndecidedWhatThePlacementOfCodeMayExplain) {
  AbOptions options = quick_options();
  options.rules.layout_spread = 0.02;
  const Judgement judgement = compared({}, {.seconds = {{"two", "0.0105"}}}, options);
  EXPECT_EQ(judgement.exit_code, 3);
  ASSERT_EQ(outcome_of(judgement, "two"), Outcome::inconclusive);
  EXPECT_NE(line_about(judgement, "two")->words.find("could be the placement of code"), std::string::npos);
  EXPECT_NE(all_remarks(judgement).find("is part of the margin"), std::string::npos) << all_remarks(judgement);
  EXPECT_EQ(outcome_of(compared({}, {.seconds = {{"two", "0.012"}}}, options), "two"), Outcome::breach);
  EXPECT_EQ(all_remarks(compared({}, {}, options)).find("placement"), std::string::npos)
      << "two copies of one program have one placement";
}

TEST(Ab, SamplesTheLayoutsOfBothBuilds) {
  const TemporaryFolder folder("test");
  const std::string log = (folder / "log").string();
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directory(folder / name);
    for (int i = 10; i < 24; ++i)
      FakeBuild{.seconds = {{"two", *name == 'b' ? "0.0105" : "0.01"}}, .log = log}.write(folder / name /
                                                                                          fmt::format("{}{}", name, i));
  }
  AbOptions options = quick_options();
  options.rules.layout_spread = 0.02;
  options.layouts_a = Build::open_layouts((folder / "a").string());
  options.layouts_b = Build::open_layouts((folder / "b").string());
  ASSERT_EQ(options.layouts_a.size(), 14u);
  const Judgement judgement = compare_times(options.layouts_a[0], options.layouts_b[0], options);
  ASSERT_EQ(outcome_of(judgement, "two"), Outcome::breach);
  EXPECT_NE(line_about(judgement, "two")->words.find("over 14 layouts of each build"), std::string::npos);
  EXPECT_NE(all_remarks(judgement).find("14 layouts of each build were sampled"), std::string::npos);
  std::ifstream asked(log);
  std::set<std::string> programs;
  for (std::string name, id; asked >> name >> id;) programs.insert(name);
  EXPECT_EQ(programs.size(), 28u) << "every layout of both builds is measured";
  options.layouts_b.pop_back();
  EXPECT_THROW(compare_times(options.layouts_a[0], options.layouts_b[0], options), Error);
}

TEST(Ab, TakesALayoutFromAFolderOfItsOwn) {
  const TemporaryFolder folder("test");
  for (const char* name : {"layout-000", "layout-001"}) {
    std::filesystem::create_directory(folder / name);
    FakeBuild{}.write(folder / name / "halfmark");
    std::filesystem::copy_file(folder / name / "halfmark", folder / name / "libhalfmark_kernels.so");
  }
  EXPECT_EQ(Build::open_layouts(folder.path().string()).size(), 2u);
  std::filesystem::create_directory(folder / "layout-002");
  EXPECT_THROW(Build::open_layouts(folder.path().string()), Error);
}

TEST(Ab, RefusesAFolderWithoutLayoutsOfOneBuild) {
  const TemporaryFolder folder("test");
  EXPECT_THROW(Build::open_layouts((folder / "none").string()), Error);
  EXPECT_THROW(Build::open_layouts(folder.path().string()), Error);
  FakeBuild{}.write(folder / "a");
  FakeBuild{.version = "halfmark other"}.write(folder / "b");
  EXPECT_THROW(Build::open_layouts(folder.path().string()), Error);
}

TEST(Ab, ImprovementsAreReportedOnRequestAndNeverFail) {
  AbOptions options = quick_options();
  EXPECT_EQ(outcome_of(compared({}, {.seconds = {{"two", "0.009"}}}, options), "two"), Outcome::pass);
  options.rules.improvements = true;
  const Judgement judgement = compared({}, {.seconds = {{"two", "0.009"}}}, options);
  EXPECT_EQ(outcome_of(judgement, "two"), Outcome::improved);
  EXPECT_EQ(judgement.exit_code, 0);
}

TEST(Ab, AChangedControlMakesTheEnvironmentSuspect) {
  const Judgement judgement = compared({}, {.seconds = {{"canary/clock", "0.0103"}, {"two", "0.011"}}});
  EXPECT_EQ(judgement.verdict, Verdict::environment_suspect);
  EXPECT_EQ(judgement.exit_code, 3);
  EXPECT_EQ(outcome_of(judgement, "two"), Outcome::environment_suspect);
}

TEST(Ab, CasesOfOneBuildOnlyAreLostOrNew) {
  const Judgement judgement = compared({.cases = {"one", "old"}}, {.cases = {"new", "one"}});
  EXPECT_EQ(outcome_of(judgement, "old"), Outcome::lost);
  EXPECT_EQ(outcome_of(judgement, "new"), Outcome::added);
  EXPECT_EQ(outcome_of(judgement, "one"), Outcome::pass);
  EXPECT_EQ(judgement.exit_code, 1);
}

TEST(Ab, ABuildThatCrashesAtACaseLosesOnlyThatCase) {
  const Judgement judgement = compared({}, {.instead = {{"two", "echo 'no luck' >&2; exit 4"}}});
  ASSERT_EQ(outcome_of(judgement, "two"), Outcome::lost);
  EXPECT_NE(judgement.lines.front().words.find("exit code 4 at two: no luck"), std::string::npos)
      << judgement.lines.front().words;
  EXPECT_EQ(outcome_of(judgement, "three"), Outcome::pass);
}

TEST(Ab, ABuildThatCrashesLaterLosesOnlyThatCaseToo) {
  const TemporaryFolder folder("test");
  const std::string count = (folder / "count").string();
  // Answers the trial pair and two more pairs, then crashes.
  const FakeBuild b{
      .instead = {{"two", "echo x >> '" + count + "'; [ $(wc -l < '" + count + "') -le 3 ] || kill -SEGV $$"}}};
  const Judgement judgement = compared({}, b);
  ASSERT_EQ(outcome_of(judgement, "two"), Outcome::lost);
  EXPECT_NE(judgement.lines.front().words.find("died with signal 11"), std::string::npos);
  EXPECT_EQ(outcome_of(judgement, "one"), Outcome::pass);
}

TEST(Ab, ABuildThatHangsLosesOnlyThatCase) {
  AbOptions options = quick_options();
  options.timeout = 0.3;
  const Judgement judgement = compared({}, {.instead = {{"two", "sleep 20"}}}, options);
  ASSERT_EQ(outcome_of(judgement, "two"), Outcome::lost);
  EXPECT_NE(judgement.lines.front().words.find("no answer for two within 0.3 s"), std::string::npos);
}

TEST(Ab, PairsThatTheHostDisturbedAreMeasuredAgainALimitedNumberOfTimes) {
  const Judgement judgement = compared({}, {.stolen = "0.04"});
  const auto said = std::find_if(judgement.remarks.begin(), judgement.remarks.end(), [](const std::string& remark) {
    return remark.find("host took CPU time") != std::string::npos;
  });
  ASSERT_NE(said, judgement.remarks.end());
  EXPECT_NE(said->find("were kept"), std::string::npos) << *said;
}

TEST(Ab, ReportsThatProcessesShareThePagesOfTheirCode) {
  const auto remarks = [](const Judgement& judgement) {
    return std::count_if(judgement.remarks.begin(), judgement.remarks.end(), [](const std::string& remark) {
      return remark.find("share the memory pages of its code") != std::string::npos &&
             remark.find("Permission denied") != std::string::npos;
    });
  };
  EXPECT_EQ(remarks(compared({}, {.shared_pages = "Permission denied"})), 1);
  EXPECT_EQ(remarks(compared({}, {})), 0);
}

TEST(Ab, OrdersAreBalancedForEveryCase) {
  const TemporaryFolder folder("test");
  const std::string log = (folder / "log").string();
  const Build a = Build::open(FakeBuild{.log = log}.write(folder / "a")),
              b = Build::open(FakeBuild{.log = log}.write(folder / "b"));
  PairOptions options;
  options.command_a = a.command({"sample"}), options.command_b = b.command({"sample"});
  options.ids = {"one", "two", "three"};
  const std::vector<size_t> cases{0, 1, 2};
  const auto pairs = ProcessPairs(options).measure(cases, 8);
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].size(), 8u);
  std::ifstream lines(log);
  std::map<std::string, int> a_first;
  std::map<std::string, std::vector<std::string>> asked;
  for (std::string who, id; lines >> who >> id;) asked[id].push_back(who);
  for (const auto& [id, order] : asked) {
    const size_t of_a_pair = 2 * kSlices;
    ASSERT_EQ(order.size(), 8 * of_a_pair) << id;
    for (size_t i = 0; i < order.size(); i += 2) {
      EXPECT_NE(order[i], order[i + 1]) << id << ": a slice runs each build once";
      if (i % of_a_pair == 0)
        a_first[id] += order[i] == "a";
      else
        EXPECT_EQ(order[i], order[i - 1]) << id << ": the order alternates between slices";
    }
    EXPECT_EQ(a_first[id], 4) << id;
  }
}

// A disturbance of one build in less than half of the slices of a pair does not change the ratio.
TEST(Ab, ADisturbanceOfSomeSlicesHasNoEffect) {
  const TemporaryFolder folder("test");
  const std::string every_third = "n=$((n + 1)); [ $((n % 3)) = 0 ] && s=0.05";
  const Build a = Build::open(FakeBuild{.instead = {{"one", "s=0.0101"}}}.write(folder / "a")),
              b = Build::open(FakeBuild{.instead = {{"one", every_third}}}.write(folder / "b"));
  PairOptions options;
  options.command_a = a.command({"sample"}), options.command_b = b.command({"sample"});
  options.ids = {"one"};
  const auto pairs = ProcessPairs(options).measure(std::vector<size_t>{0}, 4);
  for (const Pair& pair : pairs[0]) {
    EXPECT_EQ(pair.a, 0.0101);
    EXPECT_DOUBLE_EQ(pair.b, 0.01);
  }
}

TEST(Ab, BothProcessesOfAPairRunOnTheSameCores) {
  const TemporaryFolder folder("test");
  const Build build =
      Build::open(FakeBuild{.instead = {{"one", "s=1.$(taskset -pc $$ | sed 's/.*: //')"}}}.write(folder / "a"));
  if (own_cores().size() < 2) GTEST_SKIP() << "needs two cores";
  if (run_program({"sh", "-c", "command -v taskset"}).code != 0) GTEST_SKIP() << "no taskset (install util-linux)";
  PairOptions options;
  options.command_a = options.command_b = build.command({"sample"});
  options.ids = {"one"};
  options.cores = 1;
  std::set<double> seen;
  const auto pairs = ProcessPairs(options).measure(std::vector<size_t>{0}, 12);
  for (const Pair& pair : pairs[0]) {
    EXPECT_DOUBLE_EQ(pair.a, pair.b);
    seen.insert(pair.a);
  }
  EXPECT_GT(seen.size(), 1u) << "different pairs use different cores";
}

TEST(Ab, ProcessesOneAfterTheOtherGiveTheSameVerdict) {
  AbOptions options = quick_options();
  options.side_by_side = false;
  EXPECT_EQ(outcome_of(compared({}, {.seconds = {{"two", "0.011"}}}, options), "two"), Outcome::breach);
}

TEST(Ab, TooFewPairsForAnyFindingAreRefusedBeforeMeasuring) {
  AbOptions options = quick_options();
  options.rules.confirm_pairs = 3;
  EXPECT_THROW(compared({}, {}, options), std::runtime_error);
}

TEST(Build, MayBeAProgramAFolderOrAnArchive) {
  const TemporaryFolder folder("test");
  std::filesystem::create_directories(folder / "halfmark-1/bin");
  const std::string program = FakeBuild{}.write(folder / "halfmark-1/bin/halfmark");
  const std::string archive = (folder / "halfmark-1.tar.gz").string();
  ASSERT_EQ(run_program({"tar", "-czf", archive, "-C", (folder / "").string(), "halfmark-1"}).code, 0);
  for (const std::string& given : {program, (folder / "halfmark-1").string(), archive}) {
    const Build build = Build::open(given);
    EXPECT_EQ(build.version(), "halfmark fake") << given;
    EXPECT_EQ(build.output({"run"}), "one\ntwo\nthree\n") << given;
  }
}

TEST(Build, RefusesEverythingElseWithTheReason) {
  const TemporaryFolder folder("test");
  std::ofstream(folder / "broken.tar.gz") << "no archive";
  std::filesystem::create_directories(folder / "empty");
  const auto complaint = [](const std::string& given) -> std::string {
    try {
      Build::open(given);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint((folder / "absent").string()).find("no such file"), std::string::npos);
  EXPECT_NE(complaint((folder / "empty").string()).find("contains no bin/halfmark"), std::string::npos);
  EXPECT_NE(complaint((folder / "broken.tar.gz").string()).find("cannot be unpacked"), std::string::npos);
  EXPECT_NE(complaint("/bin/cat").find("--version does not answer like halfmark"), std::string::npos);
}

}  // namespace
}  // namespace halfmark::bench
