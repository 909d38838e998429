// End-to-end tests of interrupted runs: signals, SIGKILL, a report locked by another run, and a full disk.
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/ab/fake_build_testing.h"
#include "bench/run/interruption.h"
#include "bench/run/program_testing.h"
#include "bench/run/record_store.h"
#include "kernels/number/error.h"
#include "reports/record/lock.h"

namespace halfmark::bench {
namespace {

using SurvivalTest = ProcessTest;

// A child of a process with threads may start threads itself, but not with the thread sanitizer.
#ifdef __SANITIZE_THREAD__
#define HM_SKIP_WITHOUT_THREADS_AFTER_FORK() \
  GTEST_SKIP() << "the thread sanitizer ends a process that starts a thread after fork"
#else
#define HM_SKIP_WITHOUT_THREADS_AFTER_FORK() static_cast<void>(0)
#endif

#if HALFMARK_SANITIZED  // a part of it, because code with sanitizers is five times slower
const std::string kSmoke = "run --no-probes --suite smoke --device cpu mlp linear";
#else
const std::string kSmoke = "run --no-probes --suite smoke --device cpu";
#endif
// Takes minutes on any machine, without a point at which the run could check for a signal.
const std::string kEndless = "run --case convnet/b32_c3_s32_w32/sim:hopper/fp16/training/steps=400";

TEST_F(SurvivalTest, ASignalLeavesAPartialReportAndAJournalToResume) {
  ASSERT_EQ(halfmark(kSmoke + " -o whole.json").code, 0);
  const Report whole = Report::load(folder_ / "whole.json");
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t child = start_halfmark(kSmoke);
    ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "report.json.journal") > 5 || has_ended(child); }));
    ::kill(child, signal);
    const Result stopped = wait(child);
    EXPECT_EQ(stopped.code, 128 + signal) << stopped.err;
    const std::string last = stopped.err.substr(stopped.err.find("halfmark: stopped ("));
    EXPECT_EQ(stopped.lines(), signal == SIGINT ? 1 : 2) << stopped.err;
    if (signal == SIGTERM) {  // the finished report of the run before
      EXPECT_TRUE(says(stopped.err, "the earlier report.json is kept as ")) << stopped.err;
      EXPECT_EQ(times_aside(Report::load(folder_ / "report.json.old")), times_aside(whole));
    }
    EXPECT_TRUE(last.starts_with("halfmark: stopped (")) << stopped.err;
    EXPECT_TRUE(says(stopped.err, "saved in report.json; to continue, repeat the command with --resume"))
        << stopped.err;
    EXPECT_FALSE(std::filesystem::exists(FileLock::path_of(folder_ / "report.json")));

    const Report partial = Report::load(folder_ / "report.json");
    EXPECT_FALSE(partial.run.complete);
    EXPECT_EQ(partial.run.planned, whole.records.size());
    ASSERT_GE(partial.records.size(), 5u);
    ASSERT_LT(partial.records.size(), whole.records.size());
    for (size_t i = 0; i < partial.records.size(); ++i) EXPECT_EQ(partial.records[i].id, whole.records[i].id);
    const std::string holds = fmt::format("holds {} of {} cases", partial.records.size(), whole.records.size());
    EXPECT_TRUE(says(halfmark("show report.json").out, holds));
    EXPECT_TRUE(says(halfmark("compare report.json").out, holds));
    EXPECT_TRUE(says(halfmark("compare whole.json report.json").out, "report.json is partial"));

    const Result resumed = halfmark(kSmoke + " --resume");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(times_aside(Report::load(folder_ / "report.json")), times_aside(whole));
    EXPECT_FALSE(says(halfmark("show report.json").out, "partial"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json.journal"));
  }
}

TEST_F(SurvivalTest, AnInterruptedRunNamesItsFilesWithoutControlCharacters) {
  const pid_t soon = start_halfmark(kSmoke + " -o a\x1B[31m.json");
  ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "a\x1B[31m.json.journal") > 5 || has_ended(soon); }));
  ::kill(soon, SIGINT);
  EXPECT_SAYS(wait(soon).err, "saved in a\uFFFD[31m.json; ");
  const pid_t never = start_halfmark(kEndless + " -o b\x1B[31m.json");
  ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "b\x1B[31m.json.journal") == 1 || has_ended(never); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(never, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(never, SIGINT);
  EXPECT_SAYS(wait(never).err, "finished cases are in b\uFFFD[31m.json.journal\n");
}

