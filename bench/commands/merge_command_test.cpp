// End-to-end tests of halfmark merge: the shards of a real run, and invalid calls.
#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "bench/run/program_testing.h"
#include "reports/record/lock.h"
#include "reports/record/paths_testing.h"

namespace halfmark::bench {
namespace {

class MergeTest : public ProcessTest {
 protected:
  const std::string kRun = "run --no-probes --suite smoke --device cpu linear mlp ";

  void run_shards(int parts) {
    for (int part = 1; part <= parts; ++part)
      ASSERT_EQ(halfmark(kRun + fmt::format("--shard {}/{} -o {}.json", part, parts, part)).code, 0);
  }
  void expect_complaint(const std::string& arguments, const std::string& about) {
    const Result result = halfmark(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.lines(), 1) << result.err;
    EXPECT_NE(result.err.find(about), std::string::npos) << result.err;
  }
};

TEST_F(MergeTest, ShardsOfARunAreThatRun) {
  ASSERT_EQ(halfmark(kRun + "-o undivided.json").code, 0);
  run_shards(3);
  const Result result = halfmark("merge 2.json 3.json 1.json -o whole.json");
  EXPECT_EQ(result.code, 0) << result.err;
  const Report undivided = Report::load(folder_ / "undivided.json"), whole = Report::load(folder_ / "whole.json");
  EXPECT_EQ(result.out, fmt::format("whole.json: {} records of 3 shards\n", whole.records.size()));
  EXPECT_EQ(times_aside(whole), times_aside(undivided));
  EXPECT_EQ(whole.run.command, "halfmark merge 2.json 3.json 1.json -o whole.json");
  EXPECT_EQ(whole.environment["shards"].size(), 3u);
  EXPECT_EQ(halfmark("show whole.json").code, 0);
  const std::string validator = test_folders::source() + "/scripts/validate_report.py";
  if (std::filesystem::exists(validator) && std::string(HALFMARK_PYTHON) != "") {
    EXPECT_EQ(shell(std::string(HALFMARK_PYTHON) + " " + quoted(validator) + " whole.json 1.json").code, 0);
  }
}

TEST_F(MergeTest, SaysWhatDoesNotFit) {
  run_shards(2);
  ASSERT_EQ(halfmark(kRun + "--shard 2/2 --seed 7 -o seed.json").code, 0);
  expect_complaint("merge 1.json -o whole.json", "1 of 2 shards are missing (2/2)");
  expect_complaint("merge 1.json 1.json -o whole.json", "1.json and 1.json are both shard 1/2");
  expect_complaint("merge 1.json seed.json -o whole.json",
                   "1.json and seed.json do not belong together: the seed is 0 and 7");
  expect_complaint("merge 1.json 2.json", "-o");
  expect_complaint("merge 1.json absent.json -o whole.json", "absent.json");
  expect_complaint("merge 1.json 2.json -o none/whole.json", "none/whole.json");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "whole.json"));
  EXPECT_NE(halfmark("merge 1.json -o whole.json --partial").out.find("of 1 shard; partial, holds"), std::string::npos);
  EXPECT_NE(halfmark("show whole.json").out.find("partial "), std::string::npos);
  const FileLock lock(folder_ / "whole.json");
  expect_complaint("merge 1.json 2.json -o whole.json", "is being written by process");
}

}  // namespace
}  // namespace halfmark::bench
