// Names, numbers and structs are those of nvml.h 12.9 (PyPI: nvidia-nvml-dev-cu12), which toolkits need not contain.
#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

namespace halfmark::kernels::cuda {
namespace {

constexpr int kNvmlMissing = -1;                   // the library has no such function
constexpr int kNvmlSuccess = 0, kNvmlSmall = 7;    // nvmlReturn_t
constexpr int kSmClock = 1, kMemoryClock = 2;      // nvmlClockType_t
constexpr int kCoreSensor = 0;                     // nvmlTemperatureSensors_t
constexpr int kUncorrected = 1, kSinceDriver = 0;  // nvmlMemoryErrorType_t, nvmlEccCounterType_t

// nvmlClocksEventReason...: those for which a clock is lower than the work allows. Not among them: 0x1, idle; 0x2, clocks
// that somebody has set; 0x100, clocks of the display.
struct SlowingReason {
  unsigned long long bit;
  const char* name;
};
constexpr SlowingReason kSlowingReasons[] = {
    {0x4, "power cap"},                   // SwPowerCap
    {0x8, "hardware slowdown"},           // HwSlowdown: heat, power brake or a fast rise of power
    {0x10, "sync boost"},                 // SyncBoost: another GPU of its group is slow
    {0x20, "software thermal slowdown"},  // SwThermalSlowdown
    {0x40, "hardware thermal slowdown"},  // HwThermalSlowdown
    {0x80, "power brake"},                // HwPowerBrakeSlowdown
};

struct ListedProcess {  // nvmlProcessInfo_t of _v2 and _v3
  unsigned number;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

// Numbers that NVML gives to this process: one, or several of which one is right. The same for all GPUs.
struct OwnNumbers {
  std::mutex mutex;
  std::set<unsigned> numbers;
};
OwnNumbers& own_numbers() {
  static auto* own = new OwnNumbers;
  return *own;
}

std::set<unsigned> common_of(const std::set<unsigned>& a, const std::set<unsigned>& b) {
  std::set<unsigned> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

// The parent of a process, the fourth field of /proc/PID/stat; the second is its name in parentheses. 0: unknown.
unsigned parent_of(unsigned process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 4 > line.size()) return 0;
  return static_cast<unsigned>(std::strtoul(line.c_str() + name_end + 4, nullptr, 10));
}

struct UsedMemory {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total, reserved, free, used;
};

// The processes above this one that run the same program: with --isolate and --processes they have started this process
// and wait for it. They keep their context, and compute nothing.
std::set<unsigned> waiting_parents() {
  const auto program_of = [](const std::string& process) {
    std::error_code error;
    const auto path = std::filesystem::read_symlink("/proc/" + process + "/exe", error);
    return error ? std::string() : path.string();
  };
  const std::string own = program_of("self");
  std::set<unsigned> parents;
  auto parent = static_cast<unsigned>(::getppid());
  while (parent > 1 && !own.empty() && program_of(std::to_string(parent)) == own && parents.insert(parent).second)
    parent = parent_of(parent);
  return parents;
}

}  // namespace

std::string uuid_text(std::span<const char, 16> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += kDigits[byte >> 4], text += kDigits[byte & 15];
  }
  return text;
}

// `arguments` must have the types of the function's parameters: handles are void*.
template <class... Arguments>
int Nvml::call(const char* function, Arguments... arguments) const {
  const auto found = reinterpret_cast<int (*)(Arguments...)>(lookup_(library_, function));
  return found ? found(arguments...) : kNvmlMissing;
}

// What a function with a result of type T says of the GPU; NaN: nothing.
template <class T, class... Arguments>
double Nvml::number(const char* function, Arguments... arguments) const {
  T value = 0;
  const int status = call(function, gpu_, arguments..., &value);
  return status == kNvmlSuccess ? static_cast<double>(value) : DeviceState::kUnknown;
}

double Nvml::used_memory() const {
  if (!instance_) return DeviceState::kUnknown;
  UsedMemory memory{};
  memory.version = sizeof memory | 2u << 24;  // NVML_STRUCT_VERSION
  const int status = call("nvmlDeviceGetMemoryInfo_v2", instance_, &memory);
  return status == kNvmlSuccess ? static_cast<double>(memory.used) : DeviceState::kUnknown;
}

std::string Nvml::failure(const char* function, int status) const {
  if (status == kNvmlMissing) return std::string("NVML has no function ") + function;
  const auto text = reinterpret_cast<const char* (*)(int)>(lookup_(library_, "nvmlErrorString"));
  const std::string words = text ? text(status) : "status " + std::to_string(status);
  return std::string(function) + ": " + words;
}

Nvml::Nvml(const std::string& uuid, const char* file, Lookup lookup)
    : lookup_(lookup ? std::move(lookup) : Lookup(&dlsym)) {
  open(uuid, file);
  if (!absent_.empty()) {
    close();
    return;
  }
  before_ = processes();
  parents_ = waiting_parents();
}

Nvml::~Nvml() { close(); }

void Nvml::open(const std::string& uuid, const char* file) {
  library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library_) {
    const char* error = dlerror();
    absent_ = std::string("NVML cannot be loaded: ") + (error ? error : file);
    return;
  }
  if (const int status = call("nvmlInit_v2"); status != kNvmlSuccess) {
    absent_ = failure("nvmlInit_v2", status);
    return;
  }
  initialised_ = true;
  for (const char* kind : {"GPU-", "MIG-"}) {
    uuid_ = kind + uuid;
    const int status = call("nvmlDeviceGetHandleByUUID", uuid_.c_str(), &instance_);
    if (status == kNvmlSuccess) {
      absent_.clear();
      // NVML says of an instance which processes it runs. Clocks and heat are those of the GPU.
      void* whole = nullptr;
      const bool is_part = std::string_view(kind) == "MIG-" &&
                           call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance_, &whole) == kNvmlSuccess;
      gpu_ = is_part ? whole : instance_;
      return;
    }
    if (absent_.empty()) absent_ = failure("nvmlDeviceGetHandleByUUID", status) + " (" + uuid_ + ")";
  }
}

