// The device code of this process: fat binaries that were registered, and the module of each that a device runs.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/devices.h"
#include "kernels/cuda/software_gpu/program.h"

namespace halfmark::kernels::software_gpu {

// A module as one device has loaded it.
struct LoadedModule {
  std::string text;
  Module
      module;  // bodies of kernels are read at the first use of each, or at once if HALFMARK_SOFTWARE_GPU_READS is "all"
  std::vector<uint64_t> symbol_addresses;  // of module.variables on the device
};

struct FunctionSettings {
  int dynamic_shared = 48 * 1024;  // the most that a launch may ask for
};

// A kernel or variable that host code refers to.
struct Symbol {
  int binary = 0;
  std::string name;  // in the device code
};

// Each throws CallError: cudaErrorInvalidDeviceFunction or cudaErrorInvalidSymbol for an unknown handle,
// cudaErrorNoKernelImageForDevice if the fat binary has no PTX that the device runs, cudaErrorInvalidPtx if that PTX is
// not understood.
LoadedModule& module_of(int binary, const SoftwareDevice& device);
const Kernel& kernel_of(LoadedModule& loaded, const Symbol& symbol);
const Symbol& kernel_symbol(const void* handle);
const Symbol& variable_symbol(const void* handle);
uint64_t address_of(const Symbol& variable, const SoftwareDevice& device, uint64_t& bytes);

// Forgets what the device has loaded; its variables get their initial values again.
void unload_modules(int device);

// Every PTX text passes through this before it is read; empty: unchanged. For tests that plant mistakes. Takes effect on
// modules that are not loaded yet.
void set_ptx_filter(std::function<std::string(const std::string& text)> filter);

// Registers PTX texts as one fat binary and its kernels by name, for tests. The handle is what cudaLaunchKernel takes.
int register_ptx(const std::vector<std::string>& texts);
const void* kernel_handle(int binary, const std::string& kernel);

}  // namespace halfmark::kernels::software_gpu
