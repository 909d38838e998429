// Checks that there is enough address space for OpenBLAS. It maps a buffer for every running thread, and if that fails
// it tries again forever, even at exit. Under a limit (ulimit -v), a program that does not check the remaining space
// may therefore never end.
#pragma once

#include <cstddef>

namespace halfmark::kernels {

// Size of one buffer in builds for x86-64 (BUFFER_SIZE in OpenBLAS's common.h); other builds use less.
inline constexpr size_t kBlasBuffer = size_t{128} << 20;  // bytes

// Whether the address space or the data segment of the process is limited.
bool memory_is_limited();

// Throws Error unless this many buffers and `more` bytes can still be allocated. Without a limit it does nothing.
void require_blas_room(int buffers, size_t more = 0);

}  // namespace halfmark::kernels
