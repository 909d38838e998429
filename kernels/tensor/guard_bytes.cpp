#include "kernels/tensor/guard_bytes.h"

#include <cstring>
#include <exception>
#include <random>
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

// The codes of sentinels, in every lane of a word of eight bytes.
struct Sentinels {
  uint64_t nan;   // the positive quiet NaN with payload 0
  uint64_t free;  // bits that may be random: the sign, and the payload below the quiet bit
  uint64_t sign;
  size_t size;  // bytes of a code

  explicit Sentinels(std::optional<DType> dtype) {
    const Format* format = dtype && is_floating(*dtype) ? &format_of(*dtype) : nullptr;
    const bool payload = format && format->has_infinity(), only_sign = format && format->has_negative_zero();
    if (payload || (only_sign && format->has_nan())) {
      size = size_of(*dtype);
      nan = format->quiet_nan_code(), sign = format->sign_code();
      free = sign | (payload ? (uint64_t{1} << (format->fraction_bits - 1)) - 1 : 0);
    } else {
      size = 2, nan = 0x7fff, free = sign = 0x8000;
    }
    for (size_t bytes = size; bytes < sizeof(uint64_t); bytes *= 2)
      for (uint64_t* word : {&nan, &free, &sign}) *word |= *word << 8 * bytes;
  }
  uint64_t word(uint64_t random) const { return nan | (random & free); }
};

std::mt19937_64 random_numbers(uint64_t tensor, uint64_t redraw) { return std::mt19937_64(tensor << 32 | redraw); }

constexpr size_t kMarginWords = GuardBytes::kMargin / sizeof(uint64_t);

// The signs of the 1st, 3rd, ... code of a margin, counted from the tensor outwards, in the margin's word at `distance`.
uint64_t signs_by_role(const Sentinels& codes, size_t distance, bool outwards_is_up) {
  if (codes.size == sizeof(uint64_t)) return distance % 2 ? 0 : codes.sign;
  const uint64_t lowest = (uint64_t{1} << 8 * codes.size) - 1;
  uint64_t lanes = lowest;
  for (size_t bytes = 2 * codes.size; bytes < sizeof(uint64_t); bytes *= 2) lanes |= lanes << 8 * bytes;
  return codes.sign & (outwards_is_up ? lanes : ~lanes);
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

GuardBytes::GuardBytes(Device& device) : device_(device), signs_(kMarginWords) {
  HM_CHECK(!device.guard_bytes, device.name() + " already has guard bytes");
  device.guard_bytes = this;
  redraw({});
}

GuardBytes::~GuardBytes() { device_.guard_bytes = nullptr; }

void GuardBytes::redraw(const std::set<const void*>& read_only) {
  std::mt19937_64 random = random_numbers(0, ++redraws_);
  for (uint64_t& word : signs_) word = random();
  for (auto& [memory, guarded] : live_) draw(memory, guarded, read_only.contains(memory));
}

void GuardBytes::draw(void* memory, Guarded& guarded, bool read_only) {
  const Sentinels codes(guarded.dtype);
  std::mt19937_64 random = random_numbers(guarded.number, redraws_);
  const auto margin = [&](std::vector<unsigned char>& bytes, bool outwards_is_up) {
    bytes.resize(kMargin);
    for (size_t distance = 0; distance < kMarginWords; ++distance) {
      const uint64_t by_role = signs_by_role(codes, distance, outwards_is_up);
      const uint64_t word =
          (codes.word(random()) & ~by_role) | ((read_only ? ~signs_[distance] : signs_[distance]) & by_role);
      const size_t place = outwards_is_up ? distance : kMarginWords - 1 - distance;
      std::memcpy(bytes.data() + place * sizeof(word), &word, sizeof(word));
    }
  };
  margin(guarded.before, false);
  margin(guarded.after, true);
  unpoison(memory, guarded.bytes);
  device_.copy_in(before(memory), guarded.before.data(), kMargin);
  device_.copy_in(after(memory, guarded.bytes), guarded.after.data(), kMargin);
  poison(memory, guarded.bytes);
}

void* GuardBytes::allocate(size_t bytes, std::optional<DType> dtype) {
  void* memory = static_cast<unsigned char*>(device_.allocate(bytes + 2 * kMargin)) + kMargin;
  const Sentinels codes(dtype);
  Guarded& guarded = live_[memory] = {bytes, ++tensors_, dtype, {}, {}};
  std::mt19937_64 random = random_numbers(guarded.number, 0);
  std::vector<uint64_t> inside(bytes / sizeof(uint64_t) + 1);
  for (uint64_t& word : inside) word = codes.word(random());
  device_.copy_in(memory, inside.data(), bytes);
  draw(memory, guarded, false);
  return memory;
}

void GuardBytes::release(Device& device, void* memory, size_t bytes) noexcept {
  try {
    GuardBytes* guard = device.guard_bytes;
    if (guard)
      if (const auto guarded = guard->live_.extract(memory)) guard->inspect(memory, guarded.mapped(), true);
  } catch (const std::exception&) {  // a destructor cannot report it; the device's next call will
  }
  unpoison(memory, bytes);
  device.release(before(memory), bytes + 2 * kMargin);
}

void GuardBytes::inspect(void* memory, const Guarded& guarded, bool released) {
  const size_t bytes = guarded.bytes;
  unpoison(memory, bytes);
  std::vector<unsigned char> found(kMargin);
  const auto side = [&](unsigned char* start, const std::vector<unsigned char>& expected, int64_t offset) {
    device_.copy_out(found.data(), start, kMargin);
    if (found == expected) return;
    size_t first = 0, last = kMargin;
    while (found[first] == expected[first]) ++first;
    while (found[last - 1] == expected[last - 1]) --last;
    damage_.push_back({memory, bytes, offset + static_cast<int64_t>(first), last - first, released});
    device_.copy_in(start, expected.data(), kMargin);
  };
  side(before(memory), guarded.before, -static_cast<int64_t>(kMargin));
  side(after(memory, bytes), guarded.after, static_cast<int64_t>(bytes));
  if (!released) poison(memory, bytes);
}

std::vector<GuardBytes::Damage> GuardBytes::take_damage() {
  for (const auto& [memory, guarded] : live_) inspect(memory, guarded, false);
  return std::exchange(damage_, {});
}

}  // namespace halfmark::kernels
