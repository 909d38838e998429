// Simulated tensor cores and fp16 chains at 1024^3, by code path of the CPU, with one thread and with all threads,
// compared with an sgemm of the same size: the cost of bit-exact simulation. Packing is included.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/micro/micro.h"
#include "kernels/cpu/half_fma.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"
#include "kernels/sim/dot_matrix.h"
#include "kernels/tensor/random.h"

namespace halfmark::bench::micro {
namespace {

constexpr int64_t kSize = 1024;
constexpr size_t kCount = size_t{kSize} * kSize;

struct Case {
  std::string_view name, architecture;
  MatrixInstruction instruction;
  Format operands, result;
};
const Case kCases[] = {
    {"hopper/f16-f32", "hopper", MatrixInstruction::usual, kFp16, kFp32},
    {"hopper/f16-f16", "hopper", MatrixInstruction::usual, kFp16, kFp16},
    {"ampere/f16-f32", "ampere", MatrixInstruction::usual, kFp16, kFp32},
    {"ampere/f16-f16", "ampere", MatrixInstruction::usual, kFp16, kFp16},
    {"volta/f16-f32", "volta", MatrixInstruction::usual, kFp16, kFp32},
    {"volta/f16-f16", "volta", MatrixInstruction::usual, kFp16, kFp16},
    {"hopper/bf16-f32", "hopper", MatrixInstruction::usual, kBf16, kFp32},
    {"hopper/tf32-f32", "hopper", MatrixInstruction::usual, kTf32, kFp32},
    {"hopper/e4m3-f32", "hopper", MatrixInstruction::wgmma_k32, kE4m3, kFp32},
};

std::vector<unsigned char> normal_codes(const Format& format, uint64_t seed) {
  const size_t size = size_of_operand(format);
  std::vector<unsigned char> bytes(kCount * size);
  const RandomKey key(seed);
  const DType dtype = format == kFp16   ? DType::f16
                      : format == kBf16 ? DType::bf16
                      : format == kE4m3 ? DType::e4m3
                                        : DType::f32;
  for (size_t i = 0; i < kCount; ++i) {
    const uint64_t code = encode(dtype, key.normal(i));
    std::memcpy(&bytes[i * size], &code, size);
  }
  return bytes;
}

// Sets the number of threads, and restores the previous number at the end.
template <class Work>
void measure(benchmark::State& state, int threads, Work work) {
  const int before = host_threads();
  set_host_threads(threads);
  work();
  for (auto _ : state) work();
  set_host_threads(before);
  state.counters["FLOP/s"] =
      benchmark::Counter(2.0 * kSize * kSize * kSize, benchmark::Counter::kIsIterationInvariantRate);
}

void simulated(benchmark::State& state, const Case& row, DotPath path, int threads) {
  const TensorCore* core = find_core(tensor_cores(), row.architecture, row.instruction,
                                     {row.operands, row.operands, row.result, row.result});
  HM_CHECK(core, "no row for " + std::string(row.name));
  const std::vector<unsigned char> a = normal_codes(row.operands, 1), b = normal_codes(row.operands, 2);
  std::vector<uint32_t> d(kCount);
  measure(state, threads, [&] {
    std::fill(d.begin(), d.end(), 0);
    dot_matrix(path, *core, {row.operands, a.data(), kSize, kSize, kSize},
               {row.operands, b.data(), kSize, kSize, kSize}, d.data());
  });
}

Tensor operand(Device& device, DType dtype, uint64_t seed) {
  const RandomKey key(seed);
  std::vector<double> values(kCount);
  for (size_t i = 0; i < kCount; ++i) values[i] = key.normal(i);
  return Tensor::from(device, {kSize, kSize}, dtype, values);
}

void fp16_fma(benchmark::State& state, const half_fma::Engine& engine, int threads) {
  const auto device = open_device("cpu");
  const Tensor a = operand(*device, DType::f16, 1), b = operand(*device, DType::f16, 2);
  Tensor out(*device, {kSize, kSize}, DType::f16);
  const Contraction work(
      Matmul{.a = a, .b = b, .out = out, .math = {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}});
  out.fill(0);
  measure(state, threads, [&] { half_fma::contract(work, engine); });
}

void sgemm(benchmark::State& state, int threads) {
  set_host_threads(threads);
  const auto device = open_device("cpu");
  const Tensor a = operand(*device, DType::f32, 1), b = operand(*device, DType::f32, 2);
  Tensor out(*device, {kSize, kSize}, DType::f32);
  measure(state, threads, [&] { run(Matmul{.a = a, .b = b, .out = out}); });
}

}  // namespace

void register_tensor_cores() {
  const int all = host_threads();
  for (const int threads : {1, all}) {
    const std::string end = "/threads:" + std::to_string(threads);
    const auto add = [&](const std::string& name, auto body) {
      benchmark::RegisterBenchmark(("tensor-core/" + name + end).c_str(), std::move(body))
          ->UseRealTime()
          ->MeasureProcessCPUTime();
    };
    for (const Case& row : kCases)
      for (const DotPath path : dot_paths())
        if (path != DotPath::scalar)  // would take minutes
          add(std::string(row.name) + "/" + std::string(name_of(path)),
              [&row, path, threads](benchmark::State& s) { simulated(s, row, path, threads); });
    for (const half_fma::Engine& engine : half_fma::engines())
      add("fp16-fma/" + std::string(engine.name),
          [&engine, threads](benchmark::State& s) { fp16_fma(s, engine, threads); });
    add("sgemm", [threads](benchmark::State& s) { sgemm(s, threads); });
    if (all == 1) break;
  }
}

}  // namespace halfmark::bench::micro
