// halfmark probe --all-reduce on the software GPU, whose stand-in of NCCL adds along a ring, or as it is told to; and every
// command line that is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "bench/software_gpu_testing.h"

namespace halfmark::bench {
namespace {

using Json = nlohmann::json;

std::string repeated(const std::string& one, int times) {
  std::string all = one;
  for (int i = 1; i < times; ++i) all += "," + one;
  return all;
}

class SoftwareGpuAllReduce : public SoftwareGpu {
 protected:
  // On so many devices of these architectures, with wrong answers of the library on request.
  Ran probed(int devices, const std::string& arguments, const std::string& planted = "") const {
    std::string names = "cuda:0";
    for (int i = 1; i < devices; ++i) names += fmt::format(",cuda:{}", i);
    return ran(
        fmt::format("HALFMARK_SOFTWARE_GPU={} HALFMARK_SOFTWARE_LIBRARIES={}", repeated("sm_90", devices), planted),
        fmt::format("probe --all-reduce --device {} --elements 100 --replay 500 {}", names, arguments));
  }
  // The report of one type.
  Json report(int devices, const std::string& type, const std::string& planted = "") const {
    const Ran run = probed(devices, "--json --types " + type, planted);
    EXPECT_EQ(run.code, 0) << run.err;
    if (run.code != 0) return Json();
    const Json whole = Json::parse(run.out);
    EXPECT_EQ(whole["substitute"].get<std::string>().find("not hardware: software GPU"), 0u);
    return whole["all_reduce"].at(0);
  }
  static std::string value_of(const Json& report, const std::string& parameter) {
    for (const Json& one : report["findings"])
      if (one["parameter"] == parameter) return one["value"];
    return "no such line";
  }
  static void expect_replayed(const Json& report) {
    for (const Json& one : report["orders"]) EXPECT_EQ(one["replayed"], 500) << report.dump(1);
  }
  static void expect_refused(const Ran& run, const std::string& part) {
    EXPECT_EQ(run.code, 2) << run.out;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_NE(run.err.find(part), run.err.npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
};

TEST_F(SoftwareGpuAllReduce, FindsTheRingAndTheRoundingOfEachType) {
  const std::map<int, std::vector<std::string>> orders = {
      {2, {"0-1"}},
      {3, {"1-2, 0", "0 2, 1", "0-2"}},
      {4, {"1-3, 0", "2-3, 0-1", "0 3, 1-2", "0-3"}},
      {8, {"1-7, 0", "2-7, 0-1", "3-7, 0-2", "4-7, 0-3", "5-7, 0-4", "6-7, 0-5", "0 7, 1-6", "0-7"}}};
  const std::map<std::string, std::string> formats = {{"f64", "fp64"},  {"f32", "fp32"},  {"f16", "fp16"},
                                                      {"bf16", "bf16"}, {"e4m3", "e4m3"}, {"e5m2", "e5m2"}};
  for (const auto& [devices, expected] : orders)
    for (const auto& [type, format] : formats) {
      SCOPED_TRACE(fmt::format("{} {}", devices, type));
      const Json found = report(devices, type);
      std::vector<std::string> of_ring;
      for (const Json& one : found["orders"]) of_ring.push_back(one["order"]);
      // Chunks are whole pieces of 16 bytes: with narrow types the last ranks of eight have none of 100 elements.
      EXPECT_LE(of_ring.size(), expected.size());
      EXPECT_GE(of_ring.size(), std::min<size_t>(expected.size(), 7));
      EXPECT_TRUE(std::equal(of_ring.begin(), of_ring.end(), expected.begin())) << found.dump(1);
      EXPECT_EQ(value_of(found, "format of sums"), devices == 2 ? format + ", or wider and rounded once" : format);
      EXPECT_EQ(value_of(found, "rounding of sums"), "near_even");
      EXPECT_EQ(value_of(found, "ranks"), "the same bits");
      EXPECT_EQ(value_of(found, "run to run"), "the same bits");
      EXPECT_EQ(value_of(found, "elements"), "alike");
      EXPECT_EQ(value_of(found, "average"), "each number is scaled first");
      EXPECT_EQ(found["library"], "stand-in of NCCL 2.28.9");
      expect_replayed(found);
    }
}

// FP8 saturates in the stand-in, as the conversions do that NCCL uses.
TEST_F(SoftwareGpuAllReduce, ShowsWhatOverflows) {
  EXPECT_EQ(value_of(report(3, "e4m3"), "overflow"), "7E");
  EXPECT_EQ(value_of(report(3, "e5m2"), "overflow"), "7B");
  EXPECT_EQ(value_of(report(3, "f16"), "overflow"), "7C00");
  const Json wide = report(3, "f32");
  EXPECT_EQ(value_of(wide, "overflow"), "7F800000");
  EXPECT_EQ(value_of(wide, "NaN"), "7FFFFFFF");
  EXPECT_EQ(value_of(wide, "negative zero"), "kept");
  EXPECT_EQ(value_of(report(3, "f16"), "overflow in between"), "stays");
  EXPECT_EQ(value_of(report(3, "f16", "nccl-keeps-fp32"), "overflow in between"), "passes");
}

TEST_F(SoftwareGpuAllReduce, FindsALibraryThatKeepsFp32) {
  for (const int devices : {3, 4, 8})
    for (const char* type : {"f16", "bf16"}) {
      const Json found = report(devices, type, "nccl-keeps-fp32");
      EXPECT_EQ(value_of(found, "format of sums"), "fp32") << devices << " " << type;
      EXPECT_NE(found["hash"], report(devices, type)["hash"]);
      expect_replayed(found);
    }
}

TEST_F(SoftwareGpuAllReduce, FindsALibraryThatAddsInATree) {
  const std::map<int, std::string> orders = {
      {3, "0-2"}, {4, "(0-1) + (2-3)"}, {8, "((0-1) + (2-3)) + ((4-5) + (6-7))"}};
  for (const auto& [devices, order] : orders) {
    const Json found = report(devices, "bf16", "nccl-tree");
    ASSERT_EQ(found["orders"].size(), 1u);
    EXPECT_EQ(found["orders"][0]["order"], order);
    EXPECT_EQ(found["orders"][0]["elements"], "0-99");
    EXPECT_EQ(value_of(found, "format of sums"), "bf16");
    expect_replayed(found);
  }
}

TEST_F(SoftwareGpuAllReduce, SaysWhereNoOrderIsSeen) {
  const Ran run = probed(4, "--types bf16", "nccl-at-once");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("not observable in elements 0-99  ("), run.out.npos) << run.out;
  EXPECT_EQ(run.out.find("\n  replay"), run.out.npos) << run.out;
  // Where the range of a type has no masks, elements that are added in several orders look alike.
  EXPECT_EQ(value_of(report(4, "e4m3", "nccl-keeps-fp32"), "orders of addition"), "not observable");
}

TEST_F(SoftwareGpuAllReduce, FindsARankAndARunWithOtherBits) {
  for (const int devices : {2, 3, 4, 8}) {
    EXPECT_EQ(value_of(report(devices, "f32", "nccl-other-bits"), "ranks"), "get different bits") << devices;
    // What one run shows is no property then.
    const Json varies = report(devices, "f32", "nccl-varies");
    EXPECT_EQ(value_of(varies, "run to run"), "differs") << devices;
    EXPECT_EQ(value_of(varies, "orders of addition"), "not observable") << devices;
    EXPECT_EQ(value_of(varies, "format of sums"), "no such line") << devices;
  }
}

TEST_F(SoftwareGpuAllReduce, PrintsItsFindings) {
  const Ran run = probed(4, "--types bf16 -o probe.json");
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* part : {"not hardware: software GPU: ",
                           "cuda:0,cuda:1,cuda:2,cuda:3 bf16 (all-reduce of 100 elements, stand-in of NCCL 2.28.9)",
                           "orders of addition", "1-3, 0 in elements 0-31", "0-3 in elements 96-99", "format of sums",
                           "bf16  (", "2000 of 2000 fresh random sums have the same bits in software", "fingerprint"})
    EXPECT_NE(run.out.find(part), run.out.npos) << part << "\n" << run.out;
  std::ifstream file(folder_ / "probe.json");
  EXPECT_EQ(Json::parse(file)["all_reduce"][0]["devices"], "cuda:0,cuda:1,cuda:2,cuda:3");
  const Ran set = ran("HALFMARK_SOFTWARE_GPU=sm_90,sm_90 NCCL_ALGO=Ring",
                      "probe --all-reduce --device cuda:0,cuda:1 --elements 100 --types f32");
  EXPECT_NE(set.out.find("NCCL_ALGO=Ring)"), set.out.npos) << set.out;
}

// The front page shows this command: each of its lines is one of the output.
TEST_F(SoftwareGpuAllReduce, PrintsWhatTheFrontPageShows) {
  std::ifstream page(test_folders::source() + "/README.md");
  std::string line;
  const std::string begin = "$ halfmark probe --all-reduce ";
  while (std::getline(page, line) && !line.starts_with(begin)) {
  }
  ASSERT_TRUE(line.starts_with(begin));
  const Ran run = ran("HALFMARK_SOFTWARE_GPU=" + repeated("sm_90", 4), line.substr(std::string("$ halfmark ").size()));
  ASSERT_EQ(run.code, 0) << run.err;
  int lines = 0;
  while (std::getline(page, line) && line != "```") {
    if (line == "  ...") continue;
    ++lines;
    EXPECT_NE(("\n" + run.out).find("\n" + line + "\n"), std::string::npos) << line << "\n" << run.out;
  }
  EXPECT_GT(lines, 8);
}

// From one event to the next are 5 ms, in which ten sums of 400 bytes are made; what a CPU interprets has no time.
TEST_F(SoftwareGpuAllReduce, HasABusBandwidthWhereTimesMeanSomething) {
  for (const int devices : {2, 4}) {
    std::string names = "cuda:0,cuda:1";
    if (devices == 4) names += ",cuda:2,cuda:3";
    const std::string arguments = "probe --all-reduce --elements 100 --replay 10 --json --types f32 --device " + names;
    const Ran run = ran("HALFMARK_SOFTWARE_GPU_TIMES=5 HALFMARK_SOFTWARE_GPU=" + repeated("sm_90", devices), arguments);
    ASSERT_EQ(run.code, 0) << run.err;
    const Json timed = Json::parse(run.out)["all_reduce"][0];
    // 400 B / 0.5 ms = 0.8 MB/s, times 1 or 1.5.
    EXPECT_EQ(value_of(timed, "bus bandwidth"), devices == 2 ? "0.0008 GB/s" : "0.0012 GB/s");
    const Ran untimed = ran("HALFMARK_SOFTWARE_GPU=" + repeated("sm_90", devices), arguments);
    const Json other = Json::parse(untimed.out)["all_reduce"][0];
    EXPECT_EQ(value_of(other, "bus bandwidth"), "no such line");
    EXPECT_EQ(timed["hash"], other["hash"]) << "a time is no part of the fingerprint";
  }
}

TEST_F(SoftwareGpuAllReduce, ATypeThatIsNamedTwiceIsExaminedOnce) {
  const Ran run = probed(2, "--types bf16,f32,bf16 --json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["all_reduce"].size(), 2u);
}

TEST_F(SoftwareGpuAllReduce, WritesOneOfEachInTheSingular) {
  const Ran run = ran("HALFMARK_SOFTWARE_GPU=sm_90,sm_90",
                      "probe --all-reduce --device cuda:0,cuda:1 --elements 1 --replay 1 --types f32");
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* part : {"(all-reduce of 1 element, ", "in every element, 1 run)", "0-1 in element 0\n"})
    EXPECT_NE(run.out.find(part), run.out.npos) << part << "\n" << run.out;
}

// The order of the devices is that of the ranks; they need not be alike.
TEST_F(SoftwareGpuAllReduce, TakesDevicesInAnyOrder) {
  const Ran run = ran("HALFMARK_SOFTWARE_GPU=sm_90,sm_75,sm_80",
                      "probe --all-reduce --device cuda:2,cuda:0,cuda:1 --elements 100 --types f32 --json");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["all_reduce"][0]["devices"], "cuda:2,cuda:0,cuda:1");
}

// Of the usual types the others are still examined; one that was asked for ends the command.
TEST_F(SoftwareGpuAllReduce, SaysWhatTheLibraryDoesNotHave) {
  const Ran usual = ran("HALFMARK_SOFTWARE_GPU=sm_90,sm_80", "probe --all-reduce --device cuda:0,cuda:1 --elements 64");
  ASSERT_EQ(usual.code, 0) << usual.err;
  EXPECT_NE(usual.out.find("cuda:0,cuda:1 bf16 ("), usual.out.npos);
  EXPECT_NE(usual.out.find("not supported: e4m3: ncclAllReduce: invalid argument"), usual.out.npos) << usual.out;
  EXPECT_EQ(usual.out.find("cuda:0,cuda:1 e5m2 ("), usual.out.npos);
  expect_refused(ran("HALFMARK_SOFTWARE_GPU=sm_90,sm_80", "probe --all-reduce --device cuda:0,cuda:1 --types e4m3"),
                 "FP8 reductions begin with sm_90");
  const Ran old = probed(2, "", "nccl-2.9");
  ASSERT_EQ(old.code, 0) << old.err;
  EXPECT_NE(old.out.find("not supported: bf16: "), old.out.npos);
  EXPECT_NE(old.out.find("refused  (ncclAllReduce: invalid argument"), old.out.npos) << "averages\n" << old.out;
}

TEST_F(SoftwareGpuAllReduce, RefusesWhatItCannotExamineInOneLine) {
  const std::string two = "HALFMARK_SOFTWARE_GPU=sm_90,sm_90";
  const std::map<std::string, std::string> refusals = {
      {"--all-reduce", "--all-reduce needs --device with two devices or more"},
      {"--all-reduce --device cuda:0", "at least two"},
      {"--all-reduce --device cuda:0,cuda:0", "cuda:0 is named twice"},
      {"--all-reduce --device cuda:0,cuda:7", "cuda:7"},
      {"--all-reduce --device cuda:0,", "device ''"},
      {"--all-reduce --device cpu,cpu", "cpu has no sums across devices"},
      {"--all-reduce --device cuda:0,sim:hopper", "sim:hopper has no sums across devices"},
      {"--all-reduce --device cuda:0,cuda:1 --types f16\\>f32", "f16>f32"},
      {"--all-reduce --device cuda:0,cuda:1 --types i32", "i32 is not summed across devices"},
      {"--all-reduce --device cuda:0,cuda:1 --types e2m1", "e2m1 is not summed across devices"},
      {"--all-reduce --device cuda:0,cuda:1 --types e4m3fnuz", "NCCL has no sums of e4m3fnuz"},
      {"--all-reduce --device cuda:0,cuda:1 --elements 0", "--elements"},
      {"--all-reduce --device cuda:0,cuda:1 --elements -5", "--elements"},
      {"--all-reduce --device cuda:0,cuda:1 --elements 99999999999",
       "--elements: '99999999999' is not a whole number from 1 to 67108864"},
      {"--all-reduce --device cuda:0,cuda:1 --shape 8x8x8", "leave out --shape"},
      {"--all-reduce --device cuda:0,cuda:1 --instruction all", "leave out --shape"},
      {"--all-reduce --device cuda:0,cuda:1 --grid sizes.csv", "leave out --shape"},
      {"--all-reduce --device cuda:0,cuda:1 --vectors x.csv", "leave out --shape"},
      {"--device cuda:0,cuda:1", "cuda:0,cuda:1"},
      {"--device cuda:0 --elements 5", "--elements is of --all-reduce"}};
  for (const auto& [arguments, part] : refusals) {
    SCOPED_TRACE(arguments);
    expect_refused(ran(two, "probe " + arguments), part);
  }
  expect_refused(ran("HALFMARK_SOFTWARE_GPU=sm_90", "probe --all-reduce --device cuda:0,cuda:1"), "cuda:1");
  expect_refused(probed(2, "--types f32", "no-nccl"), "NCCL cannot be used: ");
  expect_refused(probed(2, "", "no-nccl"), "NCCL cannot be used: ");
}

// A refusal of one type, or the end of the command; what is only asked for or given back may fail unnoticed.
TEST_F(SoftwareGpuAllReduce, ACallOfTheLibraryThatFailsIsNamed) {
  for (const char* call : {"ncclGetVersion", "ncclCommInitAll", "ncclGroupStart", "ncclAllReduce", "ncclGroupEnd",
                           "ncclCommGetAsyncError"})
    for (const int nth : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}:{}", call, nth));
      const std::string variables =
          fmt::format("HALFMARK_SOFTWARE_GPU=sm_90,sm_90 HALFMARK_SOFTWARE_GPU_FAIL={}:{}:3", call, nth);
      const std::string arguments = "probe --all-reduce --device cuda:0,cuda:1 --elements 100 --types ";
      const bool is_once_per_type = std::string(call) == "ncclCommInitAll" || std::string(call) == "ncclGetVersion";
      const Ran single = ran(variables, arguments + "f32");
      if (nth == 1 || !is_once_per_type) expect_refused(single, std::string(call) + ": internal error");
    }
  const Ran usual = ran("HALFMARK_SOFTWARE_GPU=sm_90,sm_90 HALFMARK_SOFTWARE_GPU_FAIL=ncclAllReduce:3:3",
                        "probe --all-reduce --device cuda:0,cuda:1 --elements 100");
  EXPECT_EQ(usual.code, 0) << usual.err;
  EXPECT_NE(usual.out.find("not supported: f32: ncclAllReduce: internal error"), usual.out.npos) << usual.out;
  EXPECT_NE(usual.out.find("cuda:0,cuda:1 f16 ("), usual.out.npos);
}

