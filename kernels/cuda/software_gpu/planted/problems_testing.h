// Problems for the plugin's kernels with their results: each enqueues one and says what is wrong, or nothing.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/dot.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/software_gpu/ptx_testing.h"
#include "kernels/number/dtype.h"

namespace halfmark::kernels::software_gpu {

inline constexpr const char* kWrong = "wrong numbers";

template <class T>
T* fresh(size_t count) {  // memory that nothing has written
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
  return static_cast<T*>(memory);
}

// Waits, and compares. Empty if all is right.
template <class T>
inline std::string compared(const T* memory, const std::vector<T>& wanted) {
  std::vector<T> found(wanted.size());
  cudaError_t status = cudaDeviceSynchronize();
  if (status == cudaSuccess)
    status = cudaMemcpy(found.data(), memory, found.size() * sizeof(T), cudaMemcpyDeviceToHost);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return found == wanted ? "" : kWrong;
}

inline std::string transpose() {
  constexpr uint32_t kOuter = 2, kChannels = 37, kPixels = 45;
  std::vector<uint32_t> x(kOuter * kChannels * kPixels), wanted(x.size());
  for (uint32_t i = 0; i < x.size(); ++i) x[i] = i * 7 + 1;
  for (uint32_t n = 0; n < kOuter; ++n)
    for (uint32_t c = 0; c < kChannels; ++c)
      for (uint32_t p = 0; p < kPixels; ++p)
        wanted[(n * kPixels + p) * kChannels + c] = x[(n * kChannels + c) * kPixels + p];
  uint32_t* out = fresh<uint32_t>(x.size());
  cuda::launch_reorder(nullptr, kOuter, kChannels, kPixels, 4, true, on_device(x), out);
  return compared(out, wanted);
}

inline std::string sums() {  // of channels, channels last; enough of them for several blocks
  const cuda::Channels c{3, 40, 500, true};
  std::vector<float> dy(c.elements()), wanted(c.channels);
  for (size_t i = 0; i < dy.size(); ++i) {
    dy[i] = static_cast<float>(i * 5 % 17) - 8;
    wanted[i % c.channels] += dy[i];
  }
  float* out = fresh<float>(c.channels);
  float* scratch = fresh<float>(cuda::channel_scratch_elements(c));
  cuda::launch_bias_gradient(nullptr, c, false, scratch, {on_device(dy), DType::f32}, {out, DType::f32});
  return compared(out, wanted);
}

inline std::string matmul() {  // 1/3 is no f32, so that every sum is rounded
  constexpr uint32_t kM = 5, kN = 60, kK = 33;
  std::vector<float> a(kM * kK), b(kK * kN), wanted(kM * kN);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 11) / 3;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13) / 3 - 1;
  for (uint32_t i = 0; i < kM; ++i)
    for (uint32_t j = 0; j < kN; ++j)
      for (uint32_t k = 0; k < kK; ++k) wanted[i * kN + j] = std::fma(a[i * kK + k], b[k * kN + j], wanted[i * kN + j]);
  float* out = fresh<float>(wanted.size());
  cuda::launch_direct_matmul(nullptr, {kM, kN, kK, false, false, 0}, false, {on_device(a), DType::f32},
                             {on_device(b), DType::f32}, {out, DType::f32});
  return compared(out, wanted);
}

// Rows of equal numbers, of which every third is -infinity: what remains has equal probabilities.
inline std::string softmax_of(uint32_t width) {
  constexpr uint32_t kRows = 3;
  std::vector<float> x(kRows * width), wanted(x.size());
  const uint32_t remain = width - (width + 2) / 3;
  for (uint32_t i = 0; i < x.size(); ++i) {
    const bool out = i % width % 3 == 0;
    x[i] = out ? -INFINITY : 5, wanted[i] = out ? 0 : 1.0F / static_cast<float>(remain);
  }
  float* out = fresh<float>(x.size());
  cuda::launch_softmax(nullptr, kRows, {width, 0, false, false}, {on_device(x), DType::f32}, {out, DType::f32});
  return compared(out, wanted);
}
inline std::string softmax() { return softmax_of(201); }  // no whole accesses of 16 bytes: the loops of block.cuh
inline std::string softmax_in_registers() { return softmax_of(200); }

// Equal scores of 150 keys, more than a block takes at a time: the means of the values.
inline std::string attention() {
  constexpr uint32_t kQueries = 2, kKeys = 150, kFeatures = 5;
  std::vector<float> q(kQueries * kFeatures), k(kKeys * kFeatures, 1), v(k.size()), wanted(q.size());
  for (uint32_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 7), wanted[i % kFeatures] += v[i];
  for (uint32_t e = 0; e < kFeatures; ++e) wanted[e] /= kKeys, wanted[kFeatures + e] = wanted[e];
  float *out = fresh<float>(q.size()), *log_sum = fresh<float>(kQueries);
  cuda::launch_attention(nullptr, 1, {kQueries, kKeys, kFeatures, false, 1, {}}, false, {on_device(q), DType::f32},
                         {on_device(k), DType::f32}, {on_device(v), DType::f32}, {out, DType::f32},
                         {log_sum, DType::f32});
  return compared(out, wanted);
}

