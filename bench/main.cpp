// halfmark: what a number format costs and what it gains in deep learning.
#include "bench/program.h"

// Left out with sanitizers: they are not initialised that early, and they do not work under a limit on memory anyway.
#if !HALFMARK_SANITIZED
[[gnu::used, gnu::section(".preinit_array")]] auto* run_before_libraries = &halfmark::bench::before_libraries;
#endif

int main(int argc, char** argv) { return halfmark::bench::run_command_line(argc, argv, halfmark::bench::Program{}); }
