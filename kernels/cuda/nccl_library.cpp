#include "kernels/cuda/nccl_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {

std::optional<int> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return nccl::kFloat64;
    case DType::f32:
      return nccl::kFloat32;
    case DType::f16:
      return nccl::kFloat16;
    case DType::bf16:
      return nccl::kBfloat16;
    case DType::e4m3:
      return nccl::kFloat8e4m3;
    case DType::e5m2:
      return nccl::kFloat8e5m2;
    case DType::e4m3fnuz:
    case DType::e5m2fnuz:
    case DType::e2m1:
    case DType::e3m2:
    case DType::e2m3:
    case DType::e8m0:
    case DType::i32:
    case DType::u8:
      return {};
  }
  return {};
}

// NCCL_VERSION of nccl.h: major * 1000 + minor * 100 + patch up to 2.8, and major * 10000 since.
std::string nccl_version_text(int version) {
  const int unit = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> nccl_files(const std::string& loaded_library) {
  constexpr const char* kFile = "libnccl.so.2";
  std::vector<std::string> files = {kFile};
  const std::filesystem::path folder = std::filesystem::path(loaded_library).parent_path();
  if (folder.empty()) return files;
  files.push_back(folder / kFile);
  // nvidia/cublas/lib or nvidia/cu13/lib, and nvidia/nccl/lib.
  files.push_back(folder.parent_path().parent_path() / "nccl" / "lib" / kFile);
  return files;
}

void* load_nccl(const std::vector<std::string>& files, std::string& reason) {
  std::string said;
  for (const std::string& file : files) {
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* error = dlerror();
    std::error_code none;
    if (said.empty() || std::filesystem::exists(file, none)) said = error ? error : file;
  }
  for (char& c : said)
    if (c == '\n' || c == '\r') c = ' ';
  reason = said + " (install NCCL 2 for this CUDA, or add its folder to LD_LIBRARY_PATH)";
  return nullptr;
}

NcclLibrary::NcclLibrary(Lookup lookup) : lookup_(std::move(lookup)) { (void)function("ncclAllReduce"); }

void* NcclLibrary::function(const char* name) const {
  std::string reason;
  void* found = lookup_(name, reason);
  if (!found) throw Unsupported("NCCL cannot be used: " + reason);
  return found;
}

std::string NcclLibrary::version() const {
  int version = 0;
  call<nccl::GetVersion>("ncclGetVersion", &version);
  return nccl_version_text(version);
}

// The last error is of this thread's latest call that failed (documentation of ncclGetLastError: perhaps of another one).
void NcclLibrary::fail(const std::string& name, int result) const {
  const auto text_of = [&](const char* function_name, auto ask) {
    std::string reason;
    void* found = lookup_(function_name, reason);  // older versions have no ncclGetLastError
    const char* text = found ? ask(found) : nullptr;
    return std::string(text ? text : "");
  };
  const std::string status =
      text_of("ncclGetErrorString", [&](void* found) { return reinterpret_cast<nccl::GetErrorString>(found)(result); });
  const std::string last =
      text_of("ncclGetLastError", [&](void* found) { return reinterpret_cast<nccl::GetLastError>(found)(nullptr); });
  std::string text = name + ": " + (status.empty() ? "status " + std::to_string(result) : status);
  if (!last.empty()) text += ": " + last;
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  throw Unsupported(text);
}

}  // namespace halfmark::kernels::cuda
