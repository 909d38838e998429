// The stand-in of NVML, loaded as programs load it.
#include <dlfcn.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace halfmark::kernels::software_gpu {
namespace {

class Nvml : public testing::Test {
 protected:
  void SetUp() override {
    setenv("HALFMARK_SOFTWARE_GPU", "sm_90,sm_75", 1), unsetenv("HALFMARK_SOFTWARE_NVML");
    ASSERT_NE(library_ = dlopen(HALFMARK_SOFTWARE_NVML_FILE, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  }
  void TearDown() override {
    while (call("nvmlShutdown") == 0) {
    }
    dlclose(library_);
    unsetenv("HALFMARK_SOFTWARE_GPU"), unsetenv("HALFMARK_SOFTWARE_NVML"), unsetenv("HALFMARK_SOFTWARE_GPU_FAIL");
  }
  template <class... Arguments>
  int call(const char* function, Arguments... arguments) const {
    const auto pointer = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, function));
    EXPECT_NE(pointer, nullptr) << function;
    return pointer ? pointer(arguments...) : -1;
  }
  void* library_ = nullptr;
};

TEST_F(Nvml, NeedsInitialisation) {
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), 1);
  EXPECT_EQ(call("nvmlShutdown"), 1);
  unsetenv("HALFMARK_SOFTWARE_GPU");
  EXPECT_EQ(call("nvmlInit_v2"), 9);
  setenv("HALFMARK_SOFTWARE_GPU", "sm_90,sm_75", 1);
  EXPECT_EQ(call("nvmlInit_v2"), 0);
  EXPECT_EQ(call("nvmlDeviceGetCount_v2", &count), 0);
  EXPECT_EQ(count, 2u);
}

TEST_F(Nvml, DevicesAndTexts) {
  ASSERT_EQ(call("nvmlInit_v2"), 0);
  void *device = nullptr, *again = nullptr;
  EXPECT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 2u, &device), 2);
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 1u, &device), 0);
  char text[96] = "";
  EXPECT_EQ(call("nvmlDeviceGetName", device, text, 5u), 7);
  ASSERT_EQ(call("nvmlDeviceGetName", device, text, 96u), 0);
  EXPECT_STREQ(text, "software GPU sm_75");
  ASSERT_EQ(call("nvmlDeviceGetUUID", device, text, 80u), 0);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(text), &again), 0);
  EXPECT_EQ(again, device);
  EXPECT_EQ(call("nvmlDeviceGetHandleByUUID", static_cast<const char*>("GPU-0"), &again), 6);
  EXPECT_EQ(call("nvmlDeviceGetUUID", static_cast<void*>(nullptr), text, 80u), 2);
}

TEST_F(Nvml, NumbersChangeByTheEnvironment) {
  ASSERT_EQ(call("nvmlInit_v2"), 0);
  void* device = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0u, &device), 0);
  unsigned value = 0;
  unsigned long long wide = 1;
  ASSERT_EQ(call("nvmlDeviceGetClockInfo", device, 1, &value), 0);
  EXPECT_EQ(value, 1980u);
  EXPECT_EQ(call("nvmlDeviceGetClockInfo", device, 4, &value), 2);
  ASSERT_EQ(call("nvmlDeviceGetCurrentClocksEventReasons", device, &wide), 0);
  EXPECT_EQ(wide, 0u);
  setenv("HALFMARK_SOFTWARE_NVML", "throttle=4,sm_clock=1200,processes=2,mig=1,ecc=0", 1);
  ASSERT_EQ(call("nvmlDeviceGetClockInfo", device, 1, &value), 0);
  EXPECT_EQ(value, 1200u);
  ASSERT_EQ(call("nvmlDeviceGetMaxClockInfo", device, 1, &value), 0);
  EXPECT_EQ(value, 1980u);
  ASSERT_EQ(call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &wide), 0);
  EXPECT_EQ(wide, 4u);
  unsigned pending = 0;
  ASSERT_EQ(call("nvmlDeviceGetMigMode", device, &value, &pending), 0);
  EXPECT_EQ(value, 1u);
  EXPECT_EQ(call("nvmlDeviceGetTotalEccErrors", device, 0, 0, &wide), 3);
  unsigned count = 0;
  EXPECT_EQ(call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, static_cast<void*>(nullptr)), 7);
  EXPECT_EQ(count, 2u);
  struct {
    unsigned version;
    unsigned long long numbers[4];
  } memory{};
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device, static_cast<void*>(&memory)), 25);
  memory.version = sizeof memory | 2u << 24;
  EXPECT_EQ(call("nvmlDeviceGetMemoryInfo_v2", device, static_cast<void*>(&memory)), 0);
  EXPECT_GT(memory.numbers[0], 0u);
}

TEST_F(Nvml, EnergyGrows) {
  ASSERT_EQ(call("nvmlInit_v2"), 0);
  void* device = nullptr;
  ASSERT_EQ(call("nvmlDeviceGetHandleByIndex_v2", 0u, &device), 0);
  setenv("HALFMARK_SOFTWARE_NVML", "power=4000000000", 1);  // so that a microsecond is 4 J
  unsigned long long before = 0, after = 0;
  ASSERT_EQ(call("nvmlDeviceGetTotalEnergyConsumption", device, &before), 0);
  for (int i = 0; i < 1000 && after <= before; ++i)
    ASSERT_EQ(call("nvmlDeviceGetTotalEnergyConsumption", device, &after), 0);
  EXPECT_GT(after, before);
}

}  // namespace
}  // namespace halfmark::kernels::software_gpu
