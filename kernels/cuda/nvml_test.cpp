// What is said of a GPU by NVML, with the stand-in of the software GPU (software_gpu/libraries/nvml).
#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/gpu_testing.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr const char* kGpuUuid = "00000000-5057-4750-8000-000000000001";
constexpr const char* kInstanceUuid = "00000000-5057-4750-8000-000000001001";

// A variable of the environment for the time of a test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

class CudaNvml : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    for (const auto& place : {folder / "software_gpu", folder})
      if (file_.empty() && std::filesystem::exists(place / "libnvidia-ml.so.1")) file_ = place / "libnvidia-ml.so.1";
    if (file_.empty()) GTEST_SKIP() << "no stand-in of NVML in " << folder;
  }
  Nvml nvml(const std::string& uuid = kGpuUuid, const Nvml::Lookup& lookup = {}) const {
    return Nvml(uuid, file_.c_str(), lookup);
  }
  // One change of the numbers, at every call.
  DeviceState state_with(const std::string& numbers) const {
    const Variable changed("HALFMARK_SOFTWARE_NVML", numbers);
    return nvml().state();
  }
  static std::map<std::string, std::string> facts_of(const Nvml& nvml) {
    const auto facts = nvml.facts();
    return {facts.begin(), facts.end()};
  }

 private:
  std::string file_;
  Variable devices_{"HALFMARK_SOFTWARE_GPU", "sm_75,sm_90"}, numbers_{"HALFMARK_SOFTWARE_NVML", ""};
};

using Names = std::vector<std::string>;

TEST_F(CudaNvml, GivesEachNumberInItsUnit) {
  const DeviceState state = state_with(
      "sm_clock=1305,max_sm_clock=1980,memory_clock=2619,temperature=61,power=412500,processes=2,ecc_uncorrected=7,"
      "ecc_corrected=9");
  EXPECT_EQ(state.core_clock, 1305);
  EXPECT_EQ(state.most_core_clock, 1980);
  EXPECT_EQ(state.memory_clock, 2619);
  EXPECT_EQ(state.temperature, 61);
  EXPECT_EQ(state.power, 412.5);
  EXPECT_EQ(state.other_processes, 2);
  EXPECT_EQ(state.uncorrected_errors, 7);
  EXPECT_EQ(state.slowed_by, Names{});
  EXPECT_TRUE(std::isfinite(state.energy));
}

TEST_F(CudaNvml, GivesEnergyInJoules) {
  EXPECT_EQ(state_with("energy=8000000123456").energy, 8000000123.456) << "more than 32 bits";
  EXPECT_TRUE(std::isnan(state_with("energy=none").energy));
}

TEST_F(CudaNvml, NamesTheReasonsThatSlowTheGpuAndNoOthers) {
  EXPECT_EQ(state_with("throttle=0").slowed_by, Names{});
  for (const int bit : {0x1, 0x2, 0x100}) EXPECT_EQ(state_with("throttle=" + std::to_string(bit)).slowed_by, Names{});
  const std::pair<int, const char*> slowing[] = {{0x4, "power cap"},
                                                 {0x8, "hardware slowdown"},
                                                 {0x10, "sync boost"},
                                                 {0x20, "software thermal slowdown"},
                                                 {0x40, "hardware thermal slowdown"},
                                                 {0x80, "power brake"}};
  for (const auto& [bit, name] : slowing)
    EXPECT_EQ(state_with("throttle=" + std::to_string(bit)).slowed_by, Names{name});
  EXPECT_EQ(state_with("throttle=73").slowed_by, (Names{"hardware slowdown", "hardware thermal slowdown"}));
}