// The run waits for its list of subjects, long before there is a case.
TEST_F(SurvivalTest, ASignalBeforeAnythingIsMeasuredIsOneLineToo) {
  const std::string list = (folder_ / "list.csv").string();
  ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const pid_t run = start_halfmark("run --no-probes --shapes list.csv error");
    int writer = -1;  // opens as soon as the run has opened the list
    ASSERT_TRUE(wait_until([&] { return (writer = ::open(list.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0; }));
    ::kill(run, signal);
    const Result ended = wait(run);
    ::close(writer);
    EXPECT_EQ(ended.code, 128 + signal);
    EXPECT_EQ(ended.err, fmt::format("halfmark: stopped ({}) before the first case was finished; nothing is written\n",
                                     ::strsignal(signal)));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json"));
  }
}

TEST_F(SurvivalTest, ASecondSignalEndsItAtOnce) {
  const pid_t child = start_halfmark(kEndless);
  ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "report.json.journal") == 1 || has_ended(child); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(child, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(child, SIGINT);
  const Result stopped = wait(child);
  EXPECT_EQ(stopped.code, 130);
  EXPECT_TRUE(says(stopped.err, "stopped at once; finished cases are in report.json.journal")) << stopped.err;
  EXPECT_TRUE(Journal::read(folder_ / "report.json.journal").records.empty());
}

TEST_F(SurvivalTest, ACaseThatDoesNotEndIsAbandoned) {
  std::ofstream(folder_ / "report.json") << "of an earlier run";
  const pid_t child = start_halfmark(kEndless);
  ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "report.json.journal") == 1 || has_ended(child); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ::kill(child, SIGTERM);
  const Result stopped = wait(child);
  EXPECT_EQ(stopped.code, 143) << stopped.err;
  EXPECT_TRUE(says(stopped.err, "before the first case was finished")) << stopped.err;
  EXPECT_EQ(read(folder_ / "report.json"), "of an earlier run");
}

// The same with a report to write: the watcher thread writes it while the loop hangs.
TEST_F(SurvivalTest, FinishedRecordsAreSavedWhileTheLoopHangs) {
  HM_SKIP_WITHOUT_THREADS_AFTER_FORK();
  int ready[2] = {};
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    Interruption interruption(0.01, "at once\n", [&] { std::ofstream(folder_ / "saved") << interrupting_signal(); });
    if (::write(ready[1], "!", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  ::close(ready[1]);  // so that reading ends if the child does
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGTERM);
  ::kill(child, SIGTERM);  // a repeated signal, as from process managers, does not count as a second one
  EXPECT_EQ(wait(child).code, 143);
  EXPECT_EQ(read(folder_ / "saved"), "15");
  ::close(ready[0]);
}

TEST_F(SurvivalTest, AnErrorWhileTheLoopHangsIsOneLineThatDrivesNoTerminal) {
  HM_SKIP_WITHOUT_THREADS_AFTER_FORK();
  int ready[2] = {};
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    ::dup2(::open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    Interruption interruption(0.01, "at once\n", [] { throw Error("a\x1B[31mb\xC2\x9B\xE2\x80\xAE\xFF\nc"); });
    if (::write(ready[1], "!", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  ::close(ready[1]);  // so that reading ends if the child does
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::kill(child, SIGTERM);
  const Result stopped = wait(child);
  EXPECT_EQ(stopped.code, 2);
  EXPECT_EQ(stopped.err, "halfmark: a\uFFFD[31mb\uFFFD\uFFFD\uFFFD c\n");
  ::close(ready[0]);
}

TEST_F(SurvivalTest, TheProcessOfAnIsolatedCaseEndsWithTheRun) {
  for (const int signal : {SIGINT, SIGKILL}) {
    const pid_t run = start_halfmark(kEndless + " --isolate");
    const std::string children = fmt::format("/proc/{0}/task/{0}/children", run);
    std::string child;
    ASSERT_TRUE(wait_until([&] { return !(child = read(children)).empty() || has_ended(run); }));
    ASSERT_FALSE(child.empty());
    ::kill(run, signal);
    EXPECT_EQ(wait(run).code, 128 + signal);
    const std::string state = "/proc/" + std::to_string(std::stol(child)) + "/stat";
    EXPECT_TRUE(wait_until([&] {
      const std::string text = read(state);
      return text.empty() || says(text, ") Z ");  // gone, or a zombie until its new parent waits for it
    })) << "the child is still alive";
  }
}

TEST_F(SurvivalTest, TwoRunsCannotWriteOneReport) {
  const pid_t first = start_halfmark(kEndless);
  ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "report.json.journal") == 1 || has_ended(first); }));
  const std::string journal = read(folder_ / "report.json.journal");
  for (const char* more : {"", " --resume"}) {
    const int status = std::system((quoted(program()) + " " + kSmoke + " -o " + (folder_ / "report.json").string() +
                                    more + " > /dev/null 2> " + (folder_ / "complaint").string())
                                       .c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2);
    EXPECT_TRUE(
        says(read(folder_ / "complaint"), fmt::format("report.json: is being written by process {} since 2", first)))
        << read(folder_ / "complaint");
    EXPECT_EQ(lines_in(folder_ / "complaint"), 1u);
  }
  EXPECT_EQ(read(folder_ / "report.json.journal"), journal);
  ::kill(first, SIGKILL);
  wait(first);
  EXPECT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear fp16").code, 0)
      << "the lock of a killed run is still held";
  EXPECT_FALSE(std::filesystem::exists(FileLock::path_of(folder_ / "report.json")));
}

