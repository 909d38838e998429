#include "kernels/cuda/software_gpu/fragments.h"

namespace halfmark::kernels::software_gpu {
namespace {

int quad_row(int lane) { return lane < 16 ? lane % 4 : lane % 4 + 4; }
int quad_product(int lane) { return lane % 16 / 4; }

}  // namespace

ElementPlace a_element(const MatrixForm& form, int lane, int i) {
  if (form.quads) return {quad_row(lane), i, quad_product(lane)};
  const int group = lane >> 2, thread = lane % 4;
  if (form.bits >= 32) {
    if (form.m == 8) return {group, thread};
    // m16n8k4, m16n8k8 and m16n8k16 of .f64 and .tf32: a0 is in row `group`, a1 in row `group + 8`, then four columns on.
    const int column = i % 2 == 0 ? i * 2 + thread : i * 2 - 2 + thread;
    return {i % 2 == 0 ? group : group + 8, column};
  }
  // Registers of 32 bits with 2, 4 or 8 elements.
  const int in_register = 32 / form.bits;
  if (form.bits == 16 && form.k == 8) return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
  if (form.bits == 16) {
    const bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
    return {upper ? group : group + 8, i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
  }
  if (form.bits == 8 && form.k == 16) return {i < 4 ? group : group + 8, thread * 4 + (i & 3)};
  if (form.bits == 8) {
    const bool upper = (0 <= i && i < 4) || (8 <= i && i < 12);
    return {upper ? group : group + 8, i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16};
  }
  const bool upper = (0 <= i && i < 8) || (16 <= i && i < 24);
  return {upper ? group : group + 8, i < 16 ? thread * in_register + (i & 7) : thread * in_register + (i & 7) + 32};
}

ElementPlace b_element(const MatrixForm& form, int lane, int i) {
  if (form.quads) return {i, quad_row(lane), quad_product(lane)};
  const int group = lane >> 2, thread = lane % 4;
  if (form.bits >= 32) return {thread + i * 4, group};
  if (form.bits == 16) return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
  if (form.bits == 8) return {i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16, group};
  return {i < 8 ? thread * 8 + (i & 7) : thread * 8 + (i & 7) + 32, group};
}

ElementPlace c_element(const MatrixForm& form, bool narrow, int lane, int i) {
  if (form.quads && narrow) return {quad_row(lane), i, quad_product(lane)};
  if (form.quads) {
    const int row = (lane & 1) + (i & 2);
    return {lane < 16 ? row : row + 4, (i & 4) + (lane & 2) + (i & 1), quad_product(lane)};
  }
  const int group = lane >> 2, thread = lane % 4;
  if (form.m == 8) return {group, thread * 2 + (i & 1)};
  return {i % 4 < 2 ? group : group + 8, i / 4 * 8 + thread * 2 + (i & 1)};
}

int lane_of_scale_a(int row, int thread_id) { return row % 8 * 4 + thread_id * 2 + (row < 8 ? 0 : 1); }
int lane_of_scale_b(int column, int thread_id) { return column * 4 + thread_id; }

uint32_t descriptor_address(uint64_t descriptor, int line, int byte) {
  const auto field = [&](int first) { return static_cast<uint32_t>(descriptor >> first & 0x3FFF) * 16; };
  return field(0) + static_cast<uint32_t>(byte / 16) * field(16) + static_cast<uint32_t>(line / 8) * field(32) +
         static_cast<uint32_t>(line % 8 * 16 + byte % 16);
}
int descriptor_swizzle(uint64_t descriptor) { return static_cast<int>(descriptor >> 62); }
int descriptor_base_offset(uint64_t descriptor) { return static_cast<int>(descriptor >> 49 & 7); }

}  // namespace halfmark::kernels::software_gpu
