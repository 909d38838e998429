// Tests the list of devices, and each way in which the plugin can be absent.
#include "kernels/devices.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <set>

#include "kernels/number/error.h"
#include "kernels/number/format.h"
#include "kernels/ops/ops.h"
#include "kernels/plugin_file.h"
#include "kernels/tensor/tensor.h"
#include "reports/record/paths_testing.h"

namespace halfmark::kernels {
namespace {

std::string sample(const std::string& name) { return test_folders::binary() + "/samples/" + name + ".so"; }

void expect_one_line(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST(Plugin, OfThisBuildIsLoaded) {
  const LoadedPlugin loaded = load_plugin(sample("sample_same_build"));
  ASSERT_NE(loaded.plugin, nullptr) << loaded.absent;
  EXPECT_EQ(loaded.plugin->versions().front().first, "sample");
}

TEST(Plugin, OfAnotherBuildSaysSo) {
  const LoadedPlugin loaded = load_plugin(sample("sample_other_build"));
  EXPECT_EQ(loaded.plugin, nullptr);
  expect_one_line(loaded.absent, "is from another build (another-compiler");
}

TEST(Plugin, WithoutALibraryItNeedsNamesIt) {
  const LoadedPlugin loaded = load_plugin(sample("sample_needs_more"));
  EXPECT_EQ(loaded.plugin, nullptr);
  expect_one_line(loaded.absent, "libsample_dependency.so: cannot open shared object file");
}

TEST(Plugin, AFileThatIsNoLibraryOrNoPluginSaysSo) {
  const std::string text = testing::TempDir() + "halfmark_no_library.so";
  std::ofstream(text) << "not a library\n";
  expect_one_line(load_plugin(text).absent, "cannot be loaded");
  expect_one_line(load_plugin(test_folders::binary() + "/libhalfmark_kernels.so").absent,
                  "has no entry halfmark_plugin");
}

TEST(Devices, OfTheHostHaveNoSumsAcrossThem) {
  using Devices = std::vector<std::shared_ptr<Device>>;
  const auto cpu = open_device("cpu"), other = open_device("cpu"), simulated = open_device("sim:hopper");
  const auto refusal_of = [](const Devices& devices) {
    try {
      (void)all_reduce_group(devices);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  expect_one_line(refusal_of({}), "needs at least two");
  expect_one_line(refusal_of({cpu}), "needs at least two");
  expect_one_line(refusal_of({cpu, other}), "cpu has no sums across devices: they are made by NCCL, between GPUs");
  EXPECT_THROW((void)all_reduce_group(Devices{simulated, cpu}), Unsupported);
}

TEST(Devices, TheCpuAndTheSimulatorsAreAlwaysThere) {
  std::set<std::string> names;
  for (const DeviceRow& row : known_devices()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " is listed twice";
    EXPECT_FALSE(row.about.empty()) << row.name;
    if (!row.absent.empty()) {
      expect_one_line(row.absent, "");
      EXPECT_THROW(open_device(row.name), Error);
      continue;
    }
    const auto device = open_device(row.name);
    EXPECT_EQ(device->name(), row.name);
    EXPECT_FALSE(device->describe().empty());
  }
  EXPECT_TRUE(names.contains("cpu"));
  EXPECT_TRUE(names.contains("sim:hopper"));
  EXPECT_TRUE(names.contains("cuda:0")) << "present, or absent with the reason";
}

TEST(Devices, AnUnknownNameIsAnErrorThatNamesTheKnownOnes) {
  try {
    open_device("cuda:9");
    FAIL();
  } catch (const Error& error) {
    expect_one_line(error.what(), "unknown device 'cuda:9'; ");
    expect_one_line(error.what(), " known: cpu, sim:volta");
  }
}

TEST(Devices, AHostDeviceHasALedgerOfItsOwn) {
  const auto a = open_device("cpu"), b = oracle_device(*a);
  const Tensor tensor(*a, {16}, DType::f32);
  EXPECT_EQ(a->memory().live().total, 64u);
  EXPECT_EQ(b->memory().live().total, 0u);
}

TEST(Devices, TheBestDeviceCanBeOpened) { EXPECT_EQ(open_device(best_device().name)->name(), best_device().name); }

TEST(HostDevice, MemoryIsAligned) {
  const auto cpu = open_device("cpu");
  for (const int64_t n : {1, 3, 1000}) {
    const Tensor tensor(*cpu, {n}, DType::u8);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0u);
  }
}

TEST(HostDevice, TooMuchMemoryIsAnErrorThatNamesTheSize) {
#if HALFMARK_SANITIZED
  GTEST_SKIP() << "a sanitizer aborts the program where an allocator would fail";
#endif
  const auto cpu = open_device("cpu");
  try {
    const Tensor huge(*cpu, {int64_t{1} << 50}, DType::f64);
    FAIL();
  } catch (const Error& error) {
    expect_one_line(error.what(), "9007199254740992 bytes");
  }
  EXPECT_EQ(cpu->memory().live().total, 0u);
}

TEST(HostDevice, TimeIsThatOfTheWork) {
  const auto cpu = open_device("cpu");
  int runs = 0;
  EXPECT_GE(cpu->time([&] { ++runs; }), 0);
  EXPECT_EQ(runs, 1);
  const double walk = cpu->time([&] { cpu->evict_caches(); });
  EXPECT_GT(walk, 1e-5) << "writing more than the last-level cache takes measurable time";
}

TEST(EmulationScope, CoversTheScratchOfEmulatedRows) {
  const auto device = open_device("cpu");
  Tensor a = Tensor::zeros(*device, {64, 64}, DType::f16), b = Tensor::zeros(*device, {64, 64}, DType::f16);
  Tensor out(*device, {64, 64}, DType::f16);
  const Matmul op{.a = a, .b = b, .out = out, .math = {.multiply = kFp16}};
  if (chosen(op).speed == Speed::real) GTEST_SKIP() << "this processor multiplies fp16 itself";
  device->memory().reset_peak();
  const size_t tensors = device->memory().live().total;
  run(op);
  EXPECT_EQ(device->memory().live().by_purpose[static_cast<size_t>(Purpose::workspace)], 0u);
  EXPECT_EQ(device->memory().tensor_peak().total, tensors);
  EXPECT_GT(device->memory().peak().total, tensors);
}

}  // namespace
}  // namespace halfmark::kernels
