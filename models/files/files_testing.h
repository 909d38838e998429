// Helpers of the tests of files: a folder of their own, what an Error says, and mutations.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/number/error.h"
#include "kernels/tensor/random.h"
#include "models/namespaces.h"
#include "reports/record/folder_testing.h"

namespace halfmark::models {

class FilesTest : public reports::FolderTest {
 protected:
  void write(const std::filesystem::path& name, const std::vector<uint8_t>& bytes) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
};

// What the Error of `work` says; empty: it threw none.
template <class Work>
std::string complaint(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A thousand seeded mutations of a valid file: bytes changed, cut off, repeated. `read` must return or throw Error with
// one line that is not empty. Reading beyond the bytes is seen by the sanitizers.
template <class Read>
void mutate(const std::vector<uint8_t>& valid, const Read& read) {
  read(valid);
  const RandomKey key(0x6D7574);
  int refused = 0;
  for (uint64_t n = 0; n < 1000; ++n) {
    const RandomKey own = key.child(n);
    std::vector<uint8_t> bytes = valid;
    uint64_t drawn = 0;
    const auto below = [&](uint64_t limit) { return own.below(drawn++, limit); };
    for (uint64_t i = 0, count = 1 + below(8); i < count && !bytes.empty(); ++i) switch (below(6)) {
        case 0:
          bytes.resize(below(bytes.size() + 1));
          break;
        case 1:
          bytes.insert(bytes.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(below(bytes.size())));
          break;
        case 2:  // the beginning has the header
          bytes[below(std::min<size_t>(bytes.size(), 64))] = static_cast<uint8_t>(below(256));
          break;
        default:
          bytes[below(bytes.size())] ^= static_cast<uint8_t>(1 + below(255));
      }
    bytes.shrink_to_fit();
    const std::string said = complaint([&] { read(bytes); });
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    refused += !said.empty();
  }
  EXPECT_GT(refused, 100) << "most mutations must be seen";
}

}  // namespace halfmark::models
