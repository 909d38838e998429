// Pages of its own for the machine code of this process.
//
// Where a program's file lies in memory is settled when it is first read, and is the same for every process that runs
// it from then on. It can move the times of a case, presumably through the sets of the caches and the entries of the
// TLB; by how much depends on the machine and the hour (scripts/placement.py). Of two copies of one program one is then
// the slower in every pair of processes, and no number of pairs shows that this is an accident. With pages of its own
// every process draws anew, and the accident is noise that the pairs measure.
#pragma once

#include <string>

namespace halfmark::bench {

// Copies the read-only segments (code, constants) of the program and of all libraries loaded by now, page by page, in
// place: addresses stay. To be called before there are threads, and before time is taken: 0.2 s for the 90 MB of
// oneDNN, OpenBLAS and ours.
// Returns why it could not be done, empty where it was: a system may forbid that code is ever writable.
std::string take_own_pages();

}  // namespace halfmark::bench
