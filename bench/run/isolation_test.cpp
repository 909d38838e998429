// Cases in separate processes, with small shell scripts in place of halfmark: each kind of end costs one record.
#include "bench/run/isolation.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "bench/run/plan.h"
#include "bench/run/program_testing.h"
#include "bench/run/runner.h"
#include "kernels/number/error.h"
#include "reports/record/lock.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

class Isolation : public ProcessTest {
 protected:
  // A shell script that is called like halfmark (run --case ID --seed S --no-probes --output-descriptor N); $8 is the
  // descriptor of the report, which a shell can only write to as /dev/fd/N.
  std::string script(const std::string& text) const {
    const std::filesystem::path path = folder_ / "program";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    ::chmod(path.c_str(), 0700);
    return path.string();
  }
  IsolatedRun run(const std::string& text, double timeout = 0) const {
    return run_isolated(script(text), "mlp/cpu/fp16/error", 7, timeout);
  }
};

TEST_F(Isolation, BringsBackTheRecord) {
  const std::string fixture = test_folders::source() + "/reports/fixtures/newer-minor.json";
  const IsolatedRun result =
      run("test \"$*\" = \"run --case mlp/cpu/fp16/error --seed 7 --no-probes --output-descriptor $8\" && cat " +
          quoted(fixture) + " > /dev/fd/$8");
  ASSERT_TRUE(result.record) << result.reason;
  EXPECT_EQ(result.record->fingerprint, "ab12");
}

// A harness of an extension may end the process in any way.
TEST_F(Isolation, EachWayToEndTheProcessIsAClearRecord) {
  const std::string planted = test_folders::binary() + "/halfmark_planted_extension";
  const auto run = [&](const std::string& how) {
    const std::string id = "linear/b4_i16_o8/cpu/fp32/ending" + how;
    IsolatedRun result = run_isolated(planted, id, 0, 60);
    return result.record ? std::string(name_of(result.record->status)) : result.reason;
  };
  EXPECT_EQ(run(""), "ok");
  for (const char* how : {"exit0", "exit1", "quick_exit"})
    EXPECT_EQ(run(std::string("/how=") + how),
              std::string("exit code 2: planted: linear/b4_i16_o8/cpu/fp32/ending/how=") + how +
                  ": ended the program by exit(); nothing is written");
  EXPECT_EQ(run("/how=leave"), "ended with exit code 0 before it wrote a report");
  EXPECT_TRUE(run("/how=abort").starts_with("crashed with signal 6 (Aborted)")) << run("/how=abort");
}

TEST_F(Isolation, WithoutItAnExitEndsTheRunWithOneLineAndKeepsFinishedCases) {
  const std::string planted = quoted(test_folders::binary() + "/halfmark_planted_extension");
  const Result ended = shell(planted + " run --no-probes --case linear/b4_i16_o8/cpu/fp32/ending/how=exit0");
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.err,
            "planted: linear/b4_i16_o8/cpu/fp32/ending/how=exit0: ended the program by exit(); finished cases are in "
            "report.json.journal: repeat the command with --isolate --resume\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "report.json"));
  EXPECT_FALSE(std::filesystem::exists(FileLock::path_of(folder_ / "report.json")));
}

// Then a killed run leaves no temporary file behind.
TEST_F(Isolation, NeedsNoTemporaryFile) {
  ::setenv("TMPDIR", (folder_ / "absent").c_str(), 1);
  const IsolatedRun result = run_isolated(program(), "linear/b4_i16_o8/cpu/fp32/memory", 0, 0);
  ::unsetenv("TMPDIR");
  ASSERT_TRUE(result.record) << result.reason;
  EXPECT_EQ(result.record->id, "linear/b4_i16_o8/cpu/fp32/memory");
}