TEST_F(SurvivalTest, AStoppedAbEndsItsProcessesAndRemovesUnpackedArchives) {
  std::filesystem::create_directories(folder_ / "halfmark-1");
  std::filesystem::create_directories(folder_ / "temporary");
  const std::string asked = (folder_ / "asked").string();
  FakeBuild{.instead = {{"two", "echo $$ > '" + asked + "'; exec sleep 1000"}}}.write(folder_ / "halfmark-1/halfmark");
  ASSERT_EQ(shell("tar -czf build.tar.gz halfmark-1").code, 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove(asked);
    const pid_t child = start({"/usr/bin/env", "TMPDIR=" + (folder_ / "temporary").string(), program(), "ab",
                               "build.tar.gz", "build.tar.gz", "--json", "judgement.json"});
    ASSERT_TRUE(wait_until([&] { return lines_in(asked) == 1 || has_ended(child); })) << read(folder_ / "stderr");
    ::kill(child, signal);
    const Result stopped = wait(child);
    EXPECT_EQ(stopped.code, 128 + signal) << stopped.err;
    EXPECT_EQ(stopped.lines(), 1) << stopped.err;
    EXPECT_TRUE(says(stopped.err, "before there was a verdict")) << stopped.err;
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "temporary"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "judgement.json"));
    const pid_t sampler = std::stoi(read(asked));
    EXPECT_NE(::kill(sampler, 0), 0) << "the build's process lives on";
  }
}

class JournalOfAnotherRun : public ProcessTest {
 protected:
  // A journal with the first of the smoke cases of linear, changed by the test.
  void write_journal(const std::function<void(Report&)>& change) {
    ASSERT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear -o whole.json").code, 0);
    Report header = Report::load(folder_ / "whole.json");
    const Record first = header.records.at(0);
    change(header);
    Journal::create(journal_of(folder_ / "report.json"), header).append(first);
    contents_ = read(folder_ / "report.json.journal");
  }
  void expect_refusal(const std::string& about) {
    const Result result = halfmark("run --no-probes --suite smoke --device cpu linear --resume");
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.lines(), 1) << result.err;
    EXPECT_TRUE(says(result.err, about)) << result.err;
    EXPECT_EQ(read(folder_ / "report.json.journal"), contents_);
  }
  std::string contents_;
};

TEST_F(JournalOfAnotherRun, IsNotContinued) {
  write_journal([](Report& header) { header.run.plan.hash = "of other words"; });
  expect_refusal("was started with other cases");
  write_journal([](Report& header) { header.run.shard = "1/2"; });
  expect_refusal("was started with other cases");
  write_journal([](Report& header) { header.run.seed = 7; });
  expect_refusal("was started with --seed 7");
  write_journal([](Report& header) { header.environment["halfmark"]["git"] = "0123456789ab"; });
  expect_refusal("was started with halfmark.git 0123456789ab, which is ");
}

TEST_F(JournalOfAnotherRun, IsKeptWhenARunStartsAgain) {
  write_journal([](Report&) {});
  const Result result = halfmark("run --no-probes --suite smoke --device cpu linear");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(read(folder_ / "report.json.journal.old"), contents_);
  EXPECT_TRUE(says(result.err, "kept as report.json.journal.old; --resume continues the journal of the same command"))
      << result.err;
}

