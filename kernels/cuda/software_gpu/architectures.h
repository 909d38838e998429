// The GPUs that the software GPU can be, and which PTX they run.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace halfmark::kernels::software_gpu {

// Sources: CUDA C++ Programming Guide 13.0, section "Compute Capabilities", tables "Feature Support per Compute
// Capability" and "Technical Specifications per Compute Capability".
struct ArchitectureRow {
  int capability;  // 90 for sm_90
  int threads_of_multiprocessor, blocks_of_multiprocessor;
  int shared_of_multiprocessor;  // bytes
  int shared_of_block;           // bytes, the most that cudaFuncSetAttribute allows
};
std::span<const ArchitectureRow> software_architectures();
// Of every software GPU. Blocks are distributed among them in turn, as far as %smid tells.
inline constexpr int kMultiprocessors = 4;
const ArchitectureRow* architecture_row(int capability);  // null: none

// Whether a GPU runs PTX of `.target sm_<capability><suffix>`. Without a suffix it runs on every newer GPU, with 'a'
// only on this one, with 'f' on those of the same family that are not older: equal capability / 10.
bool runs(int gpu, int capability, char suffix);

// Whether the first target is preferred, if a GPU runs both: the newer one, then 'a', then 'f'.
bool preferred(int capability, char suffix, int other_capability, char other_suffix);

// "sm_90,sm_75" -> 90, 75; throws Error naming the known ones.
std::vector<int> architectures_named(const std::string& text);

}  // namespace halfmark::kernels::software_gpu