// Two parameters in one launch, each p - g / 2.
inline std::string sgd() {
  cuda::UpdateBatch batch;
  float* parameters[2];
  const uint32_t counts[2] = {5000, 77};
  for (const uint32_t count : counts) {
    std::vector<float> p(count), g(count, 4);
    for (uint32_t i = 0; i < count; ++i) p[i] = static_cast<float>(i);
    cuda::UpdatedArrays& one = batch.tensors[batch.count];
    one = {};
    one.parameter = parameters[batch.count] = on_device(p), one.gradient = on_device(g);
    one.parameter_dtype = one.gradient_dtype = DType::f32;
    one.elements = count, one.first_block = batch.count == 0 ? 0 : cuda::blocks_of_updates(counts[0]);
    ++batch.count;
  }
  const formulas::SgdConstants<float> constants{0.5F, 0, 1, 0, false};
  cuda::launch_sgd_step(nullptr, batch, {Storage::nearest, StepRounding::once, 0, nullptr}, &constants, nullptr);
  for (int which = 0; which < 2; ++which) {
    std::vector<float> wanted(counts[which]);
    for (uint32_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<float>(i) - 2;
    if (const std::string found = compared(parameters[which], wanted); !found.empty()) return found;
  }
  return "";
}

// Rows of cuda::kDotRows: 0 is mma.sync m16n8k16 of f16 to f32, 3 the wgmma of the same types.
inline std::string dot(size_t row) {
  constexpr uint32_t kN = 20, kK = 48;
  std::vector<uint16_t> a(kN * kK), b(kN * kK);
  std::vector<float> c(kN), wanted(kN);
  for (uint32_t i = 0; i < kN; ++i) {
    wanted[i] = c[i] = static_cast<float>(i);
    for (uint32_t k = 0; k < kK; ++k) {
      const double x = (i * 3 + k * k) % 7 - 3.0, y = (i + k * 5) % 9 - 4.0;
      a[i * kK + k] = static_cast<uint16_t>(encode(DType::f16, x)),
                 b[i * kK + k] = static_cast<uint16_t>(encode(DType::f16, y));
      wanted[i] += static_cast<float>(x * y);
    }
  }
  float* out = fresh<float>(kN);
  cuda::launch_dot(nullptr, row, {on_device(a), on_device(b), nullptr, nullptr, on_device(c), out, kN, kK, nullptr});
  return compared(out, wanted);
}
inline std::string dot_mma() { return dot(0); }
inline std::string dot_wgmma() { return dot(3); }

// The rows of tcgen05 with results in f32: small integers and scales, so that every sum is exact. Two blocks of threads, the
// second not full, and three instructions.
inline std::string dot_tcgen05(size_t number) {
  const cuda::DotRow& row = cuda::kDotRows.row[number];
  constexpr uint32_t kN = 150;
  const auto k = static_cast<uint32_t>(3 * cuda::dot_depth(row.instruction));
  const uint32_t blocks = row.block ? k / static_cast<uint32_t>(row.block) : 0;
  std::vector<unsigned char> a(bytes_for(row.a, kN * k)), b(a.size()), scale_a(kN * blocks), scale_b(kN * blocks);
  std::vector<float> c(kN), wanted(kN);
  const auto scale = [](uint32_t i, uint32_t block) { return std::exp2(static_cast<double>((i + block) % 4) - 1); };
  for (uint32_t i = 0; i < kN; ++i) {
    wanted[i] = c[i] = static_cast<float>(i);
    for (uint32_t block = 0; block < blocks; ++block) {
      scale_a[i * blocks + block] = static_cast<unsigned char>(encode(row.scale, scale(i, block)));
      scale_b[i * blocks + block] = static_cast<unsigned char>(encode(row.scale, scale(i * 3, block)));
    }
    for (uint32_t j = 0; j < k; ++j) {
      const double x = (i * 3 + j * j) % 7 - 3.0, y = (i + j * 5) % 9 - 4.0;
      store_code(row.a, a.data(), i * k + j, encode(row.a, x));
      store_code(row.b, b.data(), i * k + j, encode(row.b, y));
      const uint32_t block = row.block ? j / static_cast<uint32_t>(row.block) : 0;
      wanted[i] += static_cast<float>(x * y * (row.block ? scale(i, block) * scale(i * 3, block) : 1));
    }
  }
  float* out = fresh<float>(kN);
  const bool scaled = row.block != 0;
  cuda::launch_dot(nullptr, number,
                   {on_device(a), on_device(b), scaled ? on_device(scale_a) : nullptr,
                    scaled ? on_device(scale_b) : nullptr, on_device(c), out, kN, k, nullptr});
  return compared(out, wanted);
}
inline std::string dot_tcgen05_f16() { return dot_tcgen05(4); }
inline std::string dot_tcgen05_mx() { return dot_tcgen05(31); }
inline std::string dot_tcgen05_fp4() { return dot_tcgen05(65); }

}  // namespace halfmark::kernels::software_gpu