TEST_F(JournalOfAnotherRun, WithoutRecordsTakesNoOldOnesPlace) {
  write_journal([](Report&) {});
  std::filesystem::rename(folder_ / "report.json.journal", folder_ / "report.json.journal.old");
  Report header = Report::load(folder_ / "whole.json");
  Journal::create(journal_of(folder_ / "report.json"), header);
  EXPECT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear").code, 0);
  EXPECT_EQ(read(folder_ / "report.json.journal.old"), contents_);
}

TEST_F(SurvivalTest, TemporaryFilesOfKilledProcessesAreRemovedAndNothingElse) {
  const pid_t gone = start({"/bin/true"});
  wait(gone);
  const auto names = {fmt::format(".report.json.{}-0.halfmark-tmp", gone),
                      fmt::format(".report.json.journal.{}-0.halfmark-tmp", gone),
                      fmt::format(".report.json.{}-0.halfmark-tmp", ::getpid()),
                      fmt::format(".other.json.{}-0.halfmark-tmp", gone),
                      fmt::format("report.json.{}.tmp", gone),
                      std::string("report.json.lock")};
  for (const std::string& name : names) std::ofstream(folder_ / name) << "half a repo";
  ASSERT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear fp16 error").code, 0);
  std::vector<bool> there;
  for (const std::string& name : names) there.push_back(std::filesystem::exists(folder_ / name));
  EXPECT_EQ(there, (std::vector<bool>{false, false, true, true, true, true}));
  EXPECT_EQ(read(folder_ / "report.json.lock"), "half a repo");
}

// A limit on the file size simulates a full disk: a write fails in the middle of the journal.
TEST_F(SurvivalTest, AJournalThatCannotGrowEndsTheRunWithoutLosses) {
  ASSERT_EQ(halfmark(kSmoke + " -o whole.json").code, 0);
  std::ofstream(folder_ / "report.json") << "of an earlier run";
  const Result full = shell("ulimit -f 200; exec \"$HALFMARK\" " + kSmoke);
  EXPECT_EQ(full.code, 2);
  EXPECT_EQ(full.lines(), 1) << full.err;
  EXPECT_TRUE(says(full.err, "report.json.journal: cannot be written: File too large; free some space")) << full.err;
  EXPECT_TRUE(says(full.err, "--resume")) << full.err;
  EXPECT_EQ(read(folder_ / "report.json"), "of an earlier run");
  const size_t kept = Journal::read(folder_ / "report.json.journal").records.size();
  EXPECT_GT(kept, 1u);
  const Result resumed = halfmark(kSmoke + " --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(times_aside(Report::load(folder_ / "report.json")), times_aside(Report::load(folder_ / "whole.json")));
}

// Only the report cannot be written: a directory takes its name while the cases are measured.
TEST_F(SurvivalTest, AReportThatCannotBeWrittenLeavesItsJournal) {
  ASSERT_EQ(halfmark(kSmoke + " -o whole.json").code, 0);
  std::ofstream(folder_ / "report.json") << "of an earlier run";
  const pid_t child = start_halfmark(kSmoke);
  ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "report.json.journal") > 1 || has_ended(child); }));
  std::filesystem::rename(folder_ / "report.json", folder_ / "earlier.json");
  std::filesystem::create_directory(folder_ / "report.json");
  const Result stopped = wait(child);
  EXPECT_EQ(stopped.code, 2);
  EXPECT_EQ(stopped.lines(), 1) << stopped.err;
  EXPECT_TRUE(says(stopped.err, "report.json: cannot be written: Is a directory")) << stopped.err;
  EXPECT_TRUE(says(stopped.err, "the finished cases are in report.json.journal")) << stopped.err;
  std::filesystem::remove(folder_ / "report.json");
  std::filesystem::rename(folder_ / "earlier.json", folder_ / "report.json");
  const Report whole = Report::load(folder_ / "whole.json");
  EXPECT_EQ(Journal::read(folder_ / "report.json.journal").records.size(), whole.records.size());
  EXPECT_EQ(halfmark(kSmoke + " --resume").code, 0);
  EXPECT_EQ(times_aside(Report::load(folder_ / "report.json")), times_aside(whole));
}

