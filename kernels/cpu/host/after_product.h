// Rows that run the device's own product or convolution with a result in fp32 (fp64 for f64), and then one loop over it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/cpu/host/host.h"

namespace halfmark::kernels::host {

inline DType sum_type(const Math& math) { return math.accumulate == kFp64 ? DType::f64 : DType::f32; }

// `emulated`: the row for products that are, and for dtypes that the loops widen.
template <bool emulated>
Refusal refuses_after_product(const auto& op) {
  if (Refusal refusal = refuses_dtypes({&op.out})) return refusal;
  Tensor wide(op.out.device(), op.out.shape(), sum_type(op.math), Layout::any);
  try {
    const bool is_emulated = chosen(op.product(wide)).speed == Speed::emulated;
    if (is_emulated && !emulated) return "the product is emulated";
  } catch (const Unsupported& reason) {
    return std::string("no row has the product: ") + reason.what();
  }
  Refusal widened;
  op.visit(WidenedVisitor{widened});
  return emulated ? Refusal() : widened;
}

// Of layout `any` the row of the product chooses one.
Tensor product_of(const auto& op, Layout layout = Layout::plain) {
  const PurposeScope scope(Purpose::workspace);
  Tensor wide(op.out.device(), op.out.shape(), sum_type(op.math), layout);
  run(op.product(wide));
  return wide;
}

template <class T>
void store_piece(Tensor& tensor, int64_t at_element, int64_t count, const T* values) {
  convert(kStored<T>, values, tensor.dtype(), at(tensor.data(), tensor.dtype(), at_element),
          static_cast<size_t>(count));
}

// A row of real speed only where a row of the product has it.
template <class Product, class Op>
void add_rows_after(KernelTable& table, std::string_view name, std::string_view emulated_name,
                    Refusal (*refuses)(const Device&, const Op&), Refusal (*refuses_emulated)(const Device&, const Op&),
                    void (*run)(Device&, const Op&)) {
  const auto& products = table.of<Product>();
  if (std::ranges::any_of(products, [](const Kernel<Product>& row) { return row.speed == Speed::real; }))
    table.of<Op>().push_back({name, Speed::real, refuses, run});
  table.of<Op>().push_back({emulated_name, Speed::emulated, refuses_emulated, run});
}

}  // namespace halfmark::kernels::host
