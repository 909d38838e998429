// NVIDIA's libraries beside the stand-ins: the functions of one or of the other.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace halfmark::kernels::software_gpu {

// The functions of one library: the real ones from a file, or those linked here.
class Library {
 public:
  explicit Library(const char* file) : file_(file ? dlopen(file, RTLD_LAZY | RTLD_LOCAL) : nullptr) {}
  bool is_open() const { return file_ != nullptr; }
  template <class Function>
  Function* function(Function* ours, const char* name) const {
    return file_ ? reinterpret_cast<Function*>(dlsym(file_, name)) : ours;
  }

 private:
  void* file_;  // stays open: closing these libraries at this point crashes some versions
};
#define HM_FUNCTION(library, name) (*(library).function(&name, #name))

using Answers = std::vector<int64_t>;

// Where the two differ first; -1: nowhere.
inline int64_t first_difference(const Answers& a, const Answers& b) {
  if (a.size() != b.size()) return static_cast<int64_t>(std::min(a.size(), b.size()));
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return static_cast<int64_t>(i);
  return -1;
}

}  // namespace halfmark::kernels::software_gpu
