#include "bench/vectors/scalar_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "bench/vectors/csv.h"
#include "kernels/number/dtype.h"
#include "kernels/number/error.h"
#include "kernels/number/named.h"

namespace halfmark::bench {
namespace {

constexpr int kTf32Spare = 13;  // low bits of an f32 that tf32 does not use

void answer(Answers& answers, const Result& result, int digits) {
  answers.hex(result.code, digits);
  answers.text(",");
  answers.hex(result.flags, 0);
  answers.end_row();
}

}  // namespace

VectorType vector_type_named(std::string_view name) {
  std::vector<VectorType> types;
  for (const DType dtype : dtypes()) types.push_back({name_of(dtype), dtype, nullptr});
  types.push_back({kTf32.name, DType::f32, &kTf32});
  return named("type", types, name);
}

void answer_arithmetic(std::istream& in, std::ostream& out, const Format& format, ScalarOperation operation,
                       Rounding rounding) {
  const auto operands = static_cast<size_t>(operations()[static_cast<size_t>(operation)].operands);
  const int digits = (format.bits() + 3) / 4;
  const std::vector<std::string> names{"x", "y", "z"};
  CsvReader rows(in, {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(operands)});
  Answers answers(out);
  answers.text("result,flags\n");
  uint64_t codes[3] = {0, 0, 0};
  while (rows.next()) {
    for (size_t i = 0; i < operands; ++i) codes[i] = rows.hex(i, digits);
    answer(answers, compute(operation, format, codes[0], codes[1], codes[2], rounding), digits);
  }
  answers.finish();
}

void answer_convert(std::istream& in, std::ostream& out, const VectorType& from, const VectorType& to,
                    Rounding rounding, Overflow overflow, NoiseStream noise) {
  CsvReader rows(in, {"x"});
  Answers answers(out);
  answers.text("result,flags\n");
  const int digits = from.digits(), spare = digits * 4 - bits_of(from.dtype);
  for (uint64_t row = 0; rows.next(); ++row) {
    const uint64_t code = rows.hex(0, digits);
    if (spare && code >> bits_of(from.dtype))
      rows.fail(0, fmt::format("has more than the {} bits of {}", bits_of(from.dtype), from.name));
    if (from.computed && code & ((uint64_t{1} << kTf32Spare) - 1))
      rows.fail(0, "is not tf32: its low 13 bits are not zero");
    const uint64_t word = rounding == Rounding::stochastic ? rounding_noise(noise.seed, noise.first + row) : 0;
    // A tf32 number is an f32 number too, so only the way there needs the format.
    Result result =
        !to.computed ? convert_code(from.dtype, code, to.dtype, rounding, overflow, word)
        : is_floating(from.dtype)
            ? convert_code(format_of(from.dtype), code, kTf32, rounding, overflow, word)
            : convert_code(kFp64, encode(DType::f64, decode(from.dtype, code)), kTf32, rounding, overflow, word);
    if (to.computed) result.code <<= kTf32Spare;
    answer(answers, result, to.digits());
  }
  answers.finish();
}

void answer_quantize(std::istream& in, std::ostream& out, const Quantizer& quantizer, size_t depth, DType input,
                     std::optional<NoiseStream> noise) {
  CsvReader rows(in, {"x"});
  std::vector<float> values;
  while (rows.next()) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(rows.hex(0, 8)));
    if (!std::isnan(value) && decode(input, encode(input, value)) != value)
      rows.fail(0, fmt::format("is {:.9g}, which is not a number of {}", value, name_of(input)));
    values.push_back(value);
  }
  if (depth == 0) depth = std::max<size_t>(1, values.size());
  HM_CHECK(values.size() % depth == 0,
           fmt::format("--depth {}: {} elements do not fill whole rows", depth, values.size()));
  const Quantized found = quantize(quantizer, values, values.size() / depth, depth, input, noise);
  Answers answers(out);
  answers.text("code,decode,scale\n");
  for (size_t i = 0; i < values.size(); ++i) {
    const TileScale& tile = found.tiles[found.tile_of(i / depth, i % depth)];
    answers.hex(found.codes[i], 2), answers.text(","), answers.hex(std::bit_cast<uint32_t>(tile.decode), 8);
    answers.text(","), answers.hex(tile.code, 2), answers.end_row();
  }
  answers.finish();
}

}  // namespace halfmark::bench