TEST_F(Isolation, SaysHowTheProcessEnded) {
  EXPECT_TRUE(run("kill -SEGV $$").reason.starts_with("crashed with signal 11 (Segmentation fault)"));
  EXPECT_TRUE(run("kill -ABRT $$").reason.starts_with("crashed with signal 6 (Aborted)"));
  EXPECT_TRUE(run("kill -KILL $$").reason.starts_with("killed with signal 9, often because memory ran out"));
  EXPECT_EQ(run("echo no such device >&2; echo more >&2; exit 2").reason, "exit code 2: no such device");
  EXPECT_EQ(run("exit 7").reason, "exit code 7, without a message");
  EXPECT_EQ(run("exit 0").reason, "ended with exit code 0 before it wrote a report");
  EXPECT_SAYS(run("echo no report > /dev/fd/$8").reason, "the report of mlp/cpu/fp16/error");
  EXPECT_NE(run("echo '{\"schema\":1,\"records\":[]}' > /dev/fd/$8").reason.find("wrote 0 records"), std::string::npos);
  EXPECT_THROW(run_isolated((folder_ / "absent").string(), "id", 0, 0), Error);
}

TEST_F(Isolation, DistinguishesItsTimeoutFromAKill) {
  const IsolatedRun result = run("exec sleep 1000", 0.05);
  EXPECT_FALSE(result.record);
  EXPECT_TRUE(result.reason.starts_with("killed after 0.05 s (--timeout)")) << result.reason;
}

TEST_F(Isolation, ReportsThePeakMemory) {
  // The shell doubles a variable until it has twice the peak memory of this process.
  rusage own = {};
  ::getrusage(RUSAGE_SELF, &own);
  const std::string bytes = std::to_string(2 * 1024 * own.ru_maxrss);
  const IsolatedRun result =
      run("x=0123456789abcdef; n=16; while [ $n -lt " + bytes + " ]; do x=$x$x; n=$((n+n)); done; kill -KILL $$");
  EXPECT_NE(result.reason.find(", peak memory "), std::string::npos) << result.reason;
  EXPECT_NE(result.reason.find("iB"), std::string::npos) << result.reason;
}

TEST_F(Isolation, KillsTheProcessWhenTheParentIsKilled) {
  const std::string program = script("echo $$ > " + (folder_ / "pid").string() + "; exec sleep 1000");
  const pid_t parent = ::fork();
  if (parent == 0) {
    run_isolated(program, "id", 0, 0);
    ::_exit(0);
  }
  ASSERT_TRUE(wait_until([&] { return lines_in(folder_ / "pid") == 1; }));
  const std::string state = "/proc/" + std::to_string(std::stol(read(folder_ / "pid"))) + "/stat";
  EXPECT_FALSE(read(state).empty());
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(wait_until([&] {
    const std::string text = read(state);
    return text.empty() || text.find(") Z ") != std::string::npos;
  })) << "the child is still alive";
}

using SlowIsolation = Isolation;

TEST_F(SlowIsolation, EachFailingCaseCostsItsOwnRecordOnly) {
  const std::string wrapped = script(
      "case $3 in\n"
      "  */fp16/range) exec sleep 1000 ;;\n"
      "  */fp16/memory) kill -KILL $$ ;;\n"
      "  */bf16/range) kill -SEGV $$ ;;\n"
      "esac\n"
      "exec " +
      quoted(program()) + " \"$@\"");
  RunOptions options;
  options.cases = plan({.suite = "smoke",
                        .devices = {"cpu"},
                        .policies = {"fp16", "bf16"},
                        .harnesses = {"error", "range", "memory"},
                        .words = {"linear"}});
  options.output = folder_ / "report.json";
  options.execution.isolate = true;
  options.execution.timeout = 15;
  options.execution.program = wrapped;
  std::map<std::string, std::string> reasons;
  for (const Record& record : run_cases(options, [](size_t, size_t, const std::string&) {}).records) {
    EXPECT_EQ(record.status == Status::ok, record.reason.empty()) << record.id;
    if (record.status != Status::ok) reasons[record.policy + "/" + record.harness] = record.reason.substr(0, 28);
  }
  EXPECT_EQ(reasons.size(), 3u);
  EXPECT_EQ(reasons["fp16/range"], "killed after 15 s (--timeout");
  EXPECT_EQ(reasons["fp16/memory"], "killed with signal 9, often ");
  EXPECT_EQ(reasons["bf16/range"], "crashed with signal 11 (Segm");
  EXPECT_EQ(Report::load(options.output).records.size(), options.cases.size());
}

}  // namespace
}  // namespace halfmark::bench
