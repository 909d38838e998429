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
  other
};
inline constexpr size_t kPurposes = 12;
std::string_view name_of(Purpose purpose);

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
  // The largest sum of all purposes but workspace and emulation since reset_peak: what the training itself keeps, which
  // does not depend on the kernels.
  size_t tensor_peak() const { return tensor_peak_; }
  void reset_peak();

 private:
  void note_peak();
  size_t live_tensors() const;
  MemoryUse live_, peak_;
  size_t tensor_peak_ = 0;
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
