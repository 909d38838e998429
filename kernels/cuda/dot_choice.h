// Which matrix instruction a GPU uses for dot products of given types, or why none. Does not depend on CUDA, so that
// the choice of every GPU can be tested on any machine.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda/dot_table.h"

namespace halfmark::kernels::cuda {

struct DotTypes {
  DType a, b, c, out;
  int block = 0;  // elements that share a scale; 0: not scaled
  DType scale = DType::e8m0;
};

struct DotGpu {
  int capability;              // 90 for sm_90
  DotImage image;              // what the code that runs there was compiled for
  std::string_view built_for;  // all architectures in this build: "sm_80, sm_90a"
};

struct DotChoice {
  const DotRow* row = nullptr;
  std::string refusal;  // if there is no row
};
DotChoice choose_dot(const DotGpu& gpu, MatrixInstruction instruction, const DotTypes& types);

}  // namespace halfmark::kernels::cuda
