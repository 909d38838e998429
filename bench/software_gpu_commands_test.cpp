// Calls that fail in other commands than run, and calls that clean up after a failure and fail too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "bench/software_gpu_failures_testing.h"

namespace halfmark::bench {
namespace {

// How many results are checked depends on the machine.
std::string without_numbers(const std::string& text) {
  std::string words;
  for (const char one : text)
    if (std::string_view("0123456789.-+e ").find(one) == std::string_view::npos) words += one;
  return words;
}

class SoftwareGpuCommands : public SoftwareGpu, public testing::WithParamInterface<FailedCommand> {};

// A refusal in the output, or one line of an error; in both the call is named unless it only describes or gives back.
TEST_P(SoftwareGpuCommands, ACallThatFailsEndsInOneLineOrAWordInTheOutput) {
  std::ofstream(folder_ / "rows.csv") << "a,b,c\n"
                                      << std::string(64, '3') << "," << std::string(64, '2') << ",00000000\n";
  const auto [variables, command] = GetParam();
  const Ran base = ran(variables, command);
  ASSERT_EQ(base.code, 0) << base.err;
  std::set<std::string> known;
  for (const Call& call : base.calls) {
    if (call.name == "kernel" || !known.insert(call.name).second) continue;
    const std::string request = fmt::format("{}:{}:{}", call.name, call.last, status_of(call.name));
    SCOPED_TRACE(fmt::format("HALFMARK_SOFTWARE_GPU_FAIL={} halfmark {}", request, command));
    const Ran run = ran(fmt::format("{} HALFMARK_SOFTWARE_GPU_FAIL={}", variables, request), command);
    EXPECT_TRUE(run.code == 0 || run.code == 2) << run.code;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), run.code == 2 ? 1 : 0) << run.err;
    if (run.code == 0 && without_numbers(run.out) == without_numbers(base.out)) continue;
    const std::string words = own_words(run.err + run.out);
    // Where a library refuses a product, check asks it for the other form of it.
    const bool is_named = says(words, call.name) || (run.code == 0 && says(words, ", b transposed"));
    EXPECT_TRUE(is_named || (call.name == "cudaLaunchKernel" && says(run.err, ": cudaError"))) << run.err << run.out;
  }
  EXPECT_GT(known.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(Command, SoftwareGpuCommands, testing::ValuesIn(kFailedCommands));

class SoftwareGpuSecondFailures : public SoftwareGpu, public testing::WithParamInterface<FirstFailure> {};

// Calls that only a failure brings about fail too: no crash, and one case more at most, which names the call.
TEST_P(SoftwareGpuSecondFailures, CostOneCaseMoreAtMost) {
  const auto [request, which] = GetParam();
  const Ran without = ran(which.variables, which.arguments);
  std::set<std::pair<std::string, std::string>> known;
  for (const Call& call : without.calls) known.emplace(call.name, call.place);
  const std::string first = fmt::format("{} HALFMARK_SOFTWARE_GPU_FAIL={}", which.variables, request);
  const Ran base = ran(first, which.arguments);
  EXPECT_LE(base.code, 2);
  for (const Call& call : base.calls) {
    if (call.name == "kernel" || !known.emplace(call.name, call.place).second) continue;
    const std::string at = call.name + "@" + call.place.substr(call.place.find('+') + 1);
    const std::string second = fmt::format("{},{}:1:{}", first, at, status_of(call.name));
    SCOPED_TRACE(fmt::format("{} halfmark {}", second, which.arguments));
    const Ran run = ran(second, which.arguments);
    ASSERT_EQ(run.report.has_value(), base.report.has_value());
    if (!run.report) {
      EXPECT_EQ(run.code, base.code);
      continue;
    }
    EXPECT_TRUE(run.report->run.complete);
    int more = 0;
    for (size_t i = 0; i < base.report->records.size(); ++i) {
      const Record &before = base.report->records[i], &after = run.report->records.at(i);
      if (after.status != Status::failed || before.status == Status::failed) continue;
      ++more;
      EXPECT_TRUE(says(own_words(after.reason), call.name) ||
                  (call.name == "cudaLaunchKernel" && says(after.reason, ": cudaError")))
          << after.id << " " << after.reason;
    }
    EXPECT_LE(more, 1);
    EXPECT_EQ(run.code, base.code == 1 || more > 0 ? 1 : 0) << run.err;
  }
}

INSTANTIATE_TEST_SUITE_P(First, SoftwareGpuSecondFailures, testing::ValuesIn(kFirstFailures));

}  // namespace
}  // namespace halfmark::bench