// In copies, in sums, between them: no other type is examined on what is left.
TEST_F(SoftwareGpuAllReduce, ALostDeviceEndsTheCommandInOneLine) {
  for (const int nth : {1, 2, 3, 4, 5, 6, 7, 8, 100, 101})
    expect_refused(
        ran(fmt::format("HALFMARK_SOFTWARE_GPU=sm_90,sm_90 HALFMARK_SOFTWARE_GPU_FAIL=cudaStreamQuery:{}:700", nth),
            "probe --all-reduce --device cuda:0,cuda:1 --elements 100"),
        "cudaStreamQuery: cudaErrorIllegalAddress");
  for (const int nth : {3, 20, 21, 22, 23, 24})
    expect_refused(
        ran(fmt::format("HALFMARK_SOFTWARE_GPU=sm_90,sm_90 HALFMARK_SOFTWARE_GPU_FAIL=cudaStreamSynchronize:{}:700",
                        nth),
            "probe --all-reduce --device cuda:0,cuda:1 --elements 100"),
        "cudaStreamSynchronize: cudaErrorIllegalAddress");
}

// A rank that fails within a sum leaves the others waiting: the sum is given up.
TEST_F(SoftwareGpuAllReduce, ARankThatFailsLaterEndsTheCommandInOneLine) {
  expect_refused(probed(3, "--types f32", "nccl-async-error"),
                 "rank 2 (cuda:2): ncclAllReduce: remote process exited or there was a network error");
  expect_refused(probed(2, "", "nccl-async-error"), "rank 1 (cuda:1): ncclAllReduce: remote process exited");
  expect_refused(probed(2, "", "nccl-stops"), "ncclAllReduce: not ended after 1 s: rank 0 (cuda:0), rank 1 (cuda:1)");
  expect_refused(probed(2, "", "nccl-never-ends"),
                 "cuda:0 is lost: its part of a sum does not end, also after ncclCommAbort");
}

// Every communicator that was made is destroyed.
TEST_F(SoftwareGpuAllReduce, LeavesNoCommunicator) {
  const Ran run = probed(3, "");
  ASSERT_EQ(run.code, 0) << run.err;
  uint64_t made = 0, destroyed = 0;
  for (const Call& call : run.calls) {
    if (call.name == "ncclCommInitAll") made += call.calls;
    if (call.name == "ncclCommDestroy") destroyed += call.calls;
  }
  EXPECT_EQ(made, 5u);
  EXPECT_EQ(destroyed, 3 * made);
}

}  // namespace
}  // namespace halfmark::bench
