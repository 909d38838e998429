// halfmark arithmetic and halfmark convert: what an operation answers, for comparison with other implementations.
#include "bench/vector_commands.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "bench/commands.h"
#include "bench/csv.h"
#include "kernels/number/error.h"
#include "kernels/tensor/random.h"

namespace halfmark {
namespace {

constexpr int kTf32Spare = 13;  // low bits of an f32 that tf32 has no use for

void answer(Answers& answers, const Result& result, int digits) {
  answers.hex(result.code, digits);
  answers.text(",");
  answers.hex(result.flags, 0);
  answers.end_row();
}

struct VectorArguments {
  std::string format = "fp16", operation, from, to, rounding = "near_even", overflow;
  uint64_t seed = 0;
};

// Rows come by the million: no locking, no second buffer between us and the stream.
void prepare_streams() { std::ios::sync_with_stdio(false), std::cin.tie(nullptr); }

}  // namespace

VectorType vector_type_named(std::string_view name) {
  if (name == kTf32.name) return {kTf32.name, DType::f32, &kTf32};
  std::string known;
  for (const DType dtype : dtypes()) {
    if (name_of(dtype) == name) return {name_of(dtype), dtype, nullptr};
    known += std::string(name_of(dtype)) + ", ";
  }
  throw Error(fmt::format("unknown type '{}'; known: {}{}", name, known, kTf32.name));
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
                    Rounding rounding, Overflow overflow, uint64_t seed) {
  CsvReader rows(in, {"x"});
  Answers answers(out);
  answers.text("result,flags\n");
  const RandomKey key(seed);
  const int digits = from.digits(), spare = digits * 4 - bits_of(from.dtype);
  for (uint64_t row = 0; rows.next(); ++row) {
    const uint64_t code = rows.hex(0, digits);
    if (spare && code >> bits_of(from.dtype))
      rows.fail(0, fmt::format("has more than the {} bits of {}", bits_of(from.dtype), from.name));
    if (from.computed && code & ((uint64_t{1} << kTf32Spare) - 1))
      rows.fail(0, "is not tf32: its low 13 bits are not zero");
    const uint64_t noise = rounding == Rounding::stochastic ? key.bits(row) : 0;
    // A tf32 number is an f32 number too, so only the way there needs the format.
    Result result =
        !to.computed ? convert_code(from.dtype, code, to.dtype, rounding, overflow, noise)
        : is_floating(from.dtype)
            ? convert_code(format_of(from.dtype), code, kTf32, rounding, overflow, noise)
            : convert_code(kFp64, encode(DType::f64, decode(from.dtype, code)), kTf32, rounding, overflow, noise);
    if (to.computed) result.code <<= kTf32Spare;
    answer(answers, result, to.digits());
  }
  answers.finish();
}

void add_arithmetic_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<VectorArguments>();
  Command command = line.add("arithmetic", "scalar operations on codes: CSV in, result and flags out");
  command.option("--format", arguments->format, "fp16 (default) or bf16, and any other of at most 16 bits");
  command.option("--operation", arguments->operation, "add, sub, mul, div, mulAdd, sqrt", kRequired);
  command.option("--rounding", arguments->rounding, "near_even (default), toward_zero");
  command.footer(
      "Standard input: a header line, then rows of hex codes in the columns x, y, z that the operation has.\n"
      "Standard output: result,flags; flags are the sum in hex of 1 inexact, 2 underflow, 4 overflow,\n"
      "8 divide by zero, 10 invalid. mulAdd is x * y + z with one rounding.");
  command.action([arguments] {
    const Format& format = format_named(arguments->format);
    const ScalarOperation operation = operation_named(arguments->operation).operation;
    const Rounding rounding = rounding_named(arguments->rounding);
    if (format.bits() > 16 || format.is_scale())
      throw Error(
          fmt::format("--format {}: arithmetic is for fp16, bf16 and narrower formats with a sign", format.name));
    if (rounding == Rounding::stochastic) throw Error("--rounding stochastic: arithmetic takes the others");
    prepare_streams();
    answer_arithmetic(std::cin, std::cout, format, operation, rounding);
  });
}

void add_convert_command(CommandLine& line, Program&) {
  auto arguments = std::make_shared<VectorArguments>();
  Command command = line.add("convert", "codes of one type to another: CSV in, result and flags out");
  command.option("--from", arguments->from, "f32, e4m3, ...: every dtype, and tf32 (8 hex digits)", kRequired);
  command.option("--to", arguments->to, "the same", kRequired);
  command.option("--rounding", arguments->rounding, "near_even (default), toward_zero, near_away, stochastic");
  command.option("--overflow", arguments->overflow, "infinity, nan or saturate (default: the format's own)");
  command.option("--seed", arguments->seed, "of stochastic rounding");
  command.footer(
      "Standard input: a header line, then rows of hex codes in the column x.\n"
      "Standard output: result,flags as in halfmark arithmetic.");
  command.action([arguments] {
    const VectorType from = vector_type_named(arguments->from), to = vector_type_named(arguments->to);
    const Rounding rounding = rounding_named(arguments->rounding);
    const Overflow overflow =
        arguments->overflow.empty() ? Overflow::format_default : overflow_named(arguments->overflow);
    if (is_floating(to.dtype))
      require_possible(to.computed ? *to.computed : format_of(to.dtype), overflow);
    else if (overflow == Overflow::infinity || overflow == Overflow::nan)
      throw Error(fmt::format("overflow rule '{}': {} has no infinity and no NaN; possible: saturate",
                              name_of(overflow), to.name));
    prepare_streams();
    answer_convert(std::cin, std::cout, from, to, rounding, overflow, arguments->seed);
  });
}

}  // namespace halfmark
