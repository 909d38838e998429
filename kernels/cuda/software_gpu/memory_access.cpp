#include "kernels/cuda/software_gpu/memory_access.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace halfmark::kernels::software_gpu {
namespace {

std::string bytes_text(uint64_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

[[noreturn]] void fault_out_of_bounds(const Warp& w, const Instruction& i, int lane, Use use, uint64_t address,
                                      uint64_t bytes) {
  fault(w, i, lane, cudaErrorIllegalAddress,
        (use == Use::read ? "reads " : "writes ") + bytes_text(bytes) + " at " +
            w.block->launch().memory->place_of(address));
}

std::byte* access_global(Warp& w, const Instruction& i, int lane, uint64_t address, uint64_t bytes, Use use) {
  Allocation*& hint = w.block->hint(w.pc - 1);
  Allocation* a = hint;
  if (!a || !a->holds(address, bytes)) {
    a = w.block->launch().memory->find(address);
    if (!a || !a->live || !a->holds(address, bytes)) fault_out_of_bounds(w, i, lane, use, address, bytes);
    if (a->device != w.block->launch().device)
      fault(w, i, lane, cudaErrorIllegalAddress,
            "memory of device " + std::to_string(a->device) + " at " + w.block->launch().memory->place_of(address));
    hint = a;
  }
  if (WorkCounts* const work = w.block->launch().work) work->access(w, address, bytes, use != Use::read);
  const uint64_t offset = address - a->address;
  if (use != Use::write && !a->is_written(offset, bytes))
    fault(
        w, i, lane, cudaErrorLaunchFailure,
        "reads " + bytes_text(bytes) + " that nothing has written, at " + w.block->launch().memory->place_of(address));
  if (use != Use::read) a->set_written(offset, bytes);
  return a->storage + offset;
}

std::byte* access_shared(Warp& w, const Instruction& i, int lane, uint64_t offset, uint64_t bytes, Use use,
                         const std::byte* value) {
  SharedMemory& shared = w.block->shared();
  if (offset > shared.bytes() || bytes > shared.bytes() - offset)
    fault(w, i, lane, cudaErrorIllegalAddress,
          bytes_text(bytes) + " at " + std::to_string(static_cast<int64_t>(offset)) + " of shared memory, which has " +
              std::to_string(shared.bytes()));
  std::string wrong;
  if (use == Use::read) wrong = shared.read(accessor(w, lane), offset, bytes);
  if (use == Use::write) wrong = shared.write(accessor(w, lane), offset, bytes, value, false);
  if (use == Use::atomic) {
    if (!shared.is_initialised(offset, bytes))
      wrong = "atomic operation on byte " + std::to_string(offset) + " of shared memory, which no thread has written";
    else
      wrong = shared.write(accessor(w, lane), offset, bytes, shared.data() + offset, true);
  }
  if (!wrong.empty()) fault(w, i, lane, cudaErrorLaunchFailure, wrong);
  return shared.data() + offset;
}

std::byte* access_local(Warp& w, const Instruction& i, int lane, uint64_t offset, uint64_t bytes, Use use) {
  const uint64_t size = w.kernel->local_bytes;
  if (offset > size || bytes > size - offset)
    fault(w, i, lane, cudaErrorIllegalAddress,
          bytes_text(bytes) + " at " + std::to_string(static_cast<int64_t>(offset)) + " of local memory, which has " +
              std::to_string(size));
  const auto thread = static_cast<uint32_t>(w.index * kLanes + lane);
  uint8_t* written = w.block->local_written(thread) + offset;
  for (uint64_t n = 0; n < bytes; ++n) {
    if (use != Use::write && !written[n])
      fault(w, i, lane, cudaErrorLaunchFailure,
            "reads byte " + std::to_string(offset + n) + " of local memory, which the thread has not written");
    written[n] = 1;
  }
  return w.block->local(thread) + offset;
}

std::byte* access_parameters(Warp& w, const Instruction& i, int lane, uint64_t offset, uint64_t bytes, Use use) {
  const auto& parameters = w.block->launch().parameters;
  if (use != Use::read || offset > parameters.size() || bytes > parameters.size() - offset)
    fault(w, i, lane, cudaErrorIllegalAddress,
          bytes_text(bytes) + " at " + std::to_string(static_cast<int64_t>(offset)) +
              " of the parameters, which have " + std::to_string(parameters.size()));
  return const_cast<std::byte*>(parameters.data()) + offset;
}

}  // namespace

std::byte* access(Warp& w, const Instruction& i, int lane, Space space, uint64_t address, uint64_t bytes, Use use,
                  const std::byte* value) {
  if (space == Space::generic) {
    if (address - shared_window() < kWindowBytes)
      space = Space::shared, address -= shared_window();
    else if (address - local_window() < kWindowBytes)
      space = Space::local, address -= local_window();
    else
      space = Space::global;
  }
  if (address % bytes)
    fault(w, i, lane, cudaErrorMisalignedAddress,
          "accesses " + bytes_text(bytes) + " at an address that is not a multiple of it: " +
              (space == Space::global ? w.block->launch().memory->place_of(address) : std::to_string(address)));
  switch (space) {
    case Space::global:
    case Space::constant:
      return access_global(w, i, lane, address, bytes, use);
    case Space::shared:
      return access_shared(w, i, lane, address, bytes, use, value);
    case Space::local:
      return access_local(w, i, lane, address, bytes, use);
    case Space::param:
      return access_parameters(w, i, lane, address, bytes, use);
    case Space::generic:
      break;
  }
  fault(w, i, lane, cudaErrorIllegalAddress, "an address of no state space");
}

}  // namespace halfmark::kernels::software_gpu
