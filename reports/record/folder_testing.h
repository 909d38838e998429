// Helpers for tests of files and of their readers.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "reports/record/temporary_folder.h"

#define EXPECT_SAYS(message, part) EXPECT_PRED_FORMAT2(testing::IsSubstring, part, std::string(message))

namespace halfmark::reports {

// A test with its own temporary folder.
class FolderTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_{"test"};
  const std::filesystem::path& folder_ = temporary_.path();
};

// The message of the ReportError that `action` must throw: one line.
template <class Action>
std::string complaint(Action action) {
  try {
    action();
  } catch (const ReportError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message;
  }
  ADD_FAILURE() << "no ReportError";
  return {};
}

}  // namespace halfmark::reports
