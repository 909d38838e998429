// Cases that are too large for the memory of a machine are refused before they start, and no others.
#include "bench/run/memory_room.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "bench/run/known_names.h"
#include "bench/run/performance.h"
#include "bench/run/program_testing.h"
#include "kernels/devices.h"

namespace halfmark::bench {
namespace {

class MemoryRoom : public ProcessTest {
 protected:
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  double available() const { return memory_available(folder_.string()); }
};

TrialSpec spec_of(const std::string& subject, const std::string& policy) {
  TrialSpec spec;
  spec.subject = &subject_named(subject), spec.policy = &policy_named(policy), spec.device = open_device("cpu");
  spec.settings = spec.subject->settings;
  return spec;
}

constexpr double kMiB = 1 << 20;

TEST_F(MemoryRoom, IsWhatTheMachineAndTheLimitsOfTheProcessLeave) {
  EXPECT_TRUE(std::isinf(available()) || available() > 0) << "no file says anything";
  write("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:  4194304 kB\nSwapFree: 1048576 kB\n");
  EXPECT_EQ(available(), 5120 * kMiB);
  write("proc/self/status", "VmPeak: 9 kB\nVmRSS:   524288 kB\n");
  EXPECT_EQ(available(), 5632 * kMiB) << "and what the process has already";
  write("proc/self/cgroup", "0::/user/job\n");
  EXPECT_EQ(available(), 5632 * kMiB) << "a group without a file has no limit";
  write("sys/fs/cgroup/user/job/memory.max", "max\n");
  EXPECT_EQ(available(), 5632 * kMiB);
  write("sys/fs/cgroup/user/memory.max", std::to_string(3LL << 30));
  EXPECT_EQ(available(), 4096 * kMiB) << "of the group around it, which can swap";
  write("sys/fs/cgroup/memory.max", std::to_string(1LL << 30));
  EXPECT_EQ(available(), 2048 * kMiB) << "of a container";
  write("proc/self/cgroup", "5:cpu:/\n4:cpuset,memory:/job\n0::/elsewhere\n");
  std::filesystem::remove(folder_ / "sys/fs/cgroup/memory.max");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(2LL << 30));
  EXPECT_EQ(available(), 3072 * kMiB) << "version 1";
}

TEST_F(MemoryRoom, ACaseThatFitsIsNotRefused) {
  // 256 x 256 weights; the batch and its derivative, the output and its derivative are small beside them.
  const Harness memory = memory_harness();
  const TrialSpec spec = spec_of("linear/b1_i256_o256", "fp32");
  const double bytes = *bytes_needed(memory, spec);
  EXPECT_GE(bytes, 2 * 256 * 256 * 4) << "weights and gradients";
  EXPECT_FALSE(lacks_memory(memory, spec, bytes));
  const auto reason = lacks_memory(memory, spec, bytes - 1);
  ASSERT_TRUE(reason);
  EXPECT_TRUE(says(*reason, "needs ")) << *reason;
  EXPECT_TRUE(says(*reason, " (predicted), this machine has ")) << *reason;
  EXPECT_FALSE(bytes_needed(harness_named("accumulation"), spec)) << "it has operands of its own";
  const char* mlp = "mlp/b1_i256_h256_o10";
  EXPECT_LT(*bytes_needed(harness_named("error"), spec_of(mlp, "fp64")), *bytes_needed(memory, spec_of(mlp, "fp64")))
      << "no momentum without an update";
  for (const char* harness : {"error", "range"})
    EXPECT_EQ(*bytes_needed(harness_named(harness), spec_of(mlp, "fp16")),
              *bytes_needed(harness_named(harness), spec_of(mlp, "fp64")))
        << harness << " compares with a step in fp64";
}

TEST_F(MemoryRoom, ACaseThatIsTooLargeFailsInOneLineBeforeItStarts) {
  // 2^36 weights of four bytes and as many gradients: more than the machines that run this test have.
  const Result ran = halfmark("run linear/b1_i262144_o262144 memory fp32 --device cpu --no-probes -o large.json");
  EXPECT_EQ(ran.code, 1) << ran.err;
  const Record record = Report::load(folder_ / "large.json").records.at(0);
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_TRUE(record.reason.starts_with("needs ")) << record.reason;
  EXPECT_TRUE(says(record.reason, "GiB (predicted), this machine has ")) << record.reason;
}

}  // namespace
}  // namespace halfmark::bench
