// The row "fp16-fma": computes the same as the reference row for f16 operands and fp16 sums, with the same bits (except
// the sign of a NaN). Padding terms are left out; beta is applied after the sum, as one more step.
#include "kernels/cpu/half_fma.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/cpu/reference/operand.h"
#include "kernels/cpu/rows.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"

namespace halfmark::kernels::half_fma {
namespace {

constexpr size_t kRowsAtATime = 32;  // of the left operand, for one panel of columns that stays in the cache

Refusal refuses_types(const Tensor& a, const Tensor& b, const Math& math) {
  for (const Tensor* operand : {&a, &b})
    if (operand->dtype() != DType::f16) return "multiplies only f16, not " + std::string(name_of(operand->dtype()));
  if (!(math.accumulate == kFp16)) return "sums only in fp16, not " + std::string(math.accumulate.name);
  const Format& m = math.multiply;
  if (m.fraction_bits < kFp16.fraction_bits || m.exponent_bits < kFp16.exponent_bits || m == kFp64)
    return "multiplies fp16 as stored, not rounded to " + std::string(m.name);
  if (math.split_k != 1) return "sums one chain over k; split_k must be 1";
  if (engines().empty()) return "needs a processor with AVX2 and F16C";
  return {};
}

template <class Op>
Refusal refuses(const Device& device, const Op& op) {
  if (Refusal refusal = reference::refuses(device, op)) return refusal;
  const Contraction work(op);
  return refuses_types(*work.left, *work.right, work.math);
}

template <class Op>
void run(Device&, const Op& op) {
  const Contraction work(op);
  reference::settle(*work.out, *work.left);
  contract(work, engines().back());
}

template <class Op>
void add(KernelTable& table) {
  table.of<Op>().push_back({"fp16-fma", Speed::emulated, &refuses<Op>, &run<Op>, Repeats::by_construction});
}

// Memory aligned for the widest vector.
struct Free {
  void operator()(unsigned char* bytes) const { ::operator delete (bytes, std::align_val_t{64}); }
};
using Bytes = std::unique_ptr<unsigned char, Free>;
Bytes allocate(size_t bytes) {
  return Bytes(static_cast<unsigned char*>(::operator new (std::max<size_t>(bytes, 1), std::align_val_t{64})));
}

// The operand in the form the engine reads: each code in both halves of a word, or as fp32.
std::vector<uint32_t> words_of(const Tensor& tensor, bool codes) {
  const std::vector<unsigned char> bytes = tensor.codes();
  std::vector<uint32_t> words(bytes.size() / 2);
  parallel_for(static_cast<int64_t>(words.size()), reference::kGrain, [&](int64_t first, int64_t last) {
    const auto begin = static_cast<size_t>(first), count = static_cast<size_t>(last) - begin;
    if (!codes) return convert(DType::f16, bytes.data() + 2 * begin, DType::f32, words.data() + begin, count);
    for (size_t i = begin; i < begin + count; ++i) {
      uint16_t code = 0;
      std::memcpy(&code, &bytes[2 * i], 2);
      words[i] = code * 0x10001u;
    }
  });
  return words;
}

// All columns of a group, in panels [tile][depth][columns].
template <class Word>
void pack(const Contraction& work, int64_t group, const std::vector<uint32_t>& right, size_t width,
          unsigned char* panels) {
  const auto depth = static_cast<size_t>(work.depth), columns = static_cast<size_t>(work.columns);
  parallel_for(static_cast<int64_t>((columns + width - 1) / width), 1, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> index(depth);
    for (auto tile = static_cast<size_t>(begin); tile < static_cast<size_t>(end); ++tile) {
      Word* panel = reinterpret_cast<Word*>(panels) + tile * depth * width;
      for (size_t lane = 0; lane < width; ++lane) {
        const size_t column = tile * width + lane;
        if (column < columns) work.right_column(group, static_cast<int64_t>(column), index.data());
        for (size_t k = 0; k < depth; ++k)
          panel[k * width + lane] =
              column < columns ? static_cast<Word>(right[static_cast<size_t>(index[k])]) : Word{0};
      }
    }
  });
}

}  // namespace

std::span<const Engine> engines() {
  static const std::vector<Engine> list = [] {
    std::vector<Engine> all;
#if defined(__x86_64__)
    if (has_avx2_f16c()) all.push_back(kAvx2Engine);
    if (has_avx512()) all.push_back(kAvx512Engine);
    if (has_avx512_fp16()) all.push_back(kNativeEngine);
#endif
    return all;
  }();
  return list;
}

void contract(const Contraction& work, const Engine& engine) {
  const std::vector<uint32_t> left = words_of(*work.left, engine.codes), right = words_of(*work.right, engine.codes);
  Tensor& out = *work.out;
  std::vector<float> results(static_cast<size_t>(out.elements()));
  std::vector<double> before;
  if (work.beta != 0) before = reference::read<double>(out);
  const double beta = round_to(kFp16, work.beta);

  const auto depth = static_cast<size_t>(work.depth), columns = static_cast<size_t>(work.columns);
  const size_t tiles = (columns + engine.columns - 1) / engine.columns, word = engine.codes ? 2 : 4,
               panel_bytes = depth * engine.columns * word;
  const Bytes panels = allocate(tiles * panel_bytes);
  for (int64_t group = 0; group < work.groups; ++group) {
    if (engine.codes)
      pack<uint16_t>(work, group, right, engine.columns, panels.get());
    else
      pack<uint32_t>(work, group, right, engine.columns, panels.get());
    parallel_for(work.rows, kRowsAtATime, [&](int64_t begin, int64_t end) {
      // The rows in tiles [tile][depth][rows].
      const auto rows = static_cast<size_t>(end - begin);
      std::vector<uint32_t> chunk((rows + engine.rows - 1) / engine.rows * engine.rows * depth, kNone);
      std::vector<int64_t> index(depth);
      for (size_t r = 0; r < rows; ++r) {
        work.left_row(group, begin + static_cast<int64_t>(r), index.data());
        const size_t first = r / engine.rows * engine.rows * depth + r % engine.rows;
        for (size_t k = 0; k < depth; ++k)
          if (index[k] >= 0) chunk[first + k * engine.rows] = left[static_cast<size_t>(index[k])];
      }
      std::vector<float> sum(engine.rows * engine.columns);
      for (size_t tile = 0; tile < tiles; ++tile)
        for (size_t first = 0; first < rows; first += engine.rows) {
          engine.run(chunk.data() + first * depth, panels.get() + tile * panel_bytes, depth, sum.data());
          for (size_t r = first; r < std::min(first + engine.rows, rows); ++r)
            for (size_t c = tile * engine.columns; c < std::min((tile + 1) * engine.columns, columns); ++c) {
              const auto at =
                  static_cast<size_t>(work.out_index(group, begin + static_cast<int64_t>(r), static_cast<int64_t>(c)));
              const float value = sum[(r - first) * engine.columns + c - tile * engine.columns];
              results[at] =
                  work.beta == 0
                      ? value
                      : static_cast<float>(fused_multiply_add(kFp16, beta, round_to(kFp16, before[at]), value));
            }
        }
    });
  }
  reference::write(out, results);
}

}  // namespace halfmark::kernels::half_fma

namespace halfmark::kernels {

void add_half_fma_rows(KernelTable& table) {
  using namespace half_fma;
  add<Matmul>(table), add<Conv2d>(table), add<Conv2dBackwardData>(table), add<Conv2dBackwardWeights>(table);
}

}  // namespace halfmark::kernels
