// halfmark dot: dot products of codes on the matrix instructions of a device, real or simulated.
#include <iostream>
#include <memory>
#include <string>

#include "bench/commands/commands.h"
#include "bench/vectors/dot_vectors.h"
#include "kernels/devices.h"
#include "kernels/number/error.h"

namespace halfmark::bench {

void add_dot_command(CommandLine& line, Program&) {
  struct Arguments {
    DotQuestion question{"", "", "f32", ""};
    std::string device, instruction;
  };
  auto arguments = std::make_shared<Arguments>();
  DotQuestion& question = arguments->question;
  Command command = line.add("dot", "dot products on a matrix instruction: CSV in, codes out");
  command.option("--device", arguments->device, "sim:hopper, cuda:0, ... (halfmark list)", kRequired);
  command.option("--instruction", arguments->instruction, "mma.m16n8k16, wgmma.k32, ... (default: the usual one)");
  command.option("--a", question.a, "type of a: f16 bf16 tf32 e4m3 e5m2 e2m1 f64", kRequired);
  command.option("--b", question.b, "type of b (default: that of a)");
  command.option("--c", question.c, "type of c: f32 (default), f16, f64");
  command.option("--d", question.d, "type of d (default: that of c)");
  command.option("--scale-type", question.scale_type, "ue8m0 or ue4m3, with columns scale_a and scale_b");
  command.option("--scale-block", question.scale_block, "elements that share a scale: 16 or 32");
  command.footer(
      "Standard input: a header line, then rows of hex codes without prefix in the columns a, b, c; a and b hold K "
      "codes\n"
      "in increasing k, each of fixed width (1 digit e2m1, 2 fp8, 4 f16 and bf16, 8 f32 and tf32).\n"
      "Standard output: column d. K may be any multiple of the instruction's K: d of one feeds c of the next.");
  command.examples({"halfmark dot --device sim:volta --a f16 < dot.csv",
                    "halfmark dot --device sim:hopper --instruction wgmma.k32 --a e4m3 --b e5m2 < dot_fp8.csv"});
  command.action([arguments] {
    DotQuestion asked = arguments->question;
    if (asked.b.empty()) asked.b = asked.a;
    if (asked.d.empty()) asked.d = asked.c;
    if (!arguments->instruction.empty()) asked.instruction = matrix_instruction_named(arguments->instruction);
    const auto device = open_device(arguments->device);
    std::ios::sync_with_stdio(false), std::cin.tie(nullptr);
    answer_dots(std::cin, std::cout, *device, asked);
  });
}

}  // namespace halfmark::bench
