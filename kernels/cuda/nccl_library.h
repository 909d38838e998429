// What the plugin uses of NCCL, which is loaded at run time: toolkits need not contain it, nor its header.
//
// Names, numbers and parameters are those of nccl.h 2.28.9 (PyPI: nvidia-nccl-cu13), unchanged since 2.10 where that has
// them; nccl_library_test.cpp compares them with the header of the toolkit if there is one. Enumerations are ints here, as
// C passes them, and handles are void*.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/number/dtype.h"

namespace halfmark::kernels::cuda {

namespace nccl {
inline constexpr int kSuccess = 0, kInProgress = 7;                            // ncclResult_t
inline constexpr int kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9;  // ncclDataType_t
inline constexpr int kFloat8e4m3 = 10, kFloat8e5m2 = 11;                       // of newer versions
inline constexpr int kSum = 0, kAvg = 4;                                       // ncclRedOp_t
using Comm = void*;

using GetVersion = int (*)(int* version);
using GetErrorString = const char* (*)(int result);
using GetLastError = const char* (*)(Comm comm);
using CommInitAll = int (*)(Comm* comms, int devices, const int* list);
using CommDestroy = int (*)(Comm comm);
using CommAbort = int (*)(Comm comm);
using CommGetAsyncError = int (*)(Comm comm, int* result);
using GroupStart = int (*)();
using GroupEnd = int (*)();
using AllReduce = int (*)(const void* in, void* out, size_t count, int dtype, int op, Comm comm, cudaStream_t stream);
}  // namespace nccl

std::optional<int> nccl_type(DType dtype);   // nothing: NCCL has no such type
std::string nccl_version_text(int version);  // "2.28.9" of 22809, "2.8.4" of 2804

// The files in which NCCL is looked for, in this order: by name, as the loader finds libraries (LD_LIBRARY_PATH, the
// plugin's own paths); then beside a library that is loaded already, and in the folder in which the wheel of NCCL lies
// beside the wheel of that library.
std::vector<std::string> nccl_files(const std::string& loaded_library);
// The first of these files that can be loaded, which stays loaded. Null, and in one line why and what to do: what the
// loader says of the last file that exists, else of the first.
void* load_nccl(const std::vector<std::string>& files, std::string& reason);

class NcclLibrary {
 public:
  using Lookup = std::function<void*(const char* function, std::string& reason)>;  // null, and the reason
  explicit NcclLibrary(Lookup lookup);

  // A call by name; throws Unsupported if it fails: the name, what NCCL calls the status, its last error.
  template <class Function, class... Arguments>
  void call(const char* name, Arguments... arguments) const {
    if (const int result = status<Function>(name, arguments...); result != nccl::kSuccess) fail(name, result);
  }
  template <class Function, class... Arguments>
  int status(const char* name, Arguments... arguments) const {
    return reinterpret_cast<Function>(function(name))(arguments...);
  }
  [[noreturn]] void fail(const std::string& name, int result) const;
  std::string version() const;

 private:
  void* function(const char* name) const;  // throws Unsupported if it is missing
  Lookup lookup_;
};

}  // namespace halfmark::kernels::cuda
