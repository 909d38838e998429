// Instructions on tensor memory and on the mbarrier that says when a product is there (PTX ISA 9.0, 9.7.16 and 9.7.13.15).
#pragma once

#include <cstdint>

namespace halfmark::kernels::cuda::tensor_memory {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// By all threads of one warp. The instruction waits while other blocks of the multiprocessor hold the columns; giving
// up the permit lets them allocate in turn.
__device__ __forceinline__ void allocate(uint32_t* place, uint32_t columns) {
  asm volatile(
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
      "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(shared_address(place)),
      "r"(columns)
      : "memory");
}
__device__ __forceinline__ void release(uint32_t address, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// One column of the 32 lanes of a warp. wait::st and wait::ld follow.
__device__ __forceinline__ void store(uint32_t address, uint32_t value) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(address), "r"(value) : "memory");
}
__device__ __forceinline__ void wait_for_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
// With its wait in one statement: the register is written until the wait ends.
__device__ __forceinline__ uint32_t load(uint32_t address) {
  uint32_t value;
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];\ntcgen05.wait::ld.sync.aligned;"
               : "=r"(value)
               : "r"(address)
               : "memory");
  return value;
}

// Order tensor memory between threads, around what synchronises them (9.7.16.6.3).
__device__ __forceinline__ void before_others() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void after_others() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// An mbarrier whose phases complete with one commit each. By one thread; the fence makes it visible to the commit.
__device__ __forceinline__ void start_phases(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier)
               : "memory");
}
// By the thread that has issued the products: the phase completes when they are there.
__device__ __forceinline__ void commit(uint32_t barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
}
// By whole warps.
__device__ __forceinline__ void wait_for_phase(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
  __syncwarp();
}

}  // namespace halfmark::kernels::cuda::tensor_memory