TEST_F(CudaNvml, ReadsTheStateAnewEachTime) {
  const Nvml one = nvml();
  const Variable changed("HALFMARK_SOFTWARE_NVML", "throttle=4@3-4,sm_clock=1200@2-");
  std::vector<size_t> reasons;
  std::vector<double> clocks;
  for (int i = 0; i < 6; ++i) {
    const DeviceState state = one.state();
    reasons.push_back(state.slowed_by.size()), clocks.push_back(state.core_clock);
  }
  EXPECT_EQ(reasons, (std::vector<size_t>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(clocks, (std::vector<double>{1980, 1200, 1200, 1200, 1200, 1200}));
}

TEST_F(CudaNvml, GivesNaNForWhatTheGpuDoesNotSupport) {
  const std::pair<const char*, double DeviceState::*> numbers[] = {
      {"sm_clock", &DeviceState::core_clock},
      {"max_sm_clock", &DeviceState::most_core_clock},
      {"memory_clock", &DeviceState::memory_clock},
      {"temperature", &DeviceState::temperature},
      {"power", &DeviceState::power},
      {"processes", &DeviceState::other_processes},
      {"ecc_uncorrected", &DeviceState::uncorrected_errors}};
  for (const auto& [missing, member] : numbers) {
    const DeviceState state = state_with(std::string(missing) + "=none,throttle=4");
    for (const auto& [name, other] : numbers) EXPECT_EQ(std::isnan(state.*other), name == missing) << missing << name;
    EXPECT_EQ(std::isnan(state.energy), missing == std::string("power")) << "the stand-in computes it from the power";
    EXPECT_EQ(state.slowed_by, Names{"power cap"});
  }
  EXPECT_EQ(state_with("throttle=none").slowed_by, Names{});
}

TEST_F(CudaNvml, GivesNaNForAFunctionThatTheLibraryDoesNotHave) {
  const auto without = [&](const std::string& missing) {
    return nvml(kGpuUuid, [missing](void* library, const char* function) {
      return missing == function ? nullptr : dlsym(library, function);
    });
  };
  const std::pair<const char*, double DeviceState::*> numbers[] = {
      {"nvmlDeviceGetClockInfo", &DeviceState::core_clock},
      {"nvmlDeviceGetMaxClockInfo", &DeviceState::most_core_clock},
      {"nvmlDeviceGetTemperature", &DeviceState::temperature},
      {"nvmlDeviceGetPowerUsage", &DeviceState::power},
      {"nvmlDeviceGetTotalEnergyConsumption", &DeviceState::energy},
      {"nvmlDeviceGetComputeRunningProcesses_v3", &DeviceState::other_processes},
      {"nvmlDeviceGetTotalEccErrors", &DeviceState::uncorrected_errors}};
  for (const auto& [missing, member] : numbers) {
    const Nvml one = without(missing);
    EXPECT_EQ(one.absent(), "");
    const DeviceState state = one.state();
    for (const auto& [name, other] : numbers) EXPECT_EQ(std::isnan(state.*other), name == missing) << missing << name;
  }
  const Variable changed("HALFMARK_SOFTWARE_NVML", "throttle=4");
  EXPECT_EQ(without("nvmlDeviceGetCurrentClocksEventReasons").state().slowed_by, Names{"power cap"}) << "the old name";
  EXPECT_EQ(facts_of(without("nvmlDeviceGetEnforcedPowerLimit")).at("power limit"), "not supported");
  EXPECT_EQ(facts_of(without("nvmlDeviceGetMigMode")).at("mig"), "not supported");
  EXPECT_EQ(without("nvmlInit_v2").absent(), "NVML has no function nvmlInit_v2");
  EXPECT_EQ(without("nvmlDeviceGetHandleByUUID").absent().find("NVML has no function nvmlDeviceGetHandleByUUID"), 0u);
}

TEST_F(CudaNvml, SaysWhyItIsAbsent) {
  const Nvml none(kGpuUuid, "libnvidia-ml-of-nobody.so.1");
  EXPECT_EQ(none.absent().find("NVML cannot be loaded: libnvidia-ml-of-nobody.so.1: "), 0u) << none.absent();
  EXPECT_EQ(none.facts(), (std::vector<std::pair<std::string, std::string>>{{"nvml", none.absent()}}));
  EXPECT_TRUE(std::isnan(none.state().core_clock));
  EXPECT_TRUE(none.state().slowed_by.empty());
  EXPECT_EQ(nvml("00000000-0000-0000-0000-000000000000").absent(),
            "nvmlDeviceGetHandleByUUID: Not Found (GPU-00000000-0000-0000-0000-000000000000)");
  const Variable no_device("HALFMARK_SOFTWARE_GPU", "");
  EXPECT_EQ(nvml().absent(), "nvmlInit_v2: Driver Not Loaded");
}

TEST_F(CudaNvml, GivesFactsThatStay) {
  EXPECT_EQ(nvml().facts(), (std::vector<std::pair<std::string, std::string>>{
                                {"uuid", std::string("GPU-") + kGpuUuid}, {"mig", "off"}, {"power limit", "700 W"}}));
  const Variable changed("HALFMARK_SOFTWARE_NVML", "mig=none,power_limit=399600");
  const auto facts = facts_of(nvml());
  EXPECT_EQ(facts.at("mig"), "not supported");
  EXPECT_EQ(facts.at("power limit"), "400 W");
}

TEST_F(CudaNvml, FindsAnInstanceOfADividedGpuAndGivesItNoEnergyOfOthers) {
  EXPECT_NE(nvml(kInstanceUuid).absent(), "");
  const Variable changed("HALFMARK_SOFTWARE_NVML", "mig=1,throttle=4,processes=3");
  const Nvml instance = nvml(kInstanceUuid);
  EXPECT_EQ(instance.absent(), "");
  EXPECT_EQ(facts_of(instance).at("uuid"), std::string("MIG-") + kInstanceUuid);
  EXPECT_EQ(facts_of(instance).at("mig"), "on");
  const DeviceState state = instance.state();
  EXPECT_EQ(state.core_clock, 1980);
  EXPECT_EQ(state.slowed_by, Names{"power cap"});
  EXPECT_EQ(state.other_processes, 3);
  EXPECT_TRUE(std::isnan(state.power) && std::isnan(state.energy));
}

TEST_F(CudaNvml, DoesNotCountThisProcessAmongTheOthers) {
  EXPECT_EQ(state_with("own=" + std::to_string(::getpid())).other_processes, 0);
  EXPECT_EQ(state_with("processes=2,own=" + std::to_string(::getpid())).other_processes, 2);
  EXPECT_EQ(state_with("processes=100").other_processes, 100) << "more than the first try has room for";
}

TEST_F(CudaNvml, DoesNotCountTheSameProgramThatWaitsForThisProcess) {
  EXPECT_EQ(state_with("own=" + std::to_string(::getppid())).other_processes, 1) << "another program";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(state_with("processes=2,own=" + std::to_string(::getppid())).other_processes == 2 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CudaNvml, KnowsThisProcessByAnotherNumberIfItAppearsWithItsContext) {
  // Asked for when the object is made, when the context exists, and for each state.
  const Variable changed("HALFMARK_SOFTWARE_NVML", "processes=1,own=4242@2-");
  Nvml one = nvml();
  one.find_own_process();
  EXPECT_EQ(one.state().other_processes, 1);
  Nvml later = nvml();  // the context exists already
  const Variable both("HALFMARK_SOFTWARE_NVML", "processes=1,own=4242");
  later.find_own_process();
  EXPECT_EQ(later.state().other_processes, 1);
}

TEST_F(CudaNvml, CountsOneOfTwoProcessesThatAppearedTogether) {
  const Variable changed("HALFMARK_SOFTWARE_NVML", "processes=0@1-1,processes=1,own=4343@2-");
  Nvml one = nvml();
  one.find_own_process();
  EXPECT_EQ(one.state().other_processes, 1);
  // Another GPU shows which of the two it is.
  const Variable before("HALFMARK_SOFTWARE_NVML", "processes=1,own=0");
  Nvml second = nvml();
  const Variable after("HALFMARK_SOFTWARE_NVML", "processes=1,own=4343");
  second.find_own_process();
  const Variable alone("HALFMARK_SOFTWARE_NVML", "processes=1");
  EXPECT_EQ(second.state().other_processes, 1);
}

TEST(CudaUuid, IsWrittenAsNvmlWritesIt) {
  std::array<char, 16> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(17 * i);
  EXPECT_EQ(uuid_text(bytes), "00112233-4455-6677-8899-aabbccddeeff");
}

}  // namespace
}  // namespace halfmark::kernels::cuda

namespace halfmark::kernels {
namespace {

TEST_F(Gpu, TellsItsIdentityAndItsStateOrWhyNot) {
  std::map<std::string, std::string> facts;
  for (const auto& [name, value] : gpu().describe()) facts[name] = value;
  const std::optional<DeviceState> state = gpu().state();
  ASSERT_EQ(state.has_value(), facts.count("uuid") == 1);
  ASSERT_NE(state.has_value(), facts.count("nvml") == 1);
  if (!state) GTEST_SKIP() << facts.at("nvml");
  EXPECT_TRUE(facts.at("uuid").starts_with("GPU-") || facts.at("uuid").starts_with("MIG-")) << facts.at("uuid");
  EXPECT_GT(state->core_clock, 0);
  EXPECT_LE(state->core_clock, state->most_core_clock);
  if (gpu().numerics().empty()) return;
  ::setenv("HALFMARK_SOFTWARE_NVML", "throttle=4,processes=1", 1);
  const std::optional<DeviceState> slowed = gpu().state();
  ::unsetenv("HALFMARK_SOFTWARE_NVML");
  ASSERT_TRUE(slowed);
  EXPECT_EQ(slowed->slowed_by, std::vector<std::string>{"power cap"});
  EXPECT_EQ(slowed->other_processes, 1);
}

}  // namespace
}  // namespace halfmark::kernels