class Mounted : public ProcessTest {
 protected:
  void SetUp() override {
    ProcessTest::SetUp();
    if (shell(mounting("size=128k", "true")).code != 0) GTEST_SKIP() << "no file system can be mounted here";
  }
  // A command with a separate file system at ./disk, in a separate mount namespace: nothing stays mounted.
  static std::string mounting(const std::string& options, const std::string& command) {
    return "mkdir -p disk && unshare -rm sh -c 'mount -t tmpfs -o " + options + " none disk && " + command + "'";
  }
};

TEST_F(Mounted, AFullDiskIsReportedAndTheEarlierReportStays) {
  const Result full = shell(mounting("size=128k", "cd disk && echo earlier > report.json && { \"$HALFMARK\" " + kSmoke +
                                                      "; code=$?; cp * ..; exit $code; }"));
  EXPECT_EQ(full.code, 2);
  EXPECT_EQ(full.lines(), 1) << full.err;
  EXPECT_TRUE(says(full.err, "No space left on device; free some space")) << full.err;
  EXPECT_EQ(read(folder_ / "report.json"), "earlier\n");
  EXPECT_GT(Journal::read(folder_ / "report.json.journal").records.size(), 1u);
  const Result resumed = halfmark(kSmoke + " --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST_F(Mounted, AReadOnlyFolderIsRefusedBeforeMeasuring) {
  const Result result = shell(mounting("ro", "exec \"$HALFMARK\" " + kSmoke + " -o disk/report.json"));
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.lines(), 1) << result.err;
  EXPECT_TRUE(says(result.err, "disk: cannot be written to (")) << result.err;
}

TEST_F(SurvivalTest, AWriteErrorOnStandardOutputIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  ASSERT_EQ(halfmark("run --no-probes --suite smoke --device cpu linear fp16 error").code, 0);
  const Result result = shell("\"$HALFMARK\" show report.json > /dev/full");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.lines(), 1) << result.err;
  EXPECT_TRUE(says(result.err, "No space left on device")) << result.err;
}

TEST_F(SurvivalTest, ResumingAFinishedRunMeasuresNothing) {
  const std::string run = "run --no-probes --device cpu --policy fp32,fp16 linear/b8_i8_o8 error";
  ASSERT_EQ(halfmark(run).code, 0);
  const std::string finished = read(folder_ / "report.json");
  const Result again = halfmark(run + " --resume");
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(again.err, "halfmark: report.json is finished: nothing to resume\n");
  EXPECT_TRUE(says(again.out, "records   2: 2 ok")) << "the table of the report";
  EXPECT_EQ(read(folder_ / "report.json"), finished);
  // The report of another run is not replaced.
  const auto expect_kept = [&](const std::string& arguments, const std::string& part) {
    const std::string before = read(folder_ / "report.json");
    const Result refused = halfmark(arguments + " --resume");
    EXPECT_EQ(refused.code, 2) << arguments;
    EXPECT_EQ(refused.lines(), 1) << refused.err;
    EXPECT_TRUE(says(refused.err, "report.json: is the report of another run, with " + part)) << refused.err;
    EXPECT_TRUE(says(refused.err, "name another file with -o, or replace it without --resume"));
    EXPECT_EQ(read(folder_ / "report.json"), before) << arguments;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json.journal"));
  };
  expect_kept(run + " --seed 1", "--seed 0");
  expect_kept(run + " linear/b8_i8_o16", "other cases (`");
  expect_kept("run --no-probes --device cpu fp32 linear/b8_i8_o8 error", "other cases (`");
  std::string elsewhere = finished;
  elsewhere.replace(elsewhere.find("\"build_type\": \"") + 15, 0, "other ");
  std::ofstream(folder_ / "report.json") << elsewhere;
  expect_kept(run, "halfmark.build_type other ");
  // A report with numbers that were changed is kept, and all are measured again.
  std::string changed = finished;
  constexpr std::string_view kValue = "\"value\":";
  const size_t at = changed.find(kValue) + kValue.size();
  changed.replace(at, changed.find_first_of(",\n}", at) - at, "0.5");
  std::ofstream(folder_ / "report.json") << changed;
  const Result measured = halfmark(run + " --resume");
  EXPECT_TRUE(says(measured.err, "measuring all cases")) << measured.err;
  EXPECT_TRUE(says(measured.err, "it is kept as report.json.old")) << measured.err;
  EXPECT_EQ(read(folder_ / "report.json.old"), changed);
  EXPECT_FALSE(says(halfmark("show report.json").out, "changed"));
}

}  // namespace
}  // namespace halfmark::bench
