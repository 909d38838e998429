// halfmark probe --all-reduce: how GPUs add across each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace halfmark::bench {

struct AllReduceArguments {
  std::string devices;             // "cuda:0,cuda:1", in the order of their ranks
  std::vector<std::string> types;  // dtypes; empty: the usual ones
  int64_t elements = 0;
  size_t replays = 0;
  bool json = false;   // instead of the text
  std::string output;  // a file that gets the JSON as well; empty: none
};

// Throws Error with one line for devices or types that cannot be used, Unsupported if no library adds across them.
void probe_all_reduce(const AllReduceArguments& arguments);

}  // namespace halfmark::bench
