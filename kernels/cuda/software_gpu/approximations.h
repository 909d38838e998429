// The approximate instructions (`.approx`, `.full`) on f32. The PTX ISA states their largest errors; GPUs choose what they
// give within them. Here results are rounded correctly or, on request, err by as much as is allowed.
// In another process: HALFMARK_SOFTWARE_GPU_APPROXIMATE=above, below or scattered.
#pragma once

#include <cstdint>

namespace halfmark::kernels::software_gpu {

// The largest allowed value; the smallest; one of the two, drawn from the operands' bits, so that errors do not cancel.
enum class Approximation : uint8_t { nearest, above, below, scattered };

void set_approximation(Approximation choice);  // from now on

enum class Function : uint8_t { rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh };

double value_of(Function function, double x);  // as libm has it
float approximate(Function function, float x);
float approximate_quotient(float a, float b);       // div.approx
float approximate_full_quotient(float a, float b);  // div.full

}  // namespace halfmark::kernels::software_gpu
