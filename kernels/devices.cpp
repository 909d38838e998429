// The one list of devices: the CPU, one simulator per tensor core, and the CUDA devices that the plugin reports as
// present or absent.
#include "kernels/devices.h"

#include <algorithm>
#include <exception>
#include <map>

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
  std::map<std::string, std::unique_ptr<Device>> opened;  // one object per GPU, shared by all callers
};

Machine* look_around() {
  auto* machine = new Machine;
  machine->rows.push_back({"cpu", "this machine's processor", ""});
  for (const Architecture& architecture : architectures())
    machine->rows.push_back(
        {"sim:" + std::string(architecture.name),
         "the matrix instructions of " + std::string(architecture.about) + ", emulated bit for bit on the CPU", ""});

  const LoadedPlugin loaded = find_plugin();
  machine->plugin = loaded.plugin;
  std::vector<DeviceRow> gpus;
  if (loaded.plugin) {
    try {
      gpus = loaded.plugin->list();
    } catch (const std::exception& error) {
      gpus = {{"cuda:0", "NVIDIA GPU", std::string("the CUDA plugin failed while listing devices: ") + error.what()}};
    }
    if (gpus.empty()) gpus = {{"cuda:0", "NVIDIA GPU", "the CUDA plugin found no device"}};
  } else {
    gpus = {{"cuda:0", "NVIDIA GPU", loaded.absent}};
  }
  machine->rows.insert(machine->rows.end(), gpus.begin(), gpus.end());
  return machine;
}

// Never destroyed: the plugin stays loaded, and the CUDA context
// may be destroyed before the program's static objects are.
Machine& machine() {
  static Machine* instance = look_around();
  return *instance;
}

Device* open_gpu(const std::string& name) {
  auto& opened = machine().opened[name];
  if (!opened) opened = machine().plugin->open(name);
  return opened.get();
}

}  // namespace

const std::vector<DeviceRow>& known_devices() { return machine().rows; }

std::shared_ptr<Device> open_device(const std::string& name) {
  const DeviceRow& row = named("device", machine().rows, name);
  if (!row.absent.empty()) throw Error("device " + name + " is absent: " + row.absent);
  if (name == "cpu") return std::make_shared<CpuDevice>();
  if (!name.starts_with("cuda:")) return open_sim_device(name);
  try {
    return {std::shared_ptr<void>(), open_gpu(name)};
  } catch (const Error& error) {
    throw Error("device " + name + " cannot be opened: " + error.what());
  }
}

std::unique_ptr<AllReduceGroup> all_reduce_group(std::span<const std::shared_ptr<Device>> devices) {
  HM_CHECK(devices.size() >= 2, "a sum across devices needs at least two of them, as cuda:0,cuda:1");
  std::vector<Device*> group;
  for (const std::shared_ptr<Device>& device : devices) {
    HM_CHECK(std::find(group.begin(), group.end(), device.get()) == group.end(),
             device->name() + " is named twice: a sum across devices has each of them once");
    group.push_back(device.get());
    if (!device->name().starts_with("cuda:"))
      throw Unsupported(device->name() + " has no sums across devices: they are made by NCCL, between GPUs");
  }
  return machine().plugin->all_reduce_group(group);
}

std::string simulated_device(std::string_view architecture) {
  for (const Architecture& row : architectures())
    for (const int capability : row.compute_capabilities)
      if (capability != 0 && architecture == "sm_" + std::to_string(capability)) return "sim:" + std::string(row.name);
  return {};
}

// All devices use the host's oracle. An oracle on the GPU would only be faster.
std::shared_ptr<Device> oracle_device(const Device&) { return std::make_shared<CpuDevice>(); }

BestDevice best_device() {
  static std::string why_not;
  for (DeviceRow& row : machine().rows) {
    if (row.name != "cuda:0") continue;
    if (!row.absent.empty()) {
      if (why_not.empty()) return {"cpu", "", row.name + " is absent: " + row.absent};
      continue;
    }
    try {
      open_gpu(row.name);
      return {row.name, "", ""};
    } catch (const Error& error) {
      row.absent = error.what();
      why_not = row.name + " cannot be opened: " + row.absent;
    }
  }
  return {"cpu", why_not, ""};
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
