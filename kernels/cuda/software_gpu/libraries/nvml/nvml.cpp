// libnvidia-ml.so.1 for tests: the functions of NVML that say under which conditions something was measured. It is a
// library of its own, because programs load NVML at run time.
//
// Statuses, sizes and rules are those of nvml.h 13.0 (comments at each function); the numbers are made up. Devices are
// those of HALFMARK_SOFTWARE_GPU ("sm_90,sm_75"). HALFMARK_SOFTWARE_NVML changes numbers at every call, for all devices:
// "sm_clock=1200,throttle=4"; its names are in kNumbers. "power=none": the GPU does not support it. "throttle=4@3-5": from
// the third to the fifth time that it is asked for since the variable has this value ("@3-": from the third on); the first
// that applies counts.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/software_gpu/streams.h"

namespace halfmark::kernels::software_gpu::nvml {
namespace {

// nvmlReturn_t.
constexpr int kSuccess = 0, kUninitialized = 1, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7,
              kNoDriver = 9, kVersionMismatch = 25;

struct StatusText {
  int status;
  const char* text;
};
constexpr StatusText kTexts[] = {
    {kSuccess, "Success"},
    {kUninitialized, "Uninitialized"},
    {kInvalid, "Invalid Argument"},
    {kNotSupported, "Not Supported"},
    {kNotFound, "Not Found"},
    {kInsufficientSize, "Insufficient Size"},
    {kNoDriver, "Driver Not Loaded"},
    {kVersionMismatch, "Argument Version Mismatch"},
};

struct Number {
  std::string_view name;
  uint64_t value;
};
constexpr Number kNumbers[] = {
    {"sm_clock", 1980},
    {"memory_clock", 2619},  // MHz
    {"max_sm_clock", 1980},
    {"max_memory_clock", 2619},
    {"power", 350000},
    {"power_limit", 700000},  // mW
    {"energy", 0},            // mJ; 0: grows with the power
    {"temperature", 45},      // degrees Celsius
    {"throttle", 0},          // nvmlClocksEventReason...
    {"ecc", 1},
    {"ecc_corrected", 0},
    {"ecc_uncorrected", 0},
    {"processes", 0},  // of others: 100000, 100001, ...
    {"own", 0},        // the number by which the process that asks is listed too; 0: it is not
    {"mig", 0},
    {"memory_used", 0},  // bytes
};
constexpr uint64_t kNone = ~uint64_t{0};  // not supported

std::string changes;                                 // the variable when a number was asked for last
std::map<std::string, uint64_t, std::less<>> asked;  // how often each number was asked for since it has this value

// Whether the `nth` time is in "3-5" or "3-".
bool is_within(const std::string& times, uint64_t nth) {
  char* end = nullptr;
  const uint64_t first = std::strtoull(times.c_str(), &end, 10);
  const std::string last = *end == '-' ? end + 1 : end;
  return nth >= first && (last.empty() || nth <= std::strtoull(last.c_str(), nullptr, 10));
}

uint64_t number(std::string_view name) {
  const char* text = std::getenv("HALFMARK_SOFTWARE_NVML");
  std::string rest = text ? text : "";
  if (rest != changes) changes = rest, asked.clear();
  const uint64_t nth = ++asked.try_emplace(std::string(name)).first->second;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string change = rest.substr(0, comma);
    rest.erase(0, comma + 1);
    const size_t equals = change.find('='), at = change.find('@');
    if (equals == std::string::npos || change.substr(0, equals) != name) continue;
    if (at != std::string::npos && !is_within(change.substr(at + 1), nth)) continue;
    const std::string value = change.substr(equals + 1, at == std::string::npos ? at : at - equals - 1);
    return value == "none" ? kNone : std::strtoull(value.c_str(), nullptr, 10);
  }
  for (const Number& row : kNumbers)
    if (row.name == name) return row.value;
  return 0;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  const char* text = std::getenv("HALFMARK_SOFTWARE_GPU");
  std::string rest = text ? text : "";
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    names.push_back(rest.substr(0, comma));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return names;
}

int initialised = 0;  // nvmlInit is counted, as in NVML

// A handle is the device's number plus one. With mig=1 each device has one MIG instance, with kInstance added.
constexpr uintptr_t kInstance = 0x1000;
bool is_device(const void* device) {
  const auto index = reinterpret_cast<uintptr_t>(device);
  return index >= 1 && index <= device_names().size();
}
bool is_instance(const void* device) {
  return number("mig") == 1 &&
         is_device(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(device) - kInstance));
}
// Of a GPU as in cudaDeviceProp of the software GPU.
std::string uuid(uintptr_t index) {
  char text[64];
  std::snprintf(text, sizeof text, "%s-00000000-5057-4750-8000-%012x", index > kInstance ? "MIG" : "GPU",
                static_cast<unsigned>(index));
  return text;
}

