#include "kernels/cuda/hardware.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>

#include "kernels/cuda/nccl_library.h"

namespace halfmark::kernels::cuda {

std::string hardware_numerics() { return {}; }
std::string hardware_described() { return {}; }
bool hardware_compares_times() { return true; }
// The largest sum of halfmark probe (512 MiB) takes seconds where GPUs reach each other through the host.
double nccl_limit() { return 120; }

void* cublas_function(const char* name, std::string& reason) {
  // Of the version that the headers are of: the numbers of enumerations may change with the next one.
  static const std::string file = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
  static void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    reason = file + " is not installed";
    return nullptr;
  }
  void* function = dlsym(library, name);
  if (!function) reason = file + " has no " + name;
  return function;
}

void* nccl_function(const char* name, std::string& reason) {
  static std::string missing;
  static void* const library = [] {
    Dl_info where{};
    const bool is_known = dladdr(reinterpret_cast<void*>(&cublasLtGetVersion), &where) != 0 && where.dli_fname;
    return load_nccl(nccl_files(is_known ? where.dli_fname : ""), missing);
  }();
  if (!library) {
    reason = missing;
    return nullptr;
  }
  void* function = dlsym(library, name);
  if (!function) reason = std::string("libnccl.so.2 has no ") + name;
  return function;
}

}  // namespace halfmark::kernels::cuda
