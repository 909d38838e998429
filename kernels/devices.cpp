// The one list of devices: the CPU, one simulator per tensor core, and the CUDA devices that the plugin reports as
// present or absent.
#include "kernels/devices.h"

#include <algorithm>
#include <exception>

#include "kernels/cpu/cpu_device.h"
#if HALFMARK_ONEDNN
#include "kernels/cpu/onednn/onednn.h"
#endif
#include "kernels/cpu/rows.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"
#include "kernels/plugin_file.h"
#include "kernels/sim/sim_device.h"

namespace halfmark::kernels {
namespace {

struct Machine {
  std::vector<DeviceRow> rows;
  const Plugin* plugin = nullptr;
  std::vector<std::unique_ptr<Device>> hardware;  // one object per GPU, shared by all callers
};

// A line "cuda:1: reason" describes that device. Any other line describes the first name that is not in the list yet.
DeviceRow absent_row(const Machine& machine, const std::string& line) {
  if (const size_t end = line.find(": "); line.starts_with("cuda:") && end != std::string::npos && end > 5)
    return {line.substr(0, end), "NVIDIA GPU", line.substr(end + 2)};
  for (int i = 0;; ++i) {
    const std::string name = "cuda:" + std::to_string(i);
    const auto same = [&](const DeviceRow& row) { return row.name == name; };
    if (std::none_of(machine.rows.begin(), machine.rows.end(), same)) return {name, "NVIDIA GPU", line};
  }
}

std::string text_of(const std::vector<std::pair<std::string, std::string>>& facts) {
  return facts.empty() ? "NVIDIA GPU" : facts.front().second;
}

Machine* look_around() {
  auto* machine = new Machine;
  machine->rows.push_back({"cpu", "this machine's processor", ""});
  for (const Architecture& architecture : architectures())
    machine->rows.push_back(
        {"sim:" + std::string(architecture.name),
         "the matrix instructions of " + std::string(architecture.about) + ", emulated bit for bit on the CPU", ""});

  const LoadedPlugin loaded = find_plugin();
  machine->plugin = loaded.plugin;
  std::vector<std::string> absent;
  if (loaded.plugin) {
    try {
      loaded.plugin->find(machine->hardware, absent);
    } catch (const std::exception& error) {
      absent.push_back(std::string("the CUDA plugin failed while listing devices: ") + error.what());
    }
  } else {
    absent.push_back(loaded.absent);
  }
  for (const auto& device : machine->hardware)
    machine->rows.push_back({device->name(), text_of(device->describe()), ""});
  for (const std::string& line : absent) machine->rows.push_back(absent_row(*machine, line));
  if (machine->hardware.empty() && absent.empty())
    machine->rows.push_back({"cuda:0", "NVIDIA GPU", "the CUDA plugin found no device"});
  return machine;
}

// Never destroyed: the plugin stays loaded, and the CUDA context
// may be destroyed before the program's static objects are.
Machine& machine() {
  static Machine* instance = look_around();
  return *instance;
}

}  // namespace

const std::vector<DeviceRow>& known_devices() { return machine().rows; }

std::shared_ptr<Device> open_device(const std::string& name) {
  const DeviceRow& row = named("device", machine().rows, name);
  if (!row.absent.empty()) throw Error("device " + name + " is absent: " + row.absent);
  if (name == "cpu") return std::make_shared<CpuDevice>();
  for (const auto& device : machine().hardware)
    if (device->name() == name) return {std::shared_ptr<void>(), device.get()};
  return open_sim_device(name);
}

// All devices use the host's oracle. An oracle on the GPU would only be faster.
std::shared_ptr<Device> oracle_device(const Device&) { return std::make_shared<CpuDevice>(); }

std::string best_device() {
  for (const DeviceRow& row : machine().rows)
    if (row.name == "cuda:0" && row.absent.empty()) return row.name;
  return "cpu";
}

std::vector<std::pair<std::string, std::string>> library_versions() {
  std::vector<std::pair<std::string, std::string>> versions;
#if HALFMARK_ONEDNN
  versions.emplace_back("onednn", onednn_version() + " with " + onednn_instructions());
#endif
  versions.emplace_back("openblas", openblas_version());
  if (const Plugin* plugin = machine().plugin)
    for (auto& version : plugin->versions()) versions.push_back(std::move(version));
  return versions;
}

}  // namespace halfmark::kernels
