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
  input,      // data and labels
  other
};
inline constexpr size_t kPurposes = 11;
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
  void reset_peak() { peak_ = live_; }

 private:
  void note_peak();
  MemoryUse live_, peak_;
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
Purpose current_purpose();  // `temporary` outside every scope

}  // namespace halfmark::kernels
