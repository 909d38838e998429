// Compares the kernel's account of this process's mappings before and after the copy.
#include "bench/ab/private_code_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace halfmark::bench {
namespace {

struct Mapping {
  std::string rights;         // "r-xp"
  size_t bytes = 0, own = 0;  // own: bytes in private pages, without a file behind them
};

// Parses an entry of /proc/self/smaps (proc(5)): a line "begin-end rights ...", then lines "Name:  number kB".
Mapping mapping_of(const void* address) {
  std::ifstream file("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  Mapping found;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (const size_t dash = first.find('-'); dash != std::string::npos && first.back() != ':') {
      const uintptr_t begin = std::stoull(first.substr(0, dash), nullptr, 16);
      const uintptr_t end = std::stoull(first.substr(dash + 1), nullptr, 16);
      inside = begin <= wanted && wanted < end;
      if (inside) found = {second, end - begin};
    } else if (inside && first == "Anonymous:") {
      found.own = std::stoul(second) * 1024;
    }
  }
  return found;
}

constexpr int kConstants[4096] = {1, 2, 3};

TEST(PrivateCodePages, CoverAllCodeAndConstantsAndLeaveNeitherWritable) {
  const auto* const code = reinterpret_cast<const void*>(&use_private_code_pages);
  ASSERT_EQ(mapping_of(code).own, 0u) << "before the copy: pages of the file, shared by all processes";
  const std::string why = use_private_code_pages();
  if (!why.empty()) GTEST_SKIP() << why;
  const Mapping of_code = mapping_of(code), of_constants = mapping_of(&kConstants[1000]);
  EXPECT_EQ(of_code.rights, "r-xp");
  EXPECT_EQ(of_code.own, of_code.bytes);
  EXPECT_EQ(of_constants.rights, "r--p");
  EXPECT_EQ(of_constants.own, of_constants.bytes);
  EXPECT_EQ(kConstants[1], 2);
}

}  // namespace
}  // namespace halfmark::bench
