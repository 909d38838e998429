// In which order and with which roundings the stand-in of NCCL adds. From the source of NCCL 2.28 (src/device/all_reduce.h,
// runRing; src/device/reduce_kernel.h):
// - A ring passes partial sums on from rank to rank in the dtype of the buffer, so each addition is rounded to it: f16 and
//   bf16 by __hadd, FP8 by __hadd of f16 and a conversion that saturates.
// - The buffer is cut into a chunk for each rank. The sum of chunk c begins with rank c + 1, goes on in the ring and ends
//   with rank c, from where it is passed on unchanged.
// - An average multiplies each input by 1 / ranks, both in the dtype, before the sum.
// Assumed, where the real one decides by topology and size: one ring in the order of the ranks, and chunks of equal size,
// rounded up to 16 bytes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/software_gpu/devices.h"
#include "kernels/cuda/software_gpu/libraries/nccl_calls.h"
#include "kernels/cuda/software_gpu/libraries/planted_answers.h"
#include "kernels/cuda/software_gpu/nccl_functions.h"

namespace halfmark::kernels::software_gpu::nccl {
namespace {

bool is_fp8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }

// One result in the dtype. Of two numbers of 16 bits fp64 holds the sum, or so many digits that it rounds to the same.
double rounded(DType dtype, double x) {
  if (is_fp8(dtype))
    return decode(dtype, encode(dtype, round_to(kFp16, x), Rounding::near_even, nullptr, 0, Overflow::saturate));
  return dtype == DType::f64 ? x : decode(dtype, encode(dtype, x));
}

double combined(DType dtype, Op op, double a, double b) {
  switch (op) {
    case kSum:
    case kAvg:
      return rounded(dtype,
                     dtype == DType::f32 ? static_cast<double>(static_cast<float>(a) + static_cast<float>(b)) : a + b);
    case kProd:
      return rounded(dtype, a * b);
    case kMax:
      return std::fmax(a, b);
    case kMin:
      return std::fmin(a, b);
  }
  return 0;
}

// Of the first to the last of these values.
double in_a_chain(DType dtype, Op op, const std::vector<double>& values) {
  const bool keeps_fp32 = planted("nccl-keeps-fp32");
  const DType partial = keeps_fp32 && bits_of(dtype) < 32 ? DType::f32 : dtype;
  double sum = values[0];
  for (size_t i = 1; i < values.size(); ++i) sum = combined(partial, op, sum, values[i]);
  return partial == dtype ? sum : rounded(dtype, sum);
}

double in_halves(DType dtype, Op op, const std::vector<double>& values, size_t begin, size_t end) {
  if (end - begin == 1) return values[begin];
  const size_t middle = begin + (end - begin + 1) / 2;
  return combined(dtype, op, in_halves(dtype, op, values, begin, middle), in_halves(dtype, op, values, middle, end));
}

// Large numbers first, in fp64: exact for numbers of few digits that are not too far apart.
double at_once(DType dtype, std::vector<double> values) {
  std::sort(values.begin(), values.end(), [](double x, double y) { return std::fabs(x) > std::fabs(y); });
  double sum = values[0];
  for (size_t i = 1; i < values.size(); ++i) sum += values[i];
  return rounded(dtype, sum);
}

}  // namespace

