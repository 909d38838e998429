#include "kernels/cuda/software_gpu/architectures.h"

#include <algorithm>

#include "kernels/number/error.h"

namespace halfmark::kernels::software_gpu {
namespace {

constexpr int kKiB = 1024;
constexpr ArchitectureRow kRows[] = {
    {75, 1024, 16, 64 * kKiB, 64 * kKiB},   {80, 2048, 32, 164 * kKiB, 163 * kKiB},
    {86, 1536, 16, 100 * kKiB, 99 * kKiB},  {89, 1536, 24, 100 * kKiB, 99 * kKiB},
    {90, 2048, 32, 228 * kKiB, 227 * kKiB}, {100, 2048, 32, 228 * kKiB, 227 * kKiB},
    {120, 1536, 24, 100 * kKiB, 99 * kKiB}, {121, 1536, 24, 100 * kKiB, 99 * kKiB},
};

int rank(char suffix) { return suffix == 'a' ? 2 : suffix == 'f' ? 1 : 0; }

}  // namespace

std::span<const ArchitectureRow> software_architectures() { return kRows; }

const ArchitectureRow* architecture_row(int capability) {
  for (const ArchitectureRow& row : kRows)
    if (row.capability == capability) return &row;
  return nullptr;
}

bool runs(int gpu, int capability, char suffix) {
  if (suffix == 'a') return gpu == capability;
  if (suffix == 'f') return gpu / 10 == capability / 10 && gpu >= capability;
  return gpu >= capability;
}

bool preferred(int capability, char suffix, int other_capability, char other_suffix) {
  return capability != other_capability ? capability > other_capability : rank(suffix) > rank(other_suffix);
}

std::vector<int> architectures_named(const std::string& text) {
  std::vector<int> found;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string name = text.substr(start, end - start);
    std::string known;
    int capability = 0;
    for (const ArchitectureRow& row : kRows) {
      const std::string sm = "sm_" + std::to_string(row.capability);
      known += (known.empty() ? "" : ", ") + sm;
      if (sm == name) capability = row.capability;
    }
    if (capability == 0) throw Error("the software GPU is no '" + name + "'; it can be " + known);
    found.push_back(capability);
    start = end + 1;
  }
  return found;
}

}  // namespace halfmark::kernels::software_gpu
