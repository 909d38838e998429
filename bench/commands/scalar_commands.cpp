// halfmark arithmetic, convert and quantize: operations on codes, for comparison with other implementations.
#include <fmt/format.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "bench/commands/commands.h"
#include "bench/vectors/scalar_vectors.h"
#include "kernels/number/error.h"

namespace halfmark::bench {
namespace {

struct VectorArguments {
  std::string format = "fp16", operation, from, to, rounding = "near_even", overflow;
  uint64_t seed = 0, first = 0;
};

// For millions of rows: no locking and no second buffer in the streams.
void prepare_streams() { std::ios::sync_with_stdio(false), std::cin.tie(nullptr); }

}  // namespace

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
  command.examples({"halfmark arithmetic --format fp16 --operation mulAdd < scalar.csv",
                    "halfmark arithmetic --format bf16 --operation add --rounding toward_zero < scalar.csv"});
  command.action([arguments] {
    const Format& format = format_named(arguments->format);
    const ScalarOperation operation = operation_named(arguments->operation).operation;
    const Rounding rounding = rounding_named(arguments->rounding);
    if (format.bits() > 16 || format.is_scale())
      throw Error(
          fmt::format("--format {}: arithmetic is for fp16, bf16 and narrower formats with a sign", format.name));
    if (rounding == Rounding::stochastic)
      throw Error("--rounding stochastic: not supported here; use near_even, toward_zero or near_away");
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
  command.option("--seed", arguments->seed,
                 "noise seed of stochastic rounding: that of the cast to repeat (default 0)");
  command.option("--first", arguments->first, "element of that cast that the first row corresponds to (default 0)");
  command.footer(
      "Standard input: a header line, then rows of hex codes in the column x.\n"
      "Standard output: result,flags as in halfmark arithmetic.\n"
      "Stochastic rounding repeats a kernel's: row i has the bits of element FIRST + i of a tensor that the operation\n"
      "cast rounds with that seed, counted in the tensor's logical (plain) order.");
  command.examples({"halfmark convert --from f16 --to e4m3 < scalar.csv",
                    "halfmark convert --from f16 --to e4m3 --overflow saturate < scalar.csv"});
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
    answer_convert(std::cin, std::cout, from, to, rounding, overflow,
                   {.seed = arguments->seed, .first = arguments->first});
  });
}

void add_quantize_command(CommandLine& line, Program&) {
  struct Arguments {
    std::string rule, input = "f32";
    uint64_t depth = 0, seed = 0;
    bool is_stochastic = false;
  };
  auto arguments = std::make_shared<Arguments>();
  Command command = line.add("quantize", "a matrix to codes and scales as a training recipe does: CSV in, CSV out");
  command.option("--rule", arguments->rule, "te-mxfp8-e4m3, ...: halfmark list quantizers", kRequired);
  command.option("--depth", arguments->depth, "elements of a row, over which products are summed (default: all)",
                 kPositive);
  command.option("--input", arguments->input, "dtype of the tensor before: f32 (default), bf16, f16");
  command.flag("--stochastic", arguments->is_stochastic, "round to e2m1 stochastically, with 8 bits of noise");
  command.option("--seed", arguments->seed, "of the noise (default 0)");
  command.footer(
      "Standard input: a header line, then the elements row by row as hex codes of f32 in the column x.\n"
      "Standard output: code,decode,scale. An element is code * decode; scale is the code of decode where a recipe\n"
      "stores it in 8 bits. NVFP4: times the largest magnitude of the matrix / 2688. A NaN becomes 7f in e4m3 and 7e "
      "in\n"
      "e5m2, with its sign; e2m1 has no NaN: it becomes the largest number, 07.");
  command.examples({"halfmark quantize --rule te-mxfp8-e4m3 --depth 64 < matrix.csv",
                    "halfmark quantize --rule te-nvfp4 --depth 64 --stochastic < matrix.csv"});
  command.action([arguments] {
    const Quantizer& quantizer = quantizer_named(arguments->rule);
    const DType input = dtype_named(arguments->input);
    HM_CHECK(input == DType::f32 || input == DType::bf16 || input == DType::f16,
             fmt::format("--input {}: a tensor is in f32, bf16 or f16 before it is quantized", arguments->input));
    HM_CHECK(arguments->is_stochastic || arguments->seed == 0,
             fmt::format("--seed {}: only with --stochastic", arguments->seed));
    std::optional<NoiseStream> noise;
    if (arguments->is_stochastic) noise = NoiseStream{.seed = arguments->seed, .first = 0};
    prepare_streams();
    answer_quantize(std::cin, std::cout, quantizer, arguments->depth, input, noise);
  });
}

}  // namespace halfmark::bench
