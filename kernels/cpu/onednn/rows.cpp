// The operations that oneDNN provides for the CPU.
#include "kernels/cpu/onednn/rows.h"

#include "kernels/cpu/rows.h"

namespace halfmark::kernels {

void add_onednn_rows(KernelTable& table) {
  onednn::add_contractions(table);
  onednn::add_batch_norms(table);
  onednn::add_elementwise(table);
  onednn::add_poolings(table);
}

}  // namespace halfmark::kernels
