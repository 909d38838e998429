// Cases of convolutions with bias and ReLU. One rounding is allowed for each output: a row that stores the convolution in
// the dtype of the result before it adds the bias is beyond the bounds.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops/cases/contraction.h"
#include "kernels/ops/cases/convolution.h"

namespace halfmark::kernels::ops_cases {

template <>
void Cases<FusedConv2d>::each(const CaseRequest& request, const RunCase<FusedConv2d>& run_case) {
  size_t number = 0;
  each_convolution(request.axes, [&](const std::string& convolution, const ConvSize& size,
                                     const ContractionTypes& types, const ConvLayouts& layouts, Fill wanted) {
    // In turn, because the convolutions are many. Of the tested axes every type meets every form in every layout: a size
    // has 45 of them, the forms are four.
    const std::vector<FusedConvForm>& forms = request.axes.fused_convolutions;
    const FusedConvForm& form = forms[number++ % forms.size()];
    const Fill fill = meaningful_fill(wanted, types, size.w[1] * size.w[2] * size.w[3], request.strict);
    const Tensor x = random_tensor(request, size.x, types.a, layouts.image, 1, fill);
    const Tensor w = random_tensor(request, size.w, types.b, layouts.filter, 2, fill);
    const Tensor bias = form.bias ? random_tensor(request, {size.w[0]}, types.out, Layout::plain, 3, fill) : Tensor();
    Tensor out(request.device, result_shape(size), types.out, layouts.out);
    const FusedConv2d op{.x = x,
                         .w = w,
                         .bias = bias,
                         .out = out,
                         .relu = form.relu,
                         .window = size.window,
                         .groups = size.groups,
                         .math = types.math};
    const std::string name = convolution + (form.bias ? " bias" : "") + (form.relu ? " relu" : "");
    run_case(name, op, [&](CaseResult& result) {
      const std::vector<double> xv = as_multiplied(x, types.math), wv = as_multiplied(w, types.math);
      std::vector<Sum> sums(static_cast<size_t>(out.elements()));
      each_product(size, [&](size_t i, size_t j, size_t o) { sums[o].add(xv[i], wv[j]); });
      const std::vector<double> bv = form.bias ? bias.values() : std::vector<double>(static_cast<size_t>(size.w[0]));
      const Format& format = types.math.accumulate == kFp64 ? kFp64 : kFp32;  // of what follows the sums
      const size_t pixels = sums.size() / static_cast<size_t>(size.x[0] * size.w[0]);
      std::vector<double> expected, slack;
      for (size_t i = 0; i < sums.size(); ++i) {
        const double z = sums[i].value + bv[i / pixels % bv.size()], of_sum = slack_of(sums[i], types, request.strict);
        const bool exact = of_sum == 0 && round_to(format, z) == z;
        expected.push_back(form.relu && z < 0 ? 0 : z);
        slack.push_back(exact ? 0 : of_sum + gamma(1, format) * (std::fabs(z) + of_sum));
      }
      result.expect_close(out, expected, slack);
    });
  });
}

}  // namespace halfmark::kernels::ops_cases
