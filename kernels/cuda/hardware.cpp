#include "kernels/cuda/hardware.h"

namespace halfmark::kernels::cuda {

std::string hardware_numerics() { return {}; }

}  // namespace halfmark::kernels::cuda
