// The sum of two branches and its norm in one kernel, where the rows fit registers.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/row_norm_packs.cuh"

namespace halfmark::kernels::cuda {
namespace {

template <class Wide, class T, class Left, class Right, class Out>
bool start_sum(cudaStream_t stream, uint32_t rows, const RowNormForm& s, const RowNormSumArrays& a, double epsilon) {
  if (!starts_pack(a.a.data) || !starts_pack(a.b.data) || !starts_pack(a.sum.data)) return false;
  const SummedRows<Wide, T, Left, Right> x{static_cast<const Left*>(a.a.data), static_cast<const Right*>(a.b.data),
                                           static_cast<T*>(a.sum.data)};
  return start_normalize_packs<Wide, Out>(stream, rows, s, x, a.norm, epsilon);
}

// A sum of f32 where a branch, or the result of the norm, or both, have 16 bits.
template <class Half>
bool start_mixed_sum(cudaStream_t stream, uint32_t rows, const RowNormForm& s, const RowNormSumArrays& a,
                     double epsilon) {
  constexpr DType kHalf = kDTypeOf<Half>;
  const bool narrow_branch = a.a.dtype == kHalf, narrow_result = a.norm.out.dtype == kHalf;
  if ((!narrow_branch && a.a.dtype != DType::f32) || (!narrow_result && a.norm.out.dtype != DType::f32)) return false;
  if (narrow_branch && narrow_result) return start_sum<float, float, Half, float, Half>(stream, rows, s, a, epsilon);
  if (narrow_branch) return start_sum<float, float, Half, float, float>(stream, rows, s, a, epsilon);
  return narrow_result && start_sum<float, float, float, float, Half>(stream, rows, s, a, epsilon);
}

}  // namespace

bool launch_add_normalize_rows(cudaStream_t stream, uint32_t rows, const RowNormForm& s, const RowNormSumArrays& given,
                               double epsilon) {
  RowNormSumArrays a = given;
  if (a.b.dtype != a.sum.dtype) std::swap(a.a, a.b);  // a sum does not depend on the order of two
  bool started = false;
  if (a.a.dtype == a.sum.dtype && a.norm.out.dtype == a.sum.dtype)
    with_access({a.sum.dtype}, {a.norm.scale.dtype, a.norm.shift.dtype, a.norm.mean.dtype, a.norm.inverse.dtype},
                [&](auto choice) {
                  using Wide = typename decltype(choice)::Wide;
                  using T = typename ElementOf<typename decltype(choice)::Access>::Type;
                  if constexpr (!std::is_void_v<T>) started = start_sum<Wide, T, T, T, T>(stream, rows, s, a, epsilon);
                });
  else if (a.sum.dtype == DType::f32)
    started = start_mixed_sum<__half>(stream, rows, s, a, epsilon) ||
              start_mixed_sum<__nv_bfloat16>(stream, rows, s, a, epsilon);
  if (started) launched("add_normalize_rows");
  return started;
}

}  // namespace halfmark::kernels::cuda
