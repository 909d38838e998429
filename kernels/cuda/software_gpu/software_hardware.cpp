// In the place of kernels/cuda/hardware.cpp.
#include <cstdlib>
#include <string>

#include "kernels/cuda/hardware.h"
#include "kernels/cuda/software_gpu/cublas_functions.h"
#include "kernels/cuda/software_gpu/nccl_functions.h"

namespace halfmark::kernels::cuda {

namespace {
bool is_timed() {
  static const bool timed = std::getenv("HALFMARK_SOFTWARE_GPU_TIMES") != nullptr;
  return timed;
}
}  // namespace

// Code that only measures times is tested too.
std::string hardware_numerics() { return is_timed() ? "" : hardware_described(); }
std::string hardware_described() { return "software GPU: PTX interpreted on the CPU"; }

// Tests of the comparison ask for it; else every run takes the library's first, so that its bits do not vary.
bool hardware_compares_times() { return is_timed() || std::getenv("HALFMARK_SOFTWARE_GPU_COMPARES") != nullptr; }

void* cublas_function(const char* name, std::string& reason) {
  void* function = software_gpu::cublas_function(name);
  if (!function) reason = std::string("the stand-in of cuBLAS has no ") + name;
  return function;
}

void* nccl_function(const char* name, std::string& reason) {
  void* function = software_gpu::nccl_function(name);
  if (!function) reason = std::string("the stand-in of NCCL has no ") + name;
  return function;
}

double nccl_limit() { return software_gpu::nccl_never_ends() ? 1 : 120; }

}  // namespace halfmark::kernels::cuda