int give_text(const std::string& text, char* into, unsigned length) {
  if (!into) return kInvalid;
  if (length <= text.size()) return kInsufficientSize;
  std::memcpy(into, text.c_str(), text.size() + 1);
  return kSuccess;
}

template <class T>
int give(const void* device, T* into, uint64_t value) {
  if (!initialised) return kUninitialized;
  if (!is_device(device) || !into) return kInvalid;
  if (value == kNone) return kNotSupported;
  *into = static_cast<T>(value);
  return kSuccess;
}

// NVML_CLOCK_GRAPHICS 0, SM 1, MEM 2, VIDEO 3.
int give_clock(const void* device, int type, unsigned* into, std::string_view sm, std::string_view memory) {
  if (initialised && (type < 0 || type > 3)) return kInvalid;
  return give(device, into, number(type == 2 ? memory : sm));
}

struct Memory {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Process {  // nvmlProcessInfo_t
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

}  // namespace
}  // namespace halfmark::kernels::software_gpu::nvml

using namespace halfmark::kernels::software_gpu;
using namespace halfmark::kernels::software_gpu::nvml;

#define HM_CALLED(name) \
  if (const auto failure = called(name)) return *failure
#define HM_NUMBER_FUNCTION(function, type, name)  \
  int function(const void* device, type* value) { \
    HM_CALLED(#function);                         \
    return give(device, value, number(name));     \
  }

extern "C" {

int nvmlInit_v2() {
  HM_CALLED("nvmlInit_v2");
  if (device_names().empty()) return kNoDriver;
  ++initialised;
  return kSuccess;
}
int nvmlShutdown() {
  HM_CALLED("nvmlShutdown");
  if (!initialised) return kUninitialized;
  --initialised;
  return kSuccess;
}
const char* nvmlErrorString(int status) {
  for (const StatusText& row : kTexts)
    if (row.status == status) return row.text;
  return "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  HM_CALLED("nvmlSystemGetDriverVersion");
  return initialised ? give_text("software GPU", version, length) : kUninitialized;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  HM_CALLED("nvmlDeviceGetCount_v2");
  if (!initialised) return kUninitialized;
  if (!count) return kInvalid;
  *count = static_cast<unsigned>(device_names().size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  HM_CALLED("nvmlDeviceGetHandleByIndex_v2");
  if (!initialised) return kUninitialized;
  if (!device || index >= device_names().size()) return kInvalid;
  *device = reinterpret_cast<void*>(uintptr_t{index} + 1);
  return kSuccess;
}
int nvmlDeviceGetHandleByUUID(const char* text, void** device) {
  HM_CALLED("nvmlDeviceGetHandleByUUID");
  if (!initialised) return kUninitialized;
  if (!text || !device) return kInvalid;
  const bool mig = number("mig") == 1;
  for (uintptr_t index = 1; index <= device_names().size(); ++index)
    for (const uintptr_t handle : {index, index + kInstance})
      if (uuid(handle) == text && (handle == index || mig)) {
        *device = reinterpret_cast<void*>(handle);
        return kSuccess;
      }
  return kNotFound;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* instance, void** device) {
  HM_CALLED("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
  if (!initialised) return kUninitialized;
  if (!device || !is_instance(instance)) return kInvalid;
  *device = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(instance) - kInstance);
  return kSuccess;
}
int nvmlDeviceGetName(const void* device, char* name, unsigned length) {
  HM_CALLED("nvmlDeviceGetName");
  if (!initialised) return kUninitialized;
  if (!is_device(device)) return kInvalid;
  return give_text("software GPU " + device_names()[reinterpret_cast<uintptr_t>(device) - 1], name, length);
}
int nvmlDeviceGetUUID(const void* device, char* text, unsigned length) {
  HM_CALLED("nvmlDeviceGetUUID");
  if (!initialised) return kUninitialized;
  return is_device(device) ? give_text(uuid(reinterpret_cast<uintptr_t>(device)), text, length) : kInvalid;
}
int nvmlDeviceGetClockInfo(const void* device, int type, unsigned* clock) {
  HM_CALLED("nvmlDeviceGetClockInfo");
  return give_clock(device, type, clock, "sm_clock", "memory_clock");
}
int nvmlDeviceGetMaxClockInfo(const void* device, int type, unsigned* clock) {
  HM_CALLED("nvmlDeviceGetMaxClockInfo");
  return give_clock(device, type, clock, "max_sm_clock", "max_memory_clock");
}
HM_NUMBER_FUNCTION(nvmlDeviceGetPowerUsage, unsigned, "power")
HM_NUMBER_FUNCTION(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power_limit")
HM_NUMBER_FUNCTION(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "throttle")
HM_NUMBER_FUNCTION(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "throttle")
// Millijoules since the library was loaded, at the power of this moment.
int nvmlDeviceGetTotalEnergyConsumption(const void* device, unsigned long long* energy) {
  HM_CALLED("nvmlDeviceGetTotalEnergyConsumption");
  static const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  const uint64_t power = number("power"), fixed = number("energy");
  if (fixed || power == kNone) return give(device, energy, fixed ? fixed : kNone);
  return give(device, energy, static_cast<uint64_t>(passed.count() * static_cast<double>(power)));
}
int nvmlDeviceGetTemperature(const void* device, int sensor, unsigned* degrees) {
  HM_CALLED("nvmlDeviceGetTemperature");
  if (initialised && sensor != 0) return kInvalid;  // NVML_TEMPERATURE_GPU is the only one
  return give(device, degrees, number("temperature"));
}
int nvmlDeviceGetEccMode(const void* device, int* current, int* pending) {
  HM_CALLED("nvmlDeviceGetEccMode");
  const int status = give(device, current, number("ecc"));
  return status == kSuccess ? give(device, pending, number("ecc")) : status;
}
int nvmlDeviceGetTotalEccErrors(const void* device, int kind, int counter, unsigned long long* count) {
  HM_CALLED("nvmlDeviceGetTotalEccErrors");
  if (initialised && (kind < 0 || kind > 1 || counter < 0 || counter > 1)) return kInvalid;
  if (initialised && !number("ecc")) return kNotSupported;
  return give(device, count, number(kind == 0 ? "ecc_corrected" : "ecc_uncorrected"));
}
int nvmlDeviceGetMigMode(const void* device, unsigned* current, unsigned* pending) {
  HM_CALLED("nvmlDeviceGetMigMode");
  const int status = give(device, current, number("mig"));
  return status == kSuccess ? give(device, pending, number("mig")) : status;
}
int nvmlDeviceGetMemoryInfo_v2(const void* device, Memory* memory) {
  HM_CALLED("nvmlDeviceGetMemoryInfo_v2");
  if (!initialised) return kUninitialized;
  if ((!is_device(device) && !is_instance(device)) || !memory) return kInvalid;
  if (memory->version != (sizeof(Memory) | 2u << 24)) return kVersionMismatch;  // NVML_STRUCT_VERSION
  const uint64_t used = number("memory_used");
  if (used == kNone) return kNotSupported;
  memory->total = 8ull << 30, memory->reserved = 0, memory->used = used, memory->free = memory->total - used;
  return kSuccess;
}
// With room for none, null is allowed: the number is wanted.
int nvmlDeviceGetComputeRunningProcesses_v3(const void* device, unsigned* count, Process* processes) {
  HM_CALLED("nvmlDeviceGetComputeRunningProcesses_v3");
  if (!initialised) return kUninitialized;
  if ((!is_device(device) && !is_instance(device)) || !count || (*count && !processes)) return kInvalid;
  const uint64_t others = number("processes"), own = number("own");
  if (others == kNone) return kNotSupported;
  std::vector<unsigned> running;
  for (uint64_t i = 0; i < others; ++i) running.push_back(static_cast<unsigned>(100000 + i));
  if (own) running.push_back(static_cast<unsigned>(own));
  const bool fits = *count >= running.size();
  *count = static_cast<unsigned>(running.size());
  if (!fits) return kInsufficientSize;
  for (const unsigned process : running) *processes++ = {process, 1ull << 30, 0xFFFFFFFF, 0xFFFFFFFF};
  return kSuccess;
}

}  // extern "C"
