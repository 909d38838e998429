// Rounding and conversion of arrays on every code path of this CPU, compared with memcpy of the
// same number of floats, the limit set by memory. Names:
// rounding/FORMAT/ROUNDING/PLACE/PATH/COUNT, convert/FROM->TO/PATH/COUNT, rounding/memcpy/COUNT.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "bench/micro/micro.h"
#include "kernels/number/convert.h"
#include "kernels/number/dtype.h"
#include "kernels/number/format.h"

namespace halfmark::bench::micro {
namespace {

using convert_detail::Path;

// Sizes for the first-level cache, the second-level cache and main memory.
constexpr size_t kCounts[] = {size_t{1} << 12, size_t{1} << 17, size_t{1} << 24};

// Two arrays for the largest size, aligned to pages like large allocations.
struct Arrays {
  static constexpr std::align_val_t kBorder{4096};
  struct Release {
    void operator()(void* memory) const { ::operator delete(memory, kBorder); }
  };
  using Memory = std::unique_ptr<void, Release>;

  static Memory make() { return Memory(::operator new(kCounts[2] * sizeof(double), kBorder)); }
  Memory source = make(), target = make();

  // Numbers that are normal in every format here, of both signs, with varied fraction bits.
  void fill_with_floats() const {
    auto* values = static_cast<float*>(source.get());
    for (uint32_t i = 0; i < kCounts[2]; ++i) {
      const uint32_t mixed = i * 2654435761u;  // Knuth's multiplier
      values[i] = std::bit_cast<float>((mixed & 0x807FFFFF) | (124 + (i & 7)) << 23);
    }
    std::memset(target.get(), 0, kCounts[2] * sizeof(float));
  }
};

const Arrays& arrays() {
  static const Arrays both;
  return both;
}

void measure(benchmark::State& state, size_t count, const std::function<void()>& work) {
  work();
  for (auto _ : state) {
    work();
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(count) * state.iterations());
}

void add(const std::string& name, size_t count, const std::function<void()>& work) {
  benchmark::RegisterBenchmark((name + "/" + std::to_string(count)).c_str(), [=](benchmark::State& state) {
    arrays().fill_with_floats();
    measure(state, count, work);
  })->UseRealTime();
}

void add_rounding(const Format& format, Rounding rounding, bool in_place, Path path, size_t count) {
  const std::string name = "rounding/" + std::string(format.name) + "/" + std::string(name_of(rounding)) +
                           (in_place ? "/in_place/" : "/out_of_place/") + std::string(name_of(path));
  add(name, count, [=] {
    auto* source = static_cast<float*>(arrays().source.get());
    auto* target = in_place ? source : static_cast<float*>(arrays().target.get());
    convert_detail::round_array(path, format, source, target, count, rounding, {.seed = 1});
  });
}

void add_conversion(DType from, DType to, Path path, size_t count) {
  const std::string name = "convert/" + std::string(name_of(from)) + "->" + std::string(name_of(to)) + "/";
  // Any bits are valid codes of `from`; codes of f64 are converted from floats.
  benchmark::RegisterBenchmark((name + std::string(name_of(path)) + "/" + std::to_string(count)).c_str(),
                               [=](benchmark::State& state) {
                                 arrays().fill_with_floats();
                                 const std::unique_ptr<unsigned char[]> codes(new unsigned char[count * size_of(from)]);
                                 convert(DType::f32, arrays().source.get(), from, codes.get(), count);
                                 measure(state, count, [&] {
                                   convert_detail::convert(path, from, codes.get(), to, arrays().target.get(), count);
                                 });
                               })
      ->UseRealTime();
}

}  // namespace

void register_rounding() {
  for (const size_t count : kCounts) {
    add("rounding/memcpy", count,
        [count] { std::memcpy(arrays().target.get(), arrays().source.get(), count * sizeof(float)); });
    for (const Path path : {Path::avx2, Path::avx512}) {
      if (!convert_detail::has(path)) continue;
      for (const Format& format : {kFp16, kBf16, kTf32, kE4m3, kE5m2})
        for (const Rounding rounding : {Rounding::near_even, Rounding::stochastic})
          for (const bool in_place : {true, false}) add_rounding(format, rounding, in_place, path, count);
      for (const DType narrow : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2}) {
        add_conversion(DType::f32, narrow, path, count);
        add_conversion(narrow, DType::f32, path, count);
        add_conversion(DType::f64, narrow, path, count);
      }
    }
  }
}

}  // namespace halfmark::bench::micro