void Nvml::close() noexcept {
  if (initialised_) (void)call("nvmlShutdown");
  if (library_) dlclose(library_);
  initialised_ = false, library_ = nullptr;
}

std::vector<std::pair<std::string, std::string>> Nvml::facts() const {
  if (!absent_.empty()) return {{"nvml", absent_}};
  unsigned milliwatts = 0;
  const int status = call("nvmlDeviceGetEnforcedPowerLimit", gpu_, &milliwatts);
  return {{"uuid", uuid_},
          {"mig", mig()},
          {"power limit", status == kNvmlSuccess ? std::to_string((milliwatts + 500) / 1000) + " W" : "not supported"}};
}

std::string Nvml::mig() const {
  if (uuid_.starts_with("MIG-")) return "on";
  unsigned current = 0, pending = 0;
  const int status = call("nvmlDeviceGetMigMode", gpu_, &current, &pending);
  return status != kNvmlSuccess ? "not supported" : current ? "on" : "off";
}

std::optional<std::set<unsigned>> Nvml::processes() const {
  std::vector<ListedProcess> listed(64);
  for (const char* function : {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}) {
    int status = kNvmlSmall;
    for (int attempt = 0; attempt < 3 && status == kNvmlSmall; ++attempt) {  // it may grow while it is read
      auto count = static_cast<unsigned>(listed.size());
      status = call(function, instance_, &count, listed.data());
      if (status == kNvmlSmall) listed.resize(2 * std::max<size_t>(count, listed.size()));
      if (status != kNvmlSuccess) continue;
      std::set<unsigned> numbers;
      for (unsigned i = 0; i < std::min<size_t>(count, listed.size()); ++i) numbers.insert(listed[i].number);
      return numbers;
    }
    if (status != kNvmlMissing) break;
  }
  return {};
}

void Nvml::find_own_process() {
  const auto now = absent_.empty() ? processes() : std::nullopt;
  if (!now || !before_) return;
  std::set<unsigned> appeared;
  std::set_difference(now->begin(), now->end(), before_->begin(), before_->end(),
                      std::inserter(appeared, appeared.end()));
  if (const auto own = static_cast<unsigned>(::getpid()); now->contains(own)) appeared = {own};
  if (appeared.empty()) return;  // NVML shows this process under no number, or it had a context before
  OwnNumbers& own = own_numbers();
  const std::lock_guard lock(own.mutex);
  const std::set<unsigned> both = common_of(own.numbers, appeared);
  own.numbers = both.empty() ? appeared : both;
}

double Nvml::other_processes() const {
  const auto listed = processes();
  if (!listed) return DeviceState::kUnknown;
  OwnNumbers& own = own_numbers();
  const std::lock_guard lock(own.mutex);
  std::set<unsigned> ours = common_of(*listed, own.numbers);
  if (const auto number = static_cast<unsigned>(::getpid()); listed->contains(number)) ours.insert(number);
  std::set<unsigned> waiting = common_of(*listed, parents_);
  for (const unsigned number : ours) waiting.erase(number);
  const size_t known = std::min<size_t>(ours.size(), 1) + waiting.size();  // of several numbers one is ours
  return static_cast<double>(listed->size() - known);
}

std::vector<std::string> Nvml::slowed_by() const {
  unsigned long long bits = 0;
  // The name until driver 535, which later ones keep.
  if (call("nvmlDeviceGetCurrentClocksEventReasons", gpu_, &bits) != kNvmlSuccess &&
      call("nvmlDeviceGetCurrentClocksThrottleReasons", gpu_, &bits) != kNvmlSuccess)
    return {};
  std::vector<std::string> names;
  for (const SlowingReason& reason : kSlowingReasons)
    if (bits & reason.bit) names.emplace_back(reason.name);
  return names;
}

DeviceState Nvml::state() const {
  DeviceState state;
  if (!absent_.empty()) return state;
  state.core_clock = number<unsigned>("nvmlDeviceGetClockInfo", kSmClock);
  state.most_core_clock = number<unsigned>("nvmlDeviceGetMaxClockInfo", kSmClock);
  state.memory_clock = number<unsigned>("nvmlDeviceGetClockInfo", kMemoryClock);
  state.temperature = number<unsigned>("nvmlDeviceGetTemperature", kCoreSensor);
  if (instance_ == gpu_) {  // otherwise they include what other instances use
    state.power = number<unsigned>("nvmlDeviceGetPowerUsage") / 1000;
    state.energy = number<unsigned long long>("nvmlDeviceGetTotalEnergyConsumption") / 1000;
  }
  state.other_processes = other_processes();
  state.uncorrected_errors = number<unsigned long long>("nvmlDeviceGetTotalEccErrors", kUncorrected, kSinceDriver);
  state.slowed_by = slowed_by();
  return state;
}

}  // namespace halfmark::kernels::cuda
