// The explicit list of the reference rows.
#include "kernels/cpu/reference/operand.h"

namespace halfmark::kernels {

void add_reference_rows(KernelTable& table) {
  reference::add_contraction_rows(table), reference::add_fused_rows(table);
  reference::add_scaled_matmul_rows(table), reference::add_quantize_rows(table);
  reference::add_elementwise_rows(table);
  reference::add_norm_rows(table), reference::add_row_norm_rows(table);
  reference::add_pool_rows(table);
  reference::add_image_rows(table);
  reference::add_sequence_rows(table);
  reference::add_loss_rows(table), reference::add_element_loss_rows(table), reference::add_ctc_rows(table);
  reference::add_training_rows(table), reference::add_optimizer_rows(table);
}

}  // namespace halfmark::kernels
