// Cases of the dot products of matrix instructions: small integers, whose sums every instruction must compute exactly.
// The models in kernels/sim cover what the instructions do with other numbers.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/operands.h"

namespace halfmark::kernels::ops_cases {

template <>
void Cases<DotProducts>::each(const CaseRequest& request, const RunCase<DotProducts>& run_case) {
  const int64_t n = request.axes.dot_count;
  for (const DotTypes& types : request.axes.dots)
    for (const MatrixInstruction instruction : request.axes.instructions) {
      const int64_t k = request.axes.dot_depth ? request.axes.dot_depth : 2 * depth_of(instruction);
      if (types.block && k % types.block) continue;
      const auto operand = [&](DType dtype, uint64_t seed) {
        return random_tensor(request, {n, k}, dtype, Layout::plain, seed, Fill::integers);
      };
      const Tensor a = operand(types.a, 1), b = operand(types.b, 2);
      const Tensor c = random_tensor(request, {n}, types.c, Layout::plain, 3, Fill::integers);
      Tensor scale_a, scale_b;
      if (types.block) {
        // 2 and 1 alternately: the scaled sums stay integers.
        std::vector<double> two_one(static_cast<size_t>(n * k / types.block), 1.0);
        for (size_t i = 0; i < two_one.size(); i += 2) two_one[i] = 2;
        scale_a = Tensor::from(request.device, {n, k / types.block}, types.scale, two_one);
        scale_b =
            Tensor::from(request.device, {n, k / types.block}, types.scale, std::vector<double>(two_one.size(), 1));
      }
      Tensor out(request.device, {n}, types.out);
      const DotProducts op{
          .a = a, .b = b, .scale_a = scale_a, .scale_b = scale_b, .c = c, .out = out, .instruction = instruction};
      const std::string name = std::string(name_of(instruction)) + " " + dtypes_of(op);
      run_case(name, op, [&](CaseResult& result) {
        const std::vector<double> av = a.values(), bv = b.values(), cv = c.values();
        const std::vector<double> sa = types.block ? scale_a.values() : std::vector<double>();
        std::vector<double> expected = cv;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t l = 0; l < k; ++l) {
            const auto at = static_cast<size_t>(i * k + l);
            const double scale = types.block ? sa[at / static_cast<size_t>(types.block)] : 1;
            expected[static_cast<size_t>(i)] += scale * av[at] * bv[at];
          }
        result.expect_exact(out, expected);
      });
    }
}

}  // namespace halfmark::kernels::ops_cases
