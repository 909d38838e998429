// Accounts for memory: a ledger of live and peak bytes by purpose, and the scope that sets the purpose.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace halfmark::kernels {

enum class Purpose : uint8_t {
  weights,    // parameters that the layers compute with
  master,     // fp32 copies that the optimizer updates
  gradients,  // of parameters
  optimizer,  // momentum and moments
  state,      // running statistics
  saved,      // kept from forward for backward
  temporary,  // activations and their gradients that are not kept for backward
  casts,      // low-precision copies that autocast makes
  workspace,  // scratch of a kernel, packed or reordered operands
  emulation,  // the same of a kernel that emulates arithmetic, which hardware with this arithmetic does not need
  input,      // data and labels
  padding,    // what layouts add: elements beyond those of a tensor, and a copy in another layout beside it
  other
};
inline constexpr size_t kPurposes = 13;
std::string_view name_of(Purpose purpose);
// Neither scratch nor padding: what the training itself keeps, which depends neither on kernels nor on their layouts.
bool is_of_tensors(Purpose purpose);

struct MemoryUse {
  size_t total = 0;
  std::array<size_t, kPurposes> by_purpose{};  // bytes; sums to total
};

// Counts what a device has allocated. Bytes are as requested, before any rounding by an allocator.
class MemoryLedger {
 public:
  void add(Purpose purpose, size_t bytes);
  void remove(Purpose purpose, size_t bytes);
  void retag(Purpose from, Purpose to, size_t bytes);  // total unchanged
  const MemoryUse& live() const { return live_; }
  const MemoryUse& peak() const { return peak_; }  // the split at the moment of the largest total
  // The split at the moment of the largest sum of the purposes of tensors since reset_peak. Others are 0 in it.
  const MemoryUse& tensor_peak() const { return tensor_peak_; }
  void reset_peak();

 private:
  void note_peak();
  MemoryUse tensors_alone() const;
  MemoryUse live_, peak_, tensor_peak_;
  size_t live_tensors_ = 0;
};

// Tensors made in this thread while the scope exists belong to `purpose`. Scopes nest.
class PurposeScope {
 public:
  explicit PurposeScope(Purpose purpose);
  ~PurposeScope();
  PurposeScope(const PurposeScope&) = delete;
  PurposeScope& operator=(const PurposeScope&) = delete;

 private:
  Purpose outer_;
};
// While an object with `emulates` exists, scopes for `workspace` in this thread stand for `emulation`.
class EmulationScope {
 public:
  explicit EmulationScope(bool emulates);
  ~EmulationScope();
  EmulationScope(const EmulationScope&) = delete;
  EmulationScope& operator=(const EmulationScope&) = delete;

 private:
  bool outer_;
};
Purpose current_purpose();  // `temporary` outside every scope

}  // namespace halfmark::kernels
