#include "kernels/tensor/guard_bytes.h"

#include <exception>
#include <utility>

#include "kernels/number/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define HM_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HM_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(HM_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace halfmark::kernels {
namespace {

// A pattern of eight bytes, 0x7f and 0xff only: NaN as f64, f32, f16, bf16, e4m3 and e5m2. Not one repeated byte, which
// a kernel might write.
constexpr unsigned char kPattern[8] = {0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0x7f};

std::vector<unsigned char> sentinels(size_t bytes) {
  std::vector<unsigned char> block(bytes);
  for (size_t i = 0; i < bytes; ++i) block[i] = kPattern[i % sizeof(kPattern)];
  return block;
}

const std::vector<unsigned char>& margin() {
  static const std::vector<unsigned char> bytes = sentinels(GuardBytes::kMargin);
  return bytes;
}

unsigned char* before(void* memory) { return static_cast<unsigned char*>(memory) - GuardBytes::kMargin; }
unsigned char* after(void* memory, size_t bytes) { return static_cast<unsigned char*>(memory) + bytes; }

// Devices other than the host are never used under AddressSanitizer.
void poison([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(HM_ADDRESS_SANITIZER)
  __asan_poison_memory_region(before(memory), GuardBytes::kMargin);
  __asan_poison_memory_region(after(memory, bytes), GuardBytes::kMargin);
#endif
}

void unpoison([[maybe_unused]] void* memory, [[maybe_unused]] size_t bytes) {
#if defined(HM_ADDRESS_SANITIZER)
  __asan_unpoison_memory_region(before(memory), bytes + 2 * GuardBytes::kMargin);
#endif
}

}  // namespace

GuardBytes::GuardBytes(Device& device) : device_(device) {
  HM_CHECK(!device.guard_bytes, device.name() + " already has guard bytes");
  device.guard_bytes = this;
}

GuardBytes::~GuardBytes() { device_.guard_bytes = nullptr; }

void* GuardBytes::allocate(size_t bytes) {
  const std::vector<unsigned char> block = sentinels(bytes + 2 * kMargin);
  void* memory = static_cast<unsigned char*>(device_.allocate(block.size())) + kMargin;
  device_.copy_in(before(memory), block.data(), kMargin + bytes);
  device_.copy_in(after(memory, bytes), margin().data(), kMargin);
  poison(memory, bytes);
  live_[memory] = bytes;
  return memory;
}

void GuardBytes::release(Device& device, void* memory, size_t bytes) noexcept {
  try {
    GuardBytes* guard = device.guard_bytes;
    if (guard && guard->live_.erase(memory)) guard->inspect(memory, bytes, true);
  } catch (const std::exception&) {  // a destructor cannot report it; the device's next call will
  }
  unpoison(memory, bytes);
  device.release(before(memory), bytes + 2 * kMargin);
}

void GuardBytes::inspect(void* memory, size_t bytes, bool released) {
  unpoison(memory, bytes);
  const std::vector<unsigned char>& expected = margin();
  std::vector<unsigned char> found(kMargin);
  const auto side = [&](unsigned char* start, int64_t offset) {
    device_.copy_out(found.data(), start, kMargin);
    size_t first = 0, last = kMargin;
    while (first < kMargin && found[first] == expected[first]) ++first;
    if (first == kMargin) return;
    while (found[last - 1] == expected[last - 1]) --last;
    damage_.push_back({memory, bytes, offset + static_cast<int64_t>(first), last - first, released});
    device_.copy_in(start, expected.data(), kMargin);
  };
  side(before(memory), -static_cast<int64_t>(kMargin));
  side(after(memory, bytes), static_cast<int64_t>(bytes));
  if (!released) poison(memory, bytes);
}

std::vector<GuardBytes::Damage> GuardBytes::take_damage() {
  for (const auto& [memory, bytes] : live_) inspect(memory, bytes, false);
  return std::exchange(damage_, {});
}

}  // namespace halfmark::kernels
