// What a library plans, kept by signature for the life of the device. A refusal for lack of memory is no property of the
// operation: it is made again once the GPU has more memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/cuda_device.h"
#include "kernels/ops/ops.h"

namespace halfmark::kernels::cuda {

// Plan has refusal(), which is empty if it can be used.
template <class Plan>
class KeptPlans {
 public:
  // Of this key; `make(CudaDevice&)` gives a std::unique_ptr of a new one. Not while work is recorded, where a plan cannot
  // be tried. Valid until it is asked for again.
  template <class Make>
  const Plan& of(const CudaDevice& device, const Signature& key, const Make& make) {
    if (const auto found = plans_.find(key); found != plans_.end() && !found->second.may_fit_now(device))
      return *found->second.plan;
    const int before = device.shortages();
    // A plan is tried on the device, which does not change what the device is.
    Kept made{make(const_cast<CudaDevice&>(device)), {}};
    if (!made.plan->refusal().empty() && device.shortages() != before) made.lacked_beyond = device.bytes_available();
    return *plans_.insert_or_assign(key, std::move(made)).first->second.plan;
  }

 private:
  struct Kept {
    std::unique_ptr<Plan> plan;
    std::optional<size_t> lacked_beyond;  // bytes that were available when it was refused for lack of memory
    bool may_fit_now(const CudaDevice& device) const {
      constexpr size_t kMore = size_t{1} << 20;
      return lacked_beyond && device.bytes_available() >= *lacked_beyond + kMore;
    }
  };
  std::unordered_map<Signature, Kept, SignatureHash> plans_;
};

// Of a device, which keeps it as `kept`.
template <class Plan>
KeptPlans<Plan>& plans_in(std::shared_ptr<void>& kept) {
  if (!kept) kept = std::make_shared<KeptPlans<Plan>>();
  return *static_cast<KeptPlans<Plan>*>(kept.get());
}

}  // namespace halfmark::kernels::cuda
