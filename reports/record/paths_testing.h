// Folders that tests read and write. Functions and not macros: objects of tests are then the same in every build folder, and a
// compiler cache finds them.
#pragma once

#include <string>

namespace halfmark::test_folders {

std::string source();  // the source tree
std::string binary();  // the build folder
std::string data();    // outputs of real GPUs: the environment's HALFMARK_DATA, else CMake's; may be absent

}  // namespace halfmark::test_folders
