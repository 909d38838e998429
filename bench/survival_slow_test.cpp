// Kills a run at random moments and resumes it: no finished record may be lost, and the final report must equal that of
// an undisturbed run. HALFMARK_LONG=1 kills two hundred times instead of eight.
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/run/program_testing.h"
#include "bench/run/record_store.h"

namespace halfmark::bench {
namespace {

class SlowSurvival : public ProcessTest {
 protected:
  const std::string kRun = "run --suite smoke --device cpu --seed 3";

  // The records in the journal as text; only complete lines, as a reader sees them.
  std::vector<std::string> finished() const {
    std::vector<std::string> records;
    if (!std::filesystem::exists(journal())) return records;
    for (const Record& record : Journal::read(journal()).records) records.push_back(to_json(record).dump());
    return records;
  }
  std::filesystem::path journal() const { return journal_of(folder_ / "report.json"); }
  std::filesystem::path report() const { return folder_ / "report.json"; }
};

TEST_F(SlowSurvival, NothingIsLostToKillsAtRandomMoments) {
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(halfmark(kRun + " -o undisturbed.json").code, 0);
  const double duration = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Report undisturbed = Report::load(folder_ / "undisturbed.json");
  const size_t cases = undisturbed.records.size();

  constexpr unsigned kSeed = 20260131;
  std::mt19937 random(kSeed);
  const int kills = std::getenv("HALFMARK_LONG") ? 200 : 8;
  int killed = 0, runs = 0, completed = 0, resumed = 0;
  while (killed < kills) {
    ASSERT_LT(++runs, 10 * kills + 10) << "the runs end before they can be killed";
    const std::string now = fmt::format("run {}, {} killed, seed {}", runs, killed, kSeed);
    const bool goes_on = std::filesystem::exists(journal()) && !finished().empty();
    resumed += goes_on;
    const size_t before = finished().size();
    const pid_t child = start_halfmark(kRun + " --resume");
    // Half of the moments are anywhere in the run, the other half just after a new record, including the last one.
    if (random() % 2) {
      std::this_thread::sleep_for(std::chrono::duration<double>(duration * std::uniform_real_distribution<>()(random)));
    } else {
      const size_t wanted = before + 1 + random() % std::min<size_t>(cases - before + 1, 20);  // lines, with the header
      wait_until([&] { return lines_in(journal()) >= wanted || has_ended(child); });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 5000));
    }
    std::vector<std::string> seen;
    try {
      seen = finished();
    } catch (const ReportError&) {  // removed between two checks: the run is at its end
    }
    const bool had_ended = has_ended(child);
    ::kill(child, SIGKILL);
    const Result result = wait(child);
    if (had_ended) {
      EXPECT_EQ(result.code, 0) << now << ": " << result.err;
    }
    killed += !had_ended;

    if (std::filesystem::exists(report())) {  // the run had finished
      const Report report_now = Report::load(report());
      EXPECT_EQ(times_aside(report_now), times_aside(undisturbed)) << now;
      ++completed;
      std::filesystem::remove(report());
      std::filesystem::remove(journal());
      continue;
    }
    const std::vector<std::string> kept = finished();
    ASSERT_GE(kept.size(), seen.size()) << now;
    for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(kept[i], seen[i]) << now;
  }
  const Result last = halfmark(kRun + " --resume");
  EXPECT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(times_aside(Report::load(report())), times_aside(undisturbed));
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.ends_with("halfmark-tmp") || name.ends_with("halfmark-lock") || name.ends_with(".journal"))
        << name;
  }
  EXPECT_GT(resumed, 0);
  fmt::print("{} runs, {} killed, {} of them resumed from a journal, {} had a complete report\n", runs, killed, resumed,
             completed);
}

