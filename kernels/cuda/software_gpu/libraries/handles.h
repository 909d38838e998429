// Handles and descriptors that only the library looks into. A handle is a number that is used once and is no address, so
// a destroyed one, one of another kind and one of another library are not found.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace halfmark::kernels::software_gpu {

inline uintptr_t new_handle_number() {
  static std::atomic<uintptr_t> last{0x610000000000};
  return last += 64;
}

template <class Handle, class Value>
class Handles {
 public:
  Handle create(const Value& value) {
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<Handle>(new_handle_number());
    values_.emplace(handle, value);
    return handle;
  }
  bool destroy(Handle handle) {
    const std::lock_guard lock(mutex_);
    return values_.erase(handle) != 0;
  }
  std::optional<Value> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(handle);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  bool replace(Handle handle, const Value& value) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(handle);
    if (found == values_.end()) return false;
    found->second = value;
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::map<Handle, Value> values_;
};

}  // namespace halfmark::kernels::software_gpu
