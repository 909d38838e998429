// halfmark: what a number format costs and what it gains in deep learning.
#include "bench/program.h"

int main(int argc, char** argv) { return halfmark::bench::run_command_line(argc, argv, halfmark::bench::Program{}); }
