// Private copies of the memory pages that hold the machine code of this process.
//
// The physical pages of a program's file are chosen when it is first read and then shared by all processes that run it.
// They can change the times of a case, presumably through cache sets and TLB entries; the size of the effect depends on
// the machine and the moment (scripts/placement.py). One of two copies of the same program is then slower in every pair
// of processes, and no number of pairs can reveal that this is chance. With private pages, every process gets a new
// random placement, and the effect becomes noise that the pairs measure.
#pragma once

#include <string>

namespace halfmark::bench {

// Copies the read-only segments (code, constants) of the program and of all loaded libraries page by page; addresses do
// not change. Call it before threads are created and before anything is timed: it takes 0.2 s for the 90 MB of oneDNN,
// OpenBLAS and halfmark.
// Returns the reason if it fails, else an empty string: a system may forbid writable code.
std::string use_private_code_pages();

}  // namespace halfmark::bench
