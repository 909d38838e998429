#include "kernels/cpu/blas_core.h"

#include <cblas.h>

#include "kernels/cpu/instruction_sets.h"

namespace halfmark::kernels {

std::string_view better_blas_core(std::string_view chosen, bool has_avx2_and_fma, bool has_avx512) {
  if (chosen != "Prescott") return {};
  if (has_avx512) return "SkylakeX";
  return has_avx2_and_fma ? "Haswell" : "";
}

std::string_view better_blas_core() {
  return better_blas_core(openblas_get_corename(), has_avx2_and_fma(), has_avx512());
}

}  // namespace halfmark::kernels
