#include "kernels/cuda/software_gpu/images.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/cuda/software_gpu/architectures.h"
#include "kernels/cuda/software_gpu/global_memory.h"
#include "kernels/cuda/software_gpu/ptx_module.h"

namespace halfmark::kernels::software_gpu {
namespace {

// The fat binary as nvcc 13 writes it: a header and entries, each with a header of its own. Not documented; read from
// files that nvcc made with --compress-mode=none. A text check of each entry follows.
struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
struct FatEntry {
  uint16_t kind, version;  // kind 1: PTX
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes, unknown;
  uint16_t minor, major;
  uint32_t architecture;
};
struct FatWrapper {
  int32_t magic, version;
  const void* data;
  void* names;
};
constexpr uint32_t kFatMagic = 0xBA55ED50u;
constexpr int32_t kWrapperMagic = 0x466243b1;
constexpr uint16_t kPtx = 1;

struct PtxImage {
  std::string text;
  int capability = 0;
  char suffix = 0;
};

struct FatBinary {
  std::vector<PtxImage> images;
  bool has_machine_code = false;
  std::map<int, std::unique_ptr<LoadedModule>> loaded;  // by device
};

struct Registered {
  std::deque<FatBinary> binaries;
  std::map<const void*, Symbol> kernels, variables;
  std::set<std::string> names;
  std::function<std::string(const std::string&)> filter;
};
Registered& registered() {
  static auto* all = new Registered;
  return *all;
}

PtxImage image_of(std::string text) {
  PtxImage image;
  const size_t at = text.find(".target sm_");
  if (at == std::string::npos) return image;
  size_t digit = at + std::strlen(".target sm_");
  for (; digit < text.size() && text[digit] >= '0' && text[digit] <= '9'; ++digit)
    image.capability = image.capability * 10 + (text[digit] - '0');
  if (text[digit] == 'a' || text[digit] == 'f') image.suffix = text[digit];
  image.text = std::move(text);
  return image;
}

void read_fat_binary(const void* data, FatBinary& binary) {
  FatHeader header;
  std::memcpy(&header, data, sizeof header);
  if (header.magic != kFatMagic) return;
  const char* at = static_cast<const char*>(data) + header.header_bytes;
  const char* end = at + header.bytes;
  while (at < end) {
    FatEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    const char* content = at + entry.header_bytes;
    at = content + entry.bytes;
    if (entry.kind != kPtx || entry.compressed_bytes != 0) {
      binary.has_machine_code = true;
      continue;
    }
    std::string text(content, strnlen(content, entry.bytes));
    binary.images.push_back(image_of(std::move(text)));
  }
}

std::string sm(int capability, char suffix) {
  return "sm_" + std::to_string(capability) + (suffix ? std::string(1, suffix) : std::string());
}

}  // namespace

LoadedModule& module_of(int index, const SoftwareDevice& device) {
  FatBinary& binary = registered().binaries.at(static_cast<size_t>(index));
  auto& loaded = binary.loaded[device.index];
  if (loaded) return *loaded;
  const PtxImage* best = nullptr;
  std::string all;
  for (const PtxImage& image : binary.images) {
    all += (all.empty() ? "" : ", ") + sm(image.capability, image.suffix);
    if (!runs(device.architecture, image.capability, image.suffix)) continue;
    if (!best || preferred(image.capability, image.suffix, best->capability, best->suffix)) best = &image;
  }
  if (!best)
    throw CallError{cudaErrorNoKernelImageForDevice,
                    "software GPU " + sm(device.architecture, 0) + ": the fat binary has PTX for " +
                        (all.empty() ? "nothing" : all) +
                        (binary.has_machine_code ? ", and entries that are no plain PTX" : "")};
  auto made = std::make_unique<LoadedModule>();
  try {
    const auto& filter = registered().filter;
    made->text = filter ? filter(best->text) : best->text;
    const std::string name = "ptx" + std::to_string(index) + "_" + sm(best->capability, best->suffix);
    const char* reads = std::getenv("HALFMARK_SOFTWARE_GPU_READS");
    made->module = reads && std::string_view(reads) == "all" ? read_module(made->text, name)
                                                             : read_module_without_bodies(made->text, name);
  } catch (const std::exception& error) {
    throw CallError{cudaErrorInvalidPtx, error.what()};
  }
  for (const Variable& variable : made->module.variables) {
    if (variable.space == Space::shared) {
      made->symbol_addresses.push_back(0);
      continue;
    }
    Allocation* allocation = global_memory().allocate(device.index, variable.bytes, variable.name);
    if (!allocation) throw CallError{cudaErrorMemoryAllocation, "no memory for " + variable.name};
    std::memcpy(allocation->storage, variable.initial.data(), variable.initial.size());
    allocation->set_written(0, variable.bytes);
    made->symbol_addresses.push_back(allocation->address);
  }
  loaded = std::move(made);
  return *loaded;
}

const Kernel& kernel_of(LoadedModule& loaded, const Symbol& symbol) {
  const auto found = loaded.module.kernels.find(symbol.name);
  if (found == loaded.module.kernels.end())
    throw CallError{cudaErrorInvalidDeviceFunction, "the PTX has no kernel " + symbol.name};
  try {
    read_body_of(loaded.text, loaded.module, found->second);
  } catch (const std::exception& error) {
    throw CallError{cudaErrorInvalidPtx, error.what()};
  }
  return found->second;
}

const Symbol& kernel_symbol(const void* handle) {
  const auto found = registered().kernels.find(handle);
  if (found == registered().kernels.end()) throw CallError{cudaErrorInvalidDeviceFunction, "no kernel of this handle"};
  return found->second;
}
const Symbol& variable_symbol(const void* handle) {
  const auto found = registered().variables.find(handle);
  if (found == registered().variables.end()) throw CallError{cudaErrorInvalidSymbol, "no variable of this handle"};
  return found->second;
}

uint64_t address_of(const Symbol& symbol, const SoftwareDevice& device, uint64_t& bytes) {
  const LoadedModule& loaded = module_of(symbol.binary, device);
  for (size_t n = 0; n < loaded.module.variables.size(); ++n)
    if (loaded.module.variables[n].name == symbol.name) {
      bytes = loaded.module.variables[n].bytes;
      return loaded.symbol_addresses[n];
    }
  throw CallError{cudaErrorInvalidSymbol, "the PTX has no variable " + symbol.name};
}

void unload_modules(int device) {
  for (FatBinary& binary : registered().binaries) binary.loaded.erase(device);
}

void set_ptx_filter(std::function<std::string(const std::string&)> filter) { registered().filter = std::move(filter); }

int register_ptx(const std::vector<std::string>& texts) {
  const std::lock_guard lock(runtime_mutex());
  FatBinary binary;
  for (const std::string& text : texts) binary.images.push_back(image_of(text));
  registered().binaries.push_back(std::move(binary));
  return static_cast<int>(registered().binaries.size()) - 1;
}

const void* kernel_handle(int binary, const std::string& kernel) {
  const std::lock_guard lock(runtime_mutex());
  // The address of the name is a handle that nothing else has.
  const std::string& name = *registered().names.insert(std::to_string(binary) + ":" + kernel).first;
  registered().kernels[&name] = {binary, kernel};
  return &name;
}

}  // namespace halfmark::kernels::software_gpu

// What the host code that nvcc generates calls (crt/host_runtime.h of the toolkit).
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  using namespace halfmark::kernels::software_gpu;
  const std::lock_guard lock(runtime_mutex());
  FatWrapper read;
  std::memcpy(&read, wrapper, sizeof read);
  FatBinary binary;
  if (read.magic == kWrapperMagic) read_fat_binary(read.data, binary);
  registered().binaries.push_back(std::move(binary));
  return reinterpret_cast<void**>(registered().binaries.size());
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  using namespace halfmark::kernels::software_gpu;
  const std::lock_guard lock(runtime_mutex());
  registered().kernels[host] = {static_cast<int>(reinterpret_cast<uintptr_t>(binary)) - 1, name};
}

void __cudaRegisterVar(void** binary, char* host, char*, const char* name, int, size_t, int, int) {
  using namespace halfmark::kernels::software_gpu;
  const std::lock_guard lock(runtime_mutex());
  registered().variables[host] = {static_cast<int>(reinterpret_cast<uintptr_t>(binary)) - 1, name};
}

}  // extern "C"
