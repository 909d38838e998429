// halfmark: what a number format costs and what it gains in deep learning.
#include "bench/program.h"

// Sanitizers are not initialised that early; they do not work under such limits either.
#if !HALFMARK_SANITIZED
[[gnu::used, gnu::section(".preinit_array")]] auto* run_before_libraries = &halfmark::bench::before_libraries;
#endif

int main(int argc, char** argv) { return halfmark::bench::run_command_line(argc, argv, halfmark::bench::Program{}); }
