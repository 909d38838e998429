// Address space for OpenBLAS. It maps a buffer for every thread at work, and where it gets none it asks again for ever,
// at exit too: under a limit (ulimit -v) a program that goes on without a look at the room left never ends.
#pragma once

#include <cstddef>

namespace halfmark::kernels {

// Of one buffer in builds for x86-64 (BUFFER_SIZE of OpenBLAS's common.h); other builds take less.
inline constexpr size_t kBlasBuffer = size_t{128} << 20;  // bytes

// Whether the process has a limit on its address space or its data.
bool memory_is_limited();

// Throws Error unless so many buffers and `more` bytes can still be had. Without a limit it does nothing.
void require_blas_room(int buffers, size_t more = 0);

}  // namespace halfmark::kernels