std::vector<std::vector<std::byte>> all_reduced(const std::vector<std::vector<std::byte>>& inputs, DType dtype, Op op) {
  const size_t ranks = inputs.size(), count = inputs[0].size() / size_of(dtype);
  const size_t grain = 16 / size_of(dtype), chunk = ((count + ranks - 1) / ranks + grain - 1) / grain * grain;
  const bool is_tree = planted("nccl-tree"), is_at_once = planted("nccl-at-once");
  const double share = rounded(dtype, 1.0 / static_cast<double>(ranks));
  std::vector<std::byte> result(inputs[0].size());
  std::vector<double> values(ranks);
  for (size_t i = 0; i < count; ++i) {
    const size_t first = is_tree ? 0 : i / chunk + 1;
    for (size_t r = 0; r < ranks; ++r) {
      values[r] = load(dtype, inputs[(first + r) % ranks].data(), i);
      if (op == kAvg) values[r] = rounded(dtype, values[r] * share);
    }
    const double total = is_at_once ? at_once(dtype, values)
                         : is_tree  ? in_halves(dtype, op, values, 0, ranks)
                                    : in_a_chain(dtype, op, values);
    store(dtype, result.data(), i, total);
    // The NaN of instructions on numbers of up to 32 bits.
    if (std::isnan(total) && dtype != DType::f64) store_code(dtype, result.data(), i, format_of(dtype).all_ones_code());
  }
  std::vector<std::vector<std::byte>> all(ranks, result);
  const auto flip = [&](size_t rank) { all[rank].back() ^= std::byte{1}; };
  if (planted("nccl-other-bits")) flip(ranks - 1);
  static int runs = 0;
  if (planted("nccl-varies") && ++runs % 2 == 0)
    for (size_t r = 0; r < ranks; ++r) flip(r);
  return all;
}

// Each stream has two pieces of work: it gives its input, and takes its result once all have given theirs. So no result is
// there before all earlier work of all streams, and waiting for one stream does the work of the others up to there. If
// another rank has lost its work, the result never comes.
void enqueue_all_reduce(const std::vector<Call>& calls) {
  struct Exchange {
    std::vector<std::vector<std::byte>> inputs, results;
    std::vector<cudaStream_t> streams;
    std::vector<uint64_t> given;  // positions in the streams
    // That this rank can have its result. The work of the other devices goes on meanwhile, and their faults are theirs.
    bool is_complete() {
      for (size_t other = 0; other < streams.size(); ++other) {
        if (!inputs[other].empty()) continue;
        SoftwareDevice& device = devices()[static_cast<size_t>(streams[other]->device)];
        try {
          run_until(streams[other], given[other]);
        } catch (const Fault& fault) {
          device.fault = fault.code, device.fault_text = fault.what();
        }
        if (inputs[other].empty()) return false;
      }
      return !planted("nccl-async-error") && !nccl_never_ends();
    }
  };
  const auto exchange = std::make_shared<Exchange>();
  const DType dtype = std::find_if(std::begin(kFloats), std::end(kFloats), [&](const TypeRow& row) {
                        return row.type == calls[0].type;
                      })->dtype;
  const size_t bytes = bytes_for(dtype, calls[0].count);
  exchange->inputs.resize(calls.size());
  for (size_t r = 0; r < calls.size(); ++r) {
    const cudaStream_t stream = stream_of(calls[r].stream);
    const void* in = calls[r].in;
    enqueue(stream, [exchange, r, in, bytes] {
      const std::byte* host = check_access(in, bytes, Access::read);
      exchange->inputs[r].assign(host, host + bytes);
    });
    exchange->streams.push_back(stream);
    exchange->given.push_back(stream->enqueued);
  }
  for (size_t r = 0; r < calls.size(); ++r) {
    void* out = calls[r].out;
    const Op op = static_cast<Op>(calls[r].op);
    enqueue(exchange->streams[r], [exchange, r, rank = calls[r].rank, out, bytes, dtype, op] {
      if (is_aborted(rank) && !planted("nccl-never-ends")) return;
      if (!exchange->is_complete())
        throw StillWaits("ncclAllReduce: rank " + std::to_string(r) + " would wait for another rank for ever");
      if (exchange->results.empty()) exchange->results = all_reduced(exchange->inputs, dtype, op);
      std::byte* host = check_access(out, bytes, Access::write);
      std::copy(exchange->results[r].begin(), exchange->results[r].end(), host);
    });
  }
}

}  // namespace halfmark::kernels::software_gpu::nccl
