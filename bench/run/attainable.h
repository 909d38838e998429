// What a device attains on this machine, measured in the same run, and how near a training step comes to it (roofline:
// S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accuracy/accuracy.h"
#include "bench/namespaces.h"
#include "kernels/tensor/device.h"
#include "kernels/tensor/scaled.h"
#include "kernels/tensor/tensor.h"
#include "reports/record/report.h"

namespace halfmark::bench {

// Writes `pattern`, whole elements, over the memory of a tensor again and again; the last one may be cut.
void fill_repeatedly(Tensor& tensor, std::span<const unsigned char> pattern);

// [rows, k] of random numbers in a block format; after 16 rows they repeat. k must be a multiple of the block.
Scaled repeated_rows(Device& device, const BlockFormat& format, int64_t rows, int64_t k, uint64_t seed);

// A cast of f32 to f32, each of so many bytes: what a device reads and writes per second if it only copies. Of random
// numbers, not zeros: a GPU draws less power for zeros and then runs at a higher clock.
class LargeCopy {
 public:
  LargeCopy(Device& device, int64_t bytes);
  double bytes() const;  // read and written by a run
  void run();

 private:
  Tensor x_, out_;
};

// "attainable.copy": bytes read and written per second by a cast of f32 to f32 that is larger than the caches.
// "attainable.matmul.f32", ".tf32", ".f16", ".bf16", ".f64", ".f16-fp16-sums", ".fp8" (e4m3, fast accumulation), ".mxfp8",
// ".nvfp4", types of kernels/ops/product_work.h: FLOP/s of a square matmul; of codes, the second operand is transposed. The
// best of several runs each. Left out: what the device has no kernel for that computes in this type itself.
// Takes about a second. Empty for a simulated device, whose times are not valid.
std::vector<std::pair<std::string, double>> attainable_of(Device& device);

// The metrics below; the throughput harness measures roofline.bytes.
const std::vector<MetricRow>& roofline_table();

// The rates of each device, measured when they are first asked for.
class AttainableRates {
 public:
  using Rates = std::vector<std::pair<std::string, double>>;
  const Rates& of(Device& device);

 private:
  std::map<std::string, Rates> known_;  // by name of the device
};

// Adds the rates, roofline.share and roofline.intensity to a record of the throughput harness, from its time.step at "hot" and
// its products. Nothing if one of them is missing, or if a kernel emulates the arithmetic.
void add_roofline(Record& record, const AttainableRates::Rates& rates);

}  // namespace halfmark::bench
