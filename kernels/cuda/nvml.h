// What NVML, the management library of NVIDIA's driver, says of one GPU: facts for the report, and its state at one moment.
// The library is loaded at run time. Nothing fails because of it: what it does not tell is NaN or "not supported".
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tensor/device_state.h"

namespace halfmark::kernels::cuda {

// cudaDeviceProp::uuid as text: "00112233-4455-6677-8899-aabbccddeeff". NVML writes GPU- or MIG- before it.
std::string uuid_text(std::span<const char, 16> bytes);

class Nvml {
 public:
  using Lookup = std::function<void*(void* library, const char* function)>;  // as dlsym
  // The GPU or MIG instance with this UUID: under CUDA_VISIBLE_DEVICES the numbers of CUDA and NVML differ.
  explicit Nvml(const std::string& uuid, const char* file = "libnvidia-ml.so.1", Lookup lookup = {});
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& absent() const { return absent_; }  // why it tells nothing; empty: it does
  // UUID, MIG and power limit, which stay the same while programs run; if NVML is absent, the reason as "nvml".
  std::vector<std::pair<std::string, std::string>> facts() const;
  DeviceState state() const;
  double used_memory() const;  // bytes in use on the GPU or the MIG instance, by whom ever; NaN: it does not tell

  // To be called when this process has made its context, the object having been made before that. In a container NVML
  // may number processes as the host does. The process that appeared in between is then this one.
  void find_own_process();

 private:
  template <class... Arguments>
  int call(const char* function, Arguments... arguments) const;
  template <class T, class... Arguments>
  double number(const char* function, Arguments... arguments) const;
  std::string failure(const char* function, int status) const;
  void open(const std::string& uuid, const char* file);
  void close() noexcept;
  std::optional<std::set<unsigned>> processes() const;
  double other_processes() const;
  std::vector<std::string> slowed_by() const;
  std::string mig() const;

  Lookup lookup_;
  void* library_ = nullptr;
  bool initialised_ = false;
  void* instance_ = nullptr;  // what was asked for: a GPU, or a MIG instance of one
  void* gpu_ = nullptr;       // all of that GPU
  std::string absent_, uuid_;
  std::optional<std::set<unsigned>> before_;  // processes when this object was made
  std::set<unsigned> parents_;                // that wait for this process
};

}  // namespace halfmark::kernels::cuda
