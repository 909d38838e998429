// Planting a mistake in device code: an edit of its PTX, and what must catch it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <regex>
#include <string>

#include "kernels/cuda/software_gpu/images.h"

namespace halfmark::kernels::software_gpu {

// An edit of the PTX: in the first kernel whose name matches `kernel`, the n-th match of `pattern` (from 1).
struct Edit {
  const char* kernel;
  const char* pattern;
  const char* replacement;
  int match = 1;
};

inline std::string edited(const std::string& text, const Edit& edit, bool& done) {
  size_t start = text.find(".entry ");
  while (start != std::string::npos &&
         !std::regex_search(text.substr(start, text.find('(', start) - start), std::regex(edit.kernel)))
    start = text.find(".entry ", start + 1);
  if (start == std::string::npos) return text;  // another module
  const size_t end = std::min(text.find(".entry ", start + 1), text.size());
  const std::string kernel = text.substr(start, end - start);
  const std::regex pattern(edit.pattern);
  auto match = std::sregex_iterator(kernel.begin(), kernel.end(), pattern);
  for (int n = 1; n < edit.match && match != std::sregex_iterator(); ++n) ++match;
  if (match == std::sregex_iterator()) return text;
  done = true;
  return text.substr(0, start) + kernel.substr(0, static_cast<size_t>(match->position())) +
         match->format(edit.replacement) + kernel.substr(static_cast<size_t>(match->position() + match->length())) +
         text.substr(end);
}

struct KernelPlant {
  const char* what;
  std::string (*run)();
  Edit edit;
  const char* caught;  // part of the message, or kWrong
};

// What a run says: nothing if all is right.
inline std::string outcome(std::string (*run)()) {
  try {
    return run();
  } catch (const std::exception& error) {
    return error.what();
  }
}

inline void expect_caught(const KernelPlant& plant) {
  bool done = false;
  set_ptx_filter([&](const std::string& text) { return edited(text, plant.edit, done); });
  const std::string found = outcome(plant.run);
  EXPECT_TRUE(done) << plant.what << ": nothing in the kernel matches " << plant.edit.pattern;
  EXPECT_NE(found, "") << plant.what << ": not caught";
  EXPECT_NE(found.find(plant.caught), std::string::npos) << plant.what << ": " << found;
}

}  // namespace halfmark::kernels::software_gpu
