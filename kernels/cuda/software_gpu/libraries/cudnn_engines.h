// The engines that the stand-in of cuDNN's graph API offers. Their notes are those that cuDNN 9.19 gives for convolutions
// (H100, seen); the first ones in the list are those that a program must leave out.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/software_gpu/libraries/cudnn_formula.h"
#include "kernels/cuda/software_gpu/libraries/cudnn_problem.h"

namespace halfmark::kernels::software_gpu::cudnn {

struct Engine {
  int index;
  std::vector<cudnnBackendNumericalNote_t> notes;
  int64_t alignment;  // bytes, of all pointers
};
const Engine* find_engine(int index);
// How it computes this problem; nothing if it does not.
std::optional<Math> engine_math(const Engine& engine, const Problem& problem);
size_t engine_workspace(const Engine& engine, const Problem& problem);
std::vector<int> listed_engines(const Problem& problem, cudnnBackendHeurMode_t mode, int64_t alignment);
std::vector<int> formula_engines(const Formula& formula, int architecture);
std::vector<int> norm_engines();
std::vector<int> pool_engines(bool without_notes);  // channels last; with an engine that has no notes
std::vector<int> plain_pool_engines();
FormulaEngine formula_engine(int engine, const Formula& formula);  // faults: of those of attention and of fusion

}  // namespace halfmark::kernels::software_gpu::cudnn