// Signals instead of kills: after each of them, the report on disk can be loaded.
TEST_F(SlowSurvival, SignalsAtRandomMomentsLeaveAReportThatLoads) {
  ASSERT_EQ(halfmark(kRun + " -o undisturbed.json").code, 0);
  const Report undisturbed = Report::load(folder_ / "undisturbed.json");
  std::mt19937 random(7);
  const int stops = std::getenv("HALFMARK_LONG") ? 60 : 4;
  for (int i = 0; i < stops; ++i) {
    const size_t before = finished().size();
    const pid_t child = start_halfmark(kRun + " --resume");
    const size_t wanted = before + 2 + random() % 12;
    wait_until([&] { return lines_in(journal()) >= wanted || has_ended(child); });
    ::kill(child, random() % 2 ? SIGINT : SIGTERM);
    const Result result = wait(child);
    EXPECT_TRUE(result.code == 130 || result.code == 143 || result.code == 0) << result.code << " " << result.err;
    const Report report_now = Report::load(report());
    EXPECT_TRUE(report_now.run.complete || result.code != 0);
    if (report_now.run.complete) {  // a signal may come after the last case
      EXPECT_EQ(times_aside(report_now), times_aside(undisturbed));
    } else {
      EXPECT_GT(report_now.records.size(), before);
      EXPECT_EQ(report_now.records.size(), finished().size());
    }
  }
  ASSERT_EQ(halfmark(kRun + " --resume").code, 0);
  EXPECT_EQ(times_aside(Report::load(report())), times_aside(undisturbed));
}

// The moments range from before the program has read its arguments until after it has printed its last line.
TEST_F(SlowSurvival, ASignalAtAnyMomentLeavesNoFilesOfItsOwnAndSaysThatItCame) {
  const std::string one = "run --no-probes --case linear/b4_i16_o8/cpu/fp32/error";
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(halfmark(one).code, 0);
  const auto duration = std::chrono::steady_clock::now() - start;
  const int moments = std::getenv("HALFMARK_LONG") ? 400 : 60;
  int stopped = 0, complete = 0;
  for (int i = 0; i < moments; ++i) {
    const int signal = i % 2 ? SIGINT : SIGTERM;
    std::filesystem::remove(report());
    const pid_t child = start_halfmark(one);
    std::this_thread::sleep_for(duration * i / (moments - moments / 10));  // some moments are after its end
    const bool had_ended = has_ended(child);
    ::kill(child, signal);
    const Result result = wait(child);
    const std::string when = fmt::format("moment {} of {}: exit code {}, {}", i, moments, result.code, result.err);
    // A process that ends when the signal comes may return its exit code.
    EXPECT_EQ(result.code, had_ended || result.code == 0 ? 0 : 128 + signal) << when;
    const bool is_written = std::filesystem::exists(report());
    EXPECT_TRUE(is_written || result.code != 0) << when;
    EXPECT_TRUE(!is_written || Report::load(report()).run.complete) << when;
    EXPECT_LE(result.lines(), 1) << when;
    stopped += result.code != 0, complete += is_written;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name == "report.json" || name == "stdout" || name == "stderr") << when << " leaves " << name;
    }
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(complete, 0);
}

// While the report is written to a pipe that is full.
TEST_F(SlowSurvival, ASignalDuringTheFinalSaveIsNotSwallowed) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const int signal : {SIGINT, SIGTERM}) {
    const int pipe = ::open((folder_ / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_GE(pipe, 0);
    ASSERT_LE(::fcntl(pipe, F_SETPIPE_SZ, 4096), 65536);
    const pid_t child = start_halfmark("run --no-probes --case linear/b4_i16_o8/cpu/fp32/error -o pipe");
    pollfd ready = {pipe, POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
    ::kill(child, signal);
    std::string text;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = ::read(pipe, buffer, sizeof buffer)) != 0) {
      if (count > 0)
        text.append(buffer, static_cast<size_t>(count));
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the writer has more
    }
    ::close(pipe);
    const Result result = wait(child);
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    EXPECT_TRUE(says(result.err, "after the last case; the report in pipe is complete")) << result.err;
    EXPECT_TRUE(Report::parse(text, "pipe").run.complete);
  }
}

}  // namespace
}  // namespace halfmark::bench
